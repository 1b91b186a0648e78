//! What a pool's fleets want and have, and how that is changed.

use spot_core::claim::InstanceId;
use spot_core::error::ErrorClass;

use crate::double::Fleet;
use crate::support::secs;
use crate::world::{World, said};

#[tokio::test(start_paused = true)]
async fn members_are_told_with_their_weights_and_those_that_go_are_none() {
    let (world, fleet) = World::fulfilled().await;
    let [told] = &world.fleets().await[..] else { panic!() };
    assert!(told.is_current && told.is_settled && !told.has_ended);
    assert_eq!((told.id.as_str(), told.target, told.there()), (fleet.as_str(), 6, 6));
    let weights: Vec<_> = told.members.values().map(|member| member.weight).collect();
    assert_eq!(weights, [1, 1, 2, 2]);
    let (going, _) = told.members.first_key_value().unwrap();
    world.aws.state().shut_down(going.as_str());
    let [told] = &world.fleets().await[..] else { panic!() };
    assert_eq!((told.there(), told.members.contains_key(going)), (5, false));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_has_ended_is_told_until_its_machines_are_gone() {
    let (world, fleet) = World::fulfilled().await;
    world.aws.state().fleets.get_mut(&fleet).unwrap().ended = Some("cancelled_running");
    let [told] = &world.fleets().await[..] else { panic!() };
    assert!(told.has_ended && !told.is_current && told.members.len() == 4);
    for member in told.members.keys() {
        world.terminate(&fleet, member).await.unwrap();
    }
    assert_eq!(world.target(&fleet), 6, "one that has ended is not changed");
    assert!(world.fleets().await[0].members.is_empty());
    world.pass(60).await;
    assert!(world.fleets().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_target_is_changed_from_what_it_was_and_from_nothing_else() {
    let (world, fleet) = World::fulfilled().await;
    world.resize(&fleet, 6, 4).await.unwrap();
    let [told] = &world.fleets().await[..] else { panic!() };
    assert!(told.target == 4 && told.is_settled && told.there() == 6, "and nothing was terminated: {told:?}");
    let writes = world.aws.writes().len();
    world.resize(&fleet, 6, 4).await.unwrap();
    assert_eq!(world.aws.writes().len(), writes, "done already");
    let (class, words) = said(world.resize(&fleet, 6, 3).await);
    assert_eq!(class, ErrorClass::Permanent);
    assert!(words.contains("wants 4, not 6, by somebody else's doing"), "{words}");
    assert_eq!(world.target(&fleet), 4);
    world.pass(300).await;
    assert!(world.aws.state().victims.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_may_terminate_what_is_too_much_is_told_not_to() {
    let (world, fleet) = World::fulfilled().await;
    world.aws.state().fleets.get_mut(&fleet).unwrap().terminates_excess = true;
    world.resize(&fleet, 6, 6).await.unwrap();
    assert!(!world.aws.state().fleets[&fleet].terminates_excess);
}

#[tokio::test(start_paused = true)]
async fn two_changes_at_once_come_one_after_the_other_and_the_second_finds_the_first() {
    let (world, fleet) = World::fulfilled().await;
    let other = world.restarted();
    let (first, second) = tokio::join!(world.resize(&fleet, 6, 4), other.resize(&fleet, 6, 5));
    let (done, refused) = if first.is_ok() { (first, second) } else { (second, first) };
    done.unwrap();
    let (class, words) = said(refused);
    assert!(class == ErrorClass::Permanent && words.contains("by somebody else's doing"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_is_modified_for_too_long_is_waited_for_until_the_deadline() {
    let (world, fleet) = World::fulfilled().await;
    world.aws.state().fleets.get_mut(&fleet).unwrap().modified = Some(tokio::time::Instant::now() + secs(600));
    let writes = world.aws.writes().len();
    for answer in [world.resize(&fleet, 6, 4).await, world.cancel(&fleet).await] {
        let (class, words) = said(answer);
        assert!(class == ErrorClass::Timeout && words.contains("still being modified"), "{words}");
    }
    assert_eq!(world.aws.writes().len(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_member_without_a_node_goes_with_its_weight_and_no_other() {
    for heavy in [false, true] {
        let (world, fleet) = World::fulfilled().await;
        let members = world.fleets().await.remove(0).members;
        let (going, weight) =
            members.iter().map(|(id, member)| (id, member.weight)).find(|(_, w)| (*w == 2) == heavy).unwrap();
        world.terminate(&fleet, going).await.unwrap();
        world.terminate(&fleet, going).await.unwrap();
        world.restarted().terminate(&fleet, going).await.unwrap();
        world.pass(300).await;
        assert_eq!(world.target(&fleet), 6 - weight);
        let left: Vec<_> = members.keys().filter(|id| *id != going).cloned().collect();
        assert!(world.fleets().await[0].members.keys().eq(&left));
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_nobody_or_of_another_fleet_is_not_touched() {
    let (world, fleet) = World::fulfilled().await;
    let (id, instance) = {
        let state = world.aws.state();
        let (id, instance) = state.instances.first_key_value().unwrap();
        (id.clone(), instance.clone())
    };
    world.aws.state().instances.get_mut(&id).unwrap().tags.remove("aws:ec2spot:fleet-request-id");
    let (class, words) = said(world.terminate(&fleet, &InstanceId::new(id.as_str())).await);
    assert!(class == ErrorClass::Permanent && words.contains("EC2 does not say that"), "{words}");
    world.aws.state().instances.insert(id.clone(), instance);
    let (class, words) = said(world.terminate("sfr-other", &InstanceId::new(id.as_str())).await);
    assert!(class == ErrorClass::Permanent && words.contains("EC2 tells of no fleet sfr-other"), "{words}");
    assert_eq!((world.target(&fleet), world.aws.count("ec2:TerminateInstances")), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_protected_member_stays_and_its_fleet_wants_what_it_did() {
    let (world, fleet) = World::fulfilled().await;
    let id = world.fleets().await[0].members.keys().next().unwrap().clone();
    world.aws.state().instances.get_mut(id.as_str()).unwrap().protected = true;
    let (class, words) = said(world.terminate(&fleet, &id).await);
    assert!(class == ErrorClass::Permanent && words.contains("protected from termination"), "{words}");
    assert_eq!(world.target(&fleet), 6);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_is_ended_only_when_it_wants_nothing_and_has_nothing() {
    let (world, fleet) = World::fulfilled().await;
    assert!(said(world.cancel(&fleet).await).1.contains("still wants 6"));
    world.resize(&fleet, 6, 0).await.unwrap();
    assert!(said(world.cancel(&fleet).await).1.contains("still has 4 members"));
    for member in world.fleets().await[0].members.keys() {
        world.terminate(&fleet, member).await.unwrap();
    }
    assert_eq!(world.aws.count("ec2:CancelSpotFleetRequests"), 0);
    world.cancel(&fleet).await.unwrap();
    world.cancel(&fleet).await.unwrap();
    world.restarted().cancel(&fleet).await.unwrap();
    world.pass(120).await;
    assert!(world.alive().is_empty() && world.fleets().await.is_empty());
    assert_eq!(world.aws.count("ec2:CancelSpotFleetRequests"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_told_late_is_not_taken_for_somebody_elses() {
    let (world, fleet) = World::fulfilled().await;
    {
        let mut state = world.aws.state();
        let before = Fleet { target: 8, ..state.fleets[&fleet].clone() };
        state.late_fleets.note(&fleet, &before, secs(10));
    }
    world.resize(&fleet, 6, 4).await.unwrap();
    assert_eq!(world.target(&fleet), 4);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_lists_a_member_is_not_ended_whatever_is_told_of_its_machines() {
    let (world, fleet) = World::fulfilled().await;
    world.resize(&fleet, 6, 0).await.unwrap();
    let untold = {
        let mut state = world.aws.state();
        let members: Vec<_> = state.fleets[&fleet].members.iter().cloned().collect();
        let (untold, others) = members.split_first().unwrap();
        for id in others {
            state.shut_down(id);
        }
        state.instances.get_mut(untold).unwrap().tags.remove("aws:ec2spot:fleet-request-id");
        untold.clone()
    };
    let (class, words) = said(world.cancel(&fleet).await);
    assert!(class == ErrorClass::Timeout && words.contains(&format!("still lists {untold}")), "{words}");
    assert_eq!(world.aws.count("ec2:CancelSpotFleetRequests"), 0);
    world.aws.state().shut_down(&untold);
    world.cancel(&fleet).await.unwrap();
    assert!(world.alive().is_empty());
}
