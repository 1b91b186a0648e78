//! What people ask for by hand, and what other tools do to a node in mid-work.

use spot_core::claim::BackOff;
use spot_core::error::ErrorClass;
use spot_core::migrator::{Freed, Which};
use spot_core::model::fault::Fault;
use spot_core::model::{Allowance, WorkloadSpec, WorldBuilder};
use spot_core::node::{Effect, Taint};
use spot_core::progress::OutcomeKind;
use spot_core::reason::ReasonKind;

use super::*;

fn slow() -> WorkloadSpec {
    WorkloadSpec::deployment("slow", 2).stop(MINUTE)
}

fn migrator(model: &Model) -> Migrator {
    Migrator::new(model.ports(Arc::new(Notes::default())), settings())
}

#[test]
fn a_pause_in_mid_drain_takes_everything_off_and_is_no_failure() {
    let model = WorldBuilder::default().on_demand(2).spot(2).workload(slow()).build();
    model.with(|world| world.later(Duration::from_secs(20), |world| world.pause(true)));
    let report = once(&model, &settings());
    assert!(report.failed.is_empty() && report.retired.is_empty(), "{report:?}");
    let spot_core::progress::Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(kinds.keys().collect::<Vec<_>>(), [&ReasonKind::Paused], "{report:?}");
    assert_clean(&model);
    assert!(model.with(|world| world.node("od-1").unwrap().back_off.is_none()));
}

/// The watch of the pause is dead: its view shows nothing of it.
#[test]
fn a_pause_that_no_view_shows_is_read_before_the_machine_goes_and_ends_the_run() {
    let lag = |settings: &mut spot_core::model::Settings| settings.view_lag = Duration::from_hours(9);
    let model = WorldBuilder::default().settings(lag).on_demand(2).spot(2).build();
    model.with(|world| world.later(Duration::from_secs(20), |world| world.pause(true)));
    let report = once(&model, &settings());
    assert!(report.failed.is_empty() && report.retired.is_empty(), "{report:?}");
    assert_eq!(calls(&model, |call| matches!(call, Call::DeleteInstance { .. } | Call::DeleteNode(_))), 0);
    assert_eq!(outcome(&report), OutcomeKind::NothingEligible, "{report:?}");
    assert_clean(&model);
}

#[test]
fn a_pause_that_no_view_shows_is_read_before_a_node_is_claimed() {
    let lag = |settings: &mut spot_core::model::Settings| settings.view_lag = Duration::from_hours(9);
    let build = || WorldBuilder::default().settings(lag).on_demand(2).spot(2).build();
    let model = build();
    let _report = once(&model, &settings());
    let asked = number_of(&model, |call| matches!(call, Call::Survey { chosen, .. } if !chosen.is_empty()));
    let model = build();
    model.with(|world| world.fault_at(asked, Fault::Before(Box::new(|world| world.pause(true)))));
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::NothingEligible, "{report:?}");
    assert_eq!((calls(&model, is_claim), report.failed.len()), (0, 0), "{report:?}");
    assert_clean(&model);
}

/// The number of the first such call.
fn number_of(model: &Model, matches: impl Fn(&Call) -> bool) -> u64 {
    model.with(|world| world.calls().iter().find(|record| matches(&record.call)).unwrap().number)
}

/// A world in which this happens while the last list of pods is on its way, when all is written on the node.
fn before_the_last_list(act: impl FnOnce(&mut World) + Send + 'static) -> Model {
    let build = || WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    let model = build();
    let _report = once(&model, &settings());
    let listed = number_of(&model, |call| matches!(call, Call::LatestPods(_)));
    let model = build();
    model.with(|world| world.fault_at(listed, Fault::Before(Box::new(act))));
    model
}

