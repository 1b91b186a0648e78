//! The soft taint on the nodes that may still go while a run lasts, so that pods move only once.

use futures::future::{self, FutureExt};
use futures::stream::{self, StreamExt};

use super::{Node, Run};
use crate::node::{NodeRef, NodeSnapshot};
use crate::ports::{Lane, NodeChange};
use crate::retire::{Target, record};
use crate::view::View;

/// Nodes that are written side by side when many need the same small change.
const WRITES: usize = 16;

impl Run<'_> {
    /// Puts the soft taint on the nodes that may go after these, once a run, so that pods move only once. They are
    /// such as are [hardened](Self::harden) again.
    pub(super) async fn soften(&self, view: &View, first: &[Target]) {
        if self.facts.begun > 0 || self.task.policy.candidates.others_stay() {
            return;
        }
        let budgets = &self.task.policy.budgets;
        let most = budgets.per_run.unwrap_or(usize::MAX);
        let candidates = &self.task.policy.candidates;
        let later: Vec<NodeRef> = self
            .judgement(view)
            .verdicts()
            .into_iter()
            .filter(|(node, verdict)| candidates.cover(*node) && candidates.let_go(verdict))
            .take(most)
            .filter(|(node, _)| first.iter().all(|target| target.node.uid != node.uid))
            .map(|(node, _)| node.reference())
            .collect();
        let now = self.ports.clock.now();
        self.rewrite_all(later, |node| record::softening(node, now)).await;
    }

    /// Takes the soft taint off every node that has it: a pool's work off those of the pool, a migration off all others.
    pub(crate) async fn harden(&self) {
        let candidates = &self.task.policy.candidates;
        let soft = |node: &&Node| node.taints.iter().any(record::is_leaving) && candidates.cover(*node);
        let nodes = self.live.view().nodes().iter().filter(soft).map(|node| node.reference()).collect();
        self.rewrite_all(nodes, record::hardening).await;
    }

    async fn rewrite_all(&self, nodes: Vec<NodeRef>, change: impl Fn(&NodeSnapshot) -> NodeChange + Sync) {
        let retirer = self.retirer();
        let until = self.ports.clock.instant() + self.task.retire.grace_period;
        let change = &change;
        let writes: Vec<_> =
            nodes.iter().map(|node| retirer.rewrite(node, Lane::Planned, until, change).boxed()).collect();
        // What stood in the way was reported; a soft taint that is missing or left is harmless, and recovery takes it
        // off.
        stream::iter(writes).buffer_unordered(WRITES).for_each(|_written| future::ready(())).await;
    }
}
