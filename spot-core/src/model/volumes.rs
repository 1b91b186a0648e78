//! Volumes: made with their pods, attached to one node at a time, and detached some time after their pod is gone.

use std::sync::Arc;
use std::time::Duration;

use crate::node::Node;
use crate::pod::PodSnapshot;
use crate::view::Change;
use crate::volume::{
    AttachmentSnapshot, PodClaim, Reach, VolumeChange, VolumeClaimRef, VolumeClaimSnapshot, VolumeSnapshot,
};

use super::pods::Pod;
use super::spec::WorkloadSpec;
use super::world::{Event, NodeId, PodId, World};

/// When Kubernetes detaches a volume by force, whose machine went before it was detached.
const BY_FORCE: Duration = Duration::from_mins(6);

/// How long a volume stays attached of whose driver nothing is known: those of the large clouds take about as long.
pub(super) const DETACH: Duration = Duration::from_secs(10);

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
        let (Some(volume), Some(name)) = (&spec.volume, own_volume(pod)) else { return };
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

    /// Attaches the volumes of a pod to its node, unless they are attached; false while one is elsewhere.
    pub(super) fn attach_volumes(&mut self, id: PodId) -> bool {
        let Some((pod, node)) = self.pod(id).and_then(|pod| Some((&pod.snapshot, pod.node?))) else { return true };
        let mut all_here = true;
        for volume in self.attachable(pod) {
            let Some(attached) = self.volumes.get_mut(&volume) else { continue };
            if let Some(attached) = attached {
                all_here &= *attached == node;
                continue;
            }
            *attached = Some(node);
            if let Some(name) = self.node_entry(node).map(|entry| Arc::clone(&entry.snapshot.name)) {
                let name_of_both = attachment(&volume, node);
                let attachment = AttachmentSnapshot { name: name_of_both, node: name, volume: Some(volume) };
                self.emit(Change::Volume(VolumeChange::Attached(Arc::new(attachment))));
            }
        }
        all_here
    }

    /// Detaches the volumes of a pod that is gone, in their own time.
    pub(super) fn release_volumes(&mut self, id: PodId) {
        let Some(pod) = self.pod(id) else { return };
        let (node, volumes) = (pod.node, self.attachable(&pod.snapshot));
        let spec = self.workloads.get(pod.workload.0).and_then(|workload| workload.spec.volume.as_ref());
        let detach = spec.map_or(DETACH, |volume| volume.detach);
        for volume in volumes {
            if self.volumes.get(&volume).is_some_and(|attached| attached.is_some() && *attached == node) {
                self.after(detach, Event::Detach(volume, Detaching::InOrder));
            }
        }
    }

    /// The volumes of a pod that can only be attached to one node at a time.
    fn attachable(&self, pod: &PodSnapshot) -> Vec<Arc<str>> {
        let volumes = self.truth.volumes_of(pod).map(|volume| &volume.name);
        volumes.filter(|volume| self.volumes.contains_key(*volume)).cloned().collect()
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
        let waits = |pod: &&Pod| {
            pod.is_active() && pod.node.is_some() && self.truth.volumes_of(&pod.snapshot).any(|one| one.name == *volume)
        };
        let waiting = self.pods.iter().position(|pod| waits(&pod));
        if let Some(at) = waiting {
            self.pod_running(PodId(at));
        }
    }
}

/// The name of the volume that is made with a pod; none: it has none.
fn own_volume(pod: &PodSnapshot) -> Option<Arc<str>> {
    pod.claims.as_ref().map(|_| format!("pv-{}-{}", pod.namespace, pod.name).into())
}

fn attachment(volume: &str, node: NodeId) -> Arc<str> {
    format!("{volume}-on-{}", node.0).into()
}
