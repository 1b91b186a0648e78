//! What all nodes together tell: which of them are over with, and until when planned work is held back.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::super::answer::{Moment, elapsed};
use super::super::notice::Told;
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
            self.hold(since, now);
        }
    }

    /// Holds planned work back for a while since then.
    pub(super) fn hold(&self, since: Timestamp, now: Moment) {
        let left = self.own.settings.pause_migration_for.saturating_sub(elapsed(since, now.wall));
        let held = self.own.hold.until(now.instant).is_some();
        self.own.hold.hold(now.instant + left);
        if !held && left > Duration::ZERO {
            self.own.tell(Told::Held { until: now.wall.saturating_add(left).unwrap_or(now.wall) });
        }
    }
}
