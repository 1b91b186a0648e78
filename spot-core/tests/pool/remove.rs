//! Removing a pool with all that belongs to it.

use std::time::Duration;

use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{self, Call, FleetSpec, Invariants, Limits, Model, Offer, WorkloadSpec, World, WorldBuilder};
use spot_core::node::key;
use spot_core::pool::{Outcome, Told};

use super::support::*;

/// Fleets of the pool that are left, machines of them that run, and nodes of them.
fn left(model: &Model) -> (usize, usize, usize) {
    model.with(|world| {
        let fleets = world.fleets().iter().filter(|fleet| !fleet.has_ended).count();
        let nodes = world.view().nodes().iter().filter(|node| node.name.starts_with("sfr-")).count();
        (fleets, world.members().count(), nodes)
    })
}

const NOTHING: (usize, usize, usize) = (0, 0, 0);

/// A pool of two fleets, one of which has a machine that never becomes a node.
fn two_fleets() -> Model {
    let old = FleetSpec::new("sfr-0", 2).members(&[2]);
    let new = FleetSpec::new(FLEET, 3).members(&[1, 1]).offer(Offer::new(1).never_joining());
    let model = WorldBuilder::default().control_plane(1).spot(2).fleet(old).fleet(new).guarded("web", 6, 1).build();
    model.run_until(spot_core::ports::Instant(MINUTE)).unwrap();
    model
}

#[test]
fn everything_that_belongs_to_a_pool_goes_and_nothing_else() {
    let model = two_fleets();
    let invariants = Invariants::watch(&model, Limits::default());
    let (report, told) = ask_and_hear(&model, Ask::Remove(None));
    assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Done, 3), "{report:?}");
    assert_eq!((left(&model), invariants.at_the_end(&model)), (NOTHING, vec![]));
    let nodes = model.with(|world| world.view().nodes().len());
    assert_eq!(nodes, 3, "the control plane, and two others");
    let cancelled = told.iter().filter(|told| matches!(told, Told::Cancelled { .. })).count();
    let terminated = told.iter().filter(|told| matches!(told, Told::Terminated { .. })).count();
    assert_eq!((cancelled, terminated), (2, 1), "{told:?}");
    let again = ask(&model, &settings(), Ask::Remove(None));
    assert_eq!((again.outcome, again.retired.len()), (Outcome::Done, 0));
}

#[test]
fn one_node_that_can_not_go_for_good_means_that_nothing_is_touched() {
    let model = cluster(&[1, 1]).bare("alone", 20).build();
    let report = ask(&model, &settings(), Ask::Remove(None));
    let blocked = blocked(&report);
    assert!(!blocked.is_empty() && blocked.iter().all(|(_, why)| why.starts_with("unmanaged_pod")), "{blocked:?}");
    assert_eq!((calls(&model, is_write), left(&model)), (0, (1, 2, 2)));
}

#[test]
fn what_only_holds_for_a_while_is_waited_for() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| {
        world.set_kubelet("sfr-1-1", false);
        world.later(3 * MINUTE, |world| world.set_kubelet("sfr-1-1", true));
    });
    model.run_until(spot_core::ports::Instant(MINUTE)).unwrap();
    assert_eq!(ask(&model, &settings(), Ask::Remove(None)).outcome, Outcome::Done);
    assert_eq!(left(&model), NOTHING);
}

#[test]
fn forced_it_heeds_budgets_for_so_long_and_then_nothing_that_pods_say() {
    let tight = WorkloadSpec::deployment("tight", 6);
    let model = cluster(&[1, 1]).bare("alone", 20).workload(tight).guarded("shy", 6, 0).build();
    let began = model.with(|world| world.now());
    let report = ask(&model, &settings(), Ask::Remove(Some(3 * MINUTE)));
    assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Done, 2), "{report:?}");
    assert_eq!(left(&model), NOTHING);
    model.with(|world| {
        let deletes: Vec<_> =
            world.calls().iter().filter(|record| matches!(record.call, Call::DeletePod { .. })).collect();
        assert!(!deletes.is_empty(), "of pods whose budget never allows their eviction");
        assert!(deletes.iter().all(|record| record.sent.since(began) >= 3 * MINUTE), "and not before that time");
    });
}

#[test]
fn how_long_budgets_are_heeded_by_force_counts_once_for_all_nodes() {
    let model = cluster(&[1, 1, 1]).guarded("shy", 30, 0).build();
    let report = ask(&model, &settings(), Ask::Remove(Some(20 * MINUTE)));
    assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Done, 3), "{report:?}");
    model.with(|world| {
        let is_delete = |call: &Call| matches!(call, Call::DeletePod { .. });
        let sent: Vec<_> = world.calls().iter().filter(|one| is_delete(&one.call)).map(|one| one.sent).collect();
        let [first, .., last] = &sent[..] else { panic!("{sent:?}") };
        assert!(last.since(*first) < 20 * MINUTE, "{first:?} to {last:?}");
    });
}

