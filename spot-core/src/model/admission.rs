//! Evictions as the API server admits them, and the controller that keeps the budgets' status.
//!
//! After `pkg/registry/core/pod/storage/eviction.go` and `pkg/controller/disruption` of Kubernetes 1.33.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::pod::{BudgetSnapshot, PodPhase, PodRef, UnhealthyPods};
use crate::ports::EvictAnswer;
use crate::selector::{LabelSelector, Requirement};
use crate::view::Change;

use super::controllers::Workload;
use super::record::{Fact, Removal};
use super::spec::{Allowance, BudgetSpec};
use super::world::{BudgetId, Event, PodId, WorkloadId, World};

/// What the API server asks for where a budget's status is older than its specification.
const STALE_RETRY: Duration = Duration::from_secs(10);

/// A PodDisruptionBudget and its counts.
pub(super) struct Budget {
    pub(super) snapshot: Arc<BudgetSnapshot>,
    allowance: Allowance,
    exists: bool,
    healthy: i32,
    counted: i32,
    /// The replicas of all workloads whose pods it protects.
    scale: i32,
    dirty: bool,
}

impl Budget {
    /// How many pods there ought to be, and how many must be healthy.
    fn demand(&self) -> (i32, i32) {
        let scale = self.scale;
        let share = |percent: u32| {
            let part = (i64::from(scale) * i64::from(percent) + 99) / 100;
            i32::try_from(part).unwrap_or(i32::MAX)
        };
        match self.allowance {
            Allowance::MinAvailable(least) => (self.counted, number(least)),
            Allowance::MinAvailablePercent(percent) => (scale, share(percent)),
            Allowance::MaxUnavailable(most) => (scale, scale.saturating_sub(number(most)).max(0)),
            Allowance::MaxUnavailablePercent(percent) => (scale, (scale - share(percent)).max(0)),
            Allowance::AsSeen { expected, desired } => (expected, desired),
        }
    }

    /// Whether it protects the pods of this workload.
    fn protects(&self, workload: &Workload) -> bool {
        self.exists
            && self.snapshot.namespace == workload.namespace
            && self.snapshot.selector.matches(|key| workload.labels.get(key).map(String::as_str))
    }
}

/// A budget whose pods nobody has counted yet.
pub(super) fn uncounted(namespace: Arc<str>, name: Arc<str>, selector: LabelSelector) -> BudgetSnapshot {
    BudgetSnapshot {
        namespace,
        name,
        resource_version: String::new(),
        selector,
        unhealthy_pods: UnhealthyPods::default(),
        current: true,
        disruptions_allowed: 0,
        current_healthy: 0,
        desired_healthy: 0,
        expected_pods: 0,
        disrupted_pods: Vec::new(),
    }
}

impl World {
    /// Creates a budget.
    pub fn add_budget(&mut self, spec: &BudgetSpec) {
        let selector = LabelSelector::new([Requirement::equals("app", spec.app.as_str())]);
        let snapshot = BudgetSnapshot {
            resource_version: self.next_version(),
            unhealthy_pods: spec.unhealthy_pods,
            ..uncounted(spec.namespace.as_str().into(), spec.name.as_str().into(), selector)
        };
        let id = self.push_budget(Arc::new(snapshot), spec.allowance);
        self.match_budget(id);
        self.recompute(id);
    }

    /// Takes in a budget that was seen, before any of its pods.
    pub(super) fn add_seen_budget(&mut self, budget: &Arc<BudgetSnapshot>) -> BudgetId {
        let (expected, desired) = (budget.expected_pods.max(0), budget.desired_healthy.max(0));
        self.push_budget(Arc::clone(budget), Allowance::AsSeen { expected, desired })
    }

    fn push_budget(&mut self, snapshot: Arc<BudgetSnapshot>, allowance: Allowance) -> BudgetId {
        let id = BudgetId(self.budgets.len());
        self.budgets.push(Budget { snapshot, allowance, exists: true, healthy: 0, counted: 0, scale: 0, dirty: true });
        id
    }

    /// Deletes a budget.
    pub fn remove_budget(&mut self, namespace: &str, name: &str) {
        let Some(id) = self.budget_named(namespace, name) else { return };
        let Some(budget) = self.budgets.get_mut(id.0) else { return };
        budget.exists = false;
        let reference = budget.snapshot.reference();
        self.match_budget(id);
        self.emit(Change::BudgetGone(reference));
    }

