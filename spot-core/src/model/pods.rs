//! Pods: created, placed, started, ready, on their way out, gone.

use std::sync::Arc;
use std::time::Duration;

use crate::node::NodeRef;
use crate::pod::{PodPhase, PodRef, PodSnapshot};
use crate::view::Change;

use super::record::{Fact, Removal};
use super::spec::{PodLife, WorkloadKind};
use super::world::{BudgetId, Event, NodeId, PodId, WorkloadId, World, later};

/// A pod and what belongs to it.
pub(super) struct Pod {
    pub(super) snapshot: Arc<PodSnapshot>,
    pub(super) workload: WorkloadId,
    pub(super) node: Option<NodeId>,
    pub(super) budgets: Arc<[BudgetId]>,
    /// Its containers have ended, but its object is held.
    stopped: bool,
    pub(super) gone: bool,
    removal: Option<Removal>,
}

impl Pod {
    /// Whether budgets count it as healthy.
    pub(super) fn is_healthy(&self) -> bool {
        !self.gone && self.snapshot.ready && self.snapshot.deletion.is_none() && !self.snapshot.phase.is_finished()
    }

    /// Whether it takes part in its application.
    pub(super) fn is_active(&self) -> bool {
        !self.gone && self.snapshot.is_active()
    }

    /// Whether its containers have ended, though its object is still there.
    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped && !self.gone
    }

    /// Whether budgets count it at all.
    pub(super) fn is_counted(&self) -> bool {
        !self.gone && !self.snapshot.phase.is_finished()
    }
}

impl World {
    pub(super) fn pod(&self, id: PodId) -> Option<&Pod> {
        self.pods.get(id.0)
    }

    /// The pod that is meant, if it still exists.
    pub(super) fn pod_of(&self, pod: &PodRef) -> Option<PodId> {
        self.pod_uids.get(&pod.uid).copied()
    }

    pub(super) fn takes_slot(&self, id: PodId) -> bool {
        let workload = self.pod(id).and_then(|pod| self.workloads.get(pod.workload.0));
        workload.is_some_and(|workload| {
            let ended = workload.was_seen() && workload.spec.life == PodLife::Finished;
            workload.spec.kind != WorkloadKind::DaemonSet && workload.spec.life != PodLife::Mirror && !ended
        })
    }

    /// Whether a drain ought to move it.
    pub(super) fn is_movable(&self, pod: &PodSnapshot) -> bool {
        let daemon = pod
            .controller
            .as_ref()
            .is_some_and(|controller| controller.is_daemon_set() && self.truth.daemon_set_exists(&controller.uid));
        !daemon && !pod.mirror && !pod.phase.is_finished()
    }

    /// Pods on this node that a drain ought to have moved.
    #[must_use]
    pub fn movable_pods_on(&self, node: &NodeRef) -> Vec<PodRef> {
        let pods = self.truth.pods_on(&node.name).filter(|pod| self.is_movable(pod));
        pods.map(|pod| pod.reference()).collect()
    }

    pub(super) fn create_pod(&mut self, owner: WorkloadId, name: String) -> Option<PodId> {
        let uid = self.identity("pod");
        let created_at = self.wall();
        let workload = self.workloads.get_mut(owner.0)?;
        workload.active += 1;
        let (snapshot, budgets) = workload.pod(uid, name, created_at);
        let snapshot = Arc::new(snapshot);
        let spec = workload.spec.volume.is_some().then(|| workload.spec.clone());
        let id = self.add_pod(Arc::clone(&snapshot), owner, budgets);
        self.pending.insert(id);
        if let Some(spec) = spec {
            self.provide_volume(&snapshot, &spec);
        }
        self.emit(Change::Pod(snapshot));
        self.request_schedule();
        Some(id)
    }

