//! Work on a pool, on the model: what it does when all goes well, when others interfere, and when anything at all goes
//! wrong.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach their helpers: a test that can't go on is to fail"
)]

mod remove;
mod roll;
mod roll_plan;
mod roll_troubles;
mod scale;
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use spot_core::error::RunError;
use spot_core::model::{self, Halt, Invariants, Model, Process};
use spot_core::node::NodeRef;
use spot_core::pool::roll::Terms;
use spot_core::pool::{Pools, Report, Settings, Told};
use spot_core::ports::Observer;
use spot_core::progress::Progress;
use spot_core::stop::Stop;

/// Remembers what is told of the pool.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Told>>>);

impl Observer for Notes {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        if let Progress::Pool(told) = event {
            self.0.lock().unwrap().push(told.clone());
        }
    }
}

/// Work on a pool.
#[derive(Clone, Copy, Debug)]
enum Job {
    Ready(u32),
    Scale(u32),
    Roll(Terms),
    Remove(Option<Duration>),
}

/// The pool as a new process works on it.
fn pools(process: &Process, notes: &Notes, settings: &Settings) -> Pools {
    Pools::new(process.ports_alone(Arc::new(notes.clone())), process.pool(), "web", settings.clone())
}

impl Job {
    async fn run(self, pools: &Pools) -> Result<Report, RunError> {
        let stop = Stop::default();
        match self {
            Self::Ready(wanted) => pools.await_ready(wanted, &stop).await,
            Self::Scale(to) => pools.scale(to, &stop).await,
            Self::Roll(terms) => pools.roll(terms, &stop).await,
            Self::Remove(force) => pools.remove(force, &stop).await,
        }
    }

    /// By a new process, that does it to its end.
    fn once(self, model: &Model) -> Report {
        self.told(model, &Settings::default()).0
    }

    fn told(self, model: &Model, settings: &Settings) -> (Report, Vec<Told>) {
        let notes = Notes::default();
        let report = self.attempt(model, &model.process(), &notes, settings);
        let told = notes.0.lock().unwrap().clone();
        (report.expect("it ends").expect("it can be done"), told)
    }

    fn attempt(
        self,
        model: &Model,
        process: &Process,
        notes: &Notes,
        settings: &Settings,
    ) -> Result<Result<Report, RunError>, Halt> {
        let pools = pools(process, notes, settings);
        model::block_on(model, self.run(&pools))
    }
}

fn names(nodes: &[NodeRef]) -> Vec<&str> {
    nodes.iter().map(|node| &*node.name).collect()
}

/// What each fleet wants, what runs of it, and whether it has ended.
fn fleets(model: &Model) -> BTreeMap<String, (u32, u32, bool)> {
    let fleets = model.with(|world| world.fleets());
    fleets.into_iter().map(|fleet| (fleet.id.clone(), (fleet.target, fleet.there(), fleet.has_ended))).collect()
}

fn assert_kept(model: &Model, invariants: &Invariants, what: &str) {
    let found = invariants.at_the_end(model);
    assert!(found.is_empty(), "{what}: {found:#?}");
}

const MINUTE: Duration = Duration::from_mins(1);
