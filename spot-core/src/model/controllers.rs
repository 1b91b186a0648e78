//! Deployments, `StatefulSets` and DaemonSets: whoever brings pods back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::node::Uid;
use crate::placement::{Needs, Toleration};
use crate::pod::{Controller, PodPhase, PodSnapshot};
use crate::selector::Requirement;
use crate::view::Change;

use super::pods::Pod;
use super::record::Removal;
use super::spec::{BudgetSpec, PodLife, WorkloadKind, WorkloadSpec};
use super::volumes;
use super::world::{BudgetId, Event, NodeId, PodId, WorkloadId, World};

/// A workload and its pods' common parts.
pub(super) struct Workload {
    pub(super) spec: WorkloadSpec,
    pub(super) namespace: Arc<str>,
    pub(super) labels: Arc<BTreeMap<String, String>>,
    pub(super) controller: Option<Controller>,
    /// What the API server shows of its pods' demands; that they need on-demand nodes is none of it.
    pub(super) needs: Option<Arc<Needs>>,
    pub(super) budgets: Arc<[BudgetId]>,
    /// What its pods are made like, by their ordinals in a StatefulSet; empty: like its specification.
    pub(super) moulds: BTreeMap<u32, Mould>,
    /// Pods that are not on their way out.
    pub(super) active: u32,
    next_name: u32,
    /// A StatefulSet's ordinals without a pod.
    missing: BTreeSet<u32>,
    /// A DaemonSet's nodes without a pod.
    bare_nodes: BTreeSet<NodeId>,
    exists: bool,
    dirty: bool,
}

/// A pod that was seen, and the budgets that protect it and those that follow it.
pub(super) struct Mould {
    pub(super) pod: Arc<PodSnapshot>,
    pub(super) budgets: Arc<[BudgetId]>,
}

impl Workload {
    /// One whose pods were seen.
    pub(super) fn seen(spec: WorkloadSpec, moulds: BTreeMap<u32, Mould>) -> Self {
        let first = moulds.values().next().map(|mould| &mould.pod);
        Self {
            namespace: spec.namespace.as_str().into(),
            labels: first.map(|pod| Arc::clone(&pod.labels)).unwrap_or_default(),
            controller: first.and_then(|pod| pod.controller.clone()),
            needs: None,
            budgets: Arc::new([]),
            moulds,
            active: 0,
            next_name: 0,
            missing: BTreeSet::new(),
            bare_nodes: BTreeSet::new(),
            // what a DaemonSet's pods on other nodes would be like is not known
            exists: spec.kind != WorkloadKind::DaemonSet,
            dirty: false,
            spec,
        }
    }

    /// Whether its pods are made like others that were seen.
    pub(super) fn was_seen(&self) -> bool {
        !self.moulds.is_empty()
    }

    /// What a pod of this name is made like.
    pub(super) fn mould(&self, name: &str) -> Option<&Mould> {
        let own = ordinal(name).and_then(|ordinal| self.moulds.get(&ordinal));
        own.or_else(|| self.moulds.values().next())
    }

    /// A new pod, and the budgets that protect it.
    pub(super) fn pod(&self, uid: Uid, name: String, created_at: Timestamp) -> (PodSnapshot, Arc<[BudgetId]>) {
        let (node, deletion, phase, ready) = (None, None, PodPhase::Pending, false);
        if let Some(mould) = self.mould(&name) {
            let like = PodSnapshot::clone(&mould.pod);
            let pod = PodSnapshot { uid, node, created_at, phase, ready, deletion, name: name.into(), ..like };
            return (pod, Arc::clone(&mould.budgets));
        }
        let spec = &self.spec;
        let pod = PodSnapshot {
            namespace: Arc::clone(&self.namespace),
            uid,
            node,
            created_at,
            controller: self.controller.clone(),
            labels: Arc::clone(&self.labels),
            phase,
            ready,
            deletion,
            mirror: spec.life == PodLife::Mirror,
            opted_out: spec.opted_out,
            empty_dir: spec.empty_dir,
            grace: spec.grace,
            needs: self.needs.clone(),
            claims: volumes::claims(spec, &name),
            name: name.into(),
        };
        (pod, Arc::clone(&self.budgets))
    }

    /// Whether any pod was ever made.
    pub(super) const fn has_pods(&self) -> bool {
        self.next_name > 0
    }
}

impl World {
    /// Creates a workload; its controller creates the pods a moment later.
    pub fn add_workload(&mut self, spec: &WorkloadSpec) {
        let id = self.new_workload(spec);
        self.request_reconcile(id);
    }

