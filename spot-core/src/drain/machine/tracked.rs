//! What a drain knows of one pod that is to go.

use std::time::Duration;

use crate::error::Obstacle;
use crate::interruption::Limits;
use crate::node::Uid;
use crate::pod::{BudgetRef, PodSnapshot};
use crate::ports::Instant;
use crate::view::View;

/// The first wait after a refusal that gives no time, doubling up to [`LONGEST_WAIT`].
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// From when on a blocked pod is reported, and how often then.
const REPORT_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) enum State {
    /// Asked, not answered. The budget's version that allowed it.
    Asked(Option<(BudgetRef, String)>),
    /// Accepted; its object is still there.
    Accepted,
    /// Refused; tried again then, or when the budget's version is another one.
    Waiting { obstacle: Obstacle, until: Instant, budget: Option<(BudgetRef, String)> },
    /// Refused for good: we may not.
    Denied(String),
}

#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) state: State,
    /// Since when something is in its way.
    pub(super) blocked_since: Option<Instant>,
    pub(super) reported: Option<Instant>,
    pub(super) attempts: u32,
    /// When it was asked for last.
    pub(super) asked_at: Instant,
    /// The limits under which it was asked for last.
    pub(super) under: Option<Limits>,
    /// It is deleted, no longer evicted.
    pub(super) deleting: bool,
}

impl Tracked {
    pub(super) const fn new(asked_at: Instant) -> Self {
        Self {
            state: State::Asked(None),
            asked_at,
            blocked_since: None,
            reported: None,
            attempts: 0,
            under: None,
            deleting: false,
        }
    }

    /// When a pod that waits is to be reported next.
    pub(super) fn report_due(&self) -> Option<Instant> {
        let since = self.blocked_since?;
        if !matches!(self.state, State::Waiting { .. }) {
            return None;
        }
        Some(self.reported.map_or(since + REPORT_AFTER, |last| last + last.since(since)))
    }
}

/// The obstacle with what the view knows of it: the API server does not name the budgets of which there are too many.
pub(super) fn named(obstacle: &Obstacle, pod: &PodSnapshot, view: &View) -> Obstacle {
    match obstacle {
        Obstacle::MultipleBudgets(_) => {
            Obstacle::MultipleBudgets(view.budgets_of(pod).map(|budget| budget.reference()).collect())
        }
        Obstacle::Budget(_)
        | Obstacle::Webhook(_)
        | Obstacle::Denied(_)
        | Obstacle::ServerError(_)
        | Obstacle::NamespaceTerminating
        | Obstacle::TerminatingStuck
        | Obstacle::NotEvictable(_) => obstacle.clone(),
    }
}

/// How long to wait before the next try: doubling, and spread by up to a quarter so that pods don't come in step.
pub(super) fn patience(pod: &Uid, attempts: u32) -> Duration {
    let wait = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(LONGEST_WAIT);
    let seed = pod
        .as_str()
        .bytes()
        .fold(u64::from(attempts), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let quarter = u64::try_from(wait.as_millis() / 4).unwrap_or(u64::MAX).max(1);
    wait + Duration::from_millis(seed % quarter)
}