#[test]
fn what_can_not_be_ended_holds_nothing_else_up() {
    let calls: [fn(&Call) -> bool; 2] = [
        |call| matches!(call, Call::Cancel(fleet) if fleet == "sfr-0"),
        |call| matches!(call, Call::Terminate { instance, .. } if instance.as_str() == "i-00000005"),
    ];
    for (is_refused, expected) in calls.into_iter().zip([(1, 0, 0), (1, 1, 0)]) {
        let old = FleetSpec::new("sfr-0", 1).offer(Offer::new(1).never_joining());
        let new = FleetSpec::new(FLEET, 3).members(&[1]).offer(Offer::new(1).never_joining());
        let model = WorldBuilder::default().spot(2).fleet(old).fleet(new).build();
        model.run_until(spot_core::ports::Instant(MINUTE)).unwrap();
        model.with(|world| world.fault_when(u32::MAX, Fault::Fail(ErrorClass::Permanent), is_refused));
        let report = ask(&model, &settings(), Ask::Remove(None));
        assert_eq!((report.outcome, left(&model)), (Outcome::Failed, expected));
    }
}

#[test]
fn a_node_of_the_pool_that_is_never_retired_is_told_before_anything_is_touched() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| world.label_node("sfr-1-1", "node-role.kubernetes.io/control-plane", Some("")));
    let report = ask(&model, &settings(), Ask::Remove(None));
    assert_eq!(blocked(&report), [("sfr-1-1", "control_plane".to_owned())]);
    assert_eq!(calls(&model, is_write), 0);
}

#[test]
fn who_opted_a_node_out_is_obeyed_even_by_force() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| world.annotate_node("sfr-1-2", key::DO_NOT_DISRUPT, Some("true")));
    let report = ask(&model, &settings(), Ask::Remove(Some(Duration::ZERO)));
    assert_eq!(blocked(&report), [("sfr-1-2", "opted_out by karpenter.sh/do-not-disrupt".to_owned())]);
    assert_eq!(calls(&model, is_write), 0);
}

#[test]
fn a_pause_holds_even_a_forced_removal() {
    for force in [None, Some(Duration::ZERO)] {
        let model = cluster(&[1, 1]).build();
        model.with(|world| world.pause(true));
        assert_eq!(ask(&model, &settings(), Ask::Remove(force)).outcome, Outcome::Paused);
        assert_eq!(calls(&model, is_write), 0);
        model.with(|world| {
            world.pause(false);
            world.later(20 * Duration::from_secs(1), |world| world.pause(true));
        });
        let report = ask(&model, &settings(), Ask::Remove(force));
        assert_eq!((report.outcome, report.retired.len()), (Outcome::Paused, 0), "in the middle of the first");
    }
}

#[test]
fn nodes_whose_drain_fails_stay_with_their_fleet_and_are_told() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| {
        let denied = spot_core::ports::EvictAnswer::Denied("pods/eviction is forbidden".to_owned());
        world.fault_when(u32::MAX, Fault::Evict(denied), |call| matches!(call, Call::Evict { .. }));
    });
    let invariants = Invariants::watch(&model, Limits::default());
    let report = ask(&model, &settings(), Ask::Remove(None));
    assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
    let gone = report.retired.len();
    assert_eq!((report.failed.len() + gone, left(&model)), (2, (1, 2 - gone, 2 - gone)), "{report:?}");
    assert_eq!(invariants.at_the_end(&model), []);
}

#[test]
fn a_machine_that_outlives_its_deadline_is_told_and_nothing_is_waited_for_without_end() {
    let slow = |settings: &mut model::Settings| settings.machine_gone = Duration::from_hours(3);
    let model = WorldBuilder::default().settings(slow).spot(1).fleet(fleet(&[1])).deployment("web", 2).build();
    let report = ask(&model, &settings(), Ask::Remove(None));
    assert_eq!(
        (&report.outcome, report.departing.iter().map(|node| &*node.name).collect::<Vec<_>>()),
        (&Outcome::Failed, vec!["sfr-1-1"]),
        "{report:?}"
    );
}

/// A fleet with a machine that becomes a node so long after it was launched.
fn joining(join: Duration) -> Model {
    let spec = FleetSpec { join, ..FleetSpec::new(FLEET, 1).offer(Offer::new(1)) };
    let model = WorldBuilder::default().control_plane(1).spot(2).fleet(spec).guarded("web", 6, 1).build();
    model.run_until(spot_core::ports::Instant(MINUTE)).unwrap();
    model
}

fn terminations(model: &Model) -> Vec<spot_core::ports::Instant> {
    let is_one = |call: &Call| matches!(call, Call::Terminate { .. });
    model.with(|world| world.calls().iter().filter(|one| is_one(&one.call)).map(|one| one.sent).collect())
}

