//! The replacement of a pool's old fleets by its current one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{
    Allowance, Call, FleetSpec, Invariants, Limits, Model, Offer, PoolLimits, Why, WorkloadSpec, World, WorldBuilder,
};
use spot_core::pool::roll::Terms;
use spot_core::pool::{Count, Fleet, Outcome, Report, Settings, Told};

use super::support::{Ask, MINUTE, ask, ask_and_hear, calls, is_write, settings};

/// What each fleet wants, what runs of it, and whether it has ended.
pub(crate) fn fleets(model: &Model) -> BTreeMap<String, (u32, u32, bool)> {
    let fleets = model.with(|world| world.fleets());
    fleets.into_iter().map(|fleet| (fleet.id.clone(), (fleet.target, fleet.there(), fleet.has_ended))).collect()
}

pub(crate) fn assert_kept(model: &Model, invariants: &Invariants, what: &str) {
    let found = invariants.at_the_end(model);
    assert!(found.is_empty(), "{what}: {found:#?}");
}

/// An old fleet of machines of 1, 2 and 3 units, and a new one that wants nothing yet.
pub(crate) fn builder() -> WorldBuilder {
    let offers = |spec: FleetSpec| spec.offer(Offer::new(3)).offer(Offer::new(2)).offer(Offer::new(1));
    WorldBuilder::default()
        .control_plane(1)
        .fleet(offers(FleetSpec::new("old", 6)).members(&[1, 2, 3]).old())
        .fleet(offers(FleetSpec::new("new", 0)))
        .guarded("web", 6, 1)
        .stateful_set("db", 2)
        .daemon_set("agent")
}

pub(crate) const TERMS: Terms = Terms { capacity: 6, surge: 3, unavailable: 0 };

/// What must hold of a pool that is rolled by these terms: its machines weigh three at most.
pub(crate) fn limits(terms: &Terms) -> Limits {
    let Terms { capacity, surge, unavailable } = *terms;
    let ready = capacity - unavailable;
    Limits {
        nodes_at_once: 1,
        own_pod: None,
        pause: 15 * MINUTE,
        pool: PoolLimits { floor: ready, ready, most: capacity + surge + 2 },
    }
}

fn roll(model: &Model, terms: Terms) -> (Report, Invariants) {
    let invariants = Invariants::watch(model, limits(&terms));
    (ask(model, &settings(), Ask::Roll(terms)), invariants)
}

/// How many pods of a workload are ready.
fn ready(world: &World, app: &str) -> usize {
    let pods = world.view().pods();
    pods.filter(|pod| pod.labels.get("app").is_some_and(|label| label == app) && pod.ready && pod.is_active()).count()
}

#[test]
fn every_old_node_goes_once_as_much_new_is_ready_and_then_the_old_fleet_is_ended() {
    let model = builder().build();
    let invariants = Invariants::watch(&model, limits(&TERMS));
    let (report, told) = ask_and_hear(&model, Ask::Roll(TERMS));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(report.retired.len(), 3, "{report:?}");
    assert!(report.evictions >= 8, "{report:?}");
    let fleets = fleets(&model);
    assert_eq!(fleets["old"], (0, 0, true));
    assert_eq!(fleets["new"].0, 6);
    assert_kept(&model, &invariants, "the roll");
    assert!(matches!(&told[..], [Told::Counted(Count { ready: 0, .. }), Told::Resized { from: 0, to: 3, .. }, ..]));
    let Some(Told::Counted(count)) = told.iter().rev().find(|told| matches!(told, Told::Counted(_))) else {
        panic!("{told:?}")
    };
    assert!(count.ready >= 6 && count.wanted == 6, "{count}");
    assert!(told.contains(&Told::Cancelled { fleet: "old".to_owned() }), "{told:?}");
}

#[test]
fn of_a_workload_whose_budget_allows_one_pod_down_never_more_are() {
    let web = WorkloadSpec::deployment("shop", 8).budget(Allowance::MaxUnavailable(1)).start_up(MINUTE);
    let model = builder().workload(web).build();
    let least = Arc::new(Mutex::new(8));
    let seen = Arc::clone(&least);
    model.with(|world| {
        world.after_each_call(move |world, _| {
            let mut least = seen.lock().unwrap();
            *least = ready(world, "shop").min(*least);
        });
    });
    let (report, invariants) = roll(&model, TERMS);
    assert_eq!((report.outcome, *least.lock().unwrap()), (Outcome::Done, 7));
    assert_kept(&model, &invariants, "the budget");
}

