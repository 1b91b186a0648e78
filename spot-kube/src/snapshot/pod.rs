//! Pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use spot_core::node::{Uid, key};
use spot_core::pod::{Controller, PodPhase, PodSnapshot};
use spot_core::volume::PodClaim;

use super::placement::{Affinity, TolerationText, needs};
use super::{Condition, Interner, Metadata, Subject, Unreadable, is_true, ready};

/// The kubelet's mark on pods that it made from files, which the API server can't remove.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Kubernetes' default of `terminationGracePeriodSeconds`.
const GRACE: Duration = Duration::from_secs(30);

/// A Pod, as far as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pod {
    pub(super) metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    volumes: Option<Vec<Volume>>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<TolerationText>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: Option<String>,
    empty_dir: Option<Present>,
    ephemeral: Option<Present>,
    persistent_volume_claim: Option<ClaimSource>,
}

/// Its fields are not read: being there is enough.
#[derive(Clone, Debug, Deserialize)]
struct Present {}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    claim_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
}

/// The snapshot of a pod.
pub(crate) fn pod(pod: Pod, texts: &mut Interner) -> Result<PodSnapshot, Unreadable> {
    let metadata = pod.metadata.unwrap_or_default();
    let spec = pod.spec.unwrap_or_default();
    let status = pod.status.unwrap_or_default();
    let subject = Subject::of("pod", &metadata);
    let name: Arc<str> = Arc::from(subject.required("name", metadata.name.as_ref())?);
    let volumes = spec.volumes.unwrap_or_default();
    let needs = needs(spec.node_selector, spec.affinity, spec.tolerations);
    let node = spec.node_name.filter(|node| !node.is_empty());
    let grace =
        spec.termination_grace_period_seconds.map(|seconds| Duration::from_secs(seconds.try_into().unwrap_or(0)));
    Ok(PodSnapshot {
        namespace: texts.text(subject.required("namespace", metadata.namespace.as_ref())?),
        needs: needs.map(|needs| texts.needs(needs)),
        claims: claims(&name, &volumes, texts),
        name,
        uid: subject.uid(&metadata)?,
        node: node.map(|node| texts.text(&node)),
        created_at: subject.created_at(&metadata)?,
        controller: controller(&metadata, texts),
        phase: phase(&subject, status.phase.as_deref())?,
        ready: ready(status.conditions.as_deref()).is_some_and(is_true),
        deletion: subject.deleted_at(&metadata)?,
        mirror: metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR)),
        opted_out: opted_out(&metadata),
        empty_dir: volumes.iter().any(|volume| volume.empty_dir.is_some()),
        grace: grace.unwrap_or(GRACE),
        labels: Arc::new(metadata.labels.unwrap_or_default()),
    })
}

/// The claims of a pod with these volumes. One that is made for the pod alone is named after both.
fn claims(pod: &str, volumes: &[Volume], texts: &mut Interner) -> Option<Arc<[PodClaim]>> {
    let mut claims = Vec::new();
    for volume in volumes {
        let lasting = volume.persistent_volume_claim.as_ref().and_then(|source| source.claim_name.as_deref());
        if let Some(name) = lasting {
            claims.push(PodClaim { name: texts.text(name), ephemeral: false });
        } else if let (Some(_), Some(name)) = (&volume.ephemeral, &volume.name) {
            claims.push(PodClaim { name: Arc::from(format!("{pod}-{name}")), ephemeral: true });
        }
    }
    (!claims.is_empty()).then(|| claims.into())
}

fn phase(subject: &Subject, phase: Option<&str>) -> Result<PodPhase, Unreadable> {
    Ok(match phase {
        Some("Pending" | "") | None => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        Some(other) => return Err(subject.unreadable(format!("has the unknown phase {other:?}"))),
    })
}

fn controller(metadata: &Metadata, texts: &mut Interner) -> Option<Controller> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let version = owner.api_version.as_deref().unwrap_or_default();
    Some(Controller {
        group: texts.text(version.split_once('/').map_or("", |(group, _)| group)),
        kind: texts.text(owner.kind.as_deref().unwrap_or_default()),
        uid: Uid::new(texts.text(owner.uid.as_deref().unwrap_or_default())),
    })
}

fn opted_out(metadata: &Metadata) -> Option<&'static str> {
    let annotated = |key, value| metadata.annotation(key) == Some(value);
    if metadata.label(key::DO_NOT_EVICT) == Some("true") || annotated(key::DO_NOT_EVICT, "true") {
        return Some(key::DO_NOT_EVICT);
    }
    if annotated(key::DO_NOT_DISRUPT, "true") {
        return Some(key::DO_NOT_DISRUPT);
    }
    annotated(key::SAFE_TO_EVICT, "false").then_some(key::SAFE_TO_EVICT)
}
