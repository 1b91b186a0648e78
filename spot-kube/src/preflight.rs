//! Which rights are needed, and which of them are missing. The manifests grant exactly these: `deploy/rbac.yaml` those of
//! a run, `deploy/rbac-interruption.yaml` what answering interruptions takes besides, `deploy/rbac-fleet.yaml` those of
//! work on node pools, and `deploy/agent/rbac.yaml` those of an agent.

use futures::future::try_join_all;
use spot_core::error::PortError;
use spot_core::ports::Instant;

use crate::access_review::{Right, is_allowed};
use crate::cluster::KubeCluster;

/// What is to be done; each needs rights beyond reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Nodes are retired: patched, emptied, and their objects deleted.
    pub retire: bool,
    /// Pods of dying nodes are deleted: interruptions are answered.
    pub delete_pods: bool,
    /// Progress is published as Kubernetes Events.
    pub events: bool,
    /// The name of the lease that is held meanwhile.
    pub lease: Option<String>,
}

/// A right that is not about one object, or about the one of a name: group, resource, subresource, verbs.
type Row = (&'static str, &'static str, Option<&'static str>, &'static [&'static str]);

/// To look.
const READ: [Row; 7] = [
    ("", "nodes", None, &["list", "watch"]),
    ("", "pods", None, &["list", "watch"]),
    ("policy", "poddisruptionbudgets", None, &["list", "watch"]),
    ("apps", "daemonsets", None, &["list", "watch"]),
    ("", "persistentvolumeclaims", None, &["list", "watch"]),
    ("", "persistentvolumes", None, &["list", "watch"]),
    ("storage.k8s.io", "volumeattachments", None, &["list", "watch"]),
];

/// To retire nodes; one that somebody else wrote meanwhile is read again.
const RETIRE: [Row; 2] =
    [("", "nodes", None, &["get", "patch", "delete"]), ("", "pods", Some("eviction"), &["create"])];

/// To look at one node and its pods, and to empty it. Kubernetes can't limit these to a node that is not known before:
/// the admission policy of `deploy/agent` does, as far as that goes.
const ONE_NODE: [Row; 4] = [
    ("", "nodes", None, &["get", "list", "watch", "patch"]),
    ("", "pods", None, &["list", "watch"]),
    ("", "pods", Some("eviction"), &["create"]),
    ("", "pods", None, &["delete"]),
];

/// To publish Events: those about nodes are in namespace `default`, those about pods beside them.
const EVENTS: [Row; 1] = [("events.k8s.io", "events", None, &["create"])];

/// To delete what budgets still hold on a dying node.
const DELETE_PODS: [Row; 1] = [("", "pods", None, &["delete"])];

/// To read the memory.
const RECALL: Row = ("", "configmaps", None, &["get", "list", "watch"]);

/// To write it.
const REMEMBER: Row = ("", "configmaps", None, &["patch"]);

/// To write it for the first time. Neither this nor the next can be limited to a name: there is none yet.
const FIRST_MEMORY: Row = ("", "configmaps", None, &["create"]);

/// To hold a lease for the first time.
const FIRST_LEASE: Row = ("coordination.k8s.io", "leases", None, &["create"]);

/// To go on holding it.
const LEASE: Row = ("coordination.k8s.io", "leases", None, &["get", "update"]);

/// The rights that these features need, with the ConfigMap and the lease in `namespace`.
#[must_use]
pub fn rights(features: &Features, namespace: &str, config_map: &str) -> Vec<Right> {
    let when = |on: bool, rows: &'static [Row]| if on { rows } else { &[] };
    let mut rights: Vec<Right> = [
        &READ[..],
        when(features.retire, &RETIRE),
        when(features.events, &EVENTS),
        when(features.delete_pods, &DELETE_PODS),
    ]
    .into_iter()
    .flatten()
    .flat_map(|row| of(row, None, None))
    .collect();
    rights.extend(of(&RECALL, Some(namespace), Some(config_map)));
    if features.retire {
        rights.extend(of(&REMEMBER, Some(namespace), Some(config_map)));
        rights.extend(of(&FIRST_MEMORY, Some(namespace), None));
    }
    if let Some(lease) = &features.lease {
        rights.extend(of(&LEASE, Some(namespace), Some(lease)));
        rights.extend(of(&FIRST_LEASE, Some(namespace), None));
    }
    rights
}

/// The rights that emptying one node needs, Events included, in a cluster [without a
/// memory](KubeCluster::without_memory).
#[must_use]
pub fn rights_on_one_node() -> Vec<Right> {
    ONE_NODE.iter().chain(&EVENTS).flat_map(|row| of(row, None, None)).collect()
}

impl KubeCluster {
    /// Asks the API server for every right that these features need, all at once, and returns those that are missing.
    /// Changes nothing.
    ///
    /// # Errors
    /// When the API server does not answer within the deadline.
    pub async fn missing_rights(&self, features: &Features, by: Instant) -> Result<Vec<Right>, PortError> {
        let memory_at = self.memory_at();
        let (namespace, config_map) = memory_at.unwrap_or_default();
        let mut rights = rights(features, namespace, config_map);
        if memory_at.is_none() {
            rights.retain(|right| right.resource != "configmaps");
        }
        self.missing_of(rights, by).await
    }

    /// Asks the API server for every one of these rights, all at once, and returns those that are missing. Changes
    /// nothing.
    ///
    /// # Errors
    /// When the API server does not answer within the deadline.
    pub async fn missing_of(&self, rights: Vec<Right>, by: Instant) -> Result<Vec<Right>, PortError> {
        let allowed = try_join_all(rights.iter().map(|right| is_allowed(self.requests(), right, by, None))).await?;
        Ok(rights.into_iter().zip(allowed).filter(|(_, allowed)| !allowed).map(|(right, _)| right).collect())
    }
}

fn of(row: &Row, namespace: Option<&str>, name: Option<&str>) -> impl Iterator<Item = Right> {
    let (group, resource, subresource, verbs) = *row;
    let (namespace, name) = (namespace.map(str::to_owned), name.map(str::to_owned));
    verbs.iter().map(move |verb| Right {
        namespace: namespace.clone(),
        group,
        resource,
        subresource,
        verb,
        name: name.clone(),
    })
}
