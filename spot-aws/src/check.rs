//! Whether AWS answers as we need it: found out at start, before anything is cordoned.

#[cfg(feature = "queue")]
mod queue;

use spot_core::error::PortError;

use crate::action::Action;

/// What became of one question.
#[derive(Debug)]
pub struct Checked {
    /// What was tried.
    pub action: Action,
    /// Whether it worked. An error of class denied or permanent is definite; any other may pass.
    pub outcome: Result<(), PortError>,
    /// Whether a run can do without: not every cluster needs it.
    pub dispensable: bool,
}
