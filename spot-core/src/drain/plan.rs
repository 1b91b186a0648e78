//! Which pods a drain moves, and why it leaves or refuses the others.

use std::time::Duration;

use crate::pod::PodSnapshot;
use crate::reason::Reason;
use crate::view::View;

/// How hard a drain tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// It obeys budgets, opt-outs and the rules below.
    Planned,
    /// The machine dies anyway: it moves everything that can be moved.
    Forced,
}

/// Which pods a planned drain may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRules {
    /// Evict pods that no controller brings back.
    pub force: bool,
    /// Evict pods whose `emptyDir` data is lost with them.
    pub delete_empty_dir_data: bool,
    /// The grace period of every pod; none: each pod's own.
    pub pod_grace: Option<Duration>,
}

impl Default for DrainRules {
    fn default() -> Self {
        Self { force: false, delete_empty_dir_data: true, pod_grace: None }
    }
}

/// What a drain does with a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodVerdict {
    /// It stays, and dies with the node.
    Leave(Left),
    /// It is on its way out: waited for.
    Going,
    /// It is evicted.
    Evict,
    /// It may not be moved: the node is not eligible.
    Refuse(Reason),
}

/// Why a pod is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Its DaemonSet would bring it back to the same node.
    DaemonSet,
    /// The kubelet made it from a file; the API server can't remove it.
    Mirror,
    /// Its containers have ended.
    Finished,
}

/// What is lost for good when a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// The pod: no controller brings it back.
    Pod,
    /// The data in its `emptyDir` volumes.
    LocalData,
}

impl Loss {
    /// What this pod's going loses.
    #[must_use]
    pub fn of(pod: &PodSnapshot) -> Option<Self> {
        if pod.controller.is_none() {
            return Some(Self::Pod);
        }
        pod.empty_dir.then_some(Self::LocalData)
    }

    /// Its word in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::LocalData => "local_data",
        }
    }
}

/// What a drain by these rules does with this pod of a node.
#[must_use]
pub fn verdict(pod: &PodSnapshot, rules: &DrainRules, force: Force, view: &View) -> PodVerdict {
    if pod.mirror {
        return PodVerdict::Leave(Left::Mirror);
    }
    if pod.phase.is_finished() {
        return PodVerdict::Leave(Left::Finished);
    }
    if let Some(set) = pod.controller.as_ref().filter(|controller| controller.is_daemon_set())
        && (!view.known().daemon_sets || view.daemon_set_exists(&set.uid))
    {
        return PodVerdict::Leave(Left::DaemonSet);
    }
    if pod.deletion.is_some() {
        return PodVerdict::Going;
    }
    match force {
        Force::Forced => PodVerdict::Evict,
        Force::Planned => refusal(pod, rules).map_or(PodVerdict::Evict, PodVerdict::Refuse),
    }
}

fn refusal(pod: &PodSnapshot, rules: &DrainRules) -> Option<Reason> {
    if let Some(key) = pod.opted_out {
        return Some(Reason::PodOptedOut(pod.reference(), key));
    }
    if pod.controller.is_none() && !rules.force {
        return Some(Reason::UnmanagedPod(pod.reference()));
    }
    (pod.empty_dir && !rules.delete_empty_dir_data).then(|| Reason::EmptyDir(pod.reference()))
}

/// Why this pod's budgets would refuse its eviction now, as far as can be known.
#[must_use]
pub fn budget_refusal(pod: &PodSnapshot, view: &View) -> Option<Reason> {
    let mut budgets = view.budgets_of(pod);
    let budget = budgets.next()?;
    let others: Vec<_> = budgets.map(|budget| budget.reference()).collect();
    if !others.is_empty() && pod.phase != crate::pod::PodPhase::Pending {
        let all = std::iter::once(budget.reference()).chain(others).collect();
        return Some(Reason::MultipleBudgets(pod.reference(), all));
    }
    budget.refuses(pod).then(|| Reason::BudgetAllowsNone {
        pod: pod.reference(),
        budget: budget.reference(),
        never: budget.never_allows(),
    })
}
