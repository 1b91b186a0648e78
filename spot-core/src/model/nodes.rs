//! Node objects: their registration, their versions, what is written on them, their end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::capacity::Class;
use crate::error::{ErrorClass, PortError};
use crate::node::{ClaimAnnotation, Effect, NodeRef, NodeSnapshot, Readiness, Taint, key};
use crate::ports::{Edit, NodeChange, Written};
use crate::view::Change;

use super::autoscaler::Purchase;
use super::cloud::{InstanceNo, Life};
use super::record::{Answer, Fact, Removal};
use super::settings::MachineKind;
use super::world::{Event, NodeId, PodId, World, earlier};

/// Kubernetes' own taint of a cordoned node.
pub(super) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A Node object and what belongs to it.
pub(super) struct NodeEntry {
    pub(super) snapshot: Arc<NodeSnapshot>,
    pub(super) instance: InstanceNo,
    pub(super) class: Class,
    pub(super) slots: u32,
    pub(super) used: u32,
    pub(super) pods: BTreeSet<PodId>,
    /// Whether the object exists.
    pub(super) exists: bool,
    /// Whether its kubelet works.
    pub(super) alive: bool,
    /// The order that it fulfils, until it is ready.
    pub(super) coming: Option<Purchase>,
    pub(super) registered: crate::ports::Instant,
    pub(super) open: Option<super::scheduler::OpenKey>,
}

impl World {
    pub(super) fn node_entry(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(id.0)
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut NodeEntry> {
        self.nodes.get_mut(id.0)
    }

    pub(super) fn node_named(&self, name: &str) -> Option<NodeId> {
        self.node_names.get(name).copied()
    }

    /// The object that is meant, if it still exists.
    pub(super) fn node_of(&self, node: &NodeRef) -> Option<NodeId> {
        let id = self.node_uids.get(&node.uid).copied()?;
        self.node_entry(id).filter(|entry| entry.exists && entry.snapshot.name == node.name).map(|_| id)
    }

    /// A kubelet registers its machine.
    pub(super) fn register(&mut self, no: InstanceNo, ready: bool, age: Duration) -> Option<NodeId> {
        let instance = self.instances.get(no.0)?;
        let (spec, name, class) = (instance.spec.clone(), Arc::clone(&instance.node_name), instance.class);
        let provider_id = instance.provider_id.clone();
        let pods = std::mem::take(&mut self.instances.get_mut(no.0)?.orphans);
        let created_at = earlier(self.wall(), age);
        let mut labels = crate::model::scenario::class_labels(class);
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_string());
        labels.extend(spec.labels.iter().cloned());
        let snapshot = Arc::new(NodeSnapshot {
            name: Arc::clone(&name),
            uid: self.identity("node"),
            resource_version: self.next_version(),
            created_at,
            provider_id,
            labels: labels.into(),
            annotations: spec.annotations.iter().cloned().collect(),
            taints: spec.taints.clone(),
            unschedulable: spec.unschedulable,
            readiness: if ready { Readiness::Ready } else { Readiness::NotReady { since: created_at } },
            ready_since: ready.then_some(created_at),
            boot_id: self.instances.get(no.0)?.boot_id(),
            internal_addresses: Vec::new(),
            deleting_since: None,
            finalizers: match self.settings.machines {
                MachineKind::Instance => Vec::new(),
                MachineKind::WithNode => vec![key::KARPENTER_FINALIZER.to_owned()],
            },
            claim: ClaimAnnotation::Absent,
            back_off: None,
        });
        let id = NodeId(self.nodes.len());
        let used = pods.iter().filter(|pod| self.takes_slot(**pod)).count();
        self.nodes.push(NodeEntry {
            snapshot: Arc::clone(&snapshot),
            instance: no,
            class,
            slots: spec.slots,
            used: u32::try_from(used).unwrap_or(u32::MAX),
            pods,
            exists: true,
            alive: true,
            coming: None,
            registered: self.now(),
            open: None,
        });
        for pod in self.nodes.get(id.0)?.pods.clone() {
            self.move_orphan(pod, id);
        }
        self.node_names.insert(name, id);
        self.node_uids.insert(snapshot.uid.clone(), id);
        self.note(Fact::NodeJoined { node: snapshot.reference(), class });
        self.emit(Change::Node(snapshot));
        self.refresh_open(id);
        self.want_daemons_on(id);
        if spec.unschedulable {
            self.after(self.settings.cordon_taint_lag, Event::CordonTaint(id));
        }
        if !ready {
            self.after(self.settings.node_ready, Event::NodeReady(id));
        }
        if let Some(every) = self.settings.heartbeat {
            self.after(every, Event::Heartbeat(id));
        }
        Some(id)
    }

