//! Pods that were seen, whoever brings them back, and the budgets that protect them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::Class;
use crate::cloud::CloudFacts;
use crate::decision::is_control_plane;
use crate::node::{Node as _, Uid};
use crate::pod::{BudgetRef, BudgetSnapshot, Controller, PodPhase, PodSnapshot};
use crate::selector::{LabelSelector, Requirement};
use crate::view::View;
use crate::volume::Reach;

use super::super::admission;
use super::super::controllers::{Mould, Workload, ordinal};
use super::super::record::Removal;
use super::super::spec::{PodLife, WorkloadKind, WorkloadSpec};
use super::super::world::{BudgetId, Event, WorkloadId, World};
use super::Told;

/// From the placement of a new pod to the start of its containers.
pub(super) const PULL: Duration = Duration::from_secs(5);
/// From there to its readiness.
pub(super) const START_UP: Duration = Duration::from_secs(15);
/// How long its containers take to end, unless they are given less.
pub(super) const STOP: Duration = Duration::from_secs(5);
/// What was not ready for so long will not be.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// The budget of a scenario, where the application has none.
const NAME: &str = "simulated";

/// Pods that are brought back together, if at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Of(Uid),
    Finished,
    Mirrors,
    Bare,
}

impl Group {
    fn of(pod: &PodSnapshot) -> Self {
        match &pod.controller {
            _ if pod.mirror => Self::Mirrors,
            _ if pod.phase.is_finished() => Self::Finished,
            Some(controller) => Self::Of(controller.uid.clone()),
            None => Self::Bare,
        }
    }
}

type Pods<'v> = Vec<&'v Arc<PodSnapshot>>;

impl World {
    /// Takes in pods, their controllers and their budgets.
    pub(super) fn adopt_pods(&mut self, view: &View, seen_at: Timestamp, told: &mut Told) {
        let budgets: BTreeMap<BudgetRef, BudgetId> =
            view.budgets().map(|budget| (budget.reference(), self.add_seen_budget(budget))).collect();
        let mut groups: BTreeMap<Group, Pods<'_>> = BTreeMap::new();
        for pod in view.pods() {
            groups.entry(Group::of(pod)).or_default().push(pod);
            for volume in view.volumes_of(pod) {
                // those that can be used anywhere can be used on several nodes at once
                if let Reach::Nodes(_) = volume.reach {
                    told.has_volumes = true;
                    self.volumes.insert(Arc::clone(&volume.name), None);
                }
            }
        }
        for (group, mut pods) in groups {
            pods.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
            self.adopt_group(&group, &pods, view, &budgets, seen_at, told);
        }
    }

    fn adopt_group(
        &mut self,
        group: &Group,
        pods: &Pods<'_>,
        view: &View,
        budgets: &BTreeMap<BudgetRef, BudgetId>,
        seen_at: Timestamp,
        told: &mut Told,
    ) {
        let is_old = |pod: &PodSnapshot| seen_at.duration_since(pod.created_at) > PATIENCE;
        let kind = kind(group, pods, told);
        let hopeless = pods.iter().any(|pod| pod.is_active())
            && pods.iter().filter(|pod| pod.is_active()).all(|pod| !pod.ready && is_old(pod));
        let life = match group {
            Group::Finished => PodLife::Finished,
            Group::Mirrors => PodLife::Mirror,
            Group::Of(_) | Group::Bare if hopeless => PodLife::Crashing,
            Group::Of(_) | Group::Bare => PodLife::Sound,
        };
        let protecting = |pod: &PodSnapshot| -> Arc<[BudgetId]> {
            view.budgets_of(pod).filter_map(|budget| budgets.get(&budget.reference()).copied()).collect()
        };
        let mut moulds = BTreeMap::new();
        for pod in pods {
            let number = if kind == WorkloadKind::StatefulSet { ordinal(&pod.name).unwrap_or_default() } else { 0 };
            moulds.entry(number).or_insert_with(|| Mould { pod: Arc::clone(pod), budgets: protecting(pod) });
        }
        let active = pods.iter().filter(|pod| pod.is_active()).count();
        let replicas = match (kind, moulds.keys().next_back()) {
            (WorkloadKind::StatefulSet, Some(last)) => last.saturating_add(1),
            (WorkloadKind::Deployment, _) => u32::try_from(active).unwrap_or(u32::MAX),
            (WorkloadKind::StatefulSet | WorkloadKind::DaemonSet | WorkloadKind::Bare, _) => 0,
        };
        let Some(first) = pods.first() else { return };
        let spec = WorkloadSpec {
            namespace: first.namespace.to_string(),
            kind,
            pull: PULL,
            start_up: START_UP,
            stop: STOP,
            life,
            ..WorkloadSpec::deployment(base(&first.name), replicas)
        };
        let owner = WorkloadId(self.workloads.len());
        self.workloads.push(Workload::seen(spec, moulds));
        for pod in pods {
            told.stuck += usize::from(pod.is_active() && !pod.ready && is_old(pod));
            self.adopt_pod(pod, owner, protecting(pod), !is_old(pod));
        }
    }

