//! Answers a notice of a node's machine: cordons the node at once and empties it, before the machine goes by itself.
//!
//! Nothing is deleted here but pods that are lost anyway. Where the machine surely goes, the node is kept as it is
//! afterwards, for whoever sees it come back.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use futures::future::{self, Either};

use super::job::{Job, Seizing};
use super::release::{BackingOff, Freed};
use super::{Halt, Purpose, Retirer, Target, record};
use crate::claim::Owner;
use crate::drain::plan::Force;
use crate::error::{Cause, ErrorClass, Failure, chain};
use crate::interruption::Terms;
use crate::node::{NodeSnapshot, Uid};
use crate::ports::{Lane, Write};
use crate::progress::Progress;
use crate::settle::Awaited;
use crate::wait::within;

/// How a rescue ended.
#[derive(Debug)]
#[must_use]
pub(crate) enum Rescued {
    /// No pod is left that ought to go. The node stays claimed and cordoned.
    Emptied,
    /// It is not empty, and no time is left, or it failed. Where the machine surely goes the node stays claimed and
    /// cordoned; a planned drain has taken everything of ours off, with a back-off.
    NotEmptied(Failure),
    /// A person took it back; everything of ours was taken off.
    Undone,
    /// It must not be drained after all, and nothing of this drain is on it.
    Refused,
    /// It is departing: we have had its machine deleted ourselves.
    OurOwn,
    /// Somebody removed the node.
    Vanished,
    /// The process is to end; the next one goes on.
    Stopped,
    /// Somebody else leads.
    NotLeader,
}

/// A rescue that has ended.
#[derive(Debug)]
pub(crate) struct Rescue {
    pub(crate) end: Rescued,
    /// What has to settle; none if certainly no pod was evicted.
    pub(crate) awaited: Option<Awaited>,
}

impl Retirer<'_> {
    /// Marks, cordons and records in one patch, and taints in the same where the machine surely goes; then awaits
    /// `cordoned`, empties the node under the terms, calls `emptied` when it is, and takes it out of its load balancers
    /// meanwhile. Ends by the terms' deadline, however it is tightened.
    ///
    /// Where the machine surely goes, a claim of another owner that is not departing is taken over, with what it lists.
    pub(crate) async fn rescue(
        &self,
        target: Target,
        terms: &Terms,
        cordoned: impl Future<Output = ()>,
        emptied: impl FnOnce(),
    ) -> Rescue {
        let purpose = Purpose::Interruption { terms: terms.clone() };
        let mut job = Job::new(*self, target, &purpose);
        let worked = job.rescue(terms, cordoned, emptied).await;
        let end = self.rescued(&job, worked, terms).await;
        let (_, awaited) = job.into_disturbed();
        Rescue { end, awaited }
    }

    /// Cordons a node whose machine is going down already: nothing can be moved off it any more.
    ///
    /// # Errors
    /// How it ended otherwise.
    pub(crate) async fn cordon(&self, target: Target, terms: &Terms) -> Result<(), Rescued> {
        let purpose = Purpose::Interruption { terms: terms.clone() };
        let mut job = Job::new(*self, target, &purpose);
        match job.seize_in_time(terms, Seizing::Cordon).await {
            Ok(_) => Ok(()),
            Err(halt) => Err(self.rescued(&job, Err(halt), terms).await),
        }
    }

    async fn rescued(&self, job: &Job<'_>, worked: Result<(), Halt>, terms: &Terms) -> Rescued {
        let node = job.node().reference();
        let Err(halt) = worked else { return Rescued::Emptied };
        let (end, told, backing_off) = match halt {
            Halt::Failed(step, cause) => {
                let failure = Failure { node: node.clone(), step, cause };
                if terms.limits().force == Force::Forced {
                    return Rescued::NotEmptied(failure);
                }
                let told = Progress::Released { node: node.clone(), step, why: chain(&failure) };
                (Rescued::NotEmptied(failure), Some(told), BackingOff::Yes)
            }
            Halt::Undone(undo) => {
                (Rescued::Undone, Some(Progress::Undone { node: node.clone(), undo }), BackingOff::No)
            }
            Halt::Paused | Halt::Held => (Rescued::Refused, None, BackingOff::No),
            Halt::Refused => return Rescued::Refused,
            Halt::Departing(_) | Halt::Overtaken => return Rescued::OurOwn,
            Halt::Vanished => return Rescued::Vanished,
            Halt::Stopped => return Rescued::Stopped,
            Halt::NotLeader => return Rescued::NotLeader,
        };
        if self.release(&node, &Owner::Interruption, job.claimed(), backing_off).await == Freed::Done {
            if let Some(told) = told {
                self.report(&told);
            }
            // An earlier try, or the retirement that was taken over, may have had it let go of.
            if terms.limits().force == Force::Forced {
                self.attach(job.node(), Lane::Forced).await;
            }
        }
        end
    }

    /// Takes a machine that goes out of its load balancers, as far as there is time.
    pub(super) async fn let_go(&self, node: &Arc<NodeSnapshot>, terms: &Terms) {
        let ports = self.ports;
        let by = terms.limits().until;
        if by <= ports.clock.instant() {
            return;
        }
        let write = Write::new(by, Lane::Forced, Arc::clone(&ports.leadership));
        let detach = ports.cloud.detach(node, record::tainted_at(node), &write);
        let detach = pin!(within(ports, by, "draining load balancers", detach));
        let (over, stopped) = (pin!(self.over(terms)), pin!(self.stop.wait()));
        if let Either::Left((Err(error), _)) = future::select(detach, future::select(over, stopped)).await {
            let node = Some(node.reference());
            self.report(&Progress::Problem { node, class: error.class, what: chain(&error) });
        }
    }

    /// Returns when a cluster-autoscaler that starts has taken taint and cordon off.
    pub(super) async fn loses_its_taint(&self, node: &Uid) {
        loop {
            let view = self.live.view();
            let seen = view.node(node.as_str());
            if seen.is_some_and(|seen| record::lost_its_taint(seen, &Owner::Interruption)) {
                return;
            }
            if self.live.changed(view.revision()).await.is_err() {
                // The drain fails by that.
                return future::pending().await;
            }
        }
    }

    /// Reports what went wrong, and is tried again.
    pub(super) fn problem(&self, failure: &Failure) {
        let class = match &failure.cause {
            Cause::Port(error) => error.class,
            Cause::Contended(_) => ErrorClass::Transient,
            Cause::Blocked(_) | Cause::Mismatch(_) => ErrorClass::Permanent,
        };
        self.report(&Progress::Problem { node: Some(failure.node.clone()), class, what: chain(failure) });
    }

    /// Returns at the deadline, however it is tightened.
    async fn over(&self, terms: &Terms) {
        let clock = &self.ports.clock;
        loop {
            let limits = terms.limits();
            if clock.instant() >= limits.until {
                return;
            }
            future::select(pin!(clock.sleep_until(limits.until)), pin!(terms.stricter_than(limits))).await;
        }
    }
}
