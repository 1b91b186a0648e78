//! Volumes: made with their pods, attached to one node at a time, and detached some time after their pod is gone.

use std::sync::Arc;
use std::time::Duration;

use crate::node::Node;
use crate::pod::PodSnapshot;
use crate::view::Change;
use crate::volume::{
    AttachmentSnapshot, PodClaim, Reach, VolumeChange, VolumeClaimRef, VolumeClaimSnapshot, VolumeSnapshot,
};

use super::spec::WorkloadSpec;
use super::world::{Event, NodeId, PodId, World};

/// When Kubernetes detaches a volume by force, whose machine went before it was detached.
const BY_FORCE: Duration = Duration::from_mins(6);

/// How a volume is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detaching {
    /// By a kubelet that still works.
    InOrder,
    /// By the controller alone.
    ByForce,
}

/// The claims of a pod of this kind and name.
pub(super) fn claims(spec: &WorkloadSpec, pod: &str) -> Option<Arc<[PodClaim]>> {
    spec.volume.as_ref().map(|_| [PodClaim { name: format!("data-{pod}").into(), ephemeral: false }].into())
}

/// Whether pods of this kind could use their volumes on this node.
pub(super) fn reaches(spec: &WorkloadSpec, node: &impl Node) -> bool {
    match spec.volume.as_ref().map(|volume| &volume.reach) {
        None | Some(Reach::Anywhere | Reach::Host) => true,
        Some(Reach::Nodes(terms)) => terms.met_by(node),
    }
}

impl World {
    /// Makes the volume of a new pod, unless an earlier pod of its name had one.
    pub(super) fn provide_volume(&mut self, pod: &PodSnapshot, spec: &WorkloadSpec) {
        let (Some(volume), Some(name)) = (&spec.volume, volume_of(pod)) else { return };
        if self.volumes.contains_key(&name) {
            return;
        }
        self.volumes.insert(Arc::clone(&name), None);
        let snapshot = VolumeSnapshot { name: Arc::clone(&name), reach: volume.reach.clone() };
        self.emit(Change::Volume(VolumeChange::Volume(Arc::new(snapshot))));
        for claim in pod.claims.iter().flat_map(|claims| claims.iter()) {
            let claim = VolumeClaimRef { namespace: Arc::clone(&pod.namespace), name: Arc::clone(&claim.name) };
            let snapshot = VolumeClaimSnapshot { claim, volume: Some(Arc::clone(&name)) };
            self.emit(Change::Volume(VolumeChange::Claim(Arc::new(snapshot))));
        }
    }

    /// Attaches the volume of a pod to its node, unless it is attached; false while it is elsewhere.
    pub(super) fn attach_volume(&mut self, id: PodId) -> bool {
        let Some(pod) = self.pod(id) else { return true };
        let (Some(volume), Some(node)) = (volume_of(&pod.snapshot), pod.node) else { return true };
        let Some(attached) = self.volumes.get_mut(&volume) else { return true };
        if let Some(attached) = attached {
            return *attached == node;
        }
        *attached = Some(node);
        if let Some(name) = self.node_entry(node).map(|entry| Arc::clone(&entry.snapshot.name)) {
            let attachment = AttachmentSnapshot { name: attachment(&volume, node), node: name, volume: Some(volume) };
            self.emit(Change::Volume(VolumeChange::Attached(Arc::new(attachment))));
        }
        true
    }

    /// Detaches the volume of a pod that is gone, in its own time.
    pub(super) fn release_volume(&mut self, id: PodId) {
        let Some(pod) = self.pod(id) else { return };
        let Some(volume) = volume_of(&pod.snapshot) else { return };
        let spec = self.workloads.get(pod.workload.0).and_then(|workload| workload.spec.volume.as_ref());
        let Some(detach) = spec.map(|volume| volume.detach) else { return };
        let node = pod.node;
        if self.volumes.get(&volume).is_some_and(|attached| attached.is_some() && *attached == node) {
            self.after(detach, Event::Detach(volume, Detaching::InOrder));
        }
    }

    pub(super) fn detach_volume(&mut self, volume: &Arc<str>, how: Detaching) {
        let Some(node) = self.volumes.get(volume).copied().flatten() else { return };
        let works = self.node_entry(node).is_some_and(|entry| entry.exists && entry.alive);
        if how == Detaching::InOrder && !works {
            self.after(BY_FORCE, Event::Detach(Arc::clone(volume), Detaching::ByForce));
            return;
        }
        self.volumes.insert(Arc::clone(volume), None);
        self.emit(Change::Volume(VolumeChange::Detached(attachment(volume, node))));
        let waiting = self
            .pods
            .iter()
            .position(|pod| pod.is_active() && pod.node.is_some() && volume_of(&pod.snapshot).as_ref() == Some(volume));
        if let Some(at) = waiting {
            self.pod_running(PodId(at));
        }
    }
}

/// The name of the volume of a pod; none: it has none.
fn volume_of(pod: &PodSnapshot) -> Option<Arc<str>> {
    pod.claims.as_ref().map(|_| format!("pv-{}-{}", pod.namespace, pod.name).into())
}

fn attachment(volume: &str, node: NodeId) -> Arc<str> {
    format!("{volume}-on-{}", node.0).into()
}
