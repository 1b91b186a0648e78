//! What an API server sees of the world that stands behind it.

use std::sync::Mutex;

use super::*;
use crate::model::{Halt, WorldBuilder};
use crate::view::{Change, View};

#[test]
fn who_looks_at_each_change_sees_the_whole_world_in_rising_versions() {
    let seen = Arc::new(Mutex::new((View::default(), Vec::new())));
    let looking = Arc::clone(&seen);
    let builder = WorldBuilder::default().on_demand(1).spot(1).guarded("web", 3, 1).daemon_set("agent");
    let model = builder.build_after(|world| {
        world.on_each_change(move |world, change, version| {
            let mut seen = looking.lock().unwrap();
            assert!(version <= world.version());
            if let Change::Node(node) = change {
                assert_eq!(node.resource_version, version.to_string());
            }
            seen.0.apply(change.clone());
            seen.1.push(version);
        });
    });
    let answer = model.with(|world| world.evict(&pods_of(world, "web")[0].reference(), None));
    assert_eq!(answer, crate::ports::EvictAnswer::Accepted);
    model.run_until(Instant(60 * SECOND)).unwrap();
    let seen = seen.lock().unwrap();
    model.with(|world| {
        assert_eq!(seen.0.nodes(), world.view().nodes());
        assert!(seen.0.pods().eq(world.view().pods()));
    });
    assert!(seen.1.len() > 10 && seen.1.is_sorted_by(|one, next| one < next), "{:?}", seen.1);
}

#[test]
fn a_jump_ends_at_what_is_due_next_and_fails_when_nothing_is() {
    let model = WorldBuilder::default().spot(1).build();
    model.with(|world| world.later(90 * SECOND, |world| world.cordon("spot-1", true)));
    let mut jumps = Vec::new();
    let halt = loop {
        match model.jump() {
            Ok(()) => jumps.push(model.with(|world| world.now())),
            Err(halt) => break halt,
        }
    };
    assert_eq!(jumps.first(), Some(&Instant(90 * SECOND)));
    assert!(node(&model, "spot-1").unschedulable);
    assert_eq!(halt, Halt::Deadlocked);
}
