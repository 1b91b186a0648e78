//! What may hold a drain up on a real cluster, and what must never come of it: one module a scenario.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

mod bound_in_mid_drain;
mod budget_relaxed_later;
mod budgets_that_never_allow;
mod falls_silent;
mod finalizer;
mod namespace_terminating;
mod other_writers;
mod recreated;
mod two_budgets;
mod uncordoned;
mod volume_attachment;
mod webhook_refuses;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use spot_tests::{
    AuditLog, Entry, Machine, Running, Workload, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

/// How long a run may take.
const RUN: Duration = Duration::from_mins(3);

/// The keys of what the product puts on nodes.
const OURS: &str = "spot-migrator.io/";

/// What remembers a failure on its node.
const BACK_OFF: &str = "spot-migrator.io/back-off";

/// A configuration whose drain ends after `timeout`, and that waits for nobody for long.
fn settings(timeout: &str) -> Value {
    json!({
        "drain": {"timeout": timeout},
        "settle": {"timeout": "5s"},
        "backOff": {"initial": "10m", "max": "10m"},
    })
}

/// A Deployment whose pods' grace period fits into a short drain.
fn deployment(name: &str, replicas: u32) -> Workload {
    Workload::deployment(name, replicas).spec("terminationGracePeriodSeconds", json!(5))
}

/// A StatefulSet of two pods, of which one may be down. Who goes takes his time, and comes back only when he is gone: so
/// the other one waits for ten seconds.
fn taking_turns(name: &str) -> Workload {
    Workload::stateful_set(name, 2).spec("terminationGracePeriodSeconds", json!(5)).max_unavailable(1).stop_after("10s")
}

/// Lets the machines join, each with its workload's pods and no others, and last an empty spot node.
async fn lay_out(world: &World, nodes: &[(&str, &Workload)]) {
    let cordon = |cordoned: bool| json!({"spec": {"unschedulable": cordoned}});
    for (node, workload) in nodes {
        world.join(&[Machine::on_demand(node)]).await;
        world.run(std::slice::from_ref(*workload)).await;
        world.patch_node(node, &cordon(true)).await;
    }
    world.join(&[Machine::spot("spot-1")]).await;
    for (node, _) in nodes {
        world.patch_node(node, &cordon(false)).await;
    }
}

/// Waits until what the API server was asked for satisfies `look`.
async fn asked<T>(world: &World, running: &Running, what: &str, look: impl Fn(&AuditLog) -> Option<T>) -> T {
    until(what, PATIENCE, || async {
        look(&world.audit().await).ok_or_else(|| format!("it printed {}", running.process().output()))
    })
    .await
}

/// The UIDs of the pods whose eviction the API server accepted from the product.
fn evicted(audit: &AuditLog) -> BTreeSet<String> {
    audit.evictions_by(User::Migrator).filter(|entry| entry.succeeded()).filter_map(uid).collect()
}

/// The UID of the pod that an eviction names.
fn uid(entry: &Entry) -> Option<String> {
    entry.uid_precondition().map(str::to_owned)
}

/// The UIDs of pods.
fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(ResourceExt::uid).collect()
}

/// Where a pod is.
fn host(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The version of the store in which this was so, or in which it went.
fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).expect("the store counts its versions")
}

/// Fails the test unless the node is as it was before, but for what remembers the failure.
fn assert_released(node: &Node) {
    assert_untouched_but_for(node, &[BACK_OFF]);
    assert!(node.annotations().contains_key(BACK_OFF), "{} is not left alone for a while", node.name_any());
}

/// Fails the test if anything of the product is on the node, but for these labels and annotations.
fn assert_untouched_but_for(node: &Node, allowed: &[&str]) {
    let name = node.name_any();
    let spec = node.spec.as_ref().expect("a Node has a spec");
    assert_ne!(spec.unschedulable, Some(true), "{name} is still cordoned");
    let ours = |key: &str| key.starts_with(OURS) || key == "ToBeDeletedByClusterAutoscaler";
    let taints: Vec<_> = spec.taints.iter().flatten().filter(|taint| ours(&taint.key)).collect();
    assert!(taints.is_empty(), "{name} still has {taints:?}");
    let marks: Vec<_> = node.labels().keys().chain(node.annotations().keys()).filter(|key| ours(key)).collect();
    assert!(marks.iter().all(|key| allowed.contains(&key.as_str())), "{name} still has {marks:?}");
}

/// Fails the test if the product deleted a pod: pods go by eviction.
fn assert_no_pod_deleted(audit: &AuditLog) {
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "pods").map(ToString::to_string).collect();
    assert!(deleted.is_empty(), "{deleted:?}");
}
