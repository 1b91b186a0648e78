//! A planned retirement whose node an interruption takes over, wherever it stands.

use futures::future;
use spot_core::claim::{ClaimStep, Owner};
use spot_core::error::ErrorClass;
use spot_core::interruption::{Announcement, Hold, InterruptionSettings, Interruptions, Reclaim, Told};
use spot_core::model::fault::Fault;
use spot_core::model::{Allowance, Answer, CallRecord, Invariants, Limits, WorkloadSpec, WorldBuilder};
use spot_core::node::{ClaimAnnotation, NodeSnapshot};
use spot_core::ports::Instant;
use spot_core::progress::Halted;

use super::*;

fn world() -> Model {
    let web = WorkloadSpec::deployment("web", 4).stop(Duration::from_secs(20));
    WorldBuilder::default().on_demand(2).spot(2).workload(web).deployment("api", 4).build()
}

/// A group is about to terminate this node's machine, and waits so long for an answer.
fn terminates(world: &mut World, node: &str, waits: Duration) {
    let (Some(instance), until) = (world.machine_of(node), world.wall() + waits) else { return };
    world.announce(instance, Announcement::TerminateAction { until });
}

/// One run, beside which notices are answered; without a hold between them.
fn beside(model: &Model) -> (Report, Notes) {
    let notes = Notes::default();
    let process = model.process();
    let ports = process.ports_alone(Arc::new(notes.clone()));
    let migrator = Migrator::new(ports.clone(), settings());
    let answers = InterruptionSettings::default();
    let interruptions = Interruptions::new(ports, process.notices(), answers, Hold::default());
    let (stop, goes_on) = (Stop::default(), Stop::default());
    let run = async {
        let report = migrator.once(&goes_on).await;
        stop.set();
        report
    };
    let (report, answered) =
        model::block_on(model, async { future::join(run, interruptions.run(&stop)).await }).expect("both end");
    answered.unwrap();
    (report.unwrap(), notes)
}

/// A process that answers notices for so long; what it told.
fn answering(model: &Model, lasts: Duration) -> Notes {
    answering_with(model, InterruptionSettings::default(), lasts)
}

fn answering_with(model: &Model, settings: InterruptionSettings, lasts: Duration) -> Notes {
    let (notes, stop) = (Notes::default(), Stop::default());
    let process = model.process();
    let ports = process.ports_alone(Arc::new(notes.clone()));
    let interruptions = Interruptions::new(ports, process.notices(), settings, Hold::default());
    let asked = stop.clone();
    model.with(|world| world.later(lasts, move |_| asked.set()));
    model::block_on(model, async { interruptions.run(&stop).await }).expect("it ends").unwrap();
    notes
}

fn owner(node: &NodeSnapshot) -> Option<(Owner, ClaimStep)> {
    match &node.claim {
        ClaimAnnotation::Valid(claim) => Some((claim.owner.clone(), claim.step)),
        ClaimAnnotation::Absent | ClaimAnnotation::Unreadable(_) => None,
    }
}

#[test]
fn whenever_the_notice_comes_the_retirement_ends_without_a_failure_and_without_touching_the_node() {
    let all = {
        let model = world();
        assert_eq!(once(&model, &settings()).retired.len(), 2);
        model.with(|world| world.calls().len())
    };
    let (mut overtaken, mut own) = (0, 0);
    for number in 0..all {
        let model = world();
        let invariants = Invariants::watch(&model, Limits::default());
        let act = |world: &mut World| terminates(world, "od-1", 20 * MINUTE);
        model.with(|world| world.fault_at(u64::try_from(number).unwrap(), Fault::Before(Box::new(act))));
        let (report, notes) = beside(&model);
        assert_eq!((report.failed.len(), report.undone.len()), (0, 0), "call {number}: {report:?}");
        let told = notes.all();
        let is_overtaken = |event: &&Progress| matches!(event, Progress::StepHalted { halted: Halted::Overtaken, .. });
        overtaken += told.iter().filter(is_overtaken).count();
        own += told.iter().filter(|event| matches!(event, Progress::Interruption(Told::Ignored { .. }))).count();
        model.with(|world| {
            if let Some(node) = world.node("od-1") {
                let (owner, step) = owner(node).expect("it is claimed");
                assert_eq!((owner, step), (Owner::Interruption, ClaimStep::Draining), "call {number}");
                assert!(node.unschedulable && node.back_off.is_none(), "call {number}: {node:?}");
                assert!(node.taints.iter().any(|taint| taint.key == key::TO_BE_DELETED), "call {number}");
            }
            assert!(world.node("od-2").is_none(), "call {number}: the run goes on with the others: {report:?}");
        });
        let broken = invariants.at_the_end(&model);
        assert!(broken.is_empty(), "call {number}: {broken:#?}");
    }
    assert!(overtaken > 10 && own > 2, "{overtaken} overtaken, {own} left alone, of {all}");
}