#[test]
fn a_pool_without_surge_makes_room_first_and_one_without_old_fleets_only_waits() {
    let terms = Terms { capacity: 6, surge: 0, unavailable: 3 };
    let model = builder().build();
    let (report, invariants) = roll(&model, terms);
    assert_eq!((report.outcome, report.retired.len()), (Outcome::Done, 3));
    assert_kept(&model, &invariants, "no surge");

    let (report, _) = roll(&model, terms);
    assert_eq!((report.outcome, report.retired.len()), (Outcome::Done, 0), "there is nothing to do");
    assert_eq!(model.with(|world| world.fleet_changes().iter().filter(|change| change.fleet == "new").count()), 3);
}

#[test]
fn what_its_terms_leave_no_room_for_is_refused_before_anything_is_touched() {
    let refusal = |builder: WorldBuilder, terms, settings: &Settings| {
        let model = builder.build();
        let report = ask(&model, settings, Ask::Roll(terms));
        assert_eq!(calls(&model, is_write), 0);
        let Outcome::Refused(why) = report.outcome else { panic!("{report:?}") };
        why
    };
    let tight = Terms { capacity: 6, surge: 1, unavailable: 1 };
    assert!(refusal(builder(), tight, &settings()).contains("a node of 3 units"));
    let floor = Settings { floor: 6, ..Settings::default() };
    assert!(refusal(builder(), Terms { unavailable: 1, ..TERMS }, &floor).contains("minimum is 6"));
    let none = WorldBuilder::default().fleet(FleetSpec::new("old", 2).members(&[2]).old());
    assert!(refusal(none, TERMS, &settings()).contains("create it first"));
}

#[test]
fn weights_that_do_not_divide_overfulfil_the_new_fleet_and_it_ends_all_the_same() {
    let old = FleetSpec::new("old", 5).offer(Offer::new(2)).members(&[2, 2, 2]).old();
    let model = WorldBuilder::default()
        .fleet(old)
        .fleet(FleetSpec::new("new", 0).offer(Offer::new(3)))
        .guarded("web", 6, 1)
        .build();
    let terms = Terms { capacity: 5, surge: 2, unavailable: 0 };
    let (report, invariants) = roll(&model, terms);
    assert_eq!((report.outcome, report.retired.len()), (Outcome::Done, 3));
    assert_eq!(fleets(&model)["new"], (5, 6, false), "two of three for five");
    assert_kept(&model, &invariants, "overfulfilled");
}

#[test]
fn without_enough_spot_it_waits_to_its_deadline_and_no_node_goes_that_would_be_missed() {
    let model = builder().build();
    model.with(|world| {
        for (weight, left) in [(3, 1), (2, 0), (1, 0)] {
            world.set_offer("new", weight, left);
        }
    });
    let began = model.with(|world| world.now());
    let (report, invariants) = roll(&model, TERMS);
    let Outcome::NotReady(count) = report.outcome else { panic!("{report:?}") };
    assert_eq!((count.launched, count.ready, count.wanted), (3, 3, 6));
    assert!(model.with(|world| world.now()) >= began + settings().ready_timeout);
    let ready = model.with(|world| world.fleets().iter().map(Fleet::there).sum::<u32>());
    assert!(ready >= 6 && !report.retired.is_empty(), "as many went as came: {report:?}");
    assert_kept(&model, &invariants, "exhausted");

    model.with(|world| world.set_offer("new", 3, 1));
    let (report, _) = roll(&model, TERMS);
    assert_eq!(report.outcome, Outcome::Done, "spot came back");
    assert_eq!(fleets(&model)["old"], (0, 0, true));
}

#[test]
fn machines_that_never_join_take_nobodys_place() {
    let model = WorldBuilder::default()
        .fleet(FleetSpec::new("old", 2).offer(Offer::new(1).never_joining()).members(&[1]).old())
        .fleet(FleetSpec::new("new", 0).offer(Offer::new(1).never_joining()))
        .deployment("web", 2)
        .build();
    let terms = Terms { capacity: 1, surge: 1, unavailable: 0 };
    let (report, invariants) = roll(&model, terms);
    assert!(matches!(report.outcome, Outcome::NotReady(Count { launched: 1, joined: 0, .. })), "{report:?}");
    assert_eq!(fleets(&model)["old"], (1, 1, false), "the node stays, and what is none is not replaced");
    assert_kept(&model, &invariants, "nothing joins");
}

