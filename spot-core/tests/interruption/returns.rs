//! Machines that come back, or were never taken.

use spot_core::interruption::{Announcement, Reclaim};
use spot_core::model::fault::Fault;
use spot_core::model::{WorkloadSpec, World, WorldBuilder};

use super::*;

fn two() -> Model {
    WorldBuilder::default().spot(2).deployment("web", 4).build()
}

#[test]
fn a_node_that_comes_back_is_uncordoned_whether_its_machine_booted_or_went_on() {
    for (action, boots) in [(Reclaim::Stop, true), (Reclaim::Hibernate, true), (Reclaim::Hibernate, false)] {
        for another in [false, true] {
            let model = two();
            let invariants = watch(&model);
            model.with(|world| {
                world.interrupt("spot-1", action).unwrap();
                world.later(20 * MINUTE, move |world| world.start_machine("spot-1", boots));
            });
            let mut returned = Vec::new();
            for _process in 0..=u32::from(another) {
                let lasts = if another { 18 * MINUTE } else { 21 * MINUTE };
                returned.extend(answering(&model, &settings(), lasts).returned());
            }
            assert_eq!(returned, ["spot-1"], "{action:?}, {boots}, {another}");
            assert!(is_clean(&node(&model, "spot-1")), "{action:?}, {boots}, {another}");
            kept(&model, &invariants);
        }
    }
}

#[test]
fn a_node_is_not_uncordoned_before_its_machine_was_taken() {
    let model = two();
    model.with(|world| {
        // it goes a little later than announced, and its kubelet is late once
        warn(world, "spot-1", 2 * MINUTE);
        world.later(MINUTE, |world| world.set_kubelet("spot-1", false));
        world.later(MINUTE + 10 * SECOND, |world| world.set_kubelet("spot-1", true));
    });
    let notes = answering(&model, &settings(), 3 * MINUTE);
    assert_eq!(notes.returned(), [""; 0]);
    assert!(node(&model, "spot-1").unschedulable);
}

#[test]
fn a_node_whose_machine_is_not_taken_after_all_is_released_when_the_cloud_says_that_it_runs() {
    let model = two();
    model.with(|world| {
        let (instance, at) = (world.machine_of("spot-1").unwrap(), world.wall().checked_add(2 * MINUTE).unwrap());
        let action = Reclaim::Terminate;
        world.announce(instance, spot_core::interruption::Announcement::Interruption { action, at });
    });
    let notes = answering(&model, &settings(), 11 * MINUTE);
    assert_eq!((notes.emptied().len(), notes.returned().len()), (1, 0), "not yet: it may only be late");
    let notes = answering(&model, &settings(), 3 * MINUTE);
    assert_eq!(notes.returned(), ["spot-1"]);
    assert!(is_clean(&node(&model, "spot-1")));
}

/// A notice of a machine that is not taken, in so long.
fn warn(world: &mut World, name: &str, left: Duration) {
    let (instance, at) = (world.machine_of(name).unwrap(), world.wall().checked_add(left).unwrap());
    let action = Reclaim::Terminate;
    world.announce(instance, Announcement::Interruption { action, at });
}

#[test]
fn a_time_that_has_passed_does_not_stand_against_that_of_another_notice() {
    let model = two();
    model.with(|world| {
        warn(world, "spot-1", 2 * MINUTE);
        world.later(6 * MINUTE, |world| warn(world, "spot-1", 2 * MINUTE));
    });
    let _notes = answering(&model, &settings(), 7 * MINUTE);
    let node = node(&model, "spot-1");
    let ClaimAnnotation::Valid(claim) = &node.claim else { panic!("it is claimed") };
    assert!(claim.until.unwrap() > model.with(|world| world.wall()), "{claim:?}");
}

#[test]
fn a_notice_is_answered_though_the_cloud_is_slow_to_tell_whether_the_last_one_is_over() {
    let model = two();
    model.with(|world| {
        warn(world, "spot-1", 2 * MINUTE);
        world.later(11 * MINUTE, |world| {
            world.fault_when(9, Fault::Hang, |call| matches!(call, Call::InstanceState(_)));
        });
        world.later(12 * MINUTE + 3 * SECOND, |world| warn(world, "spot-1", 2 * MINUTE));
    });
    let notes = answering(&model, &settings(), 14 * MINUTE);
    let cordoned = notes.cordoned();
    assert!(matches!(cordoned[..], [_, (_, after)] if after < 6 * SECOND), "{cordoned:?}");
}

