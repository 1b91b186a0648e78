//! Making a pool larger and smaller.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{
    self, Call, FleetSpec, Invariants, Limits, Model, Offer, PoolLimits, WorkloadSpec, WorldBuilder,
};
use spot_core::node::key;
use spot_core::pool::{Count, Outcome, Settings, Told};
use spot_core::stop::Stop;

use super::support::*;

pub(crate) fn limits(floor: u32) -> Limits {
    Limits { pool: PoolLimits { floor, ..PoolLimits::default() }, ..Limits::default() }
}

#[test]
fn a_pool_shrinks_node_by_node_and_its_target_falls_by_exactly_what_went() {
    let model = cluster(&[1, 2, 3]).build();
    let invariants = Invariants::watch(&model, limits(3));
    let report = ask(&model, &settings(), Ask::Scale(3));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!((names(&report), report.evictions > 2), (vec!["sfr-1-1", "sfr-1-2"], true), "{report:?}");
    assert_eq!(only(&model), (3, vec![3]));
    assert_eq!(changes(&model), [(6, 5, true), (5, 3, true)]);
    assert_eq!(invariants.at_the_end(&model), []);
    let pending = model.with(|world| world.view().unbound_pods().count());
    assert_eq!(pending, 0, "their pods run elsewhere");
    let again = ask(&model, &settings(), Ask::Scale(3));
    assert_eq!((again.outcome, again.retired.len()), (Outcome::Done, 0), "it is as it was asked for");
}

#[test]
fn a_node_whose_weight_does_not_fit_stays_and_what_is_left_over_is_told() {
    let model = cluster(&[2, 3]).build();
    let report = ask(&model, &settings(), Ask::Scale(4));
    assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Remainder(5), 0), "{report:?}");
    assert_eq!(only(&model), (4, vec![2, 3]), "what goes by itself is not replaced beyond that");
    assert_eq!(ask(&model, &settings(), Ask::Scale(4)).outcome, Outcome::Remainder(5));
    let report = ask(&model, &settings(), Ask::Scale(3));
    assert_eq!((report.outcome, only(&model)), (Outcome::Done, (3, vec![3])), "and then one fits");
}

#[test]
fn nothing_goes_below_the_floor() {
    let model = cluster(&[1, 1]).build();
    let settings = Settings { floor: 2, ..Settings::default() };
    let report = ask(&model, &settings, Ask::Scale(1));
    let Outcome::Refused(why) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(why, "the pool's minimum is 2, and 1 is less");
    assert_eq!(calls(&model, is_write), 0);
}

#[test]
fn a_pool_grows_and_is_awaited_until_it_is_ready() {
    let model = cluster(&[1]).build();
    let (report, told) = ask_and_hear(&model, Ask::Scale(4));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let (target, weights) = only(&model);
    assert!(target == 4 && weights.iter().sum::<u32>() >= 4, "{target} {weights:?}");
    let resized = Told::Resized { fleet: FLEET.to_owned(), from: 1, to: 4 };
    assert_eq!(told.iter().filter(|told| **told == resized).count(), 1, "{told:?}");
    let counts: Vec<Count> = told
        .iter()
        .filter_map(|told| match told {
            Told::Counted(count) => Some(*count),
            _other => None,
        })
        .collect();
    assert!(counts.windows(2).all(|two| two[0] != two[1]), "each is news: {counts:?}");
    let last = counts.last().unwrap();
    assert!(last.ready >= 4 && last.wanted == 4, "{last:?}");
}

#[test]
fn what_can_not_be_bought_in_time_is_told_and_nothing_is_taken_back() {
    let spec = FleetSpec::new(FLEET, 1).members(&[1]).offer(Offer::new(1).left(1));
    let model = WorldBuilder::default().spot(1).fleet(spec).build();
    let report = ask(&model, &settings(), Ask::Scale(3));
    let missing = Count { wanted: 3, launched: 2, joined: 2, ready: 2 };
    assert_eq!(report.outcome, Outcome::NotReady(missing));
    assert_eq!(only(&model), (3, vec![1, 1]));
    assert_eq!(ask(&model, &settings(), Ask::Ready(2)).outcome, Outcome::Done);
    assert_eq!(ask(&model, &settings(), Ask::Ready(3)).outcome, Outcome::NotReady(missing));
    assert_eq!(changes(&model).len(), 1, "to wait changes nothing");
}

