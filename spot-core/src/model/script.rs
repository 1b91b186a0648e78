//! What others do to the world: operators, kubelets, clouds, attackers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use crate::capacity::Class;
use crate::claim::InstanceId;
use crate::memory::Memory;
use crate::node::{ClaimAnnotation, NodeRef, NodeSnapshot, Taint};
use crate::pod::{PodRef, PodSnapshot};
use crate::reason::Reason;

use super::cloud::{Group, Life};
use super::process::ProcessId;
use super::record::Removal;
use super::spec::{NodeSpec, PodLife};
use super::world::{Event, NodeId, World};

impl World {
    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Arc<NodeSnapshot>> {
        self.node_named(name).and_then(|id| self.node_entry(id)).map(|entry| &entry.snapshot)
    }

    /// The class of the node of this name, by the cloud's word.
    #[must_use]
    pub fn class_of(&self, name: &str) -> Option<Class> {
        self.node_named(name).and_then(|id| self.node_entry(id)).map(|entry| entry.class)
    }

    /// The class of the Node object with this identity, though it be gone.
    #[must_use]
    pub fn class_of_uid(&self, uid: &str) -> Option<Class> {
        self.node_uids.get(uid).and_then(|id| self.node_entry(*id)).map(|entry| entry.class)
    }

    /// The machine of the Node object with this identity, though it be gone.
    #[must_use]
    pub fn instance_of_uid(&self, uid: &str) -> Option<&InstanceId> {
        let entry = self.node_uids.get(uid).and_then(|id| self.node_entry(*id))?;
        self.instances.get(entry.instance.0).map(|instance| &instance.id)
    }

    /// The group of the machine of the Node object with this identity, though it be gone.
    #[must_use]
    pub fn group_of_uid(&self, uid: &str) -> Option<&str> {
        let entry = self.node_uids.get(uid).and_then(|id| self.node_entry(*id))?;
        self.instances.get(entry.instance.0)?.spec.group.as_deref()
    }

    /// Whether the machine of the Node object with this identity runs.
    #[must_use]
    pub fn machine_runs(&self, uid: &str) -> bool {
        let entry = self.node_uids.get(uid).and_then(|id| self.node_entry(*id));
        let instance = entry.and_then(|entry| self.instances.get(entry.instance.0));
        instance.is_some_and(|instance| instance.life == Life::Running)
    }

    /// The Node object with this identity as it was last, though it be gone.
    #[must_use]
    pub fn last_seen(&self, uid: &str) -> Option<&Arc<NodeSnapshot>> {
        self.node_uids.get(uid).and_then(|id| self.node_entry(*id)).map(|entry| &entry.snapshot)
    }

    /// The pod of this namespace and name.
    #[must_use]
    pub fn pod_named(&self, namespace: &str, name: &str) -> Option<Arc<PodSnapshot>> {
        self.view().pods().find(|pod| *pod.namespace == *namespace && *pod.name == *name).map(Arc::clone)
    }

