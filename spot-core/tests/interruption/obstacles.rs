//! What refuses or hangs while every second counts.

use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::interruption::Reclaim;
use spot_core::model::fault::Fault;
use spot_core::model::{NodeSpec, WorkloadSpec, WorldBuilder};

use super::*;

fn slow() -> Model {
    WorldBuilder::default().spot(2).workload(WorkloadSpec::deployment("slow", 4).stop(50 * SECOND)).build()
}

fn is_write(call: &Call) -> bool {
    matches!(call, Call::WriteNode { .. })
}

#[test]
fn what_is_refused_is_not_asked_for_again_and_again_at_full_speed() {
    let model = slow();
    model.with(|world| {
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
        world.later(10 * SECOND, |world| {
            take_off(world);
            world.fault_when(u32::MAX, Fault::Fail(ErrorClass::Denied), is_write);
        });
    });
    let _notes = answering(&model, &settings(), 30 * SECOND);
    let writes = calls(&model, is_write);
    assert!((3..20).contains(&writes), "{writes}");
}

#[test]
fn a_write_that_hangs_costs_little_of_the_time_that_is_left() {
    let model = slow();
    model.with(|world| {
        world.fault_when(1, Fault::Hang, is_claim);
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
    });
    let notes = answering(&model, &settings(), MINUTE);
    let cordoned = notes.cordoned();
    assert!(matches!(cordoned[..], [(_, after)] if after < 10 * SECOND), "{cordoned:?}");
}

#[test]
fn pods_whose_evictions_hang_are_deleted_when_blocked_ones_are() {
    let node = |name| NodeSpec::new(Class::Spot).named(name).slots(90);
    let model = WorldBuilder::default().node(node("spot-1")).node(node("spot-2")).deployment("web", 80).build();
    let pods = model.with(|world| world.movable_pods_on(&world.node("spot-1").unwrap().reference()).len());
    assert!(pods > 32, "{pods}");
    model.with(|world| {
        world.fault_when(u32::MAX, Fault::Hang, is_eviction);
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
    });
    let _notes = answering(&model, &settings(), 90 * SECOND);
    let gone = departures(&model, "spot-1");
    let in_time = |at: &Instant| *at < Instant(62 * SECOND);
    assert!(gone.iter().all(|(_, how, at)| *how == Removal::Deleted && in_time(at)), "{gone:?}");
    assert_eq!((gone.len(), calls(&model, is_pod_deletion)), (pods, pods), "each once");
}
