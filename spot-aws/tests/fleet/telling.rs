//! What is told of a pool: its machines with their prices, and what its fleets say of themselves.

use jiff::Timestamp;

use spot_aws::fleet::Cause;

use crate::double::pools::Event;
use crate::support::noon;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn machines_are_told_with_what_they_cost_now() {
    let (world, fleet) = World::fulfilled().await;
    let members = world.pool.members(world.by(60)).await.unwrap();
    let told: Vec<_> = members
        .iter()
        .map(|one| (one.instance_type.as_str(), one.zone.as_str(), one.weight, one.price, one.state.as_str()))
        .collect();
    let expected = [
        ("m5.large", "eu-west-1a", Some(1), Some(0.035), "running"),
        ("m5.large", "eu-west-1b", Some(1), None, "running"),
        ("m5.xlarge", "eu-west-1a", Some(2), None, "running"),
        ("m5.xlarge", "eu-west-1b", Some(2), Some(0.0801), "running"),
    ];
    assert_eq!(told, expected);
    assert!(members.iter().all(|one| one.fleet == fleet) && members.is_sorted_by_key(|one| one.launched));
    assert_eq!(world.aws.count("ec2:DescribeSpotPriceHistory"), 1);
    assert!(world.pool.existing(world.by(60)).await.unwrap().fleets[0].fulfilled == 6);
}

#[tokio::test(start_paused = true)]
async fn only_a_fleet_that_could_do_without_a_machine_has_an_excess() {
    let (world, fleet) = World::fulfilled().await;
    let excess = async || world.pool.existing(world.by(60)).await.unwrap().fleets[0].excess();
    assert_eq!(excess().await, 0);
    world.resize(&fleet, 6, 5).await.unwrap();
    assert_eq!(excess().await, 1);
    world.resize(&fleet, 5, 3).await.unwrap();
    let members = world.fleets().await.remove(0).members;
    for (id, _) in members.iter().filter(|(_, member)| member.weight == 1) {
        world.aws.state().instances.get_mut(id.as_str()).unwrap().state = "shutting-down";
    }
    assert_eq!(excess().await, 0, "4 units are there, in machines of 2");
    world.resize(&fleet, 3, 2).await.unwrap();
    assert_eq!(excess().await, 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_fleet_says_is_told_in_order_and_explained() {
    let world = World::new();
    let fleet = world.ensure().await.unwrap().fleet;
    let at = |seconds: i64| noon() + jiff::SignedDuration::from_secs(seconds);
    let event = |at: Timestamp, kind, subtype, words: &str| Event { at, kind, subtype, words: words.to_owned() };
    {
        let mut state = world.aws.state();
        state.page = 1;
        state.fleets.get_mut(&fleet).unwrap().asked.as_mut().unwrap().events.extend([
            event(at(20), "information", "launchSpecUnusable", "m5.large, price is too low"),
            event(at(10), "error", "spotInstanceCountLimitExceeded", ""),
        ]);
    }
    let told = world.pool.history(&fleet, noon(), world.by(60)).await.unwrap();
    let told: Vec<_> = told.iter().map(|event| (event.at, event.words.as_str(), event.explained)).collect();
    let expected = [
        (at(0), "submitted", None),
        (at(10), "spotInstanceCountLimitExceeded", Some(Cause::SpotQuota.said())),
        (at(20), "launchSpecUnusable: m5.large, price is too low", Some(Cause::PriceTooLow.said())),
    ];
    assert_eq!(told, expected);
    let later = world.pool.history(&fleet, at(15), world.by(60)).await.unwrap();
    assert_eq!(later.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn machines_that_die_as_they_start_are_told_though_their_fleet_says_nothing() {
    let (world, fleet) = World::fulfilled().await;
    let ids: Vec<_> = world.aws.state().fleets[&fleet].members.iter().cloned().collect();
    let end = |id: &String, reason| {
        let mut state = world.aws.state();
        let instance = state.instances.get_mut(id).unwrap();
        (instance.state, instance.reason) = ("terminated", Some(reason));
    };
    end(&ids[0], ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"));
    end(&ids[1], ("Client.InternalError", "Client.InternalError: Client error on launch"));
    end(&ids[2], ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown"));
    let told = world.pool.history(&fleet, noon(), world.by(60)).await.unwrap();
    let told: Vec<_> = told.iter().filter_map(|event| Some((event.words.clone(), event.explained?))).collect();
    let expected = [
        (format!("{}: Client.InternalError: Client error on launch", ids[1]), Cause::VolumeKey.said()),
        (format!("{}: Client.InstanceInitiatedShutdown: Instance initiated shutdown", ids[2]), Cause::Died.said()),
    ];
    assert_eq!(told, expected);
    let later = world.pool.history(&fleet, jiff::Timestamp::MAX, world.by(60)).await.unwrap();
    assert!(later.is_empty(), "{later:?}");
}
