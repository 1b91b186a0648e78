//! The load balancers at which a Spot Fleet registers what it launches let go of an instance before it goes.

use spot_core::error::ErrorClass;
use tokio::time::Instant;

use crate::double::{Balancer, Fault, Fleet, Registration, tagged};
use crate::support::{World, class, id, secs};

const FLEET: &str = "sfr-1";
const DEREGISTER: &str = "elasticloadbalancing:DeregisterTargets";
const DEREGISTER_CLASSIC: &str = "elasticloadbalancing:DeregisterInstancesFromLoadBalancer";
const LIST: &str = "ec2:DescribeSpotFleetRequests";

/// A fleet of so many spot instances that registers them, and balancers of somebody else's that know them too.
fn world(members: u32, change: impl FnOnce(&mut Fleet)) -> World {
    let mut world = World::new();
    for number in 1..=members {
        world.add(number, Some("spot"));
        world.change_instance(number, |instance| instance.tags.extend([tagged(FLEET)]));
    }
    let mut fleet = Fleet {
        target: members,
        members: (1..=members).map(id).collect(),
        target_groups: vec!["web".to_owned(), "api".to_owned()],
        classic: vec!["old".to_owned()],
        ..Fleet::maintaining()
    };
    change(&mut fleet);
    let registered = || (1..=members).map(|number| (id(number), Registration::Serving)).collect();
    let balancer = || Balancer { registered: registered(), draining: secs(20), ..Balancer::default() };
    let mut state = world.aws.state();
    state.fleets.insert(FLEET.to_owned(), fleet);
    state.target_groups.extend(["web", "api", "foreign"].map(|name| (name.to_owned(), balancer())));
    state.classic.extend(["old", "foreign"].map(|name| (name.to_owned(), balancer())));
    drop(state);
    world
}

/// The balancers that an instance is registered at; those of the classic kind are marked.
fn places_of(world: &World, number: u32) -> Vec<String> {
    let state = world.aws.state();
    let knows = |balancer: &Balancer| matches!(balancer.registered.get(&id(number)), Some(Registration::Serving));
    let target_groups = state.target_groups.iter().filter(|(_, one)| knows(one)).map(|(name, _)| name.clone());
    let classic = state.classic.iter().filter(|(_, one)| knows(one)).map(|(name, _)| format!("classic {name}"));
    target_groups.chain(classic).collect()
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_taken_out_of_its_fleets_balancers_and_out_of_no_other() {
    let world = world(2, |_| {});
    let began = Instant::now();
    world.detach(1, Some(60)).await.unwrap();
    assert!((secs(20)..secs(30)).contains(&began.elapsed()), "until it was drained: {:?}", began.elapsed());
    assert_eq!(places_of(&world, 1), ["foreign", "classic foreign"]);
    assert_eq!(places_of(&world, 2), ["api", "foreign", "web", "classic foreign", "classic old"]);
    assert_eq!((world.aws.count(DEREGISTER), world.aws.count(DEREGISTER_CLASSIC)), (2, 1), "once each");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_instance_is_taken_out_of_its_fleets_balancers_at_once() {
    let world = world(2, |_| {});
    let began = Instant::now();
    world.detach_at_once(1).await.unwrap();
    assert!(began.elapsed() < secs(30), "{:?}", began.elapsed());
    assert_eq!(places_of(&world, 1), ["foreign", "classic foreign"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_fleet_registered_that_has_ended_since_is_taken_out_too() {
    for ended in ["cancelled_running", "cancelled_terminating", "cancelled", "failed"] {
        for forced in [false, true] {
            let world = world(2, |fleet| fleet.ended = Some(ended));
            let detached = if forced { world.detach_at_once(1).await } else { world.detach(1, Some(60)).await };
            detached.unwrap();
            assert_eq!(places_of(&world, 1), ["foreign", "classic foreign"], "{ended}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_fleet_registered_that_does_not_maintain_is_taken_out_too() {
    let world = world(1, |fleet| fleet.kind = "request");
    world.detach(1, Some(60)).await.unwrap();
    assert_eq!(places_of(&world, 1), ["foreign", "classic foreign"]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_stays_after_all_is_registered_where_its_fleet_had_it() {
    let world = world(2, |_| {});
    world.detach(1, Some(60)).await.unwrap();
    assert_eq!(places_of(&world, 1), ["foreign", "classic foreign"]);
    world.attach(1).await.unwrap();
    assert_eq!(places_of(&world, 1), ["api", "foreign", "web", "classic foreign", "classic old"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_fleet_launched_a_moment_ago_is_found_though_the_survey_did_not_know_it() {
    let mut world = world(2, |_| {});
    world.survey(&[]).await;
    world.add(3, Some("spot"));
    world.change_instance(3, |instance| instance.tags.extend([tagged("sfr-2")]));
    let later =
        Fleet { target: 1, members: [id(3)].into(), target_groups: vec!["web".to_owned()], ..Fleet::maintaining() };
    world.aws.state().fleets.insert("sfr-2".to_owned(), later);
    world.aws.state().target_groups.get_mut("web").unwrap().registered.insert(id(3), Registration::Serving);
    world.detach_at_once(3).await.unwrap();
    assert_eq!(places_of(&world, 3), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_balancers_can_not_be_asked_for_does_not_let_its_instance_go_unnoticed() {
    let first = world(1, |_| {});
    first.aws.fail(LIST, Fault::Throttled, 20);
    first.detach(1, Some(60)).await.unwrap();
    assert_eq!(places_of(&first, 1), ["foreign", "classic foreign"], "it is asked again until it is answered");
    let second = world(1, |_| {});
    second.aws.fail(LIST, Fault::Denied, u32::MAX);
    let answer = second.detach_at_once(1).await;
    assert_eq!(class(&answer), ErrorClass::Denied);
    assert!(answer.unwrap_err().to_string().contains(LIST));
}

#[tokio::test(start_paused = true)]
async fn two_hundred_interrupted_instances_of_a_fleet_are_taken_out_together() {
    let world = world(200, |_| {});
    let ended = futures::future::join_all((1..=200).map(|number| world.detach_at_once(number))).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    for number in 1..=200 {
        assert_eq!(places_of(&world, number), ["foreign", "classic foreign"], "{number}");
    }
    assert!(world.aws.count(LIST) <= 2, "{}", world.aws.count(LIST));
    assert!(world.aws.count("ec2:DescribeInstances") <= 3, "{}", world.aws.count("ec2:DescribeInstances"));
}

#[tokio::test(start_paused = true)]
async fn where_instances_are_of_no_spot_fleet_none_is_asked_for() {
    let world = World::of_group(1, 0);
    world.detach_at_once(1).await.unwrap();
    assert_eq!(world.aws.count(LIST), 0);
}
