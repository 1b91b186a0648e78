//! While spot capacity is being taken back, planned work waits.

use spot_core::Node;
use spot_core::claim::ClaimStep;
use spot_core::interruption::Hold;
use spot_core::model::fault::Fault;
use spot_core::model::{Invariants, Limits, WorkloadSpec, WorldBuilder};
use spot_core::ports::Instant;
use spot_core::progress::{Halted, OutcomeKind, Step};

use super::*;

const QUARTER: Duration = Duration::from_mins(15);

/// Pods that take their time to stop, so that a drain waits on nothing else.
fn slow(stop: Duration) -> WorkloadSpec {
    WorkloadSpec::deployment("slow", 2).stop(stop)
}

fn held(model: &Model, hold: &Hold) -> (Report, Notes) {
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings()).with_hold(hold.clone());
    let stop = Stop::default();
    let report =
        model::block_on(model, async { migrator.once(&stop).await }).expect("it ends").expect("it can be made");
    (report, notes)
}

/// The hold is set so much later, for so long.
fn later(model: &Model, hold: &Hold, after: Duration, lasts: Duration) {
    let hold = hold.clone();
    model.with(|world| world.later(after, move |world| hold.hold(world.now() + lasts)));
}

fn sent(model: &Model, matches: impl Fn(&Call) -> bool) -> Vec<Instant> {
    model.with(|world| world.calls().iter().filter(|record| matches(&record.call)).map(|record| record.sent).collect())
}

fn is_uncordon(call: &Call) -> bool {
    matches!(call, Call::WriteNode { change, .. } if change.unschedulable == Some(false))
}

/// Whether it records that the deletion is about to be asked for: from then on the node is departing.
fn is_about_to_delete(call: &Call) -> bool {
    matches!(call, Call::WriteNode { change, .. }
        if matches!(&change.claim, Edit::Set(claim) if claim.step == ClaimStep::Deleting))
}

#[test]
fn rb_16_a_drain_under_way_is_released_at_once_without_a_back_off_and_the_run_goes_on_afterwards() {
    let model = WorldBuilder::default().on_demand(2).spot(2).workload(slow(10 * MINUTE)).build();
    let hold = Hold::default();
    later(&model, &hold, Duration::from_secs(20), QUARTER);
    model.with(|world| {
        world.later(Duration::from_secs(22), |world| {
            let node = world.node("od-1").unwrap();
            assert!(!node.unschedulable && node.back_off.is_none() && node.label(key::SELECTED).is_none(), "{node:?}");
        });
    });
    let (report, notes) = held(&model, &hold);
    assert_eq!(outcome(&report), OutcomeKind::AllSpot, "{report:?}");
    assert_eq!((names(&report.retired), report.failed.len()), (vec!["od-1", "od-2"], 0));
    let began = model.with(|world| world.calls().first().unwrap().sent);
    let released = sent(&model, is_uncordon)[0].since(began);
    assert!(released.abs_diff(Duration::from_secs(20)) < Duration::from_secs(1), "it wakes at once: {released:?}");
    let claims = sent(&model, is_claim);
    let until = began + Duration::from_secs(20) + QUARTER;
    assert!(claims.len() == 3 && claims[1..].iter().all(|at| *at >= until), "{claims:?}");
    let told = notes.all();
    assert!(told.iter().any(|event| matches!(event, Progress::Postponed { node, .. } if &*node.name == "od-1")));
    let is_held = |event: &Progress| matches!(event, Progress::StepHalted { step: Step::Drain, halted, .. } if *halted == Halted::Held);
    assert!(told.iter().any(is_held), "{told:?}");
    assert_clean(&model);
}

#[test]
fn no_node_is_begun_while_it_lasts() {
    let model = WorldBuilder::default().on_demand(2).spot(2).deployment("web", 8).build();
    let hold = Hold::default();
    let until = model.with(|world| world.now()) + QUARTER;
    hold.hold(until);
    let (report, _) = held(&model, &hold);
    assert_eq!(outcome(&report), OutcomeKind::AllSpot, "{report:?}");
    assert!(sent(&model, |call| matches!(call, Call::WriteNode { .. })).iter().all(|at| *at >= until));
}