#[test]
fn a_machine_whose_termination_is_not_answered_is_looked_at_again_before_another_try() {
    let model = joining(MINUTE);
    model.with(|world| world.fault_when(1, Fault::Hang, |call| matches!(call, Call::Terminate { .. })));
    let report = ask(&model, &settings(), Ask::Remove(None));
    assert_eq!((&report.outcome, names(&report)), (&Outcome::Done, vec!["sfr-1-1"]), "it was a node by then");
    let [sent] = terminations(&model)[..] else { panic!("more than one try") };
    let claimed = |world: &mut World| world.calls().iter().find(|one| is_claim(&one.call)).map(|one| one.sent);
    let waited = model.with(claimed).unwrap().since(sent);
    assert!(waited < 2 * MINUTE, "{waited:?} for an answer");
}

#[test]
fn a_pause_holds_the_next_try_to_terminate_a_machine() {
    let plain = joining(60 * MINUTE);
    assert_eq!(ask(&plain, &settings(), Ask::Remove(None)).outcome, Outcome::Done);
    let [sent] = terminations(&plain)[..] else { panic!("one machine") };

    for fault in [Fault::Hang, Fault::Fail(ErrorClass::Transient), Fault::Fail(ErrorClass::Timeout)] {
        let (model, what) = (joining(60 * MINUTE), format!("{fault:?}"));
        model.with(|world| {
            world.fault_when(1, fault, |call| matches!(call, Call::Terminate { .. }));
            let until = sent.since(world.now()) + Duration::from_secs(1);
            world.later(until, |world| world.pause(true));
        });
        assert_eq!(ask(&model, &settings(), Ask::Remove(None)).outcome, Outcome::Paused, "{what}");
        assert_eq!(terminations(&model), [sent], "{what}");
        model.with(|world| world.pause(false));
        assert_eq!(ask(&model, &settings(), Ask::Remove(None)).outcome, Outcome::Done, "{what}");
    }
}

#[test]
fn how_long_the_rest_may_take_counts_from_what_was_last_done() {
    let slow = |settings: &mut model::Settings| {
        settings.class_lag = MINUTE;
        settings.machine_gone = 6 * MINUTE;
        settings.reregister = Duration::from_millis(1);
    };
    let mut settings = settings();
    settings.retire.node_gone_timeout = 4 * MINUTE;
    for has_ended in [false, true] {
        let web = WorkloadSpec::deployment("web", 4).stop(6 * MINUTE);
        let model = WorldBuilder::default().settings(slow).spot(2).fleet(fleet(&[1])).workload(web).build();
        model.run_until(spot_core::ports::Instant(2 * MINUTE)).unwrap();
        model.with(|world| {
            if has_ended {
                world.end_fleet(FLEET);
            }
            // While it registers anew, there is nothing to do for a moment.
            world.later(Duration::from_millis(100), |world| world.re_register("sfr-1-1"));
        });
        let report = ask(&model, &settings, Ask::Remove(None));
        assert_eq!((&report.outcome, report.departing.len()), (&Outcome::Done, 1), "{has_ended}: {report:?}");
    }
}

#[test]
fn a_pool_that_is_all_there_is_goes_too() {
    let model = WorldBuilder::default().control_plane(1).fleet(fleet(&[1, 1])).build();
    assert_eq!(ask(&model, &settings(), Ask::Remove(None)).outcome, Outcome::Done);
    assert_eq!(left(&model), NOTHING);

    let alone = |settings: &mut model::Settings| {
        settings.autoscaler.spot_left = 0;
        settings.autoscaler.fallback = None;
    };
    let build = || {
        let world = WorldBuilder::default().settings(alone).control_plane(1);
        world.fleet(fleet(&[1])).deployment("web", 4).build()
    };
    let (model, forced) = (build(), build());
    let report = ask(&model, &settings(), Ask::Remove(None));
    assert!(matches!(report.outcome, Outcome::NotSettled(_)), "its pods run nowhere: {report:?}");
    assert_eq!(ask(&forced, &settings(), Ask::Remove(Some(MINUTE))).outcome, Outcome::Done, "and nobody asks for that");
}

fn troubled(trouble: impl Fn() -> Fault, name: &str) {
    for at in 1..=calls_of(two_fleets, Ask::Remove(None)) {
        let model = two_fleets();
        let before = model.with(|world| world.calls().len()) as u64;
        assert_eq!(before, 0);
        let invariants = Invariants::watch(&model, Limits::default());
        model.with(|world| world.fault_at(at, trouble()));
        let what = format!("{name} at call {at}");
        until_done(&model, Ask::Remove(None), &what);
        assert_eq!((left(&model), invariants.at_the_end(&model)), (NOTHING, vec![]), "{what}");
    }
}

#[test]
fn killed_at_any_call_of_a_removal_the_next_process_finishes_it() {
    troubled(|| Fault::KillBefore, "killed before");
    troubled(|| Fault::KillAfter, "killed after");
}

#[test]
fn whatever_call_of_a_removal_fails_it_is_finished() {
    troubled(|| Fault::LoseAnswer, "answer lost");
    for class in [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Denied, ErrorClass::Permanent] {
        troubled(|| Fault::Fail(class), "failed");
    }
}
