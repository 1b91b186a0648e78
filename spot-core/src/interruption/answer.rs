//! What is to be done about a notice, and how long there is: pure.
//!
//! Notices speak of the wall clock, which may jump; drains run on the monotonic one. What a notice leaves is counted
//! from its receipt, and is never more than it left when it was sent.

use std::time::Duration;

use jiff::Timestamp;

use super::notice::{Announcement, MachineState, Notice};
use super::returning::SOFT_FOR;
use super::settings::{InterruptionSettings, Rebalance};
use super::terms::Limits;
use crate::drain::plan::Force;
use crate::node::NodeSnapshot;
use crate::ports::Instant;

/// What a drain is given though its deadline has passed: the API server needs a moment to take evictions in, and
/// containers one to see their signal.
pub const FLOOR: Duration = Duration::from_secs(5);
/// How long before the end pods that budgets hold back are deleted at the latest: so that they can end in order.
const LAST_CALL: Duration = Duration::from_secs(10);
/// What is left of a hook's time for the answer to reach whoever waits for it.
const HOOK_MARGIN: Duration = Duration::from_secs(10);
/// What a drain before a scheduled change is given though the change may have begun: it begins at that time or later.
const LATE_CHANGE: Duration = Duration::from_mins(2);
/// How long a notice of a machine without a node is delivered again and again: a node registers within a minute or so.
const UNKNOWN_FOR: Duration = Duration::from_mins(2);
/// How long a machine that a group has launched may take to become a node: as long as cluster-autoscaler gives it
/// (`--max-node-provision-time`).
const JOINING_FOR: Duration = Duration::from_mins(15);

/// One moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Of the wall clock.
    pub wall: Timestamp,
    /// Of the monotonic clock.
    pub instant: Instant,
}

/// What is to be done about a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Nothing,
    /// Nothing yet: it is too early.
    Later,
    /// New pods are kept off the node, softly.
    Soften,
    /// The node is cordoned.
    Cordon,
    /// The node is awaited until it is ready.
    AwaitReady {
        /// For how long.
        until: Instant,
    },
    /// The node is emptied.
    Empty(Limits),
}

/// What is to be done about a notice of this node's machine.
#[must_use]
pub fn answer(notice: &Notice, node: &NodeSnapshot, settings: &InterruptionSettings, now: Moment) -> Answer {
    match notice.announcement {
        Announcement::Interruption { at, .. } if is_over(at, node) => Answer::Nothing,
        Announcement::Interruption { at, .. } => {
            let until = now.instant + left(notice, at, now.wall).max(FLOOR);
            let obeyed = settings.delete_blocked_after.saturating_sub(elapsed(notice.sent, now.wall));
            let last_call = Instant(until.0.saturating_sub(LAST_CALL));
            let delete_blocked = (now.instant + obeyed).min(last_call).max(now.instant);
            Answer::Empty(Limits { until, delete_blocked: Some(delete_blocked), force: Force::Forced })
        }
        // A metadata service repeats it for as long as the machine lives.
        Announcement::Rebalance if elapsed(notice.sent, now.wall) >= SOFT_FOR => Answer::Nothing,
        Announcement::Rebalance => match settings.rebalance {
            Rebalance::Ignore => Answer::Nothing,
            Rebalance::Taint => Answer::Soften,
            Rebalance::Drain => {
                let until = now.instant + settings.retire.drain_timeout;
                Answer::Empty(Limits { until, delete_blocked: None, force: Force::Planned })
            }
        },
        Announcement::ScheduledChange { at } if is_over(at, node) => Answer::Nothing,
        Announcement::ScheduledChange { at } => {
            let left = left(notice, at, now.wall);
            if left > settings.scheduled_change_lead {
                return Answer::Later;
            }
            let until = now.instant + left.max(LATE_CHANGE);
            Answer::Empty(Limits { until, delete_blocked: None, force: Force::Forced })
        }
        Announcement::TerminateAction { until } => {
            let left = left(notice, until, now.wall).saturating_sub(HOOK_MARGIN);
            let until = now.instant + left.max(FLOOR);
            Answer::Empty(Limits { until, delete_blocked: None, force: Force::Forced })
        }
        Announcement::LaunchAction { until } => match left(notice, until, now.wall) {
            Duration::ZERO => Answer::Nothing,
            left => Answer::AwaitReady { until: now.instant + left.saturating_sub(HOOK_MARGIN) },
        },
        Announcement::StateChange(MachineState::Down) if is_over(notice.sent, node) => Answer::Nothing,
        Announcement::StateChange(MachineState::Down) => Answer::Cordon,
        Announcement::StateChange(MachineState::Up) => Answer::Nothing,
    }
}

/// Whether a notice of a machine that no node is known of is worth waiting for one.
#[must_use]
pub fn may_be_known_later(notice: &Notice, now: Timestamp) -> bool {
    match notice.announcement {
        // That node is still to come; if it does not, the hook ends by itself, which is what it is for.
        Announcement::LaunchAction { until } => {
            left(notice, until, now) > Duration::ZERO && elapsed(notice.sent, now) < JOINING_FOR
        }
        Announcement::Interruption { .. }
        | Announcement::Rebalance
        | Announcement::ScheduledChange { .. }
        | Announcement::TerminateAction { .. } => elapsed(notice.sent, now) < UNKNOWN_FOR,
        // They are told of every machine of the account.
        Announcement::StateChange(_) => false,
    }
}

/// Whether a notice of a machine that we are having deleted has to be answered if the machine stays after all: who waits
/// for an answer until a machine goes must not wait for that.
#[must_use]
pub fn may_matter_later(notice: &Notice, now: Timestamp) -> bool {
    match notice.announcement {
        Announcement::Interruption { at, .. } | Announcement::ScheduledChange { at } => {
            left(notice, at, now) > Duration::ZERO
        }
        Announcement::Rebalance
        | Announcement::TerminateAction { .. }
        | Announcement::LaunchAction { .. }
        | Announcement::StateChange(_) => false,
    }
}

/// Whether what was announced is past: the node has become ready since.
fn is_over(at: Timestamp, node: &NodeSnapshot) -> bool {
    node.ready_since.is_some_and(|since| since > at)
}

/// How long there is until `at`: by the clock, and never more than when the notice was sent.
fn left(notice: &Notice, at: Timestamp, now: Timestamp) -> Duration {
    elapsed(now, at).min(elapsed(notice.sent, at))
}

/// How long after `from` that is; nothing if before.
pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}