#[test]
fn a_node_that_departs_while_its_notice_is_read_is_left_alone() {
    // How far the last applied record of each owner has come.
    let records = |model: &Model| {
        model.with(|world| {
            let record = |record: &CallRecord| match &record.call {
                Call::WriteNode { node, change } if &*node.name == "od-1" && record.answer != Answer::Conflict => {
                    let Edit::Set(claim) = &change.claim else { return None };
                    Some((claim.owner.clone(), claim.step))
                }
                _other => None,
            };
            world.calls().iter().filter_map(record).collect::<Vec<_>>()
        })
    };
    let departing = (Owner::Migrator, ClaimStep::Deleting);
    let departs = {
        let model = world();
        let _report = once(&model, &settings());
        let is_deletion = |record: &&CallRecord| is_delete(&record.call);
        model.with(|world| world.calls().iter().find(is_deletion).unwrap().sent).since(Instant::default())
    };
    let (mut departed, mut overtaken) = (0, 0);
    for before in 0..40 {
        let model = world();
        let at = departs.saturating_sub(Duration::from_millis(before));
        model.with(|world| world.later(at, |world| terminates(world, "od-1", 20 * MINUTE)));
        let (report, _) = beside(&model);
        assert!(report.failed.is_empty(), "{before} ms before: {report:?}");
        let records = records(&model);
        let is_departing = records.contains(&departing);
        let is_overtaken = records.iter().any(|(owner, _)| *owner == Owner::Interruption);
        assert!(is_departing != is_overtaken, "{before} ms before: {records:?}");
        departed += usize::from(is_departing);
        overtaken += usize::from(is_overtaken);
    }
    assert!(departed > 2 && overtaken > 2, "{departed} departed, {overtaken} overtaken");
}

#[test]
fn what_the_planned_retirement_had_put_on_the_node_comes_off_with_what_the_interruption_put_on() {
    // In mid-drain, and while load balancers drain.
    for after in [10, 40] {
        let model = world();
        model.with(|world| world.later(Duration::from_secs(after), |world| terminates(world, "od-1", 20 * MINUTE)));
        let _ended = beside(&model);
        let claim = model.with(|world| match &world.node("od-1").unwrap().claim {
            ClaimAnnotation::Valid(claim) => claim.clone(),
            other => panic!("{other:?}"),
        });
        assert_eq!(claim.owner, Owner::Interruption);
        assert!(claim.cordoned && claim.taint.is_some(), "after {after} s: {claim:?}");
        // It comes back, and whoever sees that releases it.
        model.with(|world| world.reboot("od-1"));
        answering(&model, MINUTE);
        assert_clean(&model);
    }
}

#[test]
fn a_cordon_that_was_not_ours_stays_though_the_node_was_taken_over() {
    let model = world();
    model.with(|world| {
        world.cordon("od-1", true);
        world.later(Duration::from_secs(10), |world| terminates(world, "od-1", 20 * MINUTE));
    });
    let _ended = beside(&model);
    model.with(|world| {
        let node = world.node("od-1").unwrap();
        assert_eq!(owner(node).unwrap().0, Owner::Interruption);
        world.reboot("od-1");
    });
    answering(&model, MINUTE);
    model.with(|world| {
        let node = world.node("od-1").unwrap();
        assert!(node.unschedulable && node.claim == ClaimAnnotation::Absent, "{node:?}");
        assert!(node.taints.iter().all(|taint| taint.key != key::TO_BE_DELETED), "{node:?}");
    });
}

#[test]
fn a_retirement_that_fails_is_no_failure_if_its_node_is_taken_over_before_it_is_released() {
    let is_release = |call: &Call| matches!(call, Call::WriteNode { change, .. } if change.claim == Edit::Remove);
    let (mut released, mut overtaken) = (0, 0);
    for later in (0..300).step_by(10) {
        let model = world();
        model.with(|world| {
            world.fault_when(1, Fault::Fail(ErrorClass::Permanent), is_taint);
            world.fault_when(1, Fault::Fail(ErrorClass::Transient), is_release);
            let at = Duration::from_millis(20_040 + later);
            world.later(at, |world| terminates(world, "od-1", 20 * MINUTE));
        });
        let (report, _) = beside(&model);
        let node = model.with(|world| world.node("od-1").unwrap().clone());
        assert_eq!(owner(&node), Some((Owner::Interruption, ClaimStep::Draining)), "{later} ms");
        assert_eq!(report.failed.len(), usize::from(node.back_off.is_some()), "{later} ms: {report:?}");
        released += report.failed.len();
        overtaken += 1 - report.failed.len();
    }
    assert!(released > 2 && overtaken > 2, "{released} released, {overtaken} overtaken");
}