    /// Changes what a budget demands; its status follows later, and is stale until then.
    pub fn change_budget(&mut self, namespace: &str, name: &str, allowance: Allowance) {
        let Some(id) = self.budget_named(namespace, name) else { return };
        let version = self.next_version();
        let Some(budget) = self.budgets.get_mut(id.0) else { return };
        budget.allowance = allowance;
        let snapshot = Arc::make_mut(&mut budget.snapshot);
        snapshot.current = false;
        snapshot.resource_version = version;
        let snapshot = Arc::clone(&budget.snapshot);
        self.emit(Change::Budget(snapshot));
        self.request_recompute(id);
    }

    fn budget_named(&self, namespace: &str, name: &str) -> Option<BudgetId> {
        let is_meant = |budget: &Budget| {
            budget.exists && *budget.snapshot.namespace == *namespace && *budget.snapshot.name == *name
        };
        self.budgets.iter().position(is_meant).map(BudgetId)
    }

    /// Has a budget protect what it ought to, or nothing any more.
    fn match_budget(&mut self, id: BudgetId) {
        let Some(budget) = self.budgets.get_mut(id.0) else { return };
        (budget.healthy, budget.counted, budget.scale) = (0, 0, 0);
        let mut concerned = BTreeSet::new();
        for (at, workload) in self.workloads.iter_mut().enumerate() {
            let protected = workload.budgets.contains(&id);
            let protects = budget.protects(workload);
            if protects {
                budget.scale += number(workload.spec.replicas);
            }
            if protects != protected {
                let others = workload.budgets.iter().copied().filter(|other| *other != id);
                workload.budgets = others.chain(protects.then_some(id)).collect();
            }
            if (protects || protected) && workload.has_pods() {
                concerned.insert(WorkloadId(at));
            }
        }
        if concerned.is_empty() {
            return;
        }
        for pod in self.pods.iter_mut().filter(|pod| concerned.contains(&pod.workload)) {
            if let Some(workload) = self.workloads.get(pod.workload.0) {
                pod.budgets = Arc::clone(&workload.budgets);
            }
            if pod.budgets.contains(&id) {
                budget.healthy += i32::from(pod.is_healthy());
                budget.counted += i32::from(pod.is_counted());
            }
        }
    }

    /// Which budgets protect a new workload.
    pub(super) fn match_workload(&mut self, id: WorkloadId) {
        let Some(workload) = self.workloads.get_mut(id.0) else { return };
        let mut matching = Vec::new();
        for (at, budget) in self.budgets.iter_mut().enumerate() {
            if budget.protects(workload) {
                budget.scale += number(workload.spec.replicas);
                matching.push(BudgetId(at));
            }
        }
        workload.budgets = matching.into();
    }

    /// The replicas of a workload change by so many.
    pub(super) fn rescale_budgets(&mut self, budgets: &[BudgetId], change: i32) {
        for id in budgets {
            if let Some(budget) = self.budgets.get_mut(id.0) {
                budget.scale += change;
            }
            self.request_recompute(*id);
        }
    }

    /// Keeps the counts of a pod's budgets.
    pub(super) fn count_pod(&mut self, pod: PodId, healthy: i32, counted: i32) {
        if healthy == 0 && counted == 0 {
            return;
        }
        let Some(budgets) = self.pod(pod).map(|pod| Arc::clone(&pod.budgets)) else { return };
        for id in budgets.iter() {
            if let Some(budget) = self.budgets.get_mut(id.0) {
                budget.healthy += healthy;
                budget.counted += counted;
            }
            self.request_recompute(*id);
        }
    }

    pub(super) fn request_recompute(&mut self, id: BudgetId) {
        if let Some(budget) = self.budgets.get_mut(id.0)
            && !budget.dirty
        {
            budget.dirty = true;
            self.after(self.settings.budget_lag, Event::Budget(id));
        }
    }

    /// The controller of budgets writes a new status.
    pub(super) fn recompute(&mut self, id: BudgetId) {
        let Some(budget) = self.budgets.get_mut(id.0) else { return };
        budget.dirty = false;
        if !budget.exists {
            return;
        }
        let (expected, desired) = budget.demand();
        let allowed = if expected <= 0 { 0 } else { (budget.healthy - desired).max(0) };
        let before = &budget.snapshot;
        let same = before.current
            && before.disruptions_allowed == allowed
            && before.current_healthy == budget.healthy
            && before.desired_healthy == desired
            && before.expected_pods == expected
            && before.disrupted_pods.is_empty();
        if same {
            return;
        }
        let healthy = budget.healthy;
        self.write_status(id, |status| {
            status.current = true;
            status.disruptions_allowed = allowed;
            status.current_healthy = healthy;
            status.desired_healthy = desired;
            status.expected_pods = expected;
            // each pod whose eviction was accepted is on its way out here, and so not counted as healthy any more
            status.disrupted_pods.clear();
        });
    }

