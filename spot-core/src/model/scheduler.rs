//! The scheduler: room, cordons, taints, selectors.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::capacity::Class;
use crate::node::{Effect, Readiness, Taint};
use crate::placement::{Needs, is_of_life};
use crate::volume::Reach;

use super::nodes::NodeEntry;
use super::pods::Pod;
use super::settings::Placement;
use super::spec::WorkloadSpec;
use super::volumes;
use super::world::{Event, NodeId, PodId, WorkloadId, World};

/// Where a node stands among those with room: the least is taken first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpenKey {
    /// Which of the lists it is in.
    list: List,
    /// Whether a soft taint asks to leave it alone.
    avoided: bool,
    rank: u32,
    name: Arc<str>,
    id: NodeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    OnDemand,
    Other,
    /// With a taint that keeps most pods away.
    Tainted,
}

/// Nodes with room.
#[derive(Debug, Default)]
pub(super) struct OpenNodes {
    on_demand: BTreeSet<OpenKey>,
    other: BTreeSet<OpenKey>,
    tainted: BTreeSet<OpenKey>,
}

impl OpenNodes {
    const fn list(&mut self, list: List) -> &mut BTreeSet<OpenKey> {
        match list {
            List::OnDemand => &mut self.on_demand,
            List::Other => &mut self.other,
            List::Tainted => &mut self.tainted,
        }
    }
}

impl World {
    /// Places pending pods a moment later.
    pub(super) fn request_schedule(&mut self) {
        if !self.scheduling && !self.pending.is_empty() {
            self.scheduling = true;
            self.after(self.settings.scheduler_lag, Event::Schedule);
        }
    }

    /// Puts a node where it belongs among those with room.
    pub(super) fn refresh_open(&mut self, id: NodeId) {
        let Some(entry) = self.node_entry(id) else { return };
        let key = open_key(entry, id, self.settings.placement);
        if entry.open == key {
            return;
        }
        let Some(entry) = self.node_mut(id) else { return };
        let before = std::mem::replace(&mut entry.open, key.clone());
        if let Some(before) = before {
            self.open.list(before.list).remove(&before);
        }
        if let Some(key) = key {
            self.open.list(key.list).insert(key);
            self.request_schedule();
        }
    }

    pub(super) fn take_slots(&mut self, id: NodeId, more: i32) {
        if let Some(entry) = self.node_mut(id) {
            entry.used = entry.used.saturating_add_signed(more);
            self.refresh_open(id);
        }
    }

    pub(super) fn schedule(&mut self) {
        self.scheduling = false;
        let mut hopeless: BTreeSet<WorkloadId> = BTreeSet::new();
        let pending: Vec<PodId> = self.pending.iter().copied().collect();
        for pod in pending {
            let Some(owner) = self.pod(pod).map(|pod| pod.workload) else { continue };
            if hopeless.contains(&owner) {
                continue;
            }
            match self.place(pod) {
                Some(node) => self.bind(pod, node),
                // of pods with volumes each may be bound to another place
                None if self.pod(pod).is_some_and(|pod| pod.snapshot.claims.is_some()) => {}
                None => {
                    hopeless.insert(owner);
                }
            }
        }
        if !self.pending.is_empty() {
            self.order_machines();
        }
    }

    fn place(&self, id: PodId) -> Option<NodeId> {
        let pod = self.pod(id)?;
        let workload = self.workloads.get(pod.workload.0)?;
        let (spec, was_seen) = (&workload.spec, workload.was_seen());
        let fits = |key: &&OpenKey| if was_seen { self.suits(pod, key.id) } else { self.fits(spec, key.id) };
        let first = |list: &BTreeSet<OpenKey>| list.iter().find(fits).cloned();
        let on_demand = first(&self.open.on_demand);
        let other = if spec.needs_on_demand { None } else { first(&self.open.other) };
        let tolerates = if was_seen { pod.snapshot.needs.is_some() } else { !spec.tolerations.is_empty() };
        let tainted = if tolerates { first(&self.open.tainted) } else { None };
        let order = |key: &OpenKey| (key.avoided, key.rank, Arc::clone(&key.name));
        [on_demand, other, tainted].into_iter().flatten().min_by_key(order).map(|key| key.id)
    }

    /// Whether a node could run a pod of this kind: it has room, and nothing keeps the pod away.
    pub(super) fn could_run(&self, spec: &WorkloadSpec, node: NodeId) -> bool {
        self.node_entry(node).is_some_and(|entry| entry.open.is_some()) && self.fits(spec, node)
    }

    /// Whether a node could run a pod that is like one that was seen.
    fn suits(&self, pod: &Pod, node: NodeId) -> bool {
        let Some(node) = self.node_entry(node).map(|entry| &entry.snapshot) else { return false };
        let nothing = Needs::default();
        let of_life = |taint: &Taint| taint.effect != Effect::PreferNoSchedule && is_of_life(&taint.key);
        pod.snapshot.needs.as_deref().unwrap_or(&nothing).met_by(node)
            && !node.taints.iter().any(of_life)
            && self.truth.volumes_of(&pod.snapshot).all(|volume| match &volume.reach {
                Reach::Anywhere | Reach::Host => true,
                Reach::Nodes(terms) => terms.met_by(node),
            })
    }

    fn fits(&self, spec: &WorkloadSpec, node: NodeId) -> bool {
        let Some(entry) = self.node_entry(node) else { return false };
        let node = &entry.snapshot;
        (!spec.needs_on_demand || entry.class == Class::OnDemand)
            && volumes::reaches(spec, node)
            && spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && node.taints.iter().all(|taint| match taint.effect {
                Effect::PreferNoSchedule => true,
                Effect::NoSchedule | Effect::NoExecute => spec.tolerations.contains(&taint.key),
            })
    }
}

/// Where a node stands; none: it takes no pods.
fn open_key(entry: &NodeEntry, id: NodeId, placement: Placement) -> Option<OpenKey> {
    let node = &entry.snapshot;
    let takes_pods = entry.exists
        && entry.alive
        && !node.unschedulable
        && node.deleting_since.is_none()
        && node.readiness == Readiness::Ready
        && entry.used < entry.slots;
    if !takes_pods {
        return None;
    }
    let has = |soft: bool| node.taints.iter().any(|taint| (taint.effect == Effect::PreferNoSchedule) == soft);
    let list = match entry.class {
        _ if has(false) => List::Tainted,
        Class::OnDemand => List::OnDemand,
        Class::Spot | Class::Reserved | Class::Unknown => List::Other,
    };
    let rank = match placement {
        Placement::LeastFilled => entry.used,
        Placement::MostFilled => u32::MAX - entry.used,
        Placement::ByName => 0,
    };
    Some(OpenKey { list, avoided: has(true), rank, name: Arc::clone(&node.name), id })
}
