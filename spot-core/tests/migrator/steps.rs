//! What is told of each step: that it began, and how it ended.

use spot_core::claim::ClaimStep;
use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{Allowance, WorkloadSpec, WorldBuilder};
use spot_core::progress::{Halted, Step};

use super::*;

/// The steps of the node, each with how it ended; fails if one ended that had not begun, or the other way round.
fn steps(notes: &Notes, on: &str) -> Vec<(Step, Option<Halted>)> {
    let mut ended = Vec::new();
    let mut begun = Vec::new();
    for event in notes.all() {
        match event {
            Progress::StepStarted { node, step } if &*node.name == on => begun.push(step),
            Progress::StepDone { node, step, .. } if &*node.name == on => ended.push((step, None)),
            Progress::StepHalted { node, step, halted, .. } if &*node.name == on => ended.push((step, Some(halted))),
            _other => {}
        }
        assert!(begun.len() - ended.len() <= 1 && ended.iter().zip(&begun).all(|((end, _), step)| end == step));
    }
    assert_eq!(begun.len(), ended.len(), "{begun:?}");
    ended
}

fn told(model: &Model) -> Notes {
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings());
    let stop = Stop::default();
    let _ended = model::block_on(model, async { migrator.once(&stop).await }).expect("it ends");
    notes
}

#[test]
fn each_step_of_a_retirement_begins_and_ends_once_settling_too() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    let expected = [Step::Claim, Step::Drain, Step::Taint, Step::Detach, Step::Delete, Step::AwaitGone, Step::Settle];
    assert_eq!(steps(&told(&model), "od-1"), expected.map(|step| (step, None)));
}

#[test]
fn a_step_that_fails_ends_too_and_the_release_is_one() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.fault_when(1, Fault::Fail(ErrorClass::Permanent), |call| matches!(call, Call::DeleteInstance { .. }));
    });
    let steps = steps(&told(&model), "od-1");
    assert_eq!(steps[4..], [(Step::Delete, Some(Halted::Failed)), (Step::Release, None), (Step::Settle, None)]);
}

fn is_about_to_delete(call: &Call) -> bool {
    matches!(call, Call::WriteNode { change, .. }
        if matches!(&change.claim, Edit::Set(claim) if claim.step == ClaimStep::Deleting))
}

#[test]
fn the_record_of_a_deletion_and_the_last_list_of_pods_are_part_of_the_deletion() {
    for matches in [is_about_to_delete, |call: &Call| matches!(call, Call::LatestPods(_))] {
        let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
        model.with(|world| world.fault_when(1, Fault::Fail(ErrorClass::Permanent), matches));
        let steps = steps(&told(&model), "od-1");
        assert_eq!(steps[3..6], [(Step::Detach, None), (Step::Delete, Some(Halted::Failed)), (Step::Release, None)]);
    }
}

/// A list shows a pod that the watches never do.
#[test]
fn a_drain_that_is_never_done_is_a_step_that_failed() {
    let lag = |settings: &mut spot_core::model::Settings| settings.view_lag = Duration::from_hours(9);
    let model = WorldBuilder::default().settings(lag).on_demand(1).spot(1).deployment("web", 0).build();
    model.with(|world| {
        world.later(Duration::from_secs(20), |world| {
            world.land_pod("web", "late-comer", "od-1");
        });
    });
    let steps = steps(&told(&model), "od-1");
    let [.., drain, release] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((drain, release), (&(Step::Drain, Some(Halted::Failed)), &(Step::Release, None)), "{steps:?}");
    assert_eq!(steps.iter().filter(|step| **step == (Step::Delete, Some(Halted::Outdated))).count(), 10);
}

#[test]
fn a_release_that_the_lost_lead_ends_is_no_failure() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.fault_when(1, Fault::Fail(ErrorClass::Permanent), is_delete);
        let releases = |call: &Call| matches!(call, Call::WriteNode { change, .. } if change.claim == Edit::Remove);
        world.fault_when(1, Fault::Fail(ErrorClass::NotLeader), releases);
    });
    let steps = steps(&told(&model), "od-1");
    assert_eq!(steps[4..6], [(Step::Delete, Some(Halted::Failed)), (Step::Release, Some(Halted::NotLeader))]);
}

#[test]
fn a_leftover_that_can_not_be_taken_up_again_is_a_step_that_failed() {
    let model =
        WorldBuilder::default().on_demand(1).spot(1).workload(WorkloadSpec::deployment("slow", 2).stop(MINUTE)).build();
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.later(Duration::from_secs(20), move |world| world.kill_process(id));
    });
    assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)));
    model.with(|world| world.annotate_node("od-1", key::DO_NOT_MIGRATE, Some("true")));
    let steps = steps(&told(&model), "od-1");
    assert_eq!(steps[..2], [(Step::Claim, Some(Halted::Failed)), (Step::Release, None)]);
}

#[test]
fn settling_that_takes_too_long_is_a_step_that_failed() {
    let stuck = WorkloadSpec::deployment("slow", 2).start_up(Duration::from_hours(2));
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(stuck).build();
    assert_eq!(steps(&told(&model), "od-1").last(), Some(&(Step::Settle, Some(Halted::Failed))));
}

#[test]
fn a_node_that_nobody_touched_has_no_steps() {
    let model = WorldBuilder::default()
        .on_demand(1)
        .spot(1)
        .workload(WorkloadSpec::deployment("web", 1).budget(Allowance::MaxUnavailable(0)))
        .build();
    assert_eq!(steps(&told(&model), "od-1"), []);
}

#[test]
fn a_run_that_loses_the_lead_says_so_at_its_end() {
    let model = WorldBuilder::default().on_demand(2).spot(1).deployment("web", 2).build();
    let (one, other) = (model.process(), model.process());
    model.with(|world| {
        world.give_lease(one.id());
        let successor = other.id();
        world.later(Duration::from_secs(20), move |world| world.give_lease(successor));
    });
    let notes = Notes::default();
    let migrator = Migrator::new(one.ports(Arc::new(notes.clone()), one.candidate()), settings());
    let stop = Stop::default();
    let ended = model::block_on(&model, async { migrator.migrate(&stop).await }).expect("it ends");
    assert!(matches!(ended, Err(RunError::LostLeadership)), "{ended:?}");
    assert_eq!(failures(&notes), [ErrorClass::NotLeader]);
}

#[test]
fn a_run_that_fails_says_what_can_be_done_about_it() {
    for class in [ErrorClass::Transient, ErrorClass::Denied, ErrorClass::Permanent] {
        let model = WorldBuilder::default().on_demand(1).spot(1).build();
        model.with(|world| world.fault_when(1, Fault::Fail(class), |call| matches!(call, Call::Survey { .. })));
        assert_eq!(failures(&told(&model)), [class]);
    }
}

fn failures(notes: &Notes) -> Vec<ErrorClass> {
    let class = |event: &Progress| match event {
        Progress::RunFailed { class, .. } => Some(*class),
        _other => None,
    };
    notes.all().iter().filter_map(class).collect()
}