    /// Takes in a pod, which is on no node yet.
    pub(super) fn add_pod(&mut self, pod: Arc<PodSnapshot>, workload: WorkloadId, budgets: Arc<[BudgetId]>) -> PodId {
        let id = PodId(self.pods.len());
        self.pod_uids.insert(pod.uid.clone(), id);
        let pod = Pod { snapshot: pod, workload, node: None, budgets, stopped: false, gone: false, removal: None };
        let (healthy, counted) = (pod.is_healthy(), pod.is_counted());
        self.pods.push(pod);
        self.count_pod(id, i32::from(healthy), i32::from(counted));
        id
    }

    /// A pod that was seen is on this node.
    pub(super) fn put_on(&mut self, id: PodId, node: NodeId) {
        if let Some(entry) = self.nodes.get_mut(node.0) {
            entry.pods.insert(id);
        }
        if let Some(pod) = self.pods.get_mut(id.0) {
            pod.node = Some(node);
        }
    }

    /// A pod that was seen is on its way out already.
    pub(super) fn mark_leaving(&mut self, id: PodId, removal: Removal) {
        if let Some(pod) = self.pods.get_mut(id.0) {
            pod.removal = Some(removal);
        }
    }

    /// Changes a Pod object.
    pub(super) fn update_pod(&mut self, id: PodId, change: impl FnOnce(&mut PodSnapshot)) {
        let Some(pod) = self.pods.get_mut(id.0).filter(|pod| !pod.gone) else { return };
        let before = (pod.is_healthy(), pod.is_counted());
        change(Arc::make_mut(&mut pod.snapshot));
        let after = (pod.is_healthy(), pod.is_counted());
        let snapshot = Arc::clone(&pod.snapshot);
        if before != after {
            self.count_pod(id, i32::from(after.0) - i32::from(before.0), i32::from(after.1) - i32::from(before.1));
        }
        self.emit(Change::Pod(snapshot));
    }

    /// Binds a pod to a node, whatever the scheduler thinks of it.
    pub(super) fn bind(&mut self, id: PodId, node: NodeId) {
        let Some(entry) = self.nodes.get_mut(node.0) else { return };
        let name = Arc::clone(&entry.snapshot.name);
        entry.pods.insert(id);
        self.pending.remove(&id);
        if self.takes_slot(id) {
            self.take_slots(node, 1);
        }
        let Some(pod) = self.pods.get_mut(id.0) else { return };
        pod.node = Some(node);
        let owner = pod.workload;
        self.update_pod(id, |pod| pod.node = Some(name));
        self.attach_volumes(id);
        let Some(workload) = self.workloads.get(owner.0) else { return };
        let pull = workload.spec.pull;
        let jitter = self.jitter();
        self.after(pull + jitter, Event::PodRunning(id));
    }

    pub(super) fn pod_running(&mut self, id: PodId) {
        // Its volume's detachment elsewhere brings it here again.
        if self.startable(id).is_none() || !self.attach_volumes(id) {
            return;
        }
        let Some(pod) = self.startable(id).filter(|pod| pod.snapshot.phase == PodPhase::Pending) else { return };
        let Some(workload) = self.workloads.get(pod.workload.0) else { return };
        let (start_up, crashes) = (workload.spec.start_up, workload.spec.life == PodLife::Crashing);
        let at_once = start_up.is_zero() && !crashes;
        self.update_pod(id, |pod| {
            pod.phase = PodPhase::Running;
            pod.ready = at_once;
        });
        if !at_once && !crashes {
            self.after(start_up, Event::PodReady(id));
        }
    }

    pub(super) fn pod_ready(&mut self, id: PodId) {
        if self.startable(id).is_some() {
            self.update_pod(id, |pod| pod.ready = true);
        }
    }

    /// A pod that goes on starting: not on its way out, on a node whose kubelet works.
    fn startable(&self, id: PodId) -> Option<&Pod> {
        let pod = self.pod(id).filter(|pod| !pod.gone && pod.snapshot.deletion.is_none())?;
        let alive = pod.node.and_then(|node| self.node_entry(node)).is_some_and(|node| node.alive);
        alive.then_some(pod)
    }