#[test]
fn an_undo_after_the_last_write_is_seen_before_the_machine_goes() {
    let undos: [fn(&mut World); 3] = [
        |world| world.cordon("od-1", false),
        |world| world.label_node("od-1", key::SELECTED, None),
        |world| world.annotate_node("od-1", key::DO_NOT_MIGRATE, Some("true")),
    ];
    for (at, undo) in undos.into_iter().enumerate() {
        let model = before_the_last_list(undo);
        let report = once(&model, &settings());
        assert_eq!(calls(&model, is_delete), 0, "undo {at}: {report:?}");
        assert_eq!(names(&report.undone), ["od-1"], "undo {at}: {report:?}");
        assert_clean(&model);
    }
}

#[test]
fn an_autoscaler_that_starts_after_the_last_write_is_put_right_before_the_machine_goes() {
    let model = before_the_last_list(|world| world.autoscaler_restarts("od-1"));
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    assert!(tainted_for(&model).is_some_and(|waited| waited >= MINUTE), "{:?}", tainted_for(&model));
}

/// How long the first machine that was deleted carried the taint.
fn tainted_for(model: &Model) -> Option<Duration> {
    let tainted = |fact: &Fact| match fact {
        Fact::MachineDeleted { tainted_for, .. } => *tainted_for,
        _other => None,
    };
    model.with(|world| world.facts().iter().find_map(|record| tainted(&record.fact)))
}

#[test]
fn pause_and_resume_are_remembered_and_say_whether_they_changed_anything() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    let pause = |paused| model::block_on(&model, async { migrator(&model).pause(paused).await }).unwrap().unwrap();
    assert!(pause(true));
    assert!(!pause(true), "it was paused already");
    assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::NothingEligible);
    assert!(pause(false));
    assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::AllSpot);
}

#[test]
fn release_takes_everything_of_ours_off_nodes_that_are_not_departing() {
    let model = WorldBuilder::default().on_demand(3).spot(1).workload(slow()).build();
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.later(Duration::from_secs(20), move |world| world.kill_process(id));
        let later = BackOff { until: world.wall() + Duration::from_secs(999), count: 3 };
        world.edit_node("od-3", move |node| node.back_off = Some(later));
    });
    assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)));
    let spot = nodes(&model).into_iter().find(|name| !name.starts_with("od-")).unwrap();
    let named = Which::Named(vec!["od-9".to_owned(), spot.clone(), "od-1".to_owned()]);
    let freed = model::block_on(&model, async { migrator(&model).release(&named).await }).unwrap().unwrap();
    let [Freed::Released(od_1), Freed::Unknown(od_9), Freed::Untouched(_)] = &freed[..] else { panic!("{freed:?}") };
    assert_eq!((&*od_1.name, od_9.as_str()), ("od-1", "od-9"));

    let all = model::block_on(&model, async { migrator(&model).release(&Which::All).await }).unwrap().unwrap();
    let released = all.iter().filter(|freed| matches!(freed, Freed::Released(_))).count();
    assert_eq!(released, 2, "the soft taint and the back-off of the others: {all:?}");
    assert_clean(&model);
    assert!(model.with(|world| world.node("od-3").unwrap().back_off.is_none()));
}

/// What a notice recommended stays when a planned retirement takes its own off, and goes when a person wants all off.
#[test]
fn the_soft_taint_of_a_recommendation_goes_when_a_person_releases_the_node_and_not_before() {
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow()).build();
    let recommended = |model: &Model| {
        model.with(|world| world.node("od-1").unwrap().taints.iter().any(|one| one.key == key::REBALANCE))
    };
    model.with(|world| {
        let value = world.wall().as_second().to_string();
        world.taint_node("od-1", Taint::new(key::REBALANCE, value, Effect::PreferNoSchedule));
        world.taint_node("od-1", Taint::new("somebody's", "", Effect::PreferNoSchedule));
        world.later(Duration::from_secs(20), |world| world.pause(true));
    });
    let report = once(&model, &settings());
    assert!(report.retired.is_empty() && calls(&model, is_claim) == 1, "{report:?}");
    assert!(recommended(&model), "it is the notice's");
    let freed = model::block_on(&model, async { migrator(&model).release(&Which::All).await }).unwrap().unwrap();
    assert!(freed.iter().any(|freed| matches!(freed, Freed::Released(node) if &*node.name == "od-1")), "{freed:?}");
    assert!(!recommended(&model));
    let others = model.with(|world| world.node("od-1").unwrap().taints.iter().any(|one| one.key == "somebody's"));
    assert!(others, "nobody else's is touched");
    assert_clean(&model);
}