#[test]
fn a_run_that_is_held_for_longer_than_it_settles_ends_and_is_neither_a_success_nor_a_failure() {
    let model = WorldBuilder::default().on_demand(2).spot(2).deployment("web", 8).build();
    let hold = Hold::default();
    let began = model.with(|world| world.now());
    hold.hold(began + 24 * QUARTER);
    let (report, _) = held(&model, &hold);
    assert_eq!(outcome(&report), OutcomeKind::NotSettled, "{report:?}");
    assert!(!report.found_nothing_to_do() && !report.has_failures());
    let took = model.with(|world| world.now()).since(began);
    assert!(took.abs_diff(settings().settle_timeout) < MINUTE, "{took:?}");
    assert_eq!(calls(&model, |call| matches!(call, Call::WriteNode { .. })), 0);
}

#[test]
fn a_run_that_is_held_again_and_again_without_getting_anywhere_ends() {
    let model = WorldBuilder::default().on_demand(2).spot(2).workload(slow(10 * MINUTE)).build();
    let hold = Hold::default();
    for time in 0..60 {
        later(&model, &hold, time * MINUTE + Duration::from_secs(20), Duration::from_secs(30));
    }
    let (report, _) = held(&model, &hold);
    assert_eq!(outcome(&report), OutcomeKind::NotSettled, "{report:?}");
    assert_eq!((report.retired.len(), report.failed.len()), (0, 0), "{report:?}");
    assert_clean(&model);
}

#[test]
fn a_process_that_is_told_to_end_does_so_though_it_is_held() {
    let model = WorldBuilder::default().on_demand(1).spot(1).build();
    let (hold, stop) = (Hold::default(), Stop::default());
    hold.hold(model.with(|world| world.now()) + QUARTER);
    let migrator = Migrator::new(model.ports(Arc::new(Notes::default())), settings()).with_hold(hold);
    let asked = stop.clone();
    model.with(|world| world.later(MINUTE, move |_| asked.set()));
    let report = model::block_on(&model, async { migrator.once(&stop).await }).unwrap().unwrap();
    assert_eq!(outcome(&report), OutcomeKind::Stopped);
    assert!(model.with(|world| world.now()).since(Instant::default()) < 2 * MINUTE);
}

#[test]
fn whenever_it_is_set_no_node_is_begun_and_none_departs_until_it_is_over_and_nothing_fails() {
    let build = || {
        let web = WorkloadSpec::deployment("web", 4).stop(Duration::from_secs(20));
        let model = WorldBuilder::default().on_demand(2).spot(2).workload(web).guarded("api", 4, 1).build();
        // Which is asked about right before a deletion.
        model.with(|world| world.make_fleet("on-demand"));
        model
    };
    let all = {
        let model = build();
        assert_eq!(once(&model, &settings()).retired.len(), 2);
        model.with(|world| world.calls().len())
    };
    let mut postponed = 0;
    for number in 0..all {
        let model = build();
        let invariants = Invariants::watch(&model, Limits::default());
        let (hold, set) = (Hold::default(), Arc::new(Mutex::new(None)));
        let (sets, at) = (hold.clone(), Arc::clone(&set));
        let act = move |world: &mut World| {
            let now = world.now();
            sets.hold(now + QUARTER);
            *at.lock().unwrap() = Some(now);
        };
        model.with(|world| world.fault_at(u64::try_from(number).unwrap(), Fault::Before(Box::new(act))));
        let (report, notes) = held(&model, &hold);
        assert_eq!((outcome(&report), report.failed.len()), (OutcomeKind::AllSpot, 0), "call {number}: {report:?}");
        assert_eq!(names(&report.retired), ["od-1", "od-2"], "call {number}");
        let set = set.lock().unwrap().unwrap();
        let ends = |at: &&Instant| set < **at && **at < set + QUARTER;
        for begins in [sent(&model, is_claim), sent(&model, is_about_to_delete)] {
            assert_eq!(begins.iter().find(ends), None, "call {number}, held at {set:?}");
        }
        postponed += usize::from(notes.all().iter().any(|event| matches!(event, Progress::Postponed { .. })));
        let broken = invariants.at_the_end(&model);
        assert!(broken.is_empty(), "call {number}: {broken:#?}");
        assert_clean(&model);
    }
    assert!(postponed > 10, "{postponed} of {all}");
}