#[test]
fn what_is_still_to_be_launched_is_not_launched_any_more() {
    let spec = FleetSpec::new(FLEET, 6).members(&[1, 1, 1]).offer(Offer::new(1).left(0));
    let model = WorldBuilder::default().spot(1).fleet(spec).build();
    let report = ask(&model, &settings(), Ask::Scale(2));
    assert_eq!((report.outcome, report.retired.len()), (Outcome::Done, 1));
    assert_eq!(changes(&model), [(6, 3, false), (3, 2, true)]);
}

#[test]
fn machines_that_are_no_nodes_go_first_since_nobody_misses_them() {
    let spec = FleetSpec::new(FLEET, 4).members(&[1, 1]).offer(Offer::new(1).never_joining());
    let model = WorldBuilder::default().spot(1).fleet(spec).deployment("web", 4).build();
    model.run_until(spot_core::ports::Instant(16 * MINUTE)).unwrap();
    assert_eq!(only(&model), (4, vec![1, 1, 1, 1]));
    let (report, told) = ask_and_hear(&model, Ask::Scale(1));
    assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Done, 1), "{report:?}");
    let terminated = told.iter().filter(|told| matches!(told, Told::Terminated { .. })).count();
    assert_eq!((terminated, only(&model)), (2, (1, vec![1])));
    assert_eq!(changes(&model), [(4, 3, false), (3, 2, false), (2, 1, true)]);
}

#[test]
fn a_machine_that_is_about_to_become_a_node_goes_only_where_no_node_may() {
    let spec = FleetSpec::new(FLEET, 3).members(&[1, 1]).offer(Offer::new(1).never_joining());
    let model = WorldBuilder::default().spot(1).fleet(spec).deployment("web", 4).build();
    model.run_until(spot_core::ports::Instant(MINUTE)).unwrap();
    model.with(|world| world.annotate_node("sfr-1-2", key::DO_NOT_DISRUPT, Some("true")));
    let report = ask(&model, &settings(), Ask::Scale(2));
    assert_eq!((&report.outcome, names(&report)), (&Outcome::Done, vec!["sfr-1-1"]), "{report:?}");
    let (report, told) = ask_and_hear(&model, Ask::Scale(1));
    assert_eq!((&report.outcome, report.retired.len(), only(&model)), (&Outcome::Done, 0, (1, vec![1])), "{report:?}");
    assert_eq!(told.iter().filter(|told| matches!(told, Told::Terminated { .. })).count(), 1, "{told:?}");
}

#[test]
fn a_machine_that_becomes_a_node_while_its_fleet_is_lowered_is_retired_as_one() {
    for (what, opted_out, left) in [(Ask::Scale(1), Some("true"), 1), (Ask::Remove(None), None, 0)] {
        let mut spec = FleetSpec::new(FLEET, 2).members(&[1]).offer(Offer::new(1));
        spec.modifying = MINUTE;
        let model = WorldBuilder::default().spot(1).fleet(spec).deployment("web", 4).build();
        // It is launched after 20 s, and a node 40 s later.
        model.run_until(spot_core::ports::Instant(Duration::from_secs(50))).unwrap();
        model.with(|world| world.annotate_node("sfr-1-1", key::DO_NOT_DISRUPT, opted_out));
        let report = ask(&model, &settings(), what);
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        assert!(names(&report).contains(&"sfr-1-2"), "{report:?}");
        assert_eq!(calls(&model, |call| matches!(call, Call::Terminate { .. })), 0);
        assert_eq!(model.with(|world| world.members().count()), left);
    }
}