    fn adopt_pod(&mut self, pod: &Arc<PodSnapshot>, owner: WorkloadId, budgets: Arc<[BudgetId]>, is_young: bool) {
        let id = self.add_pod(Arc::clone(pod), owner, budgets);
        let node = pod.node.as_ref().and_then(|name| self.node_named(name));
        if let Some(node) = node {
            self.put_on(id, node);
            if self.takes_slot(id) {
                self.take_slots(node, 1);
            }
        }
        if pod.is_active()
            && let Some(workload) = self.workloads.get_mut(owner.0)
        {
            workload.active += 1;
        }
        if let Some(until) = pod.deletion {
            let left = Duration::try_from(until.duration_since(self.wall())).unwrap_or_default();
            self.mark_leaving(id, Removal::Others);
            self.after(left.min(STOP), Event::PodStopped(id));
        } else if node.is_some() {
            self.attach_volumes(id);
            match pod.phase {
                PodPhase::Pending if is_young => self.after(PULL, Event::PodRunning(id)),
                PodPhase::Running if is_young && !pod.ready => self.after(START_UP, Event::PodReady(id)),
                PodPhase::Pending | PodPhase::Running | PodPhase::Succeeded | PodPhase::Failed | PodPhase::Unknown => {}
            }
        } else if pod.node.is_none() && pod.is_active() && is_young {
            self.pending.insert(id);
        }
    }
}

fn kind(group: &Group, pods: &Pods<'_>, told: &mut Told) -> WorkloadKind {
    let Some(controller) = pods.first().and_then(|pod| pod.controller.as_ref()) else { return WorkloadKind::Bare };
    match group {
        Group::Finished | Group::Mirrors | Group::Bare => return WorkloadKind::Bare,
        Group::Of(_) => {}
    }
    if controller.is_daemon_set() {
        return WorkloadKind::DaemonSet;
    }
    let ordinals: BTreeSet<u32> = pods.iter().filter_map(|pod| ordinal(&pod.name)).collect();
    if &*controller.kind == "StatefulSet" && ordinals.len() == pods.len() {
        return WorkloadKind::StatefulSet;
    }
    if !matches!(&*controller.kind, "ReplicaSet" | "StatefulSet" | "ReplicationController" | "Job") {
        told.foreign_kinds.insert(Arc::clone(&controller.kind));
    }
    WorkloadKind::Deployment
}

/// The name of a pod without what tells it from others of its kind.
fn base(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(base, _)| base)
}

/// A budget that allows no disruption of the application with the most pods on on-demand nodes: the one that it has, or
/// a new one. None if there is no such application, or several budgets protect it.
pub(super) fn allowing_none(view: &View, cloud: &CloudFacts) -> Option<BudgetSnapshot> {
    let nodes = view.nodes().iter().filter(|node| !is_control_plane(*node));
    let on_demand = nodes.filter(|node| cloud.class(node.uid()) == Class::OnDemand);
    let mut applications: BTreeMap<&Controller, Pods<'_>> = BTreeMap::new();
    for pod in on_demand.flat_map(|node| view.pods_on(node.name())).filter(|pod| pod.is_movable()) {
        if let Some(controller) = &pod.controller {
            applications.entry(controller).or_default().push(pod);
        }
    }
    // of several that are as large the first
    let largest = applications.into_values().rev().max_by_key(Vec::len)?;
    let one = largest.first()?;
    let mut budgets = view.budgets_of(one);
    let budget = match (budgets.next(), budgets.next()) {
        (Some(budget), None) => BudgetSnapshot::clone(budget),
        (Some(_), Some(_)) => return None,
        (None, _) => {
            let common =
                one.labels.iter().filter(|(key, value)| largest.iter().all(|pod| pod.labels.get(*key) == Some(value)));
            let selector = LabelSelector::new(common.map(|(key, value)| Requirement::equals(key, value)));
            if selector.is_empty() {
                return None;
            }
            admission::uncounted(Arc::clone(&one.namespace), NAME.into(), selector)
        }
    };
    let protected = |pod: &&Arc<PodSnapshot>| {
        pod.namespace == budget.namespace
            && !pod.phase.is_finished()
            && budget.selector.matches(|key| pod.labels.get(key).map(String::as_str))
    };
    let all = i32::try_from(view.pods().filter(protected).count()).unwrap_or(i32::MAX);
    Some(BudgetSnapshot { desired_healthy: all, expected_pods: all, disruptions_allowed: 0, ..budget })
}
