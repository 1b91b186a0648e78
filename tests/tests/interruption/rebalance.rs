//! Recommendations to rebalance: advice, and no order.

use serde_json::json;
use spot_tests::{Workload, control_plane::User, notice};

use crate::{ANSWER, Cluster, OURS, cordons, is_cordoned, ours, spot};

const SOFT: &str = "spot-migrator.io/rebalance-recommended";

#[tokio::test(flavor = "multi_thread")]
async fn rb_80_hints_for_eight_of_ten_nodes_evict_nothing_and_keep_new_pods_off_where_others_have_room() {
    let cluster = Cluster::start().await;
    let nodes: Vec<_> = (0..10).map(|number| spot(&format!("sp-{number}"), number)).collect();
    cluster.world.join(&nodes).await;
    cluster.run(&Workload::deployment("web", 20)).await;
    let witness = cluster.world.witness().await;
    let running = cluster.running(json!({})).await;

    let hints = cluster.queue.send_all((0..8).map(|number| notice::rebalance(&notice::instance(number))));
    cluster.queue.deleted(&hints, ANSWER).await;
    witness.caught_up().await;

    let nodes = cluster.world.nodes().await;
    for number in 0..10 {
        let node = &nodes[&format!("sp-{number}")];
        let soft: Vec<_> = node
            .spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten())
            .filter(|taint| taint.key.starts_with(OURS))
            .collect();
        assert_eq!(soft.len(), usize::from(number < 8), "{soft:?}");
        assert!(soft.iter().all(|taint| taint.key == SOFT && taint.effect == "PreferNoSchedule"), "{soft:?}");
        assert_eq!(ours(node).len(), soft.len(), "and nothing else: {:?}", ours(node));
    }
    assert_eq!(witness.most_cordoned(), 0);
    assert_eq!(cluster.world.audit().await.evictions_by(User::Migrator).count(), 0);
    assert_eq!(running.metric("spot_migrator_interruption_held_until_timestamp_seconds", &[]), 0);

    // What was advice becomes an order.
    let order = cluster.queue.send(crate::interruption(0));
    cluster.emptied("sp-0").await;
    cluster.queue.deleted(&[order], ANSWER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_80_where_hints_drain_one_node_goes_at_a_time_and_the_next_when_its_pods_run_again() {
    let cluster = Cluster::start().await;
    let nodes: Vec<_> = (0..4).map(|number| spot(&format!("sp-{number}"), number)).collect();
    cluster.world.join(&nodes).await;
    let web = Workload::deployment("web", 12).ready_after("2s");
    cluster.run(&web).await;
    let witness = cluster.world.witness().await;
    let _running = cluster.running(json!({"interruption": {"rebalanceRecommendation": "drain"}})).await;

    let hints = cluster.queue.send_all((0..3).map(|number| notice::rebalance(&notice::instance(number))));
    for number in 0..3 {
        cluster.emptied(&format!("sp-{number}")).await;
    }
    cluster.queue.deleted(&hints, ANSWER).await;
    cluster.world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    // Three, four and then six of them are on the node that goes; all three nodes at once would be nine.
    assert!(witness.fewest_up(&web) >= 6, "{}", witness.fewest_up(&web));
    let audit = cluster.world.audit().await;
    let begun: Vec<_> =
        (0..3).map(|number| format!("sp-{number}")).map(|node| cordons(&audit, &node).count()).collect();
    assert_eq!(begun, [1, 1, 1]);
    assert!(!is_cordoned(&cluster.world.nodes().await["sp-3"]));
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "pods").map(ToString::to_string).collect();
    assert_eq!(deleted, Vec::<String>::new());
}
