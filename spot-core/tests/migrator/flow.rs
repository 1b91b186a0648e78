//! The main line: all nodes go, or the run stops for the right reason.

use spot_core::model::{Allowance, Answer, WorkloadSpec, WorldBuilder};
use spot_core::progress::{Outcome, OutcomeKind};

use super::*;

fn world() -> WorldBuilder {
    WorldBuilder::default()
        .control_plane(1)
        .on_demand(4)
        .spot(2)
        .guarded("web", 16, 1)
        .deployment("api", 24)
        .daemon_set("agent")
}

#[test]
fn every_on_demand_node_goes_and_every_pod_runs_on_spot() {
    let model = world().build();
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::AllSpot, "{report:?}");
    assert_eq!(names(&report.retired), ["od-2", "od-3", "od-4", "od-5"]);
    assert!(nodes(&model).contains(&"cp-1".to_owned()), "the control plane stays");
    assert!(!nodes(&model).iter().any(|name| name.starts_with("od-")));
    assert_clean(&model);
    model.with(|world| {
        assert!(world.view().pods().all(|pod| pod.ready), "all pods run");
        assert_eq!(machines_deleted(world).len(), 4);
    });
}

#[test]
fn pods_move_once() {
    let model = world().build();
    let report = once(&model, &settings());
    assert!(report.evictions <= 42, "{} evictions for 40 pods", report.evictions);
    assert_eq!(evictions(&model), report.evictions, "each was asked for once");
}

#[test]
fn a_node_that_comes_back_on_demand_ends_the_run() {
    let model = WorldBuilder::default()
        .settings(|settings| settings.autoscaler.spot_left = 0)
        .on_demand(3)
        .spot(1)
        .deployment("api", 45)
        .build();
    let report = once(&model, &settings());
    let Outcome::SpotExhausted(node) = &report.outcome else { panic!("{report:?}") };
    assert!(!["od-1", "od-2", "od-3"].contains(&&*node.name), "{node} is a new one");
    assert!(report.retired.len() < 3, "it stopped: {report:?}");
    assert_clean(&model);
    let memory = model.with(|world| world.memory().clone());
    assert!(memory.exhausted.is_some(), "the next runs wait");

    let next = once(&model, &settings());
    assert_eq!(outcome(&next), OutcomeKind::NothingEligible, "{next:?}");
    assert_eq!(next.evictions, 0);
}

#[test]
fn a_node_whose_pods_may_not_move_is_refused_before_it_is_touched() {
    let model = WorldBuilder::default()
        .on_demand(2)
        .spot(1)
        .workload(WorkloadSpec::deployment("stuck", 2).budget(Allowance::MaxUnavailable(0)))
        .build();
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::NothingEligible);
    assert_eq!(calls(&model, |call| matches!(call, Call::WriteNode { .. })), 0, "no node was written");
}

#[test]
fn an_empty_cluster_has_nothing_to_do() {
    let model = WorldBuilder::default().spot(2).build();
    assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::AllSpot);
}

#[test]
fn a_dry_run_writes_nothing_and_names_the_node_that_a_run_takes() {
    let model = world().build();
    let dry = once(&model, &Settings { dry_run: true, ..settings() });
    let Outcome::DryRun(first) = &dry.outcome else { panic!("{dry:?}") };
    let writes = |call: &Call| !matches!(call, Call::Open(_) | Call::Recall | Call::Survey { .. });
    assert_eq!(calls(&model, writes), 0);
    let report = once(&model, &settings());
    assert_eq!(names(first), names(&report.retired[..1]));
}

#[test]
fn a_batch_goes_side_by_side_and_never_below_what_must_remain() {
    let model = world().build();
    let mut settings = settings();
    settings.policy.budgets.at_once = 3;
    let most = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&most);
    model.with(|world| {
        world.after_each_call(move |world, _| {
            let cordoned = world.view().nodes().iter().filter(|node| node.unschedulable).count();
            let mut most = seen.lock().unwrap();
            *most = cordoned.max(*most);
        });
    });
    let report = once(&model, &settings);
    assert_eq!(outcome(&report), OutcomeKind::AllSpot);
    assert_eq!(*most.lock().unwrap(), 3);
}

#[test]
fn what_others_wrote_during_a_drain_costs_no_second_write() {
    let model =
        WorldBuilder::default().on_demand(1).spot(2).workload(WorkloadSpec::deployment("slow", 8).stop(MINUTE)).build();
    model.with(|world| world.later(Duration::from_secs(20), |world| world.label_node("od-1", "team", Some("web"))));
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"]);
    model.with(|world| {
        let conflicts = world.calls().iter().filter(|record| record.answer == Answer::Conflict).count();
        assert_eq!(conflicts, 0, "every write was made on the version that watches had shown");
    });
}

#[test]
fn a_stopped_run_leaves_a_state_that_the_next_one_finishes() {
    let model =
        WorldBuilder::default().on_demand(2).spot(2).workload(WorkloadSpec::deployment("slow", 8).stop(MINUTE)).build();
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(Duration::from_secs(20), move |_| asked.set()));
    let migrator = Migrator::new(model.ports(Arc::new(Notes::default())), settings());
    let report = model::block_on(&model, async { migrator.migrate(&stop).await }).unwrap().unwrap();
    assert_eq!(outcome(&report), OutcomeKind::Stopped, "{report:?}");
    assert!(report.retired.is_empty());

    let next = once(&model, &settings());
    assert_eq!(outcome(&next), OutcomeKind::Recovered);
    assert_eq!(names(&next.retired), ["od-1"]);
    assert_eq!(nodes(&model).iter().filter(|name| name.starts_with("od-")).count(), 1, "no new node was begun");
}

#[test]
fn runs_begin_at_full_hours_and_missed_ticks_are_left_out() {
    let model = WorldBuilder::default().spot(1).build();
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings());
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(Duration::from_mins(190), move |_| asked.set()));
    model::block_on(&model, async { migrator.run(&stop).await }).unwrap().unwrap();
    let next: Vec<_> = notes
        .all()
        .iter()
        .filter_map(|event| if let Progress::NextRun { at } = event { Some(at.to_string()) } else { None })
        .collect();
    assert_eq!(next, ["2026-01-05T01:00:00Z", "2026-01-05T02:00:00Z", "2026-01-05T03:00:00Z", "2026-01-05T04:00:00Z"]);
}
