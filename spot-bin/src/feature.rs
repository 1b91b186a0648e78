//! What a process does, each part of which goes on when another can't.

/// One part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// On-demand nodes are retired on a schedule.
    Migration,
    /// Interruptions are answered.
    Interruption,
}

impl Feature {
    /// Every part.
    pub const ALL: [Self; 2] = [Self::Migration, Self::Interruption];

    /// Its word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Migration => "migration",
            Self::Interruption => "interruption",
        }
    }
}
