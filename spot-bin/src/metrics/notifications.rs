//! What became of messages, as numbers.

use prometheus::{IntCounterVec, Result};

use super::maker::Maker;

/// The numbers.
#[derive(Clone, Debug)]
pub(super) struct Notifications(IntCounterVec);

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was taken.
    Sent,
    /// It was not, however often it was tried.
    Failed,
    /// Too many waited.
    Dropped,
}

impl Told {
    /// Everything that may become of one.
    pub const ALL: [Self; 3] = [Self::Sent, Self::Failed, Self::Dropped];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

impl Notifications {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self> {
        Ok(Self(make.counters(
            "spot_migrator_notifications_total",
            "Messages for the webhook, by what became of them.",
            "result",
            Told::ALL.map(Told::as_str),
        )?))
    }

    pub(super) fn count(&self, told: Told) {
        self.0.with_label_values(&[told.as_str()]).inc();
    }
}