#[test]
fn a_pause_holds_machines_that_are_no_nodes_and_fleets_too() {
    let spec = FleetSpec::new(FLEET, 3).members(&[]).offer(Offer::new(1).never_joining());
    for (spec, what) in [
        (spec.clone(), Ask::Scale(1)),
        (spec, Ask::Remove(None)),
        (FleetSpec::new(FLEET, 2), Ask::Scale(1)),
        (FleetSpec::new(FLEET, 0), Ask::Remove(None)),
    ] {
        let model = WorldBuilder::default().spot(1).fleet(spec).build();
        model.run_until(spot_core::ports::Instant(20 * MINUTE)).unwrap();
        model.with(|world| world.pause(true));
        assert_eq!(ask(&model, &settings(), what).outcome, Outcome::Paused, "{what:?}");
        assert_eq!(calls(&model, is_write), 0, "{what:?}");
    }
}

#[test]
fn what_is_waited_for_is_told_once_and_its_end_is_seen_at_once() {
    let model = cluster(&[1]).build();
    let (report, told) = ask_and_hear(&model, Ask::Scale(2));
    assert_eq!(report.outcome, Outcome::Done);
    let waits = told.iter().filter(|told| matches!(told, Told::Waiting { .. })).count();
    assert_eq!(waits, 1, "{told:?}");
    // It is launched after 20 s, a node 40 s later, and ready after 10 s more.
    assert_eq!(model.with(|world| world.now()), spot_core::ports::Instant(Duration::from_secs(70)));
    assert!(calls(&model, |call| matches!(call, Call::Fleets)) < 9, "and the cloud is asked no more often for that");
}

#[test]
fn who_only_waits_for_a_pool_says_what_others_do_to_it_and_waits_on() {
    let model = WorldBuilder::default().spot(1).fleet(FleetSpec::new(FLEET, 2).offer(Offer::new(1))).build();
    model.with(|world| world.later(Duration::from_secs(30), |world| world.set_target(FLEET, 3)));
    let (process, notes) = (model.process(), Notes::default());
    let pools = pools(&process, &settings(), &notes);
    let report = model::block_on(&model, pools.await_ready(2, &Stop::default())).unwrap().unwrap();
    assert_eq!((report.outcome, only(&model).0), (Outcome::Done, 3));
    assert!(notes.problems().iter().any(|what| what.contains("by somebody else's doing")), "{:?}", notes.problems());
}

#[test]
fn a_machine_that_the_cloud_will_not_terminate_is_looked_at_again_and_no_node_goes_instead() {
    for (times, outcome, tries, left) in [(1, Outcome::Done, 3, vec![1]), (3, Outcome::Failed, 4, vec![1, 1])] {
        let spec = FleetSpec::new(FLEET, 3).members(&[1]).offer(Offer::new(1).never_joining());
        let model = WorldBuilder::default().spot(1).fleet(spec).build();
        model.run_until(spot_core::ports::Instant(20 * MINUTE)).unwrap();
        let is_terminate = |call: &Call| matches!(call, Call::Terminate { .. });
        model.with(|world| world.fault_when(times, Fault::Fail(ErrorClass::Permanent), is_terminate));
        let report = ask(&model, &settings(), Ask::Scale(1));
        assert_eq!((report.outcome, report.retired.len(), calls(&model, is_terminate)), (outcome, 0, tries));
        assert_eq!(only(&model).1, left, "the other one goes");
    }
}

#[test]
fn what_somebody_elses_scale_in_left_over_is_retired_and_the_target_stays() {
    let model = cluster(&[1, 1, 1, 1]).build();
    model.with(|world| world.set_target(FLEET, 2));
    let report = ask(&model, &settings(), Ask::Scale(2));
    assert_eq!((report.outcome, report.retired.len()), (Outcome::Done, 2));
    assert_eq!((only(&model), changes(&model)), ((2, vec![1, 1]), vec![(4, 2, false)]));
}