#[test]
fn a_person_who_takes_an_interrupted_node_back_has_it() {
    let slow = WorkloadSpec::deployment("slow", 2).stop(10 * MINUTE);
    let undos: [fn(&mut World); 2] =
        [|world| world.cordon("od-1", false), |world| world.label_node("od-1", key::SELECTED, None)];
    for undo in undos {
        let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow.clone()).build();
        model.with(|world| {
            terminates(world, "od-1", 20 * MINUTE);
            world.later(Duration::from_secs(30), undo);
        });
        let notes = answering(&model, 2 * MINUTE);
        assert!(notes.all().iter().any(|event| matches!(event, Progress::Undone { .. })));
        assert!(model.with(|world| world.unsettled().is_empty()), "the notice is answered");
        assert!(model.with(|world| world.node("od-1").unwrap().back_off.is_none()));
        assert_clean(&model);
    }
}

#[test]
fn rb_15_a_notice_that_leaves_less_time_hurries_the_drain_that_is_under_way() {
    let slow = WorkloadSpec::deployment("slow", 2).stop(10 * MINUTE);
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow).build();
    model.with(|world| {
        terminates(world, "od-1", 20 * MINUTE);
        world.later(MINUTE, |world| {
            let (instance, at) = (world.machine_of("od-1").unwrap(), world.wall() + 2 * MINUTE);
            world.announce(instance, Announcement::Interruption { action: Reclaim::Terminate, at });
        });
    });
    answering(&model, 2 * MINUTE);
    let mut asked: Vec<(Instant, Option<Duration>)> = model.with(|world| {
        let eviction = |record: &CallRecord| match &record.call {
            Call::Evict { grace, .. } => Some((record.sent, *grace)),
            _other => None,
        };
        world.calls().iter().filter_map(eviction).collect()
    });
    let hurried = asked.split_off(asked.len() / 2);
    let second = |at: &Instant| at.since(Instant::default()).as_secs();
    assert!(asked.iter().all(|(at, grace)| second(at) < 2 && grace.is_none()), "{asked:?}");
    let in_time = |grace: &Option<Duration>| grace.is_some_and(|grace| (100..120).contains(&grace.as_secs()));
    assert!(hurried.iter().all(|(at, grace)| second(at) == 60 && in_time(grace)), "{hurried:?}");
    assert_eq!((asked.len(), hurried.len()), (2, 2));
    let claim = model.with(|world| world.node("od-1").unwrap().claim.clone());
    let ClaimAnnotation::Valid(claim) = claim else { panic!("{claim:?}") };
    let recorded = claim.until.unwrap().duration_since(model.with(|world| world.wall()));
    assert!((58..=60).contains(&recorded.as_secs()), "{recorded:?}");
}

#[test]
fn a_cluster_autoscaler_that_takes_taint_and_cordon_off_as_it_starts_is_put_right_once() {
    let slow = WorkloadSpec::deployment("slow", 2).stop(10 * MINUTE);
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow).build();
    let is_shut = |world: &World| {
        let node = world.node("od-1").unwrap();
        node.unschedulable && node.taints.iter().any(|taint| taint.key == key::TO_BE_DELETED)
    };
    model.with(|world| {
        terminates(world, "od-1", 20 * MINUTE);
        world.later(MINUTE, |world| world.autoscaler_restarts("od-1"));
        world.later(MINUTE + Duration::from_secs(1), move |world| assert!(is_shut(world)));
        world.later(2 * MINUTE, |world| world.autoscaler_restarts("od-1"));
    });
    let notes = answering(&model, 3 * MINUTE);
    assert!(notes.all().iter().any(|event| matches!(event, Progress::Undone { .. })), "again, it is a person's doing");
    assert_clean(&model);
}

#[test]
fn a_drain_wakes_when_its_terms_get_stricter_though_nothing_else_happens() {
    let stuck = WorkloadSpec::deployment("stuck", 1).budget(Allowance::MaxUnavailable(0));
    let model = WorldBuilder::default().on_demand(1).workload(stuck).build();
    let told = Duration::from_secs(65);
    model.with(|world| {
        terminates(world, "od-1", 20 * MINUTE);
        // Nothing that is recorded changes: there is as much time as before, and budgets stop to count.
        world.later(told, |world| {
            let (instance, at) = (world.machine_of("od-1").unwrap(), world.wall() + 30 * MINUTE);
            world.announce(instance, Announcement::Interruption { action: Reclaim::Terminate, at });
        });
    });
    let settings = InterruptionSettings { delete_blocked_after: Duration::ZERO, ..InterruptionSettings::default() };
    answering_with(&model, settings, 2 * MINUTE);
    let deleted = model.with(|world| {
        let deletion = |record: &&CallRecord| matches!(record.call, Call::DeletePod { .. });
        world.calls().iter().find(deletion).unwrap().sent.since(Instant::default())
    });
    assert!(deleted.abs_diff(told) < Duration::from_secs(1), "{deleted:?}");
}
