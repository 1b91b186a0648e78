//! Every fault that passes, at every call: the same end.

use std::collections::BTreeMap;

use spot_core::cloud::Deletion;

use crate::double::{Balancer, Fault, Fleet, Registration, allowed, tagged};
use crate::support::{World, id, secs};

/// A group, two fleets and an instance of nobody: nodes 1 to 3, 4, 5, and 6; nodes 1 and 2 in load balancers.
fn world() -> World {
    let mut world = World::of_group(3, 0);
    for number in 4..=6 {
        world.on_demand(number);
    }
    let mut state = world.aws.state();
    for (fleet, number) in [("fleet-1", 4), ("sfr-1", 5)] {
        state.instances.get_mut(&id(number)).unwrap().tags.extend([tagged(fleet)]);
        let members = [id(number)].into();
        state.fleets.insert(fleet.to_owned(), Fleet { target: 1, on_demand: 1, members, ..Fleet::maintaining() });
    }
    let registered: BTreeMap<_, _> = [1, 2].map(|number| (id(number), Registration::Serving)).into();
    let tags: BTreeMap<_, _> = [("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())].into();
    let balancer = Balancer { tags, registered, draining: secs(10), ..Balancer::default() };
    state.target_groups.insert("group".to_owned(), balancer.clone());
    state.classic.insert("classic".to_owned(), balancer);
    let tags = [("eks:cluster-name", "prod"), ("eks:nodegroup-name", "workers")];
    let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
    state.groups.get_mut("od").unwrap().tags.extend(tags);
    state.node_groups.insert(("prod".to_owned(), "workers".to_owned()), "ACTIVE");
    drop(state);
    world
}

/// Retires nodes 1, 4, 5 and 6 as the core does: asked again where the answer is unknown. Node 2 stays after all.
async fn retire(world: &World) {
    world.detach(2, Some(60)).await.unwrap();
    world.attach(2).await.unwrap();
    for number in [1, 4, 5, 6] {
        world.survey(&[number]).await;
        world.detach(number, Some(60)).await.unwrap();
        let mut ended = world.delete(number).await;
        for _ in 0..2 {
            if ended.is_err() {
                ended = world.delete(number).await;
            }
        }
        assert_eq!(ended.unwrap(), Deletion::Accepted, "node {number}");
    }
    world.pass(300).await;
}

fn assert_retired(world: &World, what: &str) {
    world.assert_nothing_else_happened();
    let state = world.aws.state();
    for number in [1, 4, 5, 6] {
        assert_eq!(state.instances[&id(number)].state, "terminated", "{what}: node {number}");
    }
    for balancer in [&state.target_groups["group"], &state.classic["classic"]] {
        assert!(balancer.registered.keys().eq([&id(2)]), "{what}: {balancer:?}");
    }
    for number in [2, 3] {
        assert_eq!(state.instances[&id(number)].state, "running", "{what}: node {number}");
    }
    assert_eq!((state.groups["od"].desired, state.decrements), (2, 1), "{what}");
    let targets = state.fleets.values().map(|fleet| (fleet.target, fleet.on_demand)).collect::<Vec<_>>();
    assert_eq!(targets, [(0, 0), (0, 0)], "{what}");
}

#[tokio::test(start_paused = true)]
async fn without_a_fault_each_goes_its_way() {
    let world = world();
    retire(&world).await;
    assert_retired(&world, "no fault");
}

#[tokio::test(start_paused = true)]
async fn any_fault_that_passes_at_any_call_has_the_same_end() {
    let fair = world();
    retire(&fair).await;
    let actions = fair.aws.actions();
    let mut all = actions.clone();
    // Only a hook that holds an instance is asked for its name, and only a plan asks for prices.
    all.extend(["autoscaling:DescribeLifecycleHooks", "ec2:DescribeSpotPriceHistory"].map(str::to_owned));
    assert_eq!(all, allowed(), "every right is needed");
    for action in actions {
        for fault in Fault::PASSING {
            let world = world();
            world.aws.fail(&action, fault, 1);
            retire(&world).await;
            assert_retired(&world, &format!("{fault:?} at {action}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn throttled_at_every_call_at_once_it_still_ends() {
    let fair = world();
    retire(&fair).await;
    let world = world();
    for action in fair.aws.actions() {
        world.aws.fail(&action, Fault::Throttled, 2);
    }
    retire(&world).await;
    assert_retired(&world, "everything throttled");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_deletion_leaves_nothing_behind_that_the_next_does_not_find() {
    for seconds in 0..8 {
        let world = world();
        for number in [1, 4, 5, 6] {
            let dropped = tokio::time::timeout(secs(seconds) / 4, world.delete(number)).await;
            drop(dropped);
            assert_eq!(world.delete(number).await.unwrap(), Deletion::Accepted, "node {number}");
        }
        world.pass(300).await;
        world.assert_nothing_else_happened();
        assert_eq!(world.aws.state().decrements, 1);
        assert!(world.aws.state().fleets.values().all(|fleet| fleet.target == 0));
    }
}