    /// The controller of budgets looks at all of them at once.
    pub(super) fn refresh_budgets(&mut self) {
        (0..self.budgets.len()).for_each(|at| self.recompute(BudgetId(at)));
    }

    fn write_status(&mut self, id: BudgetId, write: impl FnOnce(&mut BudgetSnapshot)) {
        let version = self.next_version();
        let Some(budget) = self.budgets.get_mut(id.0) else { return };
        let status = Arc::make_mut(&mut budget.snapshot);
        write(status);
        status.resource_version = version;
        let snapshot = Arc::clone(&budget.snapshot);
        self.emit(Change::Budget(snapshot));
    }

    /// One eviction, as the API server admits or refuses it.
    pub(super) fn evict(&mut self, reference: &PodRef, grace: Option<Duration>) -> EvictAnswer {
        let Some(id) = self.pod_of(reference) else { return EvictAnswer::Gone };
        let Some(pod) = self.pod(id) else { return EvictAnswer::Gone };
        if pod.snapshot.mirror {
            // the kubelet's own: the object goes and comes back at once, and nothing has ended
            return EvictAnswer::Accepted;
        }
        if !pod.snapshot.is_active() || pod.snapshot.phase == PodPhase::Pending {
            self.begin_deletion(id, grace, Removal::Evicted);
            return EvictAnswer::Accepted;
        }
        let (ready, budgets) = (pod.snapshot.ready, Arc::clone(&pod.budgets));
        let budget = match &budgets[..] {
            [] => None,
            [budget] => Some(*budget),
            _ => return EvictAnswer::MultipleBudgets,
        };
        if let Some(budget) = budget
            && let Err(refused) = self.admit(budget, reference, ready)
        {
            return refused;
        }
        let healthy = pod_is_healthy(self, id);
        self.begin_deletion(id, grace, Removal::Evicted);
        if let Some(budget) = budget.filter(|_| healthy) {
            self.note_overrun(budget);
        }
        EvictAnswer::Accepted
    }

    fn admit(&mut self, id: BudgetId, pod: &PodRef, ready: bool) -> Result<(), EvictAnswer> {
        let Some(budget) = self.budgets.get(id.0) else { return Ok(()) };
        let status = &budget.snapshot;
        if !ready {
            let spare = status.current_healthy >= status.desired_healthy && status.desired_healthy > 0;
            match status.unhealthy_pods {
                UnhealthyPods::AlwaysAllow => return Ok(()),
                UnhealthyPods::IfHealthyBudget if spare => return Ok(()),
                UnhealthyPods::IfHealthyBudget => {}
            }
        }
        let refused = |retry_after| EvictAnswer::Budget { budget: Some(status.reference()), retry_after };
        if !status.current {
            return Err(refused(Some(STALE_RETRY)));
        }
        if status.disruptions_allowed <= 0 {
            return Err(refused(None));
        }
        let name = pod.name.to_string();
        self.write_status(id, |status| {
            status.disruptions_allowed -= 1;
            status.disrupted_pods.push(name);
        });
        Ok(())
    }

    fn note_overrun(&mut self, id: BudgetId) {
        let Some(budget) = self.budgets.get(id.0) else { return };
        let (_, desired) = budget.demand();
        if budget.healthy < desired {
            let (budget, healthy) = (budget.snapshot.reference(), budget.healthy);
            self.note(Fact::BudgetOverrun { budget, healthy, desired });
        }
    }

    /// Budgets that have fewer healthy pods than they demand, by name.
    #[must_use]
    pub fn unmet_budgets(&self) -> BTreeSet<String> {
        let budgets = self.budgets.iter().filter(|budget| budget.exists);
        budgets
            .filter(|budget| budget.healthy < budget.demand().1)
            .map(|budget| budget.snapshot.reference().to_string())
            .collect()
    }
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn pod_is_healthy(world: &World, id: PodId) -> bool {
    world.pod(id).is_some_and(super::pods::Pod::is_healthy)
}
