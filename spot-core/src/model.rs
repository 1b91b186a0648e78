//! A world of nodes, pods, controllers, budgets, a scheduler, an autoscaler and a cloud, under virtual time.
//!
//! It stands behind the [ports](crate::ports), so that the real run loop works on it: `simulate` shows it to people,
//! tests bend it. It is as strict as the real thing where that hurts (versions, identities, budgets, late news), and
//! the same for the same seed, to the byte.
//!
//! ```text
//!  run loop ──ports──► Process ──► World: nodes · pods · budgets · controllers · scheduler · autoscaler · cloud
//!      ▲                                │
//!      └──────────── Executor ◄── clock ┘   when everything waits, time jumps to what is due next
//! ```

mod admission;
mod autoscaler;
mod changes;
mod cloud;
mod cluster;
mod controllers;
mod executor;
#[cfg(feature = "test-util")]
pub mod fault;
mod fleets;
#[cfg(feature = "test-util")]
mod invariants;
#[cfg(feature = "test-util")]
mod lease;
mod likeness;
mod live;
mod nodes;
mod notices;
mod pods;
mod process;
mod random;
mod record;
mod scenario;
mod scheduler;
mod script;
mod settings;
mod spec;
mod volumes;
mod world;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub use cloud::Group;
pub use executor::{Ended, Executor, Halt, RootId, Work, block_on, block_on_all, block_on_until};
pub use fleets::{FleetChange, FleetSpec, Offer, Why};
#[cfg(feature = "test-util")]
pub use invariants::{Invariant, Invariants, Limits, PoolLimits, Violation};
#[cfg(feature = "test-util")]
pub use lease::{Candidate, Lease};
pub use likeness::{Likeness, Seen};
pub use process::{Process, ProcessId};
pub use random::SplitMix64;
pub use record::{Answer, Call, CallRecord, Fact, FactRecord, Removal};
pub use scenario::{Scenario, Spread, WorldBuilder};
pub use settings::{Autoscaler, MachineKind, Placement, Settings};
pub use spec::{Allowance, BudgetSpec, NodeSpec, PodLife, VolumeSpec, WorkloadKind, WorkloadSpec};
pub use world::World;

use crate::ports::{Instant, Observer, Ports};

/// The handle of a world. Clones share the world.
#[derive(Clone)]
pub struct Model {
    world: Arc<Mutex<World>>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

impl Model {
    /// An empty world.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(settings))) }
    }

    /// Reads or changes the world, at this moment of its time. `act` must not use this handle.
    pub fn with<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut world);
        let wakers = world.take_wakers();
        drop(world);
        wakers.into_iter().for_each(std::task::Waker::wake);
        result
    }

    /// A new process.
    #[must_use]
    pub fn process(&self) -> Process {
        let id = self.with(World::new_process);
        Process::new(self.clone(), id)
    }

    /// The world as a new process reaches it that is known to be alone.
    #[must_use]
    pub fn ports(&self, observer: Arc<dyn Observer>) -> Ports {
        self.process().ports_alone(observer)
    }

    /// Lets time pass until then, with nobody at work.
    ///
    /// # Errors
    /// When that is past the world's horizon.
    pub fn run_until(&self, at: Instant) -> Result<(), Halt> {
        while self.with(|world| world.now()) < at {
            self.advance(Some(at))?;
        }
        Ok(())
    }

    /// Jumps to what is due next, at the latest to `limit`.
    fn advance(&self, limit: Option<Instant>) -> Result<(), Halt> {
        self.with(|world| world.advance(limit))
    }
}
