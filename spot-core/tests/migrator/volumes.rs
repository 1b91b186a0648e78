//! Where pods and their volumes can go, and when volumes are free to go.

use std::sync::Arc;

use spot_core::capacity::Class;
use spot_core::migrator::Settings as Migration;
use spot_core::model::{Allowance, FactRecord, NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::placement::{Demand, Term, Terms};
use spot_core::ports::{Edit, Instant};
use spot_core::progress::{Outcome, OutcomeKind};
use spot_core::reason::ReasonKind;
use spot_core::selector::{Operator, Requirement};
use spot_core::volume::Reach;

use super::*;

const ZONE: &str = "topology.kubernetes.io/zone";

fn zone(zone: &str) -> Reach {
    let demand = Demand::Label(Requirement::new(ZONE, Operator::In, [zone]));
    Reach::Nodes(Arc::new(Terms::new([Term::new([demand])])))
}

fn node(class: Class, zone: &str) -> NodeSpec {
    NodeSpec::new(class).label(ZONE, zone)
}

fn database(reach: Reach, detach: u64) -> WorkloadSpec {
    WorkloadSpec::stateful_set("db", 1).volume(reach, Duration::from_secs(detach))
}

/// One run, with all that it told.
fn told(model: &Model, settings: &Migration) -> (Report, Vec<Progress>) {
    let notes = Notes::default();
    let migrator = Migrator::new(model.process().ports_alone(Arc::new(notes.clone())), settings.clone());
    let stop = Stop::default();
    let report = model::block_on(model, async { migrator.once(&stop).await });
    (report.expect("it ends").expect("the run can be made"), notes.all())
}

fn first(model: &Model, matches: impl Fn(&Call) -> bool) -> Option<Instant> {
    model.with(|world| world.calls().iter().find(|record| matches(&record.call)).map(|record| record.sent))
}

fn gone(model: &Model, name: &str) -> Instant {
    let is_it = |record: &&FactRecord| match &record.fact {
        Fact::PodGone { pod, .. } => &*pod.name == name,
        _other => false,
    };
    model.with(|world| world.facts().iter().find(is_it).expect("it went").at)
}

fn problems(told: &[Progress]) -> Vec<String> {
    let what = |event: &Progress| match event {
        Progress::Problem { what, .. } => Some(what.clone()),
        _other => None,
    };
    told.iter().filter_map(what).collect()
}

#[test]
fn rb_42_volumes_of_drained_pods_are_detached_before_the_machine_goes() {
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(database(Reach::Anywhere, 40)).build();
    let (report, told) = told(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::AllSpot, "{report:?}");
    assert_eq!(names(&report.retired), ["od-1"]);
    let waited = first(&model, is_taint).expect("it was tainted").since(gone(&model, "db-0"));
    assert!((40..42).contains(&waited.as_secs()), "{waited:?} after the pod was gone");
    assert_eq!(problems(&told), [""; 0]);
    model.with(|world| {
        let pod = world.pod_named("default", "db-0").unwrap();
        assert!(pod.ready && pod.node.as_deref() != Some("od-1"), "it runs elsewhere, with its volume");
    });
    assert_clean(&model);
}

#[test]
fn rb_42_the_wait_for_volumes_asks_for_nothing() {
    let calls_with = |detach| {
        let model = WorldBuilder::default().on_demand(1).spot(1).workload(database(Reach::Anywhere, detach)).build();
        assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::AllSpot);
        model.with(|world| world.calls().len())
    };
    assert_eq!(calls_with(300), calls_with(0));
}

#[test]
fn rb_42_a_volume_that_does_not_go_holds_the_node_for_no_longer_than_kubernetes_itself_waits() {
    for (timeout, longest) in [(60 * MINUTE, 6 * MINUTE), (3 * MINUTE, 3 * MINUTE)] {
        let model = WorldBuilder::default().on_demand(1).spot(1).workload(database(Reach::Anywhere, 86_400)).build();
        let mut settings = settings();
        settings.retire.drain_timeout = timeout;
        let (report, told) = told(&model, &settings);
        assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
        let waited = first(&model, is_taint).expect("it was tainted").since(gone(&model, "db-0"));
        assert!(waited <= longest && waited + Duration::from_secs(3) >= longest, "{waited:?} of {longest:?}");
        let problems = problems(&told);
        let [problem] = &problems[..] else { panic!("told once: {problems:?}") };
        assert!(problem.contains("pv-default-db-0"), "{problem}");
    }
}

