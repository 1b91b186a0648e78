//! The process is told to end in the middle of a drain, as when its pod is moved: the next one goes on from there.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};
use spot_tests::{
    Machine, Migrator, Workload, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{RUN, assert_nothing_left_on, evicted, hosts};

/// The configuration's, in which a process must have ended.
const GRACE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_told_to_end_in_mid_drain_leaves_a_node_that_the_next_one_finishes() {
    let world = World::start().await;
    let on_demand = ["on-demand-1", "on-demand-2"];
    world.join(&on_demand.map(Machine::on_demand)).await;
    // Four pods a node, one at a time, each a second: there is a middle of the drain.
    let web = Workload::deployment("web", 8).max_unavailable(1).ready_after("1s");
    world.run(std::slice::from_ref(&web)).await;
    world.join(&[Machine::spot("spot-1")]).await;
    let changes = json!({"schedule": "@every 1s", "shutdown": {"gracePeriod": "20s"}});
    let migrator = Migrator::install(&world, changes).await;
    let witness = world.witness().await;

    let running = migrator.run(&[]);
    until("the first eviction", PATIENCE, || async {
        let evicted = evicted(&world.audit().await).len();
        if evicted > 0 { Ok(()) } else { Err(format!("nothing yet; it printed {}", running.process().output())) }
    })
    .await;
    let ended = running.terminate(GRACE).await;
    ended.assert_code(0);
    assert!(ended.output.contains("outcome=\"stopped\""), "{}", ended.output);

    witness.caught_up().await;
    let begun = witness.cordoned();
    assert_eq!((begun.len(), witness.gone().len()), (1, 0), "{begun:?} was begun, and nothing is finished");
    let nodes = world.nodes().await;
    let (left, other) =
        if begun[0] == on_demand[0] { (on_demand[0], on_demand[1]) } else { (on_demand[1], on_demand[0]) };
    assert_claimed(&nodes[left]);
    assert_nothing_left_on(&nodes[other]);
    let moved = evicted(&world.audit().await);
    assert!(moved.len() < 4, "there was a middle: {moved:?}");
    let writes = world.audit().await.writes_by(User::Migrator).filter(|entry| entry.resource == "leases").count();
    assert!(writes > 0, "it led");

    // The lease was given back: nobody waits for its end.
    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    assert!(ended.output.contains("outcome=\"recovered\""), "{}", ended.output);
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;
    assert_eq!(
        (witness.gone(), witness.cordoned()),
        (begun.clone(), begun),
        "the same node is finished, and no other begun"
    );
    assert!(evicted(&world.audit().await).is_superset(&moved));
    witness.assert_budget_kept(&web);
    assert_eq!(hosts(&world, std::slice::from_ref(&web)).await.len(), 2);
    world.nodes().await.values().for_each(assert_nothing_left_on);
}

/// Fails the test unless the node says whose it is, and how far it has come.
fn assert_claimed(node: &Node) {
    assert_eq!(node.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
    assert_eq!(node.labels().get("spot-migrator.io/selected-for-deletion").map(String::as_str), Some("true"));
    let claim = node.annotations().get("spot-migrator.io/claim").expect("it is claimed");
    let claim: Value = serde_json::from_str(claim).expect("the claim is JSON");
    assert_eq!((&claim["owner"], &claim["step"]), (&json!("migrator"), &json!("draining")));
    assert_eq!(claim["node"].as_str(), node.metadata.uid.as_deref());
}