    /// The groups that keep machines, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, Group)> {
        self.groups.iter().map(|(id, group)| (id.as_str(), *group))
    }

    /// The running machines of each group, by its name.
    #[must_use]
    pub fn machines_by_group(&self) -> BTreeMap<String, u32> {
        let mut running: BTreeMap<String, u32> = self.groups.keys().map(|group| (group.clone(), 0)).collect();
        for instance in self.instances.iter().filter(|instance| instance.life == Life::Running) {
            if let Some(count) = instance.spec.group.as_ref().and_then(|group| running.get_mut(group)) {
                *count += 1;
            }
        }
        running
    }

    /// The Node object that the last write of any process replaced.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn replaced(&self) -> Option<&NodeSnapshot> {
        self.replaced.as_deref()
    }

    /// What the latest call did itself: not what was made to happen right before it.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn facts_of_the_latest_call(&self) -> &[super::record::FactRecord] {
        self.facts().get(self.effect_began..).unwrap_or_default()
    }

    /// Has a group be a fleet, which has to be told to want less before a machine goes.
    pub fn make_fleet(&mut self, group: &str) {
        self.groups.entry(group.to_owned()).or_default().is_fleet = true;
    }

    /// Gives a group a capacity below which it refuses to go.
    pub fn set_group_floor(&mut self, group: &str, floor: u32) {
        self.groups.entry(group.to_owned()).or_default().floor = floor;
    }

    /// How many timers, watches and waits for a change there are at this moment.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.timers() + self.watches.waiting()
    }

    /// Lets something happen that much later.
    pub fn later(&mut self, delay: Duration, act: impl FnOnce(&mut Self) + Send + 'static) {
        self.after(delay, Event::Script(Box::new(act)));
    }

    /// Has the hook look at the world after each call, beside earlier ones.
    pub fn after_each_call(&mut self, hook: impl FnMut(&Self, &super::record::CallRecord) + Send + 'static) {
        self.hooks.push(Box::new(hook));
    }

    /// Kills a process.
    pub fn kill_process(&mut self, process: ProcessId) {
        self.kill(process);
    }

    /// Moves the wall clock, not the monotonic one.
    pub const fn jump_wall_clock(&mut self, by: SignedDuration) {
        self.skew = self.skew.saturating_add(by);
    }

    /// A node joins at once, ready; none does where the name is taken.
    pub fn add_node(&mut self, spec: NodeSpec) -> Option<NodeRef> {
        let id = self.launch(NodeSpec { age: Duration::ZERO, ..spec }, true)?;
        self.node_entry(id).map(|entry| entry.snapshot.reference())
    }

    /// Somebody changes a Node object.
    pub fn edit_node(&mut self, name: &str, edit: impl FnOnce(&mut NodeSnapshot)) {
        if let Some(id) = self.node_named(name) {
            self.update_node(id, edit);
        }
    }

    /// An operator cordons a node, or takes the cordon off.
    pub fn cordon(&mut self, name: &str, cordoned: bool) {
        self.edit_node(name, |node| node.unschedulable = cordoned);
    }

    /// Somebody puts a label on a node, or takes it off.
    pub fn label_node(&mut self, name: &str, key: &str, value: Option<&str>) {
        self.edit_node(name, |node| {
            match value {
                Some(value) => node.labels.insert(key.to_owned(), value.to_owned()),
                None => node.labels.remove(key),
            };
        });
    }

    /// Somebody puts an annotation on a node, or takes it off.
    pub fn annotate_node(&mut self, name: &str, key: &str, value: Option<&str>) {
        self.edit_node(name, |node| {
            match value {
                Some(value) => node.annotations.insert(key.to_owned(), value.to_owned()),
                None => node.annotations.remove(key),
            };
        });
    }

    /// Somebody puts a taint on a node.
    pub fn taint_node(&mut self, name: &str, taint: Taint) {
        self.edit_node(name, |node| node.taints.push(taint));
    }

    /// Somebody takes the taints of this key off a node.
    pub fn untaint_node(&mut self, name: &str, key: &str) {
        self.edit_node(name, |node| node.taints.retain(|taint| taint.key != key));
    }

    /// Somebody writes the record on a node.
    pub fn set_claim(&mut self, name: &str, claim: ClaimAnnotation) {
        self.edit_node(name, |node| node.claim = claim);
    }

    /// A kubelet writes another machine's provider ID on its Node.
    pub fn set_provider_id(&mut self, name: &str, provider_id: &str) {
        self.edit_node(name, |node| provider_id.clone_into(&mut node.provider_id));
    }

    /// A cluster-autoscaler that restarts: its taint and the cordon go in one update.
    pub fn autoscaler_restarts(&mut self, name: &str) {
        self.edit_node(name, |node| {
            node.unschedulable = false;
            node.taints.retain(|taint| taint.key != crate::node::key::TO_BE_DELETED);
        });
    }

    /// Somebody deletes the Node object of a running machine; its kubelet registers it again, with another identity.
    pub fn re_register(&mut self, name: &str) {
        let Some((id, no)) = self.node_named(name).and_then(|id| Some((id, self.node_entry(id)?.instance))) else {
            return;
        };
        self.object_gone(id);
        self.reregister(no);
    }

    /// A new machine takes over the old Node object, with all that is written on it; the old machine is gone.
    pub fn replace_machine(&mut self, name: &str, class: Class) {
        let Some(id) = self.node_named(name) else { return };
        let Some(old) = self.node_entry(id).map(|entry| entry.instance) else { return };
        let Some(instance) = self.instances.get_mut(old.0) else { return };
        // the group has let go already of one that is on its way out
        let kept = instance.life == Life::Running;
        instance.life = Life::Gone;
        let spec = NodeSpec { class, ..instance.spec.clone() };
        if kept {
            self.let_go_of_a_machine(spec.group.as_deref());
        }
        let no = self.new_instance(spec, name.into());
        let Some(instance) = self.instances.get(no.0) else { return };
        let (provider_id, boot_id) = (instance.provider_id.clone(), instance.boot_id());
        if let Some(entry) = self.node_mut(id) {
            entry.instance = no;
            entry.class = class;
        }
        self.edit_node(name, |node| {
            node.provider_id = provider_id;
            node.boot_id = boot_id;
        });
    }

    /// A machine boots again under the same Node object.
    pub fn reboot(&mut self, name: &str) {
        let Some(no) = self.node_named(name).and_then(|id| self.node_entry(id)).map(|entry| entry.instance) else {
            return;
        };
        let Some(instance) = self.instances.get_mut(no.0) else { return };
        instance.boots += 1;
        let boot_id = instance.boot_id();
        self.edit_node(name, |node| node.boot_id = boot_id);
    }

    /// A kubelet falls silent, or speaks again.
    pub fn set_kubelet(&mut self, name: &str, alive: bool) {
        if let Some(id) = self.node_named(name) {
            self.set_alive(id, alive);
        }
    }

    /// The cloud takes a machine back, or somebody terminates it by hand.
    pub fn terminate_machine(&mut self, name: &str) {
        if let Some(no) = self.node_named(name).and_then(|id| self.node_entry(id)).map(|entry| entry.instance) {
            self.end_machine(no);
        }
    }

    /// Why the cloud refuses to delete the machine of this node; nothing: it does not.
    pub fn set_refusals(&mut self, name: &str, refusals: Vec<Reason>) {
        let no = self.node_named(name).and_then(|id| self.node_entry(id)).map(|entry| entry.instance);
        if let Some(instance) = no.and_then(|no| self.instances.get_mut(no.0)) {
            instance.refusals = refusals;
        }
    }

    /// A pod of this workload more lands on this node, past the scheduler and its cordon.
    pub fn land_pod(&mut self, workload: &str, name: &str, node: &str) -> Option<PodRef> {
        let (owner, node) = (self.workload_named(workload)?, self.node_named(node)?);
        let pod = self.create_pod(owner, name.to_owned())?;
        self.bind(pod, node);
        self.pod(pod).map(|pod| pod.snapshot.reference())
    }

    /// Somebody deletes a pod.
    pub fn delete_pod(&mut self, pod: &PodRef) {
        if let Some(id) = self.pod_of(pod) {
            self.begin_deletion(id, None, Removal::Others);
        }
    }

    /// Somebody deletes a pod with force, and it is gone at once.
    pub fn force_delete_pod(&mut self, pod: &PodRef) {
        if let Some(id) = self.pod_of(pod) {
            self.finish(id, Removal::Others);
        }
    }

    /// A pod's readiness changes.
    pub fn set_pod_ready(&mut self, pod: &PodRef, ready: bool) {
        if let Some(id) = self.pod_of(pod) {
            self.update_pod(id, |pod| pod.ready = ready);
        }
    }

    /// The finalizer that holds a workload's pods is done with them.
    pub fn let_go(&mut self, workload: &str) {
        let Some(id) = self.workload_named(workload) else { return };
        if let Some(workload) = self.workloads.get_mut(id.0) {
            workload.spec.life = PodLife::Sound;
        }
        let pods: Vec<_> = (0..self.pods.len()).map(super::world::PodId).collect();
        for pod in pods {
            if self.pod(pod).is_some_and(|pod| pod.workload == id && pod.is_stopped()) {
                self.pod_stopped(pod);
            }
        }
    }

    /// A person pauses us, or lets us go on.
    pub fn pause(&mut self, paused: bool) {
        let version = Some(self.next_version());
        self.set_memory(Memory { paused, version, ..self.memory.clone() });
    }

    /// The memory is lost, or somebody writes another.
    pub fn replace_memory(&mut self, memory: &Memory) {
        let version = Some(self.next_version());
        self.set_memory(Memory { version, ..memory.clone() });
    }

    /// What the taint that takes a node out of load balancers would say at this moment.
    #[must_use]
    pub fn taint_value(&self) -> String {
        self.wall().as_second().to_string()
    }

    /// Nodes that exist, by the order of their registration.
    pub(super) fn existing_nodes(&self) -> Vec<NodeId> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.exists).map(|(at, _)| NodeId(at)).collect()
    }
}
