//! What refuses or hangs while every second counts.

use spot_core::error::ErrorClass;
use spot_core::interruption::Reclaim;
use spot_core::model::fault::Fault;
use spot_core::model::{WorkloadSpec, WorldBuilder};

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
