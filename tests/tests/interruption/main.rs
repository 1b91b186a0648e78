//! Machines that are taken back, on a real cluster with a queue of AWS's messages: one module a scenario.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

mod agent;
mod blocked;
mod burst;
mod cluster;
mod deadline;
mod double;
mod endpoint;
mod foreign;
mod killed;
mod on_aws;
mod own_node;
mod planned;
mod rebalance;
mod refused;
mod returns;

use std::{collections::BTreeMap, time::Duration};

use cluster::Cluster;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use spot_tests::{AuditLog, Entry, Machine, Verb, control_plane::User, notice, sqs::Happened};

/// How long an answer may take that waits for no pod's grace period.
const ANSWER: Duration = Duration::from_mins(1);

/// How long a process may take to end.
const END: Duration = Duration::from_mins(1);

/// The keys of what the product puts on nodes.
const OURS: &str = "spot-migrator.io/";

/// The taint under which a node goes whose machine goes.
const DEPARTING: &str = "ToBeDeletedByClusterAutoscaler";

/// The metric of notices that were received.
const RECEIVED: &str = "spot_migrator_interruption_notices_total";

/// The metric of messages that had no effect.
const IGNORED: &str = "spot_migrator_interruption_notices_ignored_total";

/// The metric of nodes that were drained because of notices.
const DRAINED: &str = "spot_migrator_interruption_nodes_drained_total";

/// The metric of runs that failed.
const FAILURES: &str = "spot_migrator_operation_failure_total";

/// A spot node on the instance with this number. Its name tells nothing of the instance.
fn spot(name: &str, instance: u32) -> Machine {
    Machine::spot(name).instance(&notice::instance(instance))
}

/// EC2 takes the instance with this number back.
fn interruption(instance: u32) -> serde_json::Value {
    notice::interruption(&notice::instance(instance), "terminate")
}

/// The requests with which the product made `node` unschedulable, in order.
fn cordons<'a>(audit: &'a AuditLog, node: &'a str) -> impl Iterator<Item = &'a Entry> {
    writes_on(audit, node).filter(|entry| entry.succeeded() && entry.body["spec"]["unschedulable"] == true)
}

/// The patches of `node` that the product sent, whatever the answer was.
fn writes_on<'a>(audit: &'a AuditLog, node: &'a str) -> impl Iterator<Item = &'a Entry> {
    let patches = |entry: &&Entry| entry.resource == "nodes" && entry.verb == Verb::Patch;
    audit.writes_by(User::Migrator).filter(patches).filter(move |entry| entry.name == node)
}

/// How often the API server accepted the product's eviction of each pod, by UID.
fn evictions(audit: &AuditLog) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for entry in audit.evictions_by(User::Migrator).filter(|entry| entry.succeeded()) {
        let uid = entry.uid_precondition().expect("every eviction names its pod's UID");
        *times.entry(uid.to_owned()).or_default() += 1;
    }
    times
}

/// The seconds that an eviction or a deletion gives the pod.
fn grace(entry: &Entry) -> Option<i64> {
    let options = if entry.is_eviction() { &entry.body["deleteOptions"] } else { &entry.body };
    options["gracePeriodSeconds"].as_i64()
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// What of the product's is on a node: labels, annotations and taints by key, and its cordon.
fn ours(node: &Node) -> Vec<String> {
    let ours = |key: &&String| key.starts_with(OURS) || **key == DEPARTING;
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).map(|taint| &taint.key);
    let keys = node.labels().keys().chain(node.annotations().keys()).chain(taints);
    let cordon = is_cordoned(node).then(|| "cordon".to_owned());
    keys.filter(ours).cloned().chain(cordon).collect()
}

/// Whether a moment of a message is its deletion.
fn is_deleted(what: Happened) -> bool {
    what == Happened::Deleted
}

#[expect(clippy::disallowed_methods, reason = "compared with the API server's clock, which is this machine's")]
fn now() -> Timestamp {
    Timestamp::now()
}