#[test]
fn nodes_that_may_not_go_are_told_with_their_reasons_and_others_go_instead() {
    let model = cluster(&[1, 1, 1]).build();
    model.with(|world| world.annotate_node("sfr-1-1", key::DO_NOT_DISRUPT, Some("true")));
    let report = ask(&model, &settings(), Ask::Scale(2));
    assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Done, 1));
    let report = ask(&model, &settings(), Ask::Scale(0));
    assert_eq!(blocked(&report), [("sfr-1-1", "opted_out by karpenter.sh/do-not-disrupt".to_owned())]);
    assert_eq!((report.retired.len(), only(&model)), (1, (1, vec![1])), "its target is what it has");
}

#[test]
fn a_pause_holds_a_pool_and_its_growth_goes_on() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| world.pause(true));
    assert_eq!(ask(&model, &settings(), Ask::Scale(1)).outcome, Outcome::Paused);
    assert_eq!((calls(&model, is_claim), only(&model)), (0, (2, vec![1, 1])));
    assert_eq!(ask(&model, &settings(), Ask::Scale(3)).outcome, Outcome::Done);

    let model = cluster(&[1, 1, 1]).build();
    model.with(|world| world.later(Duration::from_secs(20), |world| world.pause(true)));
    assert_eq!(ask(&model, &settings(), Ask::Scale(1)).outcome, Outcome::Paused, "in the middle of it");
}

#[test]
fn a_target_that_somebody_else_changes_meanwhile_is_told_and_not_fought() {
    for other in [2, 9] {
        let slow = WorkloadSpec::deployment("slow", 6).stop(MINUTE);
        let model = WorldBuilder::default().spot(2).fleet(fleet(&[1, 1, 1, 1, 1])).workload(slow).build();
        model.with(|world| world.later(MINUTE / 2, move |world| world.set_target(FLEET, other)));
        let report = ask(&model, &settings(), Ask::Scale(3));
        // The node that was being drained goes, by its weight and no more.
        let after: Vec<_> = changes(&model).into_iter().skip_while(|(_, to, _)| *to != other).skip(1).collect();
        assert!(after.len() <= 1 && after.iter().all(|(from, to, left)| *left && from - to == 1), "{other}: {after:?}");
        match &report.outcome {
            Outcome::Changed(what) => assert!(what.contains("by somebody else's doing"), "{what}"),
            outcome => assert_eq!(*outcome, Outcome::Failed, "{report:?}"),
        }
    }
}

#[test]
fn a_pool_in_the_middle_of_a_roll_is_not_scaled() {
    let old = FleetSpec::new("sfr-0", 2).members(&[1, 1]);
    let model = WorldBuilder::default().fleet(old).fleet(fleet(&[1])).build();
    let report = ask(&model, &settings(), Ask::Scale(0));
    let Outcome::Refused(why) = &report.outcome else { panic!("{report:?}") };
    assert!(why.contains("sfr-0") && why.contains("roll"), "{why}");
    let model = WorldBuilder::default().spot(1).build();
    let report = ask(&model, &settings(), Ask::Scale(1));
    let Outcome::Refused(why) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(why, "the pool has no fleet: create it first");
    assert_eq!(calls(&model, is_write), 0);
}

#[test]
fn a_fleet_that_somebody_ends_meanwhile_is_not_said_to_be_untouched() {
    let model = cluster(&[1, 1, 1]).build();
    model.with(|world| world.later(MINUTE, |world| world.end_fleet(FLEET)));
    let report = ask(&model, &settings(), Ask::Scale(1));
    assert!(matches!(report.outcome, Outcome::Changed(_)), "{report:?}");
}

#[test]
fn who_is_told_to_stop_leaves_the_rest_to_the_next_call() {
    let model = cluster(&[1, 1, 1]).build();
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(Duration::from_secs(20), move |_| asked.set()));
    let process = model.process();
    let pools = pools(&process, &settings(), &Notes::default());
    let report = model::block_on(&model, pools.scale(1, &stop)).unwrap().unwrap();
    assert_eq!(report.outcome, Outcome::Stopped);
    assert_eq!(ask(&model, &settings(), Ask::Scale(1)).outcome, Outcome::Done);
    assert_eq!(only(&model), (1, vec![1]));
}

