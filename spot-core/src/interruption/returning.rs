//! Whether what was announced of a node is over, so that everything of ours comes off: pure.

use std::time::Duration;

use jiff::Timestamp;

use super::answer::elapsed;
use crate::claim::Claim;
use crate::node::{Effect, NodeSnapshot, Readiness, Taint, key};
use crate::ports::NodeChange;

/// How long past its time a machine may still be there before the cloud is asked whether it was taken at all.
pub const OVERDUE: Duration = Duration::from_mins(10);
/// How long new pods are kept off a node, softly, when nothing follows.
pub const SOFT_FOR: Duration = Duration::from_hours(1);

/// What is known of a node that was claimed because its machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returning {
    /// It may go yet, or is gone.
    No,
    /// It is back; how that is known.
    Yes(&'static str),
    /// It ought to be gone for long: the cloud knows whether it goes at all.
    AskCloud,
}

/// Whether the machine of a claimed node is back, or was never taken.
#[must_use]
pub fn returning(node: &NodeSnapshot, claim: &Claim, now: Timestamp) -> Returning {
    if was_taken_back(node, claim) {
        return Returning::Yes("a person took it back");
    }
    if node.readiness != Readiness::Ready || node.deleting_since.is_some() {
        return Returning::No;
    }
    if node.boot_id != claim.boot_id {
        return Returning::Yes("its machine has booted again");
    }
    let goes = claim.until.unwrap_or(claim.since);
    // Before that a kubelet that was late once is ready again, on a machine that goes all the same.
    if node.ready_since.is_some_and(|since| since > goes && since <= now) {
        return Returning::Yes("its machine went on");
    }
    if elapsed(goes, now) >= OVERDUE { Returning::AskCloud } else { Returning::No }
}

/// Whether a person took the mark or the cordon off. A cluster-autoscaler that starts takes cordon and taint together.
fn was_taken_back(node: &NodeSnapshot, claim: &Claim) -> bool {
    let is_ours = |taint: &Taint| taint.key == key::TO_BE_DELETED && claim.taint.as_ref() == Some(&taint.value);
    let tainted = claim.taint.is_none() || node.taints.iter().any(is_ours);
    node.labels.value(key::SELECTED) != Some("true") || (!node.unschedulable && tainted)
}

/// The soft taint put on; nothing if it is there.
#[must_use]
pub fn softening(node: &NodeSnapshot, now: Timestamp) -> NodeChange {
    if node.taints.iter().any(is_soft) {
        return NodeChange::default();
    }
    let taint = Taint::new(key::REBALANCE, now.as_second().to_string(), Effect::PreferNoSchedule);
    let taints = node.taints.iter().cloned().chain([taint]).collect();
    NodeChange { taints: Some(taints), ..NodeChange::default() }
}

/// The soft taint taken off if its time is over; nothing if it is not there.
#[must_use]
pub fn hardening(node: &NodeSnapshot, now: Timestamp) -> NodeChange {
    let taints: Vec<_> = node.taints.iter().filter(|taint| !is_over(taint, now)).cloned().collect();
    NodeChange { taints: (taints.len() != node.taints.len()).then_some(taints), ..NodeChange::default() }
}

fn is_soft(taint: &Taint) -> bool {
    taint.is(key::REBALANCE, Effect::PreferNoSchedule)
}

/// Whether nothing followed for so long that the taint goes; one whose time can't be read, or is long to come, goes.
fn is_over(taint: &Taint, now: Timestamp) -> bool {
    let since = taint.value.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    is_soft(taint) && since.is_none_or(|since| elapsed(since, now) >= SOFT_FOR || elapsed(now, since) >= SOFT_FOR)
}
