//! Nodes.

use std::sync::Arc;

use serde::Deserialize;
use spot_core::node::{Effect, NodeSnapshot, Readiness, Taint, key};

use super::{Condition, Metadata, Subject, Unreadable, is_true, ready};
use crate::claim;

/// The annotations that decisions read, the two that are decoded aside. All others are dropped.
const ANNOTATIONS: [&str; 3] = [key::DO_NOT_MIGRATE, key::SCALE_DOWN_DISABLED, key::DO_NOT_DISRUPT];

/// A Node, as far as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Node {
    pub(super) metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    unschedulable: Option<bool>,
    taints: Option<Vec<TaintText>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaintText {
    key: Option<String>,
    value: Option<String>,
    effect: Option<String>,
    time_added: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    conditions: Option<Vec<Condition>>,
    node_info: Option<NodeInfo>,
    addresses: Option<Vec<Address>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: Option<String>,
    address: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: Option<String>,
}

/// The snapshot of a node.
pub(crate) fn node(node: Node) -> Result<NodeSnapshot, Unreadable> {
    let metadata = node.metadata.unwrap_or_default();
    let spec = node.spec.unwrap_or_default();
    let status = node.status.unwrap_or_default();
    let subject = Subject::of("node", &metadata);
    let created_at = subject.created_at(&metadata)?;
    let annotation = |key: &str| metadata.annotation(key);
    let taints = spec.taints.unwrap_or_default().into_iter().map(|text| taint(&subject, text));
    let condition = ready(status.conditions.as_deref());
    let turned = condition.and_then(|condition| condition.last_transition_time.as_deref());
    let turned = turned.map(|time| subject.time("Ready condition's lastTransitionTime", time)).transpose()?;
    let (readiness, ready_since) = match (condition, turned) {
        (Some(condition), since) if is_true(condition) => (Readiness::Ready, since),
        (Some(condition), Some(since)) => {
            // What kube-controller-manager writes when it has not heard of the kubelet for its grace period.
            let unknown = condition.status.as_deref() == Some("Unknown");
            (if unknown { Readiness::Unreachable { since } } else { Readiness::NotReady { since } }, None)
        }
        (Some(_) | None, _) => (Readiness::NotReady { since: created_at }, None),
    };
    Ok(NodeSnapshot {
        name: Arc::from(subject.required("name", metadata.name.as_ref())?),
        uid: subject.uid(&metadata)?,
        created_at,
        deleting_since: subject.deleted_at(&metadata)?,
        claim: claim::decode(annotation(key::CLAIM)),
        back_off: annotation(key::BACK_OFF).and_then(claim::decode_back_off),
        annotations: ANNOTATIONS
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), annotation(key)?.to_owned())))
            .collect(),
        taints: taints.collect::<Result<_, _>>()?,
        resource_version: metadata.resource_version.unwrap_or_default(),
        provider_id: spec.provider_id.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into(),
        unschedulable: spec.unschedulable.unwrap_or_default(),
        readiness,
        ready_since,
        boot_id: status.node_info.and_then(|info| info.boot_id).unwrap_or_default(),
        internal_addresses: status
            .addresses
            .into_iter()
            .flatten()
            .filter(|one| one.kind.as_deref() == Some("InternalIP"))
            .filter_map(|one| one.address)
            .collect(),
        finalizers: metadata.finalizers.unwrap_or_default(),
    })
}

/// A taint that can't be read makes the whole node unreadable: we would lose it when we write the list.
fn taint(subject: &Subject, text: TaintText) -> Result<Taint, Unreadable> {
    let effect = text.effect.unwrap_or_default();
    let Some(effect) = Effect::parse(&effect) else {
        return Err(subject.unreadable(format!("has a taint of unknown effect {effect:?}")));
    };
    let time_added = text.time_added.map(|time| subject.time("taint's timeAdded", &time)).transpose()?;
    Ok(Taint { time_added, ..Taint::new(text.key.unwrap_or_default(), text.value.unwrap_or_default(), effect) })
}
