//! Pods that would rather run on on-demand nodes: how often each is moved until it is on spot.
//!
//! The scheduler puts an evicted pod on the next on-demand node, which is about to go too, unless that node's soft
//! taint weighs more. Pods that tolerate the soft taint are placed as though there were none.
//!
//! The taint weighs 3, a preference for nodes 2, and so does the spread over nodes that the scheduler wants of every
//! workload. Where few spot nodes take all pods, spread and preference together weigh more than the taint.

use anyhow::Result;
use serde_json::json;
use spot_tests::control_plane::User;
use spot_tests::{Workload, World};

use crate::cluster::{self, NODES, PODS_PER_NODE, SPOT_NODES};
use crate::{as_f64, verdict};

/// What must be reached.
const EVICTIONS_A_POD: f64 = 1.05;

const SOFT_TAINT: &str = "spot-migrator.io/leaving";

pub(crate) async fn preference() -> Result<()> {
    println!("\n{NODES} nodes x {PODS_PER_NODE} pods, one by one: evictions a pod");
    compare("pods that prefer on-demand nodes", NODES, prefers_on_demand).await?;
    compare("pods that prefer on-demand nodes", SPOT_NODES, prefers_on_demand).await?;
    compare("the same, in no need of spread", SPOT_NODES, |pods| unspread(prefers_on_demand(pods))).await?;
    compare("pods without a preference", SPOT_NODES, |pods| pods).await
}

async fn compare(what: &str, spot_nodes: u32, shape: impl Fn(Workload) -> Workload) -> Result<()> {
    let with = evictions_a_pod(spot_nodes, &shape).await?;
    let without = evictions_a_pod(spot_nodes, |pods| tolerates(shape(pods))).await?;
    let verdict = verdict(with, EVICTIONS_A_POD);
    println!(
        "  {what}, to {spot_nodes} spot nodes: {with:.3}{verdict}; where they tolerate the soft taint {without:.3}"
    );
    Ok(())
}

fn prefers_on_demand(pods: Workload) -> Workload {
    let on_demand = json!({"key": "node.kubernetes.io/lifecycle", "operator": "In", "values": ["on-demand"]});
    let preferred = json!([{"weight": 100, "preference": {"matchExpressions": [on_demand]}}]);
    pods.spec("affinity", json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}))
}

fn tolerates(pods: Workload) -> Workload {
    pods.spec("tolerations", json!([{"key": SOFT_TAINT, "operator": "Exists", "effect": "PreferNoSchedule"}]))
}

/// A constraint of its own takes the place of the scheduler's: over zones, of which the nodes have none.
fn unspread(pods: Workload) -> Workload {
    let over_zones = json!({
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {},
    });
    pods.spec("topologySpreadConstraints", json!([over_zones]))
}

async fn evictions_a_pod(spot_nodes: u32, shape: impl Fn(Workload) -> Workload) -> Result<f64> {
    let world = World::start().await;
    cluster::lay_out(&world, spot_nodes, shape).await;
    cluster::migrate(&world).await?;
    let audit = world.audit().await;
    let accepted = audit.evictions_by(User::Migrator).filter(|entry| entry.succeeded()).count();
    Ok(as_f64(accepted) / f64::from(NODES * PODS_PER_NODE))
}