#[test]
fn rb_42_the_volumes_of_daemon_sets_are_not_waited_for() {
    let agent = WorkloadSpec::daemon_set("agent").volume(Reach::Anywhere, Duration::from_hours(1));
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).workload(agent).build();
    let (report, told) = told(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    assert_eq!(problems(&told), [""; 0]);
    let tainted = first(&model, is_taint).expect("it was tainted");
    assert!(tainted.since(Instant::default()) < MINUTE, "{tainted:?}");
}

#[test]
fn rb_42_the_next_process_waits_for_the_volumes_of_pods_that_went_before_it_came() {
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(database(Reach::Anywhere, 40)).build();
    let process = model.process();
    let id = process.id();
    model.with(|world| world.later(Duration::from_secs(20), move |world| world.kill_process(id)));
    assert!(try_once(&model, &process, &settings()).is_err(), "it was killed");
    let (report, _) = told(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    let waited = first(&model, is_taint).expect("it was tainted").since(gone(&model, "db-0"));
    assert!(waited.as_secs() >= 40, "{waited:?} after the pod was gone");
}

#[test]
fn an_undo_ends_the_wait_for_volumes() {
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(database(Reach::Anywhere, 300)).build();
    model.with(|world| world.later(MINUTE, |world| world.cordon("od-1", false)));
    let (report, _) = told(&model, &settings());
    assert_eq!(names(&report.undone), ["od-1"], "{report:?}");
    let unmarked = |call: &Call| matches!(call, Call::WriteNode { change, .. } if change.mark == Edit::Remove);
    let released = first(&model, unmarked).expect("it was released");
    assert!(released < Instant(MINUTE) + Duration::from_secs(1), "not only when the volume went: {released:?}");
    assert_eq!(first(&model, is_taint), None);
    assert_eq!(first(&model, |call| matches!(call, Call::DeleteInstance { .. })), None);
}

#[test]
fn a_process_that_is_to_end_does_not_wait_for_volumes() {
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(database(Reach::Anywhere, 300)).build();
    let migrator = Migrator::new(model.ports(Arc::new(Notes::default())), settings());
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(MINUTE, move |_| asked.set()));
    let report = model::block_on(&model, async { migrator.once(&stop).await });
    assert_eq!(outcome(&report.unwrap().unwrap()), OutcomeKind::Stopped);
    assert!(model.with(|world| world.now()).since(Instant(MINUTE)) < MINUTE);
    assert_eq!(names(&once(&model, &settings()).retired), ["od-1"], "the next process goes on");
}

#[test]
fn rb_42_a_volume_of_a_zone_without_spot_keeps_its_node() {
    let model = WorldBuilder::default()
        .node(node(Class::OnDemand, "c").named("od-1"))
        .node(node(Class::OnDemand, "a").named("od-2"))
        .node(node(Class::Spot, "a"))
        .node(node(Class::Spot, "b"))
        .workload(database(zone("c"), 1))
        .deployment("web", 3)
        .build();
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-2"], "{report:?}");
    let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(kinds.keys().collect::<Vec<_>>(), [&ReasonKind::NoSpotPlacement]);
    let touched = |call: &Call| match call {
        Call::Evict { pod, .. } => pod.name.starts_with("db-"),
        Call::WriteNode { node, change } => &*node.name == "od-1" && !change.mark.is_keep(),
        _other => false,
    };
    assert_eq!(calls(&model, touched), 0, "it was neither marked nor drained");
    assert_clean(&model);
}

#[test]
fn rb_42_where_spot_is_unknown_a_pod_that_stays_pending_ends_the_run_after_its_node() {
    let model = WorldBuilder::default()
        .node(NodeSpec { age: Duration::from_hours(2), ..node(Class::OnDemand, "c").named("od-1") })
        .node(node(Class::OnDemand, "a").named("od-2"))
        .node(node(Class::OnDemand, "b").named("od-3"))
        .workload(database(zone("c"), 1))
        .build();
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    let Outcome::NotSettled(what) = &report.outcome else { panic!("{report:?}") };
    assert!(what.contains("db-0"), "{what}");
    assert_eq!(nodes(&model), ["od-2", "od-3"]);
}