    /// Changes a Node object. One that stays the same keeps its version, as with a patch of the API server.
    pub(super) fn update_node(&mut self, id: NodeId, change: impl FnOnce(&mut NodeSnapshot)) -> bool {
        let Some(entry) = self.node_entry(id).filter(|entry| entry.exists) else { return false };
        let before = Arc::clone(&entry.snapshot);
        let mut node = NodeSnapshot::clone(&before);
        change(&mut node);
        if node == *before {
            return false;
        }
        node.resource_version = self.next_version();
        let cordon = node.unschedulable != before.unschedulable;
        let node = Arc::new(node);
        if let Some(entry) = self.node_mut(id) {
            entry.snapshot = Arc::clone(&node);
        }
        self.emit(Change::Node(node));
        self.refresh_open(id);
        if cordon {
            self.after(self.settings.cordon_taint_lag, Event::CordonTaint(id));
        }
        true
    }

    pub(super) fn node_ready(&mut self, id: NodeId) {
        let Some(entry) = self.node_mut(id).filter(|entry| entry.exists && entry.alive) else { return };
        let fulfilled = entry.coming.take();
        self.fulfil(fulfilled);
        let now = self.wall();
        self.update_node(id, |node| turn(node, Readiness::Ready, now));
    }

    pub(super) fn cordon_taint(&mut self, id: NodeId) {
        self.update_node(id, |node| {
            let tainted = node.taints.iter().any(|taint| taint.is(UNSCHEDULABLE, Effect::NoSchedule));
            if node.unschedulable && !tainted {
                node.taints.push(Taint::new(UNSCHEDULABLE, "", Effect::NoSchedule));
            } else if !node.unschedulable && tainted {
                node.taints.retain(|taint| !taint.is(UNSCHEDULABLE, Effect::NoSchedule));
            }
        });
    }

    pub(super) fn heartbeat(&mut self, id: NodeId) {
        let Some(every) = self.settings.heartbeat else { return };
        let version = self.next_version();
        let Some(entry) = self.node_mut(id).filter(|entry| entry.exists && entry.alive) else { return };
        Arc::make_mut(&mut entry.snapshot).resource_version = version;
        let node = Arc::clone(&entry.snapshot);
        self.emit(Change::Node(node));
        self.after(every, Event::Heartbeat(id));
    }

    /// Its kubelet falls silent, or speaks again.
    pub(super) fn set_alive(&mut self, id: NodeId, alive: bool) {
        let now = self.wall();
        let Some(entry) = self.node_mut(id) else { return };
        entry.alive = alive;
        let pods: Vec<PodId> = entry.pods.iter().copied().collect();
        let readiness = if alive { Readiness::Ready } else { Readiness::Unreachable { since: now } };
        self.update_node(id, |node| turn(node, readiness, now));
        for pod in pods {
            self.kubelet_of_pod(pod, alive);
        }
    }

    /// One patch of the API server's.
    pub(super) fn write_node(&mut self, node: &NodeRef, change: &NodeChange) -> Result<(Written, Answer), PortError> {
        if change.taints.is_some() && node.resource_version.is_none() {
            let message = format!("taints of node {node} can only be written on a version");
            return Err(PortError::new(ErrorClass::Permanent, message));
        }
        let Some(id) = self.node_of(node) else { return Ok((Written::Gone, Answer::NodeGone)) };
        let Some(entry) = self.node_entry(id) else { return Ok((Written::Gone, Answer::NodeGone)) };
        if node.resource_version.as_ref().is_some_and(|version| *version != entry.snapshot.resource_version) {
            return Ok((Written::Conflict(Arc::clone(&entry.snapshot)), Answer::Conflict));
        }
        #[cfg(feature = "test-util")]
        {
            self.replaced = Some(Arc::clone(&entry.snapshot));
        }
        self.update_node(id, |node| apply(node, change));
        let Some(entry) = self.node_entry(id) else { return Ok((Written::Gone, Answer::NodeGone)) };
        let answer = Answer::Written(entry.snapshot.resource_version.clone());
        Ok((Written::Applied(Arc::clone(&entry.snapshot)), answer))
    }

