//! A roll beside what persons, migrations and interruptions do to the same nodes.

use std::sync::{Arc, Mutex};

use jiff::tz::TimeZone;
use spot_core::migrator::{self, Migrator};
use spot_core::model::{self, Call, Ended, Executor, Invariants, Limits, Model, WorkloadSpec, World};
use spot_core::node::{Effect, Taint, key};
use spot_core::pool::Outcome;
use spot_core::pool::roll::Terms;
use spot_core::ports::Silent;
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;

use super::roll::{TERMS, assert_kept, builder, fleets, limits};
use super::support::{Ask, MINUTE, Notes, POOL, ask, blocked, calls, pools, settings};

const OLD: [&str; 3] = ["old-1", "old-2", "old-3"];

fn leaving() -> Taint {
    Taint::new(key::LEAVING, "1", Effect::PreferNoSchedule)
}

/// The nodes with the soft taint.
fn soft(world: &World) -> Vec<String> {
    let view = world.view();
    let soft = view.nodes().iter().filter(|node| node.taints.iter().any(|taint| taint.key == key::LEAVING));
    let mut names: Vec<_> = soft.map(|node| node.name.to_string()).collect();
    names.sort();
    names
}

fn migrator(model: &Model) -> Migrator {
    let settings = migrator::Settings::new(Schedule::parse("@hourly", &TimeZone::UTC).unwrap());
    Migrator::new(model.process().ports_alone(Arc::new(Silent)), settings)
}

#[test]
fn a_node_that_is_never_retired_ends_a_roll_by_its_name_and_the_others_go() {
    let model = builder().build();
    model.with(|world| world.label_node("old-3", key::CONTROL_PLANE, Some("")));
    let invariants = Invariants::watch(&model, limits(&TERMS));
    let report = ask(&model, &settings(), Ask::Roll(TERMS));
    assert_eq!(blocked(&report), [("old-3", "control_plane".to_owned())]);
    assert_eq!(report.retired.len(), 2, "{report:?}");
    assert!(calls(&model, |call| matches!(call, Call::Fleets)) < 400, "it asks on and on");
    assert_kept(&model, &invariants, "control plane");
}

#[test]
fn old_nodes_that_somebody_cordoned_count_until_they_go() {
    for cordoned in [&OLD[..], &OLD[2..], &OLD[..2]] {
        let model = builder().build();
        model.with(|world| cordoned.iter().for_each(|name| world.cordon(name, true)));
        let invariants = Invariants::watch(&model, limits(&TERMS));
        let report = ask(&model, &settings(), Ask::Roll(TERMS));
        assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Done, 3), "{cordoned:?}");
        assert_kept(&model, &invariants, "cordoned");
    }
}

#[test]
fn pods_that_run_in_their_pool_only_do_not_hold_a_roll_without_surge() {
    let own = WorkloadSpec::deployment("own", 3).selects(key::POOL, POOL);
    let model = builder().spot(1).workload(own).build();
    let terms = Terms { capacity: 6, surge: 0, unavailable: 3 };
    let invariants = Invariants::watch(&model, limits(&terms));
    let report = ask(&model, &settings(), Ask::Roll(terms));
    assert_eq!((&report.outcome, report.retired.len()), (&Outcome::Done, 3), "{report:?}");
    assert_kept(&model, &invariants, "pods of the pool");
}

#[test]
fn all_old_nodes_are_said_to_be_leaving_before_the_first_goes_though_there_is_no_room_for_them_yet() {
    let model = builder().build();
    model.with(|world| {
        for (weight, left) in [(3, 0), (2, 0), (1, 1)] {
            world.set_offer("new", weight, left);
        }
        world.later(10 * MINUTE, |world| world.set_offer("new", 1, 10));
    });
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let softened = Arc::clone(&seen);
    model.with(|world| {
        world.after_each_call(move |world, record| {
            if let Call::DeleteInstance { .. } = record.call {
                softened.lock().unwrap().push(soft(world));
            }
        });
    });
    assert_eq!(ask(&model, &settings(), Ask::Roll(TERMS)).outcome, Outcome::Done);
    assert_eq!(seen.lock().unwrap()[0], ["old-2", "old-3"], "there was room for the first one only");
}

#[test]
fn a_soft_taint_is_taken_off_by_whoever_works_on_the_pool_and_by_no_migration() {
    let model = builder().on_demand(1).spot(1).build();
    model.with(|world| ["old-1", "spot-1"].iter().for_each(|name| world.taint_node(name, leaving())));
    let stop = Stop::default();
    let migrated = model::block_on(&model, async { migrator(&model).once(&stop).await }).unwrap().unwrap();
    assert_eq!((model.with(|world| soft(world)), migrated.retired.len()), (vec!["old-1".to_owned()], 1));

    // What was old is asked for again: its nodes stay.
    let model = builder().build();
    model.with(|world| {
        world.later(3 * MINUTE, |world| {
            world.taint_node("new-1", leaving());
            assert!(soft(world).contains(&"new-1".to_owned()));
        });
    });
    assert_eq!(ask(&model, &settings(), Ask::Roll(TERMS)).outcome, Outcome::Done);
    assert_eq!(model.with(|world| soft(world)), [""; 0], "no node of the pool is left with it");
}

#[test]
fn a_migration_at_the_same_time_keeps_nothing_from_its_end() {
    let model = builder().on_demand(2).spot(1).build();
    let limits = Limits { nodes_at_once: 2, ..limits(&TERMS) };
    let invariants = Invariants::watch(&model, limits);
    let (roller, other) = (model.process(), model.process());
    let (pools, migrator) = (pools(&roller, &settings(), &Notes::default()), migrator(&model));
    let mut executor = Executor::new(&model);
    executor
        .spawn(&roller, async move { pools.roll(TERMS, &Stop::default()).await.map(|report| report.retired.len()) });
    executor.spawn(&other, async move { migrator.once(&Stop::default()).await.map(|report| report.retired.len()) });
    let mut retired = Vec::new();
    while let Some((_, Ended::Done(ended))) = executor.run().unwrap() {
        retired.push(ended.unwrap());
    }
    retired.sort_unstable();
    assert_eq!(retired, [2, 3]);
    assert_eq!(fleets(&model)["old"], (0, 0, true));
    assert_kept(&model, &invariants, "a migration");
}