#[test]
fn an_opt_out_does_not_keep_a_drained_node_s_taint_off() {
    let model = WorldBuilder::default().spot(2).workload(WorkloadSpec::deployment("slow", 4).stop(50 * SECOND)).build();
    model.with(|world| {
        world.edit_node("spot-1", |node| {
            drop(node.annotations.insert(key::DO_NOT_DISRUPT.to_owned(), "true".to_owned()));
        });
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
        world.later(20 * SECOND, take_off);
    });
    let _notes = answering(&model, &settings(), 30 * SECOND);
    assert!(node(&model, "spot-1").unschedulable, "it is put right");
}

fn attached(model: &Model) -> usize {
    calls(model, |call| matches!(call, Call::Attach { .. }))
}

#[test]
fn a_machine_that_stays_or_comes_back_is_put_back_into_its_load_balancers() {
    let slow = WorkloadSpec::deployment("slow", 4).stop(50 * SECOND);
    let model = WorldBuilder::default().spot(2).workload(slow).build();
    model.with(|world| {
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
        world.later(5 * SECOND, |world| world.cordon("spot-1", false));
    });
    let notes = answering(&model, &settings(), 10 * SECOND);
    assert!(is_clean(&node(&model, "spot-1")), "a person took it back: {:?}", notes.told());
    assert_eq!((calls(&model, |call| matches!(call, Call::Detach { .. })), attached(&model)), (1, 1));

    let model = two();
    model.with(|world| {
        world.interrupt("spot-1", Reclaim::Hibernate).unwrap();
        world.later(5 * MINUTE, |world| world.start_machine("spot-1", false));
    });
    let notes = answering(&model, &settings(), 7 * MINUTE);
    assert_eq!(notes.returned(), ["spot-1"]);
    assert_eq!(attached(&model), 1);
}

#[test]
fn a_notice_that_comes_while_its_node_is_released_is_answered_afterwards() {
    let model = two();
    let invariants = watch(&model);
    model.with(|world| {
        world.interrupt("spot-1", Reclaim::Stop).unwrap();
        world.later(5 * MINUTE, |world| {
            let release = |call: &Call| matches!(call, Call::WriteNode { change, .. } if change.claim == Edit::Remove);
            world.fault_when(1, Fault::LoseAnswer, release);
            world.start_machine("spot-1", true);
        });
        world.later(5 * MINUTE + 2 * SECOND, |world| drop(world.interrupt("spot-1", Reclaim::Terminate)));
    });
    let notes = answering(&model, &settings(), 6 * MINUTE + 30 * SECOND);
    assert_eq!((notes.emptied().len(), notes.returned().len()), (2, 1), "{:?}", notes.told());
    assert!(node(&model, "spot-1").unschedulable);
    kept(&model, &invariants);
}

#[test]
fn a_person_s_cordon_stays_on_a_node_that_comes_back() {
    let model = two();
    let invariants = watch(&model);
    model.with(|world| {
        world.cordon("spot-1", true);
        world.interrupt("spot-1", Reclaim::Stop).unwrap();
        world.later(5 * MINUTE, |world| world.start_machine("spot-1", true));
    });
    let notes = answering(&model, &settings(), 6 * MINUTE);
    assert_eq!(notes.returned(), ["spot-1"]);
    let node = node(&model, "spot-1");
    assert!(node.unschedulable && node.claim == ClaimAnnotation::Absent);
    kept(&model, &invariants);
}

#[test]
fn a_node_that_was_taken_back_by_a_person_is_left_alone_by_the_same_notice() {
    let model = two();
    let message = model.with(|world| {
        let message = world.interrupt("spot-1", Reclaim::Stop).unwrap();
        world.later(3 * SECOND, |world| world.cordon("spot-1", false));
        let again = Arc::clone(&message);
        world.later(30 * SECOND, move |world| world.deliver_again(&again));
        message
    });
    let notes = answering(&model, &settings(), 100 * SECOND);
    assert!(is_clean(&node(&model, "spot-1")), "{:?}", notes.all());
    assert_eq!(notes.cordoned().len(), 1);
    assert!(!model.with(|world| world.unsettled()).contains(&message));
}