    /// Deletes a Node object: its owner's finalizer takes the machine with it, or its kubelet registers again.
    pub(super) fn delete_node(&mut self, node: &NodeRef) {
        let Some(id) = self.node_of(node) else { return };
        let Some(entry) = self.node_entry(id) else { return };
        let no = entry.instance;
        if entry.snapshot.finalizers.is_empty() {
            if self.instances.get(no.0).is_some_and(|instance| instance.follows) {
                self.end_machine(no);
            }
            self.object_gone(id);
        } else if entry.snapshot.deleting_since.is_none() {
            let now: Timestamp = self.wall();
            self.update_node(id, |node| node.deleting_since = Some(now));
            self.end_machine(no);
        }
    }

    pub(super) fn object_gone(&mut self, id: NodeId) {
        let Some(entry) = self.node_mut(id).filter(|entry| entry.exists) else { return };
        entry.exists = false;
        let (node, no, coming) = (Arc::clone(&entry.snapshot), entry.instance, entry.coming.take());
        let pods = std::mem::take(&mut entry.pods);
        self.refresh_open(id);
        self.fulfil(coming);
        if self.node_names.get(&node.name) == Some(&id) {
            self.node_names.remove(&node.name);
        }
        let running = self.instances.get(no.0).is_some_and(|instance| instance.life == Life::Running);
        self.note(Fact::NodeGone(node.reference()));
        self.emit(Change::NodeGone(node.uid.clone()));
        if running {
            if let Some(instance) = self.instances.get_mut(no.0) {
                instance.orphans = pods;
            }
            self.after(self.settings.reregister, Event::Reregister(no));
            return;
        }
        for pod in pods {
            self.finish(pod, Removal::NodeLost);
        }
        if self.settings.reuse_names {
            self.free_names.insert(Arc::clone(&node.name));
        }
    }

    pub(super) fn reregister(&mut self, no: InstanceNo) {
        let Some(instance) = self.instances.get(no.0) else { return };
        let name = Arc::clone(&instance.node_name);
        if instance.life == Life::Running {
            if !self.node_names.contains_key(&name) {
                // its kubelet never stopped: ready at once
                self.register(no, true, Duration::ZERO);
            }
            return;
        }
        for pod in std::mem::take(
            &mut self.instances.get_mut(no.0).map(|i| std::mem::take(&mut i.orphans)).unwrap_or_default(),
        ) {
            self.finish(pod, Removal::NodeLost);
        }
    }
}

/// The `Ready` condition changes, or says again what it said.
fn turn(node: &mut NodeSnapshot, readiness: Readiness, now: Timestamp) {
    let ready = readiness == Readiness::Ready;
    node.ready_since = ready.then(|| node.ready_since.unwrap_or(now));
    node.readiness = readiness;
}

/// What a patch does.
fn apply(node: &mut NodeSnapshot, change: &NodeChange) {
    match change.mark {
        Edit::Keep => {}
        Edit::Set(()) => {
            node.labels.insert(key::SELECTED.to_owned(), "true".to_owned());
        }
        Edit::Remove => {
            node.labels.remove(key::SELECTED);
        }
    }
    if change.remove_old_mark {
        node.labels.remove(key::COST_MANAGER_SELECTED);
    }
    match &change.claim {
        Edit::Keep => {}
        Edit::Set(claim) => node.claim = ClaimAnnotation::Valid(Box::new(claim.clone())),
        Edit::Remove => node.claim = ClaimAnnotation::Absent,
    }
    match change.back_off {
        Edit::Keep => {}
        Edit::Set(back_off) => node.back_off = Some(back_off),
        Edit::Remove => node.back_off = None,
    }
    if let Some(unschedulable) = change.unschedulable {
        node.unschedulable = unschedulable;
    }
    if let Some(taints) = &change.taints {
        node.taints.clone_from(taints);
    }
}
