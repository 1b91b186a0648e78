//! What the cluster's own Spot Fleets still launch.

use spot_core::cloud::Freshness;

use crate::double::{Fault, Fleet, tagged};
use crate::support::{World, id, secs};

/// A fleet, and what makes it that.
type Case = (&'static str, fn(&mut Fleet));

const LIST: &str = "ec2:DescribeSpotFleetRequests";
const CLUSTER: &str = "kubernetes.io/cluster/prod";

/// A cluster of one group, and a Spot Fleet of the cluster that has 2 of 5, one of which is on demand.
fn world(change: impl FnOnce(&mut Fleet)) -> World {
    let mut world = World::of_group(3, 0);
    world.add(11, Some("spot")).add(12, None);
    for number in [11, 12] {
        world.change_instance(number, |instance| instance.tags.extend([tagged("sfr-1")]));
    }
    let mut fleet = Fleet {
        target: 5,
        on_demand: 1,
        members: [id(11), id(12)].into(),
        tags: [(CLUSTER.to_owned(), "owned".to_owned())].into(),
        ..Fleet::maintaining()
    };
    change(&mut fleet);
    world.aws.state().fleets.insert("sfr-1".to_owned(), fleet);
    world
}

async fn pending(world: &World) -> u32 {
    world.survey(&[]).await.pending_spot()
}

#[tokio::test(start_paused = true)]
async fn what_a_fleet_of_the_cluster_lacks_of_its_spot_target_is_pending() {
    assert_eq!(pending(&world(|_| {})).await, 3, "5 are wanted, 4 of them spot, and one is there");
    assert_eq!(pending(&world(|fleet| fleet.on_demand = 3)).await, 1, "what is to be on demand is none of it");
    assert_eq!(pending(&world(|fleet| fleet.target = 2)).await, 0);
    assert_eq!(pending(&world(|fleet| (fleet.target, fleet.on_demand) = (0, 0))).await, 0, "more than it wants");
    let value = |value: &str| [(CLUSTER.to_owned(), value.to_owned())].into();
    assert_eq!(pending(&world(|fleet| fleet.tags = value("shared"))).await, 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_gets_nothing_of_is_not() {
    let cases: [Case; 8] = [
        ("untagged", |fleet| fleet.tags.clear()),
        ("another cluster's", |fleet| {
            fleet.tags = [("kubernetes.io/cluster/test".to_owned(), "owned".to_owned())].into();
        }),
        ("tagged otherwise", |fleet| fleet.tags = [(CLUSTER.to_owned(), "no".to_owned())].into()),
        ("that asks once", |fleet| fleet.kind = "request"),
        ("cancelled", |fleet| fleet.ended = Some("cancelled")),
        ("cancelled, running", |fleet| fleet.ended = Some("cancelled_running")),
        ("failed", |fleet| fleet.ended = Some("failed")),
        ("that can't launch", |fleet| fleet.activity = Some("error")),
    ];
    for (which, change) in cases {
        assert_eq!(pending(&world(change)).await, 0, "a fleet {which}");
    }
    assert_eq!(pending(&world(|fleet| fleet.activity = Some("pending_fulfillment"))).await, 3);
}

#[tokio::test(start_paused = true)]
async fn fleets_without_any_node_count_and_add_up() {
    let world = World::of_group(1, 0);
    let of_cluster =
        |target| Fleet { target, tags: [(CLUSTER.to_owned(), "owned".to_owned())].into(), ..Fleet::maintaining() };
    let mut state = world.aws.state();
    for (at, target) in [4, 6, 0].into_iter().enumerate() {
        state.fleets.insert(format!("sfr-{at}"), of_cluster(target));
    }
    state.fleets.insert("fleet-1".to_owned(), of_cluster(9));
    state.page = 1;
    drop(state);
    assert_eq!(pending(&world).await, 10, "on all pages");
}

#[tokio::test(start_paused = true)]
async fn one_listing_serves_the_fleets_of_nodes_too_and_is_kept_for_a_while() {
    let world = world(|_| {});
    assert_eq!((pending(&world).await, world.aws.count(LIST)), (3, 1));
    world.aws.state().fleets.get_mut("sfr-1").unwrap().target = 6;
    assert_eq!((pending(&world).await, world.aws.count(LIST)), (3, 1), "as it was");
    let anew = world.try_survey(&[], Freshness::Now).await.unwrap();
    assert_eq!((anew.pending_spot(), world.aws.count(LIST)), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_about_chosen_nodes_tells_what_was_pending_and_asks_for_no_more() {
    let world = world(|_| {});
    let calls = |world: &World| world.aws.count(LIST);
    assert_eq!(world.survey(&[1]).await.pending_spot(), 3);
    let before = calls(&world);
    world.pass(600).await;
    world.delete(1).await.unwrap();
    assert_eq!(calls(&world), before, "a deletion has no use for it");
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_holds_nothing_up_and_doubts_no_node() {
    for fault in [Fault::Denied, Fault::Hang, Fault::Throttled] {
        let mut world = World::of_group(2, 0);
        world.add(3, Some("spot"));
        world.aws.fail(LIST, fault, u32::MAX);
        let began = tokio::time::Instant::now();
        let facts = world.survey(&[]).await;
        assert!(began.elapsed() < secs(25), "{fault:?}: {:?}", began.elapsed());
        assert_eq!(facts.pending_spot(), 0);
        assert!(world.nodes.iter().all(|node| facts.of(node.uid.as_str()).unwrap().refusals.is_empty()), "{fault:?}");
        let asked = world.aws.count(LIST);
        world.survey(&[]).await;
        assert_eq!(world.aws.count(LIST), asked, "{fault:?}: not each time");
    }
}
