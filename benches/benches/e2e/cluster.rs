//! Twenty on-demand nodes with ten pods each, and spot nodes with room for all of them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use spot_tests::{Machine, Migrator, Workload, World};

use crate::RUN;

pub(crate) const NODES: u32 = 20;
pub(crate) const PODS_PER_NODE: u32 = 10;
/// Spot nodes that have room for all pods.
pub(crate) const SPOT_NODES: u32 = 4;
/// Fewer Deployments than nodes, so that each node holds pods of all of them.
const DEPLOYMENTS: u32 = 10;

/// Lays out the nodes with Deployments that `shape` gives the rest of their form, and `spot_nodes` to move to.
pub(crate) async fn lay_out(world: &World, spot_nodes: u32, shape: impl Fn(Workload) -> Workload) {
    let on_demand: Vec<_> = (0..NODES).map(|number| Machine::on_demand(&format!("on-demand-{number}"))).collect();
    world.join(&on_demand).await;
    let replicas = NODES * PODS_PER_NODE / DEPLOYMENTS;
    let deployment = |number| shape(Workload::deployment(&format!("web-{number}"), replicas));
    world.run(&(0..DEPLOYMENTS).map(deployment).collect::<Vec<_>>()).await;
    let spot: Vec<_> = (0..spot_nodes).map(|number| Machine::spot(&format!("spot-{number}"))).collect();
    world.join(&spot).await;
}

/// Migrates everything by the process that users run, and tells how long that took.
pub(crate) async fn migrate(world: &World) -> Result<Duration> {
    let migrator = Migrator::install(world, json!({"log": {"level": "info"}})).await;
    let start = Instant::now();
    migrator.run_once(RUN).await.assert_code(0);
    let took = start.elapsed();
    let left: Vec<_> = world.nodes().await.into_keys().filter(|name| !name.starts_with("spot-")).collect();
    ensure!(left.is_empty(), "on-demand nodes are left: {left:?}");
    Ok(took)
}
