//! Until when a node is to be empty, and how hard that is tried: what every further notice can only make stricter.

use crate::drain::plan::Force;
use crate::ports::Instant;
use crate::watched::Watched;

/// How a drain goes about it, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until when all pods must be gone.
    pub until: Instant,
    /// From when on pods that their budgets hold back are deleted; none: never.
    pub delete_blocked: Option<Instant>,
    /// Whether only what may be moved is, or everything that can be.
    pub force: Force,
}

impl Limits {
    /// The stricter of the two in each.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let force = match (self.force, other.force) {
            (Force::Planned, Force::Planned) => Force::Planned,
            (Force::Forced, _) | (_, Force::Forced) => Force::Forced,
        };
        Self {
            until: self.until.min(other.until),
            delete_blocked: self.delete_blocked.into_iter().chain(other.delete_blocked).min(),
            force,
        }
    }
}

/// The limits in force of one node's drain: all clones see them, and nothing but [`Self::tighten`] changes them.
#[derive(Clone, Debug)]
pub struct Terms(Watched<Limits>);

impl Terms {
    /// Terms that begin with these limits.
    #[must_use]
    pub fn new(until: Instant, delete_blocked: Option<Instant>, force: Force) -> Self {
        Self(Watched::new(Limits { until, delete_blocked, force }))
    }

    /// Makes them stricter where these are, and wakes the drain that runs under them. Returns whether they are
    /// stricter now.
    #[must_use]
    pub fn tighten(&self, until: Instant, delete_blocked: Option<Instant>, force: Force) -> bool {
        self.0.change(|limits| limits.and(Limits { until, delete_blocked, force }))
    }

    /// The limits that are in force now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.get()
    }

    /// Returns when they are stricter than these, which were in force before.
    pub async fn stricter_than(&self, seen: Limits) {
        self.0.other_than(seen).await;
    }
}
