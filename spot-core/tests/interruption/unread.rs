//! Nodes that were answered for, by a process whose successor reads no notices any more.

use spot_core::interruption::{Announcement, Reclaim};
use spot_core::model::WorldBuilder;

use super::*;

const HOUR: Duration = Duration::from_hours(1);

/// A new process that migrates, for so long, and reads no notices.
fn migrating(model: &Model, planned: &Settings, lasts: Duration) {
    let (process, stop) = (model.process(), stop_after(model, lasts));
    let migrator = Migrator::new(process.ports_alone(Arc::new(Notes::default())), planned.clone());
    model::block_on(model, async { migrator.run(&stop).await }).expect("it ends").unwrap();
}

fn claimed(reclaim: Reclaim) -> Model {
    let model = WorldBuilder::default().spot(2).deployment("web", 4).build();
    model.with(|world| {
        world.interrupt("spot-1", reclaim).unwrap();
        world.later(20 * MINUTE, |world| world.start_machine("spot-1", true));
    });
    assert_eq!(answering(&model, &settings(), 3 * MINUTE).emptied().len(), 1);
    model
}

#[test]
fn a_node_that_comes_back_is_released_by_the_next_run() {
    let model = claimed(Reclaim::Stop);
    migrating(&model, &planned(), 30 * MINUTE);
    assert!(node(&model, "spot-1").unschedulable, "until then it is left alone");
    migrating(&model, &Settings { dry_run: true, ..planned() }, HOUR);
    assert!(node(&model, "spot-1").unschedulable, "a dry run changes nothing");
    migrating(&model, &planned(), MINUTE);
    assert!(is_clean(&node(&model, "spot-1")));
}

#[test]
fn a_machine_that_was_not_taken_is_released_and_one_that_may_go_yet_is_not() {
    let model = WorldBuilder::default().spot(3).deployment("web", 6).build();
    let announced = |name: &str, minutes: u64| {
        model.with(|world| {
            let (instance, at) =
                (world.machine_of(name).unwrap(), world.wall().checked_add(Duration::from_mins(minutes)).unwrap());
            world.announce(instance, Announcement::ScheduledChange { at });
        });
    };
    announced("spot-1", 5);
    announced("spot-2", 25);
    assert_eq!(answering(&model, &settings(), MINUTE).emptied().len(), 2);
    model.run_until(Instant(16 * MINUTE)).unwrap();
    migrating(&model, &planned(), MINUTE);
    assert!(is_clean(&node(&model, "spot-1")));
    assert!(node(&model, "spot-2").unschedulable);
}

#[test]
fn the_soft_taint_of_a_recommendation_goes_when_nothing_followed() {
    let model = WorldBuilder::default().spot(2).build();
    model.with(|world| {
        let instance = world.machine_of("spot-1").unwrap();
        world.announce(instance, Announcement::Rebalance);
    });
    drop(answering(&model, &settings(), MINUTE));
    migrating(&model, &planned(), 10 * MINUTE);
    assert!(!is_clean(&node(&model, "spot-1")), "not yet");
    migrating(&model, &planned(), 2 * HOUR);
    assert!(is_clean(&node(&model, "spot-1")));
}