    /// Deletes a pod, gracefully.
    pub(super) fn begin_deletion(&mut self, id: PodId, grace: Option<Duration>, removal: Removal) {
        let now = self.wall();
        let Some(pod) = self.pods.get_mut(id.0).filter(|pod| !pod.gone) else { return };
        let grace = grace.unwrap_or(pod.snapshot.grace);
        let until = later(now, grace);
        if let Some(earlier) = pod.snapshot.deletion {
            // a second deletion can only shorten the time that is left
            if until < earlier {
                self.update_pod(id, |pod| pod.deletion = Some(until));
                self.after(grace, Event::PodStopped(id));
            }
            return;
        }
        pod.removal = Some(removal);
        let (owner, placed, finished) = (pod.workload, pod.node.is_some(), pod.snapshot.phase.is_finished());
        if !placed || finished {
            self.finish(id, removal);
            return;
        }
        self.update_pod(id, |pod| pod.deletion = Some(until));
        let stop = self.workloads.get(owner.0).map_or(Duration::ZERO, |workload| workload.spec.stop);
        let jitter = self.jitter();
        self.after((stop + jitter).min(grace), Event::PodStopped(id));
        self.pod_leaving(id);
    }

    pub(super) fn pod_stopped(&mut self, id: PodId) {
        let Some(pod) = self.pod(id).filter(|pod| !pod.gone) else { return };
        let alive = pod.node.and_then(|node| self.node_entry(node)).is_none_or(|node| node.alive);
        let held = self.workloads.get(pod.workload.0).is_some_and(|workload| workload.spec.life == PodLife::Held);
        let removal = pod.removal.unwrap_or(Removal::Others);
        if alive && !held {
            self.finish(id, removal);
            return;
        }
        if let Some(pod) = self.pods.get_mut(id.0) {
            pod.stopped = true;
        }
        if alive {
            self.update_pod(id, |pod| pod.ready = false);
        }
    }

    /// What a kubelet's silence, or its return, means for a pod.
    pub(super) fn kubelet_of_pod(&mut self, id: PodId, alive: bool) {
        let Some(pod) = self.pod(id).filter(|pod| !pod.gone) else { return };
        match (alive, pod.stopped, pod.snapshot.phase) {
            (false, ..) => self.update_pod(id, |pod| pod.ready = false),
            (true, true, _) => self.pod_stopped(id),
            (true, false, PodPhase::Pending) => self.pod_running(id),
            (true, false, PodPhase::Running | PodPhase::Unknown) => self.pod_ready(id),
            (true, false, PodPhase::Succeeded | PodPhase::Failed) => {}
        }
    }

    /// A pod whose node registered again is on the new object now.
    pub(super) fn move_orphan(&mut self, id: PodId, node: NodeId) {
        if let Some(pod) = self.pods.get_mut(id.0) {
            pod.node = Some(node);
        }
    }

    /// A Pod object goes.
    pub(super) fn finish(&mut self, id: PodId, removal: Removal) {
        let Some(pod) = self.pods.get_mut(id.0).filter(|pod| !pod.gone) else { return };
        let (healthy, counted) = (pod.is_healthy(), pod.is_counted());
        let was_leaving = pod.snapshot.deletion.is_some();
        pod.gone = true;
        let (pod, node) = (Arc::clone(&pod.snapshot), pod.node);
        self.pod_uids.remove(&pod.uid);
        self.pending.remove(&id);
        self.count_pod(id, -i32::from(healthy), -i32::from(counted));
        if let Some(node) = node {
            if let Some(entry) = self.nodes.get_mut(node.0) {
                entry.pods.remove(&id);
            }
            if self.takes_slot(id) {
                self.take_slots(node, -1);
            }
        }
        self.release_volumes(id);
        let movable = self.is_movable(&pod);
        self.note(Fact::PodGone { pod: pod.reference(), node: pod.node.clone(), removal, movable });
        self.emit(Change::PodGone(pod));
        if !was_leaving {
            self.pod_leaving(id);
        }
        self.pod_left(id);
        self.request_schedule();
    }
}