#[test]
fn who_is_told_to_stop_between_two_tries_of_a_call_stops() {
    let model = cluster(&[1]).build();
    model.with(|world| {
        world.fault_when(u32::MAX, Fault::Fail(ErrorClass::Transient), |call| matches!(call, Call::Resize { .. }));
    });
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(Duration::from_secs(20), move |_| asked.set()));
    let report = try_ask(&model, &model.process(), &settings(), Ask::Scale(4), &stop).unwrap().unwrap();
    assert_eq!(report.outcome, Outcome::Stopped, "between two tries");
}

/// Machines that are gone are listed for a while; they do not make room for others.
#[test]
fn what_went_makes_no_room_though_lists_are_late() {
    let late = |settings: &mut model::Settings| settings.describe_lag = 20 * MINUTE;
    let model = WorldBuilder::default().settings(late).spot(2).fleet(fleet(&[1, 3, 3])).guarded("web", 8, 1).build();
    model.with(|world| world.edit_node("sfr-1-1", |node| node.created_at -= MINUTE));
    let invariants = Invariants::watch(&model, limits(4));
    let report = ask(&model, &settings(), Ask::Scale(4));
    assert_eq!((&report.outcome, names(&report)), (&Outcome::Remainder(6), vec!["sfr-1-1"]), "{report:?}");
    assert_eq!(calls(&model, |call| matches!(call, Call::Terminate { .. })), 0, "nor are they terminated once more");
    assert_eq!(invariants.at_the_end(&model), []);
}

#[test]
fn work_on_a_pool_may_be_done_by_any_thread() {
    fn is_send<T: Send>(_work: T) {}
    let (model, stop) = (cluster(&[1]).build(), Stop::default());
    let pools = pools(&model.process(), &settings(), &Notes::default());
    is_send(pools.scale(1, &stop));
    is_send(pools.await_ready(1, &stop));
    is_send(pools.remove(None, &stop));
    is_send(pools.roll(spot_core::pool::roll::Terms { capacity: 1, surge: 1, unavailable: 0 }, &stop));
}

#[test]
fn while_somebody_elses_change_of_a_fleet_is_under_way_it_waits_and_not_without_end() {
    for (modifying, to, expected) in [(3 * MINUTE, 3, true), (3 * MINUTE, 1, true), (60 * MINUTE, 1, false)] {
        let mut spec = fleet(&[1, 1]);
        spec.modifying = modifying;
        let model = WorldBuilder::default().spot(2).fleet(spec).guarded("web", 8, 1).build();
        model.with(|world| world.set_target(FLEET, 2));
        let report = ask(&model, &settings(), Ask::Scale(to));
        assert_eq!(report.outcome == Outcome::Done, expected, "{modifying:?}: {report:?}");
        if !expected {
            assert!(matches!(&report.outcome, Outcome::Changed(what) if what.contains("does not come to its end")));
            assert_eq!(calls(&model, is_write), 0);
        }
    }
}

fn six() -> Model {
    cluster(&[1, 2, 3]).build()
}

fn growing() -> Model {
    cluster(&[1]).build()
}

fn troubled(build: fn() -> Model, what: Ask, floor: u32, trouble: impl Fn() -> Fault, name: &str) {
    for at in 1..=calls_of(build, what) {
        let model = build();
        let invariants = Invariants::watch(&model, limits(floor));
        model.with(|world| world.fault_at(at, trouble()));
        until_done(&model, what, &format!("{name} at call {at}"));
        let found = invariants.at_the_end(&model);
        assert!(found.is_empty(), "{name} at call {at}: {found:#?}");
        let (target, weights) = only(&model);
        assert_eq!((target, weights.iter().sum::<u32>()), (3, 3), "{name} at call {at}: {weights:?}");
    }
}

#[test]
fn killed_at_any_call_of_a_scale_down_the_next_process_comes_to_the_same_end() {
    troubled(six, Ask::Scale(3), 3, || Fault::KillBefore, "killed before");
    troubled(six, Ask::Scale(3), 3, || Fault::KillAfter, "killed after");
}

