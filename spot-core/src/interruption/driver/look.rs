//! What all nodes together tell: which of them are over with, and whether planned work is to be held back still.

use std::sync::Arc;
use std::time::Duration;

use super::super::answer::Moment;
use super::super::returning::{Returning, hardening, returning};
use super::Driver;
use crate::claim::Owner;
use crate::node::{NodeSnapshot, key};
use crate::ports::NodeChange;
use crate::retire::record;

/// How long before a spot machine is taken back that is announced.
const NOTICE: Duration = Duration::from_mins(2);

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
    /// machine surely goes is not recorded, but spot capacity is announced to go so shortly before that.
    pub(super) fn hold_on(&self, now: Moment) {
        let Some(live) = self.sight.get() else { return };
        let view = live.view();
        let tainted = |node: &&Arc<NodeSnapshot>| node.taints.iter().any(|taint| taint.key == key::TO_BE_DELETED);
        let claims = view.nodes().iter().filter(tainted).filter_map(|node| record::ours(node, &Owner::Interruption));
        let announced = claims.filter_map(|claim| claim.until?.checked_sub(NOTICE).ok());
        if let Some(since) = announced.filter(|since| *since <= now.wall).max() {
            self.own.hold(since, now);
        }
    }
}
