//! Groups that replace spot instances at EC2's recommendation.

use spot_core::ports::CloudProvider as _;

use crate::double::Fault;
use crate::support::World;

/// Groups `spot` and `managed` of spot nodes, and `od` of on-demand ones, all with capacity rebalancing, and one without.
fn world() -> World {
    let mut world = World::new();
    for number in [1, 2, 3] {
        world.add(number, Some("spot"));
    }
    world.on_demand(4);
    for (name, number, on) in [("spot", 1, true), ("managed", 2, true), ("calm", 3, false), ("od", 4, true)] {
        world.group(name, &[number], 0);
        world.change_group(name, |group| group.capacity_rebalance = on);
    }
    world.change_group("managed", |group| {
        let tags = [("eks:cluster-name", "prod"), ("eks:nodegroup-name", "workers")];
        group.tags.extend(tags.map(|(key, value)| (key.to_owned(), value.to_owned())));
    });
    world
}

/// The groups that are found, each with its hooks.
async fn found(world: &World) -> Vec<(String, Option<Vec<String>>)> {
    world.provider.rebalancing(&world.nodes, world.by(60)).await.unwrap().into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn groups_that_replace_spot_instances_early_are_found_but_not_those_that_eks_drains() {
    let world = world();
    assert_eq!(found(&world).await, [("spot".to_owned(), Some(Vec::new()))]);
}

#[tokio::test(start_paused = true)]
async fn the_hooks_that_hold_what_goes_are_named_and_may_be_unknown() {
    let world = world();
    world.change_group("spot", |group| group.hooks.push("drain".to_owned()));
    assert_eq!(found(&world).await, [("spot".to_owned(), Some(vec!["drain".to_owned()]))]);
    world.aws.fail("autoscaling:DescribeLifecycleHooks", Fault::Denied, 1);
    assert_eq!(found(&world).await, [("spot".to_owned(), None)]);
}

#[tokio::test(start_paused = true)]
async fn after_a_survey_only_hooks_are_asked_for() {
    let world = world();
    let facts = world.provider.survey(&world.nodes, &[], spot_core::cloud::Freshness::Cached, world.by(60)).await;
    assert!(facts.is_ok());
    let before = world.aws.calls().len();
    assert_eq!(found(&world).await.len(), 1);
    let actions: Vec<_> = world.aws.calls().into_iter().skip(before).map(|call| call.action).collect();
    assert_eq!(actions, ["autoscaling:DescribeLifecycleHooks"]);
}
