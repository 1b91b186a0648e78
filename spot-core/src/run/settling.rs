//! Waits until the pods of retired nodes run elsewhere, and sees who came meanwhile.

use std::sync::Arc;

use super::{LOOK_AGAIN, Node, Run};
use crate::error::RunError;
use crate::node::NodeRef;
use crate::progress::{Halted, Outcome, Progress, Step};
use crate::retire::Purpose;
use crate::settle::{Awaited, REPLACEMENT};
use crate::view::View;

/// What retirements disturbed.
#[derive(Default)]
pub(super) struct Disturbed {
    /// The nodes that pods were moved off, or may have been.
    pub(super) nodes: Vec<NodeRef>,
    /// What has to be as it was before.
    pub(super) awaited: Awaited,
}

impl Disturbed {
    pub(super) fn extend(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.awaited.extend(other.awaited);
    }
}

impl Run<'_> {
    /// Waits until what was disturbed runs elsewhere, and compares: an outcome if that ends the run. It is a step of
    /// each node that pods were moved off.
    pub(super) async fn settle(&mut self, disturbed: &Disturbed) -> Result<Option<Outcome>, RunError> {
        if let Purpose::PoolRemoval { force: Some(_), .. } = self.task.purpose {
            // Everything goes, wherever its pods find room.
            return Ok(None);
        }
        let step = Step::Settle;
        let began = self.ports.clock.instant();
        for node in &disturbed.nodes {
            self.tell(&Progress::StepStarted { node: node.clone(), step });
        }
        let settled = self.settled(&disturbed.awaited).await;
        let took = self.ports.clock.instant().since(began);
        for node in disturbed.nodes.iter().cloned() {
            self.tell(&match halted(&settled) {
                None => Progress::StepDone { node, step, took },
                Some(halted) => Progress::StepHalted { node, step, halted, took },
            });
        }
        settled
    }

    async fn settled(&mut self, awaited: &Awaited) -> Result<Option<Outcome>, RunError> {
        let clock = Arc::clone(&self.ports.clock);
        let began = clock.instant();
        let until = began + self.task.settle_timeout;
        loop {
            let view = self.live.view();
            self.survey(&view).await?;
            if let Some(outcome) = self.compare(&view) {
                return Ok(Some(outcome));
            }
            let drained_for = clock.instant().since(began);
            let pending = awaited.pending(&view, drained_for).or_else(|| self.unclassified());
            let Some(pending) = pending else { return Ok(None) };
            if self.stop.is_set() {
                return Ok(Some(Outcome::Stopped));
            }
            if clock.instant() >= until {
                return Ok(Some(Outcome::NotSettled(pending)));
            }
            let look = if drained_for < REPLACEMENT { began + REPLACEMENT } else { clock.instant() + LOOK_AGAIN };
            let look = until.min(look);
            let revision = view.revision();
            drop(view);
            self.changed(revision, look).await?;
            self.doubtful = self.unclassified().is_some() && clock.instant() >= look;
        }
    }

    /// Whether an on-demand node came that a migration does not know. The next "before" is this "after".
    pub(super) fn compare(&mut self, view: &View) -> Option<Outcome> {
        if !self.task.is_migration() {
            return None;
        }
        if self.compared.as_ref().is_some_and(|(machines, _)| *machines == view.machines()) {
            return None;
        }
        let cloud = &self.cloud;
        let class = |node: &Node| cloud.class(node.uid.as_str());
        // Almost always none, so that the rest costs nothing.
        let strangers: Vec<&Node> = self.known.strangers(view.nodes()).collect();
        if let Some(node) = self.known.created(&strangers, |node| class(node)) {
            let node = node.reference();
            self.tell(&Progress::Created { node: node.clone() });
            return Some(Outcome::SpotExhausted(node));
        }
        let unclassified = self.known.unclassified(&strangers, |node| class(node)).map(|node| node.reference());
        self.known.learn(&strangers, |node| class(node));
        self.compared = Some((view.machines(), unclassified));
        None
    }

    fn unclassified(&self) -> Option<String> {
        let (_, unclassified) = self.compared.as_ref()?;
        unclassified.as_ref().map(|node| format!("node {node} is new, and its class is unknown"))
    }
}

/// Why settling did not end well, if so.
fn halted(settled: &Result<Option<Outcome>, RunError>) -> Option<Halted> {
    match settled {
        Ok(None) => None,
        Ok(Some(Outcome::SpotExhausted(_))) => Some(Halted::SpotExhausted),
        Ok(Some(Outcome::Stopped)) => Some(Halted::Stopped),
        Err(RunError::LostLeadership) => Some(Halted::NotLeader),
        Ok(Some(_)) | Err(_) => Some(Halted::Failed),
    }
}
