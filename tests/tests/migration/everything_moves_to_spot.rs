//! A cluster with spot nodes to go to: at the end everything is there.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::json;
use spot_tests::{Machine, Migrator, Workload, World, control_plane::User};

use crate::{RUN, assert_nothing_left_on, evicted, hosts};

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_moves_to_spot_within_its_budget_and_every_on_demand_node_goes() {
    let world = World::start().await;
    let on_demand = ["on-demand-1", "on-demand-2", "on-demand-3", "on-demand-4"];
    world.join(&[Machine::control_plane("control-plane-1")]).await;
    world.join(&on_demand.map(Machine::on_demand)).await;
    let deployments = [
        Workload::deployment("web", 16).max_unavailable(1),
        Workload::deployment("api", 14).max_unavailable(1).ready_after("300ms"),
        Workload::deployment("batch", 10).max_unavailable(1).stop_after("300ms"),
    ];
    let agent = Workload::daemon_set("agent");
    world.run(&deployments).await;
    assert_eq!(hosts(&world, &deployments).await, on_demand.map(str::to_owned).into(), "before");
    world.join(&[Machine::spot("spot-1"), Machine::spot("spot-2")]).await;
    world.run(std::slice::from_ref(&agent)).await;

    let migrator = Migrator::install(&world, json!({})).await;
    let witness = world.witness().await;
    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    world.settled(&deployments).await;
    witness.caught_up().await;

    let nodes = world.nodes().await;
    assert_eq!(nodes.keys().collect::<Vec<_>>(), ["control-plane-1", "spot-1", "spot-2"]);
    nodes.values().for_each(assert_nothing_left_on);
    assert_eq!(hosts(&world, &deployments).await, ["spot-1", "spot-2"].map(str::to_owned).into(), "after");
    for workload in &deployments {
        witness.assert_budget_kept(workload);
    }
    assert_eq!(witness.most_cordoned(), 1, "one node at a time");

    let audit = world.audit().await;
    let retired: BTreeSet<_> = audit.deletes_by(User::Migrator, "nodes").map(|entry| entry.name.as_str()).collect();
    assert_eq!(retired, on_demand.into());
    let deletes: Vec<_> = audit.deletes_by(User::Migrator, "pods").map(ToString::to_string).collect();
    assert_eq!(deletes, Vec::<String>::new(), "pods go by eviction");
    let untouched = audit.writes_by(User::Migrator).filter(|entry| entry.resource == "nodes");
    assert!(untouched.into_iter().all(|entry| entry.name != "control-plane-1"), "the control plane is left alone");

    // What left a Deployment was evicted, and what was evicted left a Deployment.
    let of_deployments =
        |pod: &&k8s_openapi::api::core::v1::Pod| pod.labels().get("app").is_some_and(|app| app != "agent");
    let gone: BTreeSet<_> = witness.pods_gone().iter().filter(of_deployments).filter_map(ResourceExt::uid).collect();
    assert_eq!(gone, evicted(&audit));
}
