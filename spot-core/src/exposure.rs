//! Workloads that are about to lose all their ready pods at once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::drain::plan::{self, DrainRules, Force, PodVerdict};
use crate::node::{NodeSnapshot, Uid};
use crate::pod::{BudgetSnapshot, PodRef, PodSnapshot};
use crate::view::{Tally, View};

/// The most pods that the words name.
const NAMED: usize = 5;

/// A workload whose ready pods, two or more, all sit on nodes that are about to go, and of which no budget keeps any.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposed {
    /// Who brings its pods back.
    pub controller: Uid,
    /// Its ready pods.
    pub pods: Vec<PodRef>,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.pods.len();
        write!(f, "all {count} ready pods of a workload move at once, and no budget keeps any of them:")?;
        for (at, pod) in self.pods.iter().take(NAMED).enumerate() {
            write!(f, "{} {pod}", if at == 0 { "" } else { "," })?;
        }
        if count > NAMED { f.write_str(", …") } else { Ok(()) }
    }
}

/// The workloads that are exposed when planned drains empty these nodes, by identity.
pub fn exposed<'n>(
    view: &View,
    rules: &DrainRules,
    nodes: impl IntoIterator<Item = &'n NodeSnapshot>,
) -> impl Iterator<Item = Exposed> {
    let mut moving: BTreeMap<&Uid, Vec<&Arc<PodSnapshot>>> = BTreeMap::new();
    for pod in nodes.into_iter().flat_map(|node| view.pods_on(&node.name)) {
        let Some(controller) = pod.controller.as_ref().filter(|_| pod.ready) else { continue };
        match plan::verdict(pod, rules, Force::Planned, view) {
            PodVerdict::Evict => moving.entry(&controller.uid).or_default().push(pod),
            PodVerdict::Leave(_) | PodVerdict::Going | PodVerdict::Refuse(_) => {}
        }
    }
    let keeps_one = |budget: &Arc<BudgetSnapshot>| budget.desired_healthy > 0;
    let is_exposed = move |controller: &Uid, pods: &[&Arc<PodSnapshot>]| {
        pods.len() > 1
            && view.tally(controller).map_or(0, Tally::ready) <= pods.len()
            && !pods.iter().any(|pod| view.budgets_of(pod).any(keeps_one))
    };
    moving.into_iter().filter(move |(controller, pods)| is_exposed(controller, pods)).map(|(controller, pods)| {
        Exposed { controller: controller.clone(), pods: pods.into_iter().map(|pod| pod.reference()).collect() }
    })
}