#[test]
fn release_leaves_a_departing_node_as_it_is() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 1).build();
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.after_each_call(move |world, record| {
            if matches!(record.call, Call::DeleteInstance { .. }) {
                assert!(world.node("od-1").is_some());
            }
        });
        world.later(Duration::from_secs(75), move |world| world.kill_process(id));
    });
    assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)));
    let freed = model::block_on(&model, async { migrator(&model).release(&Which::All).await }).unwrap().unwrap();
    assert!(freed.iter().any(|freed| matches!(freed, Freed::Departing(node) if &*node.name == "od-1")), "{freed:?}");
    assert!(model.with(|world| world.node("od-1").unwrap().unschedulable));
}

#[test]
fn a_starting_autoscaler_that_takes_taint_and_cordon_off_is_put_right_once() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| world.later(Duration::from_secs(30), |world| world.autoscaler_restarts("od-1")));
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    let waited = tainted_for(&model).unwrap();
    assert!(waited >= MINUTE, "load balancers have the whole time again: {waited:?}");
}

#[test]
fn an_autoscaler_that_does_it_again_is_taken_for_a_person() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.later(Duration::from_secs(30), |world| world.autoscaler_restarts("od-1"));
        world.later(Duration::from_secs(90), |world| world.autoscaler_restarts("od-1"));
    });
    let report = once(&model, &settings());
    assert_eq!(names(&report.undone), ["od-1"], "{report:?}");
    assert_clean(&model);
}

#[test]
fn rb_32_the_migrators_own_pod_goes_last_and_its_own_budget_does_not_hold_its_node() {
    let own = WorkloadSpec::deployment("migrator", 1).budget(Allowance::MinAvailable(1));
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 3).workload(own).build();
    let pod = model.with(|world| world.view().pods().find(|pod| pod.name.starts_with("migrator")).unwrap().uid.clone());
    let mut settings = settings();
    settings.policy.own_node = Some("od-1".to_owned());
    settings.policy.own_pod = Some(pod.clone());
    let report = once(&model, &settings);
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    let asked = model.with(|world| {
        let asked = world.calls().iter().filter_map(|record| match &record.call {
            Call::Evict { pod, .. } => Some(pod.uid.clone()),
            _other => None,
        });
        asked.collect::<Vec<_>>()
    });
    assert_eq!(asked.last(), Some(&pod), "it was asked for last");
    assert_eq!(asked.iter().filter(|uid| **uid == pod).count(), 1);
}

/// A leftover does not wait for the next tick, which may be days away, because the cluster could not be read at first.
#[test]
fn a_recovery_that_can_not_read_the_cluster_is_made_again_before_the_next_tick() {
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow()).build();
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.later(Duration::from_secs(20), move |world| world.kill_process(id));
    });
    assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)));
    model.with(|world| {
        world.fault_when(3, Fault::Fail(ErrorClass::Transient), |call| matches!(call, Call::Open(_)));
    });
    let weekly = Settings { schedule: Schedule::parse("@weekly", &TimeZone::UTC).unwrap(), ..settings() };
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(10 * MINUTE, move |_| asked.set()));
    let migrator = Migrator::new(model.ports(Arc::new(Notes::default())), weekly);
    model::block_on(&model, async { migrator.run(&stop).await }).unwrap().unwrap();
    assert!(!nodes(&model).contains(&"od-1".to_owned()), "it was finished");
}
