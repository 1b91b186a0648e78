//! Takes everything of ours off a node that is not to go after all.

use std::sync::Arc;
use std::time::Duration;

use super::{CONFLICTS, Retirer, record};
use crate::claim::{BackOff, Claim, Owner};
use crate::error::{ErrorClass, PortError, chain};
use crate::node::{Node, NodeRef, NodeSnapshot};
use crate::ports::{Instant, Lane, NodeChange, Write, Written};
use crate::progress::{Halted, Progress, Step};
use crate::wait::within;

/// The pause after a failed try, doubling up to [`LONGEST_PAUSE`]: a release must not wait longer than it has to.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Whether the node is left alone for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackingOff {
    /// It failed.
    Yes,
    /// It did not.
    No,
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Freed {
    /// Nothing of ours is on the node any more.
    Done,
    /// An interruption has taken the node over, with all that is on it.
    Overtaken,
    /// It could not be written; what stood in the way was reported.
    NotDone,
}

impl Retirer<'_> {
    /// Releases a node: tries until it is done, the grace period is over, or we lead no more. A node that is gone, or
    /// claimed by another owner, is released. What stood in the way is reported.
    ///
    /// What the record on the node lists is taken back; where the record is gone, what `known` lists, which is what
    /// this process knows to have done.
    pub(crate) async fn release(
        &self,
        node: &NodeRef,
        owner: &Owner,
        known: Option<&Claim>,
        backing_off: BackingOff,
    ) -> Freed {
        let clock = &self.ports.clock;
        let now = clock.now();
        let (initial, max) = self.settings.back_off;
        let until = clock.instant() + self.settings.grace_period;
        let lane = match owner {
            Owner::Interruption => Lane::Forced,
            Owner::Migrator | Owner::Fleet(_) => Lane::Planned,
        };
        let rewrite = self.rewrite(node, lane, until, |current| {
            let recorded = current.claim().of(current.uid.as_str());
            if recorded.is_some_and(|claim| claim.owner != *owner) {
                return NodeChange::default();
            }
            let previous = current.back_off();
            let back_off = (backing_off == BackingOff::Yes).then(|| BackOff::after(previous, now, initial, max));
            record::releasing(current, recorded.or(known), back_off)
        });
        match self.timed(node, Step::Release, rewrite, |written| written.as_ref().err().copied()).await {
            Ok(Some(now)) if record::is_overtaken(&now, owner) => Freed::Overtaken,
            Ok(_) => Freed::Done,
            Err(_) => Freed::NotDone,
        }
    }

    /// Has load balancers and fleet take a machine back that stays, if they ever let go of it. What stood in the way is
    /// reported.
    pub(crate) async fn attach(&self, node: &NodeSnapshot, lane: Lane) {
        let (by, write) = self.write(lane);
        let attach = self.ports.cloud.attach(node, &write);
        if let Err(error) = within(self.ports, by, "taking back what was done for the deletion", attach).await {
            let node = Some(node.reference());
            self.report(&Progress::Problem { node, class: error.class, what: chain(&error) });
        }
    }

    /// Writes a node, with whatever `change` makes of its current state, until it is done, it is too late, or we lead
    /// no more. Returns the node as it is then, if it is still there. See [`Self::release`].
    pub(crate) async fn rewrite(
        &self,
        node: &NodeRef,
        lane: Lane,
        until: Instant,
        change: impl Fn(&NodeSnapshot) -> NodeChange,
    ) -> Result<Option<Arc<NodeSnapshot>>, Halted> {
        let clock = &self.ports.clock;
        let mut pause = FIRST_PAUSE;
        let mut conflicts = 0;
        let Some(mut current) = self.live.view().node(node.uid.as_str()).cloned() else { return Ok(None) };
        loop {
            let wanted = change(&current);
            if wanted == NodeChange::default() {
                return Ok(Some(current));
            }
            // Three tries fit, so that one that hangs does not decide it.
            let by = clock.instant() + self.settings.grace_period / 4;
            let write = Write::new(by, lane, Arc::clone(&self.ports.leadership));
            let at = current.at_version();
            let error =
                match within(self.ports, by, "writing the node", self.ports.cluster.write_node(&at, &wanted, &write))
                    .await
                {
                    Ok(Written::Applied(node)) => return Ok(Some(node)),
                    Ok(Written::Gone) => return Ok(None),
                    // Somebody else got in between: at once again, unless that goes on and on.
                    Ok(Written::Conflict(newer)) if conflicts < CONFLICTS => {
                        conflicts += 1;
                        current = newer;
                        continue;
                    }
                    Ok(Written::Conflict(_)) => {
                        PortError::new(ErrorClass::Transient, format!("node {node} is written by others all the time"))
                    }
                    Err(error) => error,
                };
            conflicts = 0;
            self.report(&Progress::Problem { node: Some(node.clone()), class: error.class, what: chain(&error) });
            if error.class == ErrorClass::NotLeader {
                return Err(Halted::NotLeader);
            }
            if clock.instant() + pause >= until {
                return Err(Halted::Failed);
            }
            clock.sleep_until(clock.instant() + pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            // The write may have worked all the same.
            let Some(newer) = self.live.view().node(node.uid.as_str()).map(Arc::clone) else { return Ok(None) };
            current = newer;
        }
    }
}
