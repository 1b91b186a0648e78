//! A roll beside what persons, migrations and interruptions do to the same nodes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::tz::TimeZone;
use spot_core::capacity::Class;
use spot_core::migrator::{self, Migrator};
use spot_core::model::{
    self, Allowance, Call, Ended, Executor, FleetSpec, Invariants, Limits, Model, NodeSpec, Offer, WorkloadSpec, World,
    WorldBuilder,
};
use spot_core::node::{Effect, Readiness, Taint, key};
use spot_core::pool::Outcome;
use spot_core::pool::roll::Terms;
use spot_core::ports::Silent;
use spot_core::reason::{Reason, ReasonKind};
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

#[test]
fn once_new_nodes_show_that_pods_do_not_fit_there_their_old_nodes_stay() {
    let own = WorkloadSpec::deployment("own", 3).selects("disk", "ssd");
    let offers = |spec: FleetSpec| spec.offer(Offer::new(3));
    let mut old = offers(FleetSpec::new("old", 9)).members(&[3, 3, 3]).old();
    old.labels.push(("disk".to_owned(), "ssd".to_owned()));
    let new = offers(FleetSpec::new("new", 0));
    let model = WorldBuilder::default().control_plane(1).spot(1).fleet(old).fleet(new).workload(own).build();
    let terms = Terms { capacity: 9, surge: 0, unavailable: 3 };
    let invariants = Invariants::watch(&model, limits(&terms));
    let report = ask(&model, &settings(), Ask::Roll(terms));
    let blocked = blocked(&report);
    assert!(!blocked.is_empty() && blocked.iter().all(|(_, why)| why.starts_with("no_spot_placement")), "{blocked:?}");
    assert_eq!(report.retired.len(), 1, "before any new node was there: {report:?}");
    assert_kept(&model, &invariants, "pods of the old nodes");
}

/// A cordoned old node runs its pods, until its kubelet is silent: then no other may go for it.
#[test]
fn nobody_goes_by_room_that_a_cordoned_old_node_has_just_taken_away() {
    for shift in 0..15 {
        let shop = WorkloadSpec::deployment("shop", 2).selects("disk", "ssd").budget(Allowance::MaxUnavailable(1));
        let offers = |spec: FleetSpec| spec.offer(Offer::new(1));
        let model = WorldBuilder::default()
            .node(NodeSpec::new(Class::Spot).named("spot-1").label("disk", "ssd"))
            .fleet(offers(FleetSpec::new("old", 2)).members(&[1, 1]).old())
            .fleet(offers(FleetSpec::new("new", 0)))
            .workload(shop)
            .build();
        let terms = Terms { capacity: 2, surge: 0, unavailable: 1 };
        let invariants = Invariants::watch(&model, limits(&terms));
        model.with(|world| {
            let busy = Reason::Cloud(ReasonKind::InstanceInTransition, "it is being moved".to_owned());
            world.set_refusals("old-1", vec![busy]);
            world.cordon("old-1", true);
            world.land_pod("shop", "late", "old-2").unwrap();
            let view = world.view();
            let held = view.pods().filter(|pod| pod.node.as_deref() == Some("spot-1"));
            let held: Vec<_> = held.map(|pod| pod.reference()).collect();
            for pod in &held {
                world.set_pod_ready(pod, false);
            }
            world.later(MINUTE + Duration::from_secs(shift), move |world| {
                let since = world.wall();
                world.edit_node("old-1", |node| node.readiness = Readiness::NotReady { since });
                world.later(Duration::from_secs(1), move |world| {
                    for pod in &held {
                        world.set_pod_ready(pod, true);
                    }
                });
            });
        });
        model.run_until(model.with(|world| world.now()) + Duration::from_secs(1)).unwrap();
        let report = ask(&model, &settings(), Ask::Roll(terms));
        assert_eq!(invariants.violations(), [], "{shift}: {report:?}");
    }
}

#[test]
fn a_migration_says_of_no_node_of_a_pool_that_it_is_leaving() {
    let on_demand = |name| NodeSpec::new(Class::OnDemand).named(name);
    let of_pool = on_demand("od-1").label(key::POOL, POOL);
    let model = WorldBuilder::default().node(of_pool).node(on_demand("od-2")).spot(2).deployment("web", 4).build();
    model.with(|world| {
        world.later(MINUTE / 2, |world| world.annotate_node("od-1", key::DO_NOT_MIGRATE, Some("true")));
    });
    let stop = Stop::default();
    let migrated = model::block_on(&model, async { migrator(&model).once(&stop).await }).unwrap().unwrap();
    assert_eq!((model.with(|world| soft(world)), migrated.retired.len()), (vec![], 1), "{migrated:?}");
}
