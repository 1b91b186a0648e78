//! What a run tells of the nodes as a whole.

use std::collections::BTreeMap;
use std::mem;

use super::Run;
use crate::capacity::Class;
use crate::exposure;
use crate::judge::Verdict;
use crate::node::NodeRef;
use crate::progress::{Outcome, Progress};
use crate::reason::ReasonKind;
use crate::retire::Target;
use crate::view::View;

impl Run<'_> {
    pub(super) fn would_retire(&self, targets: &[Target]) -> Outcome {
        let nodes: Vec<NodeRef> = targets.iter().map(|target| target.node.reference()).collect();
        for node in &nodes {
            self.tell(&Progress::WouldRetire { node: node.clone() });
        }
        Outcome::DryRun(nodes)
    }

    /// How many nodes of each class there are.
    pub(crate) fn count(&self) -> BTreeMap<Class, usize> {
        let mut nodes: BTreeMap<_, _> = Class::ALL.into_iter().map(|class| (class, 0)).collect();
        for node in self.live.view().nodes() {
            *nodes.entry(self.cloud.class(node.uid.as_str())).or_default() += 1;
        }
        nodes
    }

    /// How many nodes may go, and how many may not, by the kind of their first reason.
    pub(super) fn verdicts(&self, view: &View) -> (usize, BTreeMap<ReasonKind, usize>) {
        let mut eligible = 0;
        let mut refused: BTreeMap<ReasonKind, usize> = BTreeMap::new();
        for (_, verdict) in self.judgement(view).verdicts() {
            match verdict {
                Verdict::NotACandidate => {}
                Verdict::Eligible => eligible += 1,
                Verdict::Refused(reasons) => {
                    for reason in reasons.iter().take(1) {
                        *refused.entry(reason.kind()).or_default() += 1;
                    }
                }
            }
        }
        (eligible, refused)
    }

    /// Tells how the nodes are judged, and of each that is refused once.
    pub(crate) fn announce(&mut self, view: &View) {
        let mut told = mem::take(&mut self.refused);
        for (node, verdict) in self.judgement(view).verdicts() {
            if let Verdict::Refused(reasons) = verdict
                && told.insert(node.uid.clone())
            {
                self.tell(&Progress::Refused { node: node.reference(), reasons });
            }
        }
        self.refused = told;
        let (eligible, refused) = self.verdicts(view);
        self.tell(&Progress::Judged { eligible, refused });
    }

    /// Tells of workloads that these drains take all ready pods from, each once.
    pub(super) fn warn(&mut self, view: &View, targets: &[Target]) {
        let nodes = targets.iter().map(|target| &*target.node);
        for exposed in exposure::exposed(view, &self.task.policy.drain, nodes) {
            if self.exposed.insert(exposed.controller.clone()) {
                self.tell(&Progress::Exposed { exposed });
            }
        }
    }
}
