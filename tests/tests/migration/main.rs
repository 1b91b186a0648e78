//! `spot-migrator` on a real cluster: one module a scenario.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

mod changed_while_it_runs;
mod check_tells_what_is_around;
mod everything_moves_to_spot;
mod killed_in_mid_drain;
mod missing_right;
mod plan_changes_nothing;
mod pod_replaced_under_its_name;
mod spot_is_exhausted;
mod told_to_end;
mod unreadable_values;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use spot_tests::{AuditLog, Workload, World, control_plane::User};

/// How long a run may take. The longest waits for a killed predecessor's lease, 15 s.
const RUN: Duration = Duration::from_mins(3);

/// The keys of what the product puts on nodes.
const OURS: &str = "spot-migrator.io/";

/// The nodes on which the pods of `workloads` are.
async fn hosts(world: &World, workloads: &[Workload]) -> BTreeSet<String> {
    let mut hosts = BTreeSet::new();
    for workload in workloads {
        hosts.extend(world.pods(workload).await.iter().map(host));
    }
    hosts
}

fn host(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).expect("the pod is on a node")
}

/// The UIDs of the pods whose eviction the API server accepted from the product.
fn evicted(audit: &AuditLog) -> BTreeSet<String> {
    audit
        .evictions_by(User::Migrator)
        .filter(|entry| entry.succeeded())
        .map(|entry| entry.uid_precondition().expect("every eviction names its pod's UID").to_owned())
        .collect()
}

/// Fails the test if anything of the product is left on a node.
fn assert_nothing_left_on(node: &Node) {
    let name = node.name_any();
    let spec = node.spec.as_ref().expect("a Node has a spec");
    assert_ne!(spec.unschedulable, Some(true), "{name} is still cordoned");
    let taints: Vec<_> = spec
        .taints
        .iter()
        .flatten()
        .filter(|taint| taint.key.starts_with(OURS) || taint.key == "ToBeDeletedByClusterAutoscaler")
        .collect();
    assert!(taints.is_empty(), "{name} still has {taints:?}");
    let marks: Vec<_> =
        node.labels().keys().chain(node.annotations().keys()).filter(|key| key.starts_with(OURS)).collect();
    assert!(marks.is_empty(), "{name} still has {marks:?}");
}
