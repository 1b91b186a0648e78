//! The clocks of a real process.

use async_trait::async_trait;
use jiff::Timestamp;
use spot_core::ports::{Clock, Instant};

/// Tells the time by the system's wall clock and by tokio's timer, so that a test can pause the latter.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    beginning: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that begins now. Its [`Instant`]s mean nothing to another one.
    #[must_use]
    pub fn new() -> Self {
        Self { beginning: tokio::time::Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for TokioClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the wall clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn instant(&self) -> Instant {
        Instant(self.beginning.elapsed())
    }

    async fn sleep_until(&self, at: Instant) {
        match self.beginning.checked_add(at.0) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}
