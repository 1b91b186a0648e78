//! Tells several observers what one is told.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use spot_core::ports::Observer;
use spot_core::progress::Progress;

/// All of them, told in order.
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    /// These too.
    #[must_use]
    pub fn and(mut self, observer: Arc<dyn Observer>) -> Self {
        self.0.push(observer);
        self
    }
}

impl Observer for Observers {
    fn observe(&self, at: Timestamp, event: &Progress) {
        for observer in &self.0 {
            observer.observe(at, event);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.0.len()).finish()
    }
}