#[test]
fn a_target_that_somebody_else_changes_meanwhile_is_left_as_it_is() {
    for fleet in ["new", "old"] {
        let model = builder().build();
        model.with(|world| world.later(3 * MINUTE, move |world| world.set_target(fleet, 9)));
        let report = ask(&model, &settings(), Ask::Roll(TERMS));
        let Outcome::Changed(what) = &report.outcome else { panic!("{report:?}") };
        assert!(what.contains(fleet) && what.contains("by somebody else's doing"), "{what}");
        let changes = model.with(|world| world.fleet_changes().to_vec());
        let mut since = changes.iter().skip_while(|change| change.why != Why::Others);
        assert!(since.next().is_some() && since.all(|change| change.why != Why::Resized), "it is not fought");
    }
}

#[test]
fn a_node_that_may_not_go_holds_none_of_the_others_up() {
    let model = builder().bare("alone", 1).build();
    let (report, invariants) = roll(&model, TERMS);
    let Outcome::Blocked(blocked) = &report.outcome else { panic!("{report:?}") };
    assert_eq!((blocked.len(), report.retired.len()), (1, 2), "{report:?}");
    assert_kept(&model, &invariants, "blocked");
    assert_eq!(fleets(&model)["old"].1, fleets(&model)["old"].0);
}

#[test]
fn an_old_machine_that_is_taken_back_is_not_replaced_by_another_old_one() {
    let mut refused = 0;
    for moment in 0..40 {
        let model = builder().build();
        model.with(|world| world.later(moment * MINUTE / 4, |world| world.terminate_machine("old-3")));
        let (report, told) = ask_and_hear(&model, Ask::Roll(TERMS));
        assert_eq!((&report.outcome, &report.failed[..]), (&Outcome::Done, &[][..]), "{moment}: {report:?}");
        assert_eq!((fleets(&model)["old"], fleets(&model)["new"].0), ((0, 0, true), 6), "{moment}");
        let lowered = |told: &Told| matches!(told, Told::Resized { fleet, .. } if fleet == "old");
        refused += usize::from(told.iter().any(lowered));
    }
    assert!(refused > 0, "it was taken back in the middle of it");
}

#[test]
fn what_is_asked_for_later_has_as_long_to_become_ready() {
    let model = WorldBuilder::default()
        .fleet(FleetSpec::new("old", 4).members(&[2, 2]).old())
        .fleet(FleetSpec::new("new", 0).offer(Offer::new(2).left(0)))
        .deployment("web", 4)
        .build();
    model.with(|world| {
        // the rest is asked for by then, and nothing can be bought until a quarter of an hour after the beginning
        world.later(9 * MINUTE, |world| world.terminate_machine("old-1"));
        world.later(20 * MINUTE, |world| world.set_offer("new", 2, 2));
    });
    let report = ask(&model, &settings(), Ask::Roll(Terms { capacity: 4, surge: 2, unavailable: 0 }));
    assert_eq!((report.outcome, report.retired.len()), (Outcome::Done, 1));
}

#[test]
fn the_nodes_of_a_fleet_that_somebody_has_ended_are_replaced_too() {
    let model = builder().build();
    model.with(|world| world.end_fleet("old"));
    let (report, invariants) = roll(&model, TERMS);
    assert_eq!((report.outcome, report.retired.len()), (Outcome::Done, 3));
    assert_eq!(fleets(&model)["old"], (6, 0, true), "what it wanted is nobody's concern any more");
    assert_kept(&model, &invariants, "an ended fleet");
}

#[test]
fn a_cloud_that_does_not_answer_for_a_while_is_waited_for() {
    let model = builder().build();
    model.with(|world| {
        world.fault_when(8, Fault::Fail(ErrorClass::Transient), {
            let mut asked = 0;
            move |call| {
                asked += u32::from(matches!(call, Call::Fleets));
                asked > 4 && matches!(call, Call::Fleets)
            }
        });
    });
    let (report, invariants) = roll(&model, TERMS);
    assert_eq!(report.outcome, Outcome::Done);
    assert_kept(&model, &invariants, "no answers");
}

#[test]
fn machines_that_the_cloud_can_not_name_yet_are_waited_for_and_not_for_ever() {
    for (minutes, is_done) in [(5, true), (24 * 60, false)] {
        let model = builder().settings(|settings| settings.class_lag = minutes * MINUTE).build();
        let (report, invariants) = roll(&model, TERMS);
        assert_eq!((report.outcome == Outcome::Done, report.retired.len() == 3), (is_done, is_done), "{minutes}");
        assert!(calls(&model, |call| matches!(call, Call::Fleets)) < 400, "{minutes}: it asks on and on");
        assert_kept(&model, &invariants, "unnamed");
    }
}