#[test]
fn whatever_call_of_a_scale_down_fails_it_comes_to_the_same_end() {
    troubled(six, Ask::Scale(3), 3, || Fault::LoseAnswer, "answer lost");
    for class in [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Denied, ErrorClass::Permanent] {
        troubled(six, Ask::Scale(3), 3, || Fault::Fail(class), "failed");
    }
}

#[test]
fn killed_or_failed_at_any_call_of_its_growth_a_pool_never_grows_twice() {
    for at in 1..=calls_of(growing, Ask::Scale(3)) {
        for fault in [Fault::KillBefore, Fault::KillAfter, Fault::LoseAnswer, Fault::Fail(ErrorClass::Transient)] {
            let model = growing();
            let what = format!("{fault:?} at call {at}");
            model.with(|world| world.fault_at(at, fault));
            until_done(&model, Ask::Scale(3), &what);
            assert_eq!(changes(&model).iter().filter(|(_, to, _)| *to != 3).count(), 0, "{what}");
            assert_eq!(only(&model).0, 3, "{what}");
        }
    }
}

#[test]
fn several_go_side_by_side_where_that_is_allowed() {
    let web = WorkloadSpec::deployment("web", 8).stop(MINUTE);
    let model = WorldBuilder::default().spot(2).fleet(fleet(&[1, 1, 1, 1, 1])).workload(web).build();
    let invariants = Invariants::watch(&model, Limits { nodes_at_once: 2, ..limits(1) });
    let most = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&most);
    model.with(|world| {
        world.after_each_call(move |world, _| {
            let claimed = world.view().nodes().iter().filter(|node| node.unschedulable).count();
            let mut most = seen.lock().unwrap();
            *most = claimed.max(*most);
        });
    });
    let mut settings = Settings::default();
    settings.policy.budgets.at_once = 2;
    assert_eq!(ask(&model, &settings, Ask::Scale(1)).outcome, Outcome::Done);
    assert_eq!((invariants.at_the_end(&model), only(&model), *most.lock().unwrap()), (vec![], (1, vec![1]), 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_keeps_at_least_what_is_wanted_and_nothing_that_could_go_beside(
        weights in proptest::collection::vec(1_u32..5, 1..7),
        to in 0_u32..16,
        at_once in 1_usize..4,
        held in proptest::option::weighted(0.3, 1_usize..7),
    ) {
        let there: u32 = weights.iter().sum();
        prop_assume!(to <= there);
        let model = WorldBuilder::default().spot(2).fleet(fleet(&weights)).guarded("web", 8, 1).build();
        let opted_out = held.filter(|at| *at <= weights.len()).map(|at| weights[at - 1]);
        if let Some(at) = held {
            model.with(|world| world.annotate_node(&format!("sfr-1-{at}"), key::DO_NOT_DISRUPT, Some("true")));
        }
        let invariants = Invariants::watch(&model, Limits { nodes_at_once: at_once, ..limits(to) });
        let mut settings = settings();
        settings.policy.budgets.at_once = at_once;
        let report = ask(&model, &settings, Ask::Scale(to));
        prop_assert_eq!(invariants.at_the_end(&model), vec![]);
        let (target, left) = only(&model);
        let kept: u32 = left.iter().sum();
        prop_assert_eq!(report.retired.len(), weights.len() - left.len());
        prop_assert!(kept >= to && (kept == there) == report.retired.is_empty());
        let mut movable = left.clone();
        if let Some(at) = movable.iter().position(|weight| Some(*weight) == opted_out) {
            movable.remove(at);
        }
        prop_assert!(movable.iter().all(|weight| *weight > kept - to), "{left:?} for {to}: {report:?}");
        match report.outcome {
            Outcome::Done => prop_assert_eq!((kept, target), (to, to)),
            Outcome::Remainder(rest) => prop_assert_eq!((rest, target), (kept, to)),
            Outcome::Blocked(_) => prop_assert!(opted_out.is_some_and(|weight| weight <= kept - to) && target == kept),
            outcome => prop_assert!(false, "{outcome:?}"),
        }
    }
}