fn exposed(told: &[Progress]) -> Vec<Vec<String>> {
    let pods = |event: &Progress| match event {
        Progress::Exposed { exposed } => Some(exposed.pods.iter().map(|pod| pod.name.to_string()).collect()),
        _other => None,
    };
    told.iter().filter_map(pods).collect()
}

#[test]
fn rb_41_a_workload_that_loses_all_its_ready_pods_is_told_of_once() {
    let slow = WorkloadSpec::deployment("slow", 2).start_up(MINUTE);
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow).deployment("single", 1).build();
    let (report, told) = told(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    let exposed = exposed(&told);
    let [pods] = &exposed[..] else { panic!("{exposed:?}") };
    assert!(pods.len() == 2 && pods.iter().all(|pod| pod.starts_with("slow-")), "{pods:?}");

    let guarded = WorkloadSpec::deployment("slow", 2).start_up(MINUTE).budget(Allowance::MaxUnavailable(1));
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(guarded).build();
    assert_eq!(self::exposed(&self::told(&model, &settings()).1), [] as [Vec<String>; 0]);
}

#[test]
fn rb_41_a_workload_is_told_of_once_a_run_though_it_moves_twice() {
    let second = NodeSpec { unschedulable: true, ..NodeSpec::new(Class::OnDemand).named("od-2") };
    let model = WorldBuilder::default()
        .node(NodeSpec { age: Duration::from_hours(2), ..NodeSpec::new(Class::OnDemand).named("od-1") })
        .node(second)
        .node(NodeSpec::new(Class::Spot).slots(0))
        .deployment("web", 2)
        .build();
    model.with(|world| world.cordon("od-2", false));
    let (report, told) = told(&model, &settings());
    assert_eq!((names(&report.retired), report.evictions), (vec!["od-1", "od-2"], 4), "{report:?}");
    assert_eq!(exposed(&told).len(), 1, "{told:?}");
}

/// Every hour for a day. Peers move such pods each time, and an on-demand node comes back each time.
#[test]
fn rb_14_pods_that_spot_can_not_take_are_never_moved_once_spot_is_known() {
    let needy = WorkloadSpec::deployment("needy", 2).selects("node.kubernetes.io/lifecycle", "on-demand");
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(needy).build();
    for _hour in 0..24 {
        let report = once(&model, &settings());
        let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
        assert_eq!(kinds.keys().collect::<Vec<_>>(), [&ReasonKind::NoSpotPlacement]);
        model.run_until(model.with(|world| world.now()) + 60 * MINUTE).unwrap();
    }
    assert_eq!(evictions(&model), 0);
    assert_eq!(calls(&model, |call| matches!(call, Call::WriteNode { .. })), 0);
}

#[test]
fn a_spot_pool_at_zero_is_remembered_and_pods_that_fit_there_may_go() {
    let batch = NodeSpec::new(Class::Spot).named("sp-1").label("pool", "batch");
    let pinned = WorkloadSpec::deployment("pinned", 1).selects("pool", "batch");
    let stuck = WorkloadSpec::deployment("stuck", 1).selects("pool", "gpu");
    let model = WorldBuilder::default()
        .node(batch)
        .node(NodeSpec::new(Class::OnDemand).named("od-1").label("pool", "batch"))
        .node(NodeSpec::new(Class::OnDemand).named("od-2").label("pool", "gpu"))
        .workload(pinned)
        .workload(stuck)
        .build();
    let closed = {
        // a run that may begin nothing, and learns all the same
        let mut settings = settings();
        settings.policy.budgets.per_run = Some(0);
        settings
    };
    assert_eq!(outcome(&once(&model, &closed)), OutcomeKind::NothingEligible);
    let writes = || calls(&model, |call| matches!(call, Call::Remember(_)));
    assert_eq!(model.with(|world| world.memory().shapes.len()), 1);
    assert_eq!(writes(), 1);
    assert_eq!(outcome(&once(&model, &closed)), OutcomeKind::NothingEligible);
    assert_eq!(writes(), 1, "nothing new is not written");

    model.with(|world| world.terminate_machine("sp-1"));
    model.run_until(model.with(|world| world.now()) + 10 * MINUTE).unwrap();
    assert_eq!(nodes(&model), ["od-1", "od-2"]);
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "the pool may come back for it: {report:?}");
    assert_eq!(report.failed, [], "{report:?}");
    assert!(nodes(&model).contains(&"od-2".to_owned()), "nothing was ever seen that could take its pod");
}
