//! A pool's nodes and what keeps them, brought to what is wanted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

use super::work::{Ended, Work};
use super::{Outcome, PoolCapacity, Report};
use crate::error::RunError;
use crate::interruption::Hold;
use crate::judge::Policy;
use crate::ports::Ports;
use crate::retire::{Purpose, RetireSettings};
use crate::run;
use crate::stop::Stop;

/// How the work on a pool goes about it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may be retired, as in a migration; which nodes are looked for is the pool's own affair.
    pub policy: Policy,
    /// How a node is retired.
    pub retire: RetireSettings,
    /// How long evicted pods may take to run elsewhere, and transient reasons to pass.
    pub settle_timeout: Duration,
    /// How long machines may take to become nodes that are ready.
    pub ready_timeout: Duration,
    /// The capacity below which the pool is never scaled.
    pub floor: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            retire: RetireSettings::default(),
            settle_timeout: Duration::from_mins(25),
            // as long as cluster-autoscaler gives a node (`--max-node-provision-time`)
            ready_timeout: Duration::from_mins(15),
            floor: 0,
        }
    }
}

/// A pool's nodes and the fleets that keep them.
///
/// What is done is found out anew from fleets and nodes each time: who was killed in the middle of it is taken up where
/// it stopped, by the same call.
#[derive(Clone)]
pub struct Pools {
    pub(super) ports: Ports,
    pub(super) capacity: Arc<dyn PoolCapacity>,
    pub(super) pool: String,
    pub(super) settings: Settings,
    /// Never on: nobody here answers notices.
    pub(super) hold: Hold,
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Pools {
    /// The pool of this name, whose fleets are behind `capacity`.
    #[must_use]
    pub fn new(ports: Ports, capacity: Arc<dyn PoolCapacity>, pool: impl Into<String>, settings: Settings) -> Self {
        Self { ports, capacity, pool: pool.into(), settings, hold: Hold::default() }
    }

    /// Does work on the pool while we lead.
    pub(super) async fn work(
        &self,
        purpose: Purpose,
        stop: &Stop,
        work: impl for<'w> FnOnce(&'w mut Work<'_>) -> BoxFuture<'w, Result<Outcome, Ended>> + Send,
    ) -> Result<Report, RunError> {
        let work = async {
            let live = run::open(&self.ports).await?;
            let mut under_way = Work::begin(self, &*live, purpose, stop).await?;
            let ended = work(&mut under_way).await;
            under_way.finish(ended).await
        };
        run::while_leading(&self.ports, work.boxed()).await.flatten()
    }
}
