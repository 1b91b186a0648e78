//! Whether the pods of a drained node run elsewhere, pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::drain::plan::{self, DrainRules, Force, PodVerdict};
use crate::node::Uid;
use crate::pod::BudgetRef;
use crate::view::{Tally, View};

/// How long a controller is given to bring a pod back before it counts as having been scaled down: controllers of
/// Kubernetes answer in well under a second.
pub const REPLACEMENT: Duration = Duration::from_secs(5);

/// What has to be as it was before, once a node is drained.
#[derive(Clone, Debug, Default)]
pub struct Awaited {
    controllers: BTreeMap<Uid, Before>,
    budgets: BTreeMap<BudgetRef, BTreeSet<String>>,
    /// Since when an earlier process was at it, whose evictions are not known.
    since: Option<Timestamp>,
}

/// A controller's pods before the drain.
#[derive(Clone, Debug)]
struct Before {
    active: usize,
    newest: Timestamp,
    unready: BTreeSet<Uid>,
}

impl Awaited {
    /// What a drain of this node is about to disturb.
    #[must_use]
    pub fn of(view: &View, node: &str, rules: &DrainRules, force: Force) -> Self {
        let mut awaited = Self::default();
        for pod in view.pods_on(node) {
            match plan::verdict(pod, rules, force, view) {
                PodVerdict::Evict | PodVerdict::Going => {}
                PodVerdict::Leave(_) | PodVerdict::Refuse(_) => continue,
            }
            if let Some(controller) = &pod.controller
                && let Some(tally) = view.tally(&controller.uid)
            {
                awaited.controllers.entry(controller.uid.clone()).or_insert_with(|| Before {
                    active: tally.active(),
                    newest: tally.newest(),
                    unready: tally.unready().map(|pod| pod.uid.clone()).collect(),
                });
            }
            for budget in view.budgets_of(pod) {
                awaited.budgets.entry(budget.reference()).or_default().insert(pod.name.to_string());
            }
        }
        awaited
    }

    /// Counts from then on, when an earlier process began: what it disturbed was not there to be seen, so every pod that
    /// has come since and has no node counts too.
    pub fn since(&mut self, since: Timestamp) {
        self.since = Some(since);
        for before in self.controllers.values_mut() {
            before.newest = before.newest.min(since);
            before.unready.clear();
        }
    }

    /// What two drains disturb together; what the first saw before counts.
    pub fn extend(&mut self, other: Self) {
        for (controller, before) in other.controllers {
            self.controllers.entry(controller).or_insert(before);
        }
        for (budget, pods) in other.budgets {
            self.budgets.entry(budget).or_default().extend(pods);
        }
        self.since = self.since.into_iter().chain(other.since).min();
    }

    /// What is not yet as it was, in words, `drained_for` after the nodes were empty; none: all is settled.
    #[must_use]
    pub fn pending(&self, view: &View, drained_for: Duration) -> Option<String> {
        for (controller, before) in &self.controllers {
            // A controller without pods was removed, or is about to bring them back.
            let active = view.tally(controller).map_or(0, Tally::active);
            if active < before.active && drained_for < REPLACEMENT {
                return Some(format!("controller {controller} has {active} of {} pods", before.active));
            }
            let mut unready = view.tally(controller).into_iter().flat_map(Tally::unready);
            let new = unready.find(|pod| pod.created_at >= before.newest && !before.unready.contains(&pod.uid));
            if let Some(pod) = new {
                let state = if pod.node.is_none() { "has no node" } else { "is not ready" };
                return Some(format!("pod {} {state}", pod.reference()));
            }
        }
        let since = self.since.unwrap_or(Timestamp::MAX);
        if let Some(pod) = view.unbound_pods().find(|pod| pod.is_active() && pod.created_at >= since) {
            return Some(format!("pod {} has no node", pod.reference()));
        }
        self.budgets.iter().find_map(|(key, pods)| {
            let budget = view.budget(key)?;
            let stale = !budget.current || budget.disrupted_pods.iter().any(|pod| pods.contains(pod));
            stale.then(|| format!("the status of budget {key} is not current"))
        })
    }
}
