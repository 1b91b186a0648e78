//! While spot capacity is being taken back, planned work waits.

use crate::ports::Instant;
use crate::watched::Watched;

/// Until when planned work waits: set by the answer to an interruption, seen by the migrator. All clones are one.
#[derive(Clone, Debug)]
pub struct Hold(Watched<Option<Instant>>);

impl Default for Hold {
    fn default() -> Self {
        Self(Watched::new(None))
    }
}

impl Hold {
    /// Holds planned work back until then. A later end that was set before stays.
    pub fn hold(&self, until: Instant) {
        self.0.change(|end| end.max(Some(until)));
    }

    /// Until when planned work is held back now; none: it is not.
    #[must_use]
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.0.get().filter(|until| now < *until)
    }

    /// Returns when planned work is held back, at once if it is at `now`.
    pub async fn begins(&self, now: Instant) {
        loop {
            let end = self.0.get();
            if end.is_some_and(|end| now < end) {
                return;
            }
            self.0.other_than(end).await;
        }
    }
}
