//! How notices are answered.

use std::time::Duration;

use crate::drain::plan::DrainRules;
use crate::node::Uid;
use crate::ports::Scope;
use crate::retire::RetireSettings;

/// What a rebalance recommendation leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebalance {
    /// Nothing.
    Ignore,
    /// New pods are kept off the node for a while, softly.
    #[default]
    Taint,
    /// The node is drained as in a planned migration, one at a time.
    Drain,
}

/// How notices are answered.
#[derive(Clone, Debug)]
pub struct InterruptionSettings {
    /// Whose notices are answered: those of all nodes, or of one.
    pub scope: Scope,
    /// What a rebalance recommendation leads to.
    pub rebalance: Rebalance,
    /// How long before a scheduled change its node is drained.
    pub scheduled_change_lead: Duration,
    /// How long after its notice the drain of an interrupted node obeys budgets.
    pub delete_blocked_after: Duration,
    /// How long planned work waits after an interruption.
    pub pause_migration_for: Duration,
    /// How long evicted pods may take to run elsewhere before the next node is drained on a recommendation.
    pub settle_timeout: Duration,
    /// Which pods a drain on a recommendation may move.
    pub drain: DrainRules,
    /// How nodes are claimed, drained and released.
    pub retire: RetireSettings,
    /// Our own pod: it goes last.
    pub own_pod: Option<Uid>,
}

impl Default for InterruptionSettings {
    fn default() -> Self {
        Self {
            scope: Scope::Cluster,
            rebalance: Rebalance::default(),
            scheduled_change_lead: Duration::from_mins(30),
            delete_blocked_after: Duration::from_mins(1),
            pause_migration_for: Duration::from_mins(15),
            settle_timeout: Duration::from_mins(25),
            drain: DrainRules::default(),
            retire: RetireSettings::default(),
            own_pod: None,
        }
    }
}