    /// Creates a workload without any pods yet.
    pub(super) fn new_workload(&mut self, spec: &WorkloadSpec) -> WorkloadId {
        let kind = match spec.kind {
            WorkloadKind::Deployment => Some("ReplicaSet"),
            WorkloadKind::StatefulSet => Some("StatefulSet"),
            WorkloadKind::DaemonSet => Some("DaemonSet"),
            WorkloadKind::Bare => None,
        };
        let controller =
            kind.map(|kind| Controller { group: "apps".into(), kind: kind.into(), uid: self.identity("workload") });
        let mut labels: BTreeMap<String, String> = spec.labels.iter().cloned().collect();
        labels.insert("app".to_owned(), spec.name.clone());
        let id = WorkloadId(self.workloads.len());
        if let Some(controller) = controller.as_ref().filter(|controller| controller.is_daemon_set()) {
            self.emit(Change::DaemonSet(controller.uid.clone()));
        }
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.exists);
        self.workloads.push(Workload {
            namespace: spec.namespace.as_str().into(),
            labels: Arc::new(labels),
            controller,
            needs: needs(spec),
            budgets: Arc::new([]),
            moulds: BTreeMap::new(),
            active: 0,
            next_name: 0,
            missing: (0..spec.replicas).collect(),
            bare_nodes: nodes.map(|(at, _)| NodeId(at)).collect(),
            exists: true,
            dirty: false,
            spec: spec.clone(),
        });
        self.match_workload(id);
        if let Some(allowance) = spec.budget {
            self.add_budget(&BudgetSpec {
                namespace: spec.namespace.clone(),
                name: spec.name.clone(),
                app: spec.name.clone(),
                allowance,
                unhealthy_pods: crate::pod::UnhealthyPods::default(),
            });
        }
        id
    }

    pub(super) fn workload_named(&self, name: &str) -> Option<WorkloadId> {
        self.workloads.iter().position(|workload| workload.exists && workload.spec.name == name).map(WorkloadId)
    }

    /// Gives a workload another number of replicas.
    pub fn scale_workload(&mut self, name: &str, replicas: u32) {
        let Some(id) = self.workload_named(name) else { return };
        let Some(workload) = self.workloads.get_mut(id.0) else { return };
        let before = std::mem::replace(&mut workload.spec.replicas, replicas);
        workload.missing.extend(before..replicas);
        workload.missing.retain(|ordinal| *ordinal < replicas);
        let budgets = Arc::clone(&workload.budgets);
        let change = i64::from(replicas) - i64::from(before);
        self.rescale_budgets(&budgets, i32::try_from(change).unwrap_or(0));
        self.request_reconcile(id);
    }

    /// Deletes a DaemonSet and leaves its pods behind, as an orphaning deletion does.
    pub fn orphan_daemon_set(&mut self, name: &str) {
        let Some(workload) = self.workload_named(name).and_then(|id| self.workloads.get_mut(id.0)) else { return };
        workload.exists = false;
        if let Some(controller) = workload.controller.clone() {
            self.emit(Change::DaemonSetGone(controller.uid));
        }
    }

    /// The DaemonSets that exist.
    pub(super) fn daemon_sets(&self) -> Vec<Uid> {
        let existing = self.workloads.iter().filter(|workload| workload.exists);
        let controllers = existing.filter_map(|workload| workload.controller.as_ref());
        controllers.filter(|controller| controller.is_daemon_set()).map(|controller| controller.uid.clone()).collect()
    }

    fn request_reconcile(&mut self, id: WorkloadId) {
        if let Some(workload) = self.workloads.get_mut(id.0)
            && !workload.dirty
        {
            workload.dirty = true;
            self.after(self.settings.controller_lag, Event::Reconcile(id));
        }
    }

    /// A pod is on its way out.
    pub(super) fn pod_leaving(&mut self, pod: PodId) {
        let Some(owner) = self.pod(pod).map(|pod| pod.workload) else { return };
        let Some(workload) = self.workloads.get_mut(owner.0) else { return };
        workload.active = workload.active.saturating_sub(1);
        if workload.spec.kind == WorkloadKind::Deployment {
            self.request_reconcile(owner);
        }
    }

    /// A pod is gone.
    pub(super) fn pod_left(&mut self, pod: PodId) {
        let Some(pod) = self.pod(pod) else { return };
        let (owner, node) = (pod.workload, pod.node);
        let ordinal = ordinal(&pod.snapshot.name);
        let node = node.filter(|node| self.node_entry(*node).is_some_and(|node| node.exists));
        let Some(workload) = self.workloads.get_mut(owner.0) else { return };
        match workload.spec.kind {
            WorkloadKind::StatefulSet => {
                let replicas = workload.spec.replicas;
                workload.missing.extend(ordinal.filter(|ordinal| *ordinal < replicas));
                self.request_reconcile(owner);
            }
            WorkloadKind::DaemonSet => {
                workload.bare_nodes.extend(node);
                self.request_reconcile(owner);
            }
            WorkloadKind::Deployment | WorkloadKind::Bare => {}
        }
    }

    /// A node joined: DaemonSets want to be there.
    pub(super) fn want_daemons_on(&mut self, node: NodeId) {
        for at in 0..self.workloads.len() {
            let Some(workload) = self.workloads.get_mut(at) else { continue };
            if workload.exists && workload.spec.kind == WorkloadKind::DaemonSet {
                workload.bare_nodes.insert(node);
                self.request_reconcile(WorkloadId(at));
            }
        }
    }

    pub(super) fn reconcile(&mut self, id: WorkloadId) {
        if let Some(workload) = self.workloads.get_mut(id.0) {
            workload.dirty = false;
        }
        for (pod, node) in self.create_missing(id) {
            if let Some(node) = node {
                self.bind(pod, node);
            }
        }
        self.shrink(id);
    }

    /// Creates the pods that a workload lacks, with the node of those that belong to one.
    pub(super) fn create_missing(&mut self, id: WorkloadId) -> Vec<(PodId, Option<NodeId>)> {
        let Some(workload) = self.workloads.get_mut(id.0).filter(|workload| workload.exists) else {
            return Vec::new();
        };
        let lacking = workload.spec.replicas.saturating_sub(workload.active);
        let (name, kind, first) = (workload.spec.name.clone(), workload.spec.kind, workload.next_name);
        let wanted: Vec<(u32, Option<NodeId>)> = match kind {
            WorkloadKind::Deployment => (first..first + lacking).map(|number| (number, None)).collect(),
            // nobody brings these back: only the first ones are ever made
            WorkloadKind::Bare if first > 0 => Vec::new(),
            WorkloadKind::Bare => (0..lacking).map(|number| (number, None)).collect(),
            WorkloadKind::StatefulSet => {
                // one whose pod is on its way out is missing when that is gone
                let is_there = |ordinal: u32| {
                    let of_it = |pod: &&Pod| pod.workload == id && !pod.gone;
                    self.pods.iter().filter(of_it).any(|pod| self::ordinal(&pod.snapshot.name) == Some(ordinal))
                };
                let missing = std::mem::take(&mut workload.missing);
                missing.into_iter().filter(|ordinal| !is_there(*ordinal)).map(|ordinal| (ordinal, None)).collect()
            }
            WorkloadKind::DaemonSet => {
                let nodes = std::mem::take(&mut workload.bare_nodes);
                nodes.into_iter().zip(first..).map(|(node, number)| (number, Some(node))).collect()
            }
        };
        workload.next_name += u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let stable = kind == WorkloadKind::StatefulSet;
        let mut made = Vec::new();
        for (number, node) in wanted {
            if node.is_some_and(|node| self.node_entry(node).is_none_or(|node| !node.exists)) {
                continue;
            }
            let name = if stable { format!("{name}-{number}") } else { format!("{name}-{number:05}") };
            made.extend(self.create_pod(id, name).map(|pod| (pod, node)));
        }
        made
    }

    /// Deletes what a workload has too much of: of a Deployment the youngest first, of a StatefulSet those that are none
    /// of its numbers, and then the highest.
    fn shrink(&mut self, id: WorkloadId) {
        let Some(workload) = self.workloads.get(id.0) else { return };
        match workload.spec.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => {}
            WorkloadKind::DaemonSet | WorkloadKind::Bare => return,
        }
        let surplus = workload.active.saturating_sub(workload.spec.replicas);
        if surplus == 0 {
            return;
        }
        let pods = self.pods.iter().enumerate().rev().filter(|(_, pod)| pod.workload == id && pod.is_active());
        let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
        let mut pods: Vec<_> = pods.map(|(at, pod)| (ordinal(&pod.snapshot.name), PodId(at))).collect();
        if workload.spec.kind == WorkloadKind::StatefulSet {
            pods.sort_by_key(|(ordinal, _)| Reverse(ordinal.unwrap_or(u32::MAX)));
        }
        for (_, pod) in pods.into_iter().take(surplus) {
            self.begin_deletion(pod, None, Removal::Others);
        }
    }
}

/// The number of a StatefulSet's pod.
pub(super) fn ordinal(name: &str) -> Option<u32> {
    name.rsplit('-').next().and_then(|ordinal| ordinal.parse().ok())
}

fn needs(spec: &WorkloadSpec) -> Option<Arc<Needs>> {
    let selector = spec.node_selector.iter().map(|(key, value)| Requirement::equals(key, value));
    let tolerations = spec.tolerations.iter();
    let tolerations = tolerations.map(|key| Toleration { key: Some(key.clone()), value: None, effect: None });
    Needs::new(selector, None, tolerations).map(Arc::new)
}
