//! What can be found out about a pool before it is created, without any effect.

use spot_core::error::PortError;
use thiserror::Error;

/// What was found out about one thing that a pool needs.
#[derive(Debug)]
pub struct Finding {
    /// The thing: `subnet subnet-1`.
    pub what: String,
    /// Whether it is as the pool needs it.
    pub outcome: Result<(), Trouble>,
}

/// Why a pool can't have something, or why that could not be found out.
#[derive(Debug, Error)]
#[error("{why}: {remedy}")]
pub struct Trouble {
    /// The reason.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
    /// AWS' own words behind it; their class tells a definite no from a question that may be asked again.
    #[source]
    pub cause: Option<PortError>,
}
