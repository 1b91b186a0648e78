//! What all nodes together tell: which of them are over with, and whether planned work is to be held back still.

use std::sync::Arc;

use super::super::answer::Moment;
use super::super::returning::{Returning, hardening, returning};
use super::Driver;
use crate::claim::Owner;
use crate::node::{NodeSnapshot, key};
use crate::ports::NodeChange;
use crate::retire::record;

/// Whether looking at nodes may cost a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AndAsk {
    Nobody,
    Cloud,
}

impl Driver<'_> {
    /// Looks at all nodes for what is over.
    pub(super) fn look(&mut self, ask: AndAsk) {
        let Some(live) = self.sight.get() else { return };
        let now = self.own.ports.clock.now();
        for node in live.view().nodes() {
            if self.written.contains(&node.uid) || self.cases.contains_key(&node.uid) {
                continue;
            }
            let (own, stop, sight, reference) = (self.own, self.stop, self.sight.clone(), node.reference());
            let claim = record::ours(node, &Owner::Interruption);
            match claim.map(|claim| (returning(node, claim, now), claim)) {
                Some((Returning::Yes(why), _)) => self.begin(own.release(stop, sight, reference, why)),
                Some((Returning::AskCloud, claim)) if ask == AndAsk::Cloud => {
                    self.begin(own.ask_cloud(stop, sight, reference, claim.machine.clone()));
                }
                Some((Returning::No | Returning::AskCloud, _)) | None => {
                    if hardening(node, now) == NodeChange::default() {
                        continue;
                    }
                    self.begin(own.harden(stop, sight, reference));
                }
            }
            self.written.insert(node.uid.clone());
        }
    }

    /// Holds planned work back as an earlier process did: its notices may be settled, and never come again. Why a
    /// machine surely goes is not recorded, and planned work can wait.
    pub(super) fn hold_on(&self, now: Moment) {
        let Some(live) = self.sight.get() else { return };
        let view = live.view();
        let taken = |node: &&Arc<NodeSnapshot>| node.taints.iter().any(|taint| taint.key == key::TO_BE_DELETED);
        let claims = view.nodes().iter().filter(taken).filter_map(|node| record::ours(node, &Owner::Interruption));
        let drained = claims.filter(|claim| claim.until.is_some());
        if let Some(since) = drained.map(|claim| claim.since).max() {
            self.own.hold(since, now);
        }
    }
}
