//! The run loop on the model: what it does when all goes well, when people and other tools interfere, and when anything
//! at all goes wrong.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach their helpers: a test that can't go on is to fail"
)]

mod cases;
mod crashes;
mod faults;
mod fleets;
mod flow;
mod handover;
mod hold;
mod identity;
mod load_balancers;
mod operator;
mod overtaken;
mod refusals;
mod scale;
mod steps;
mod ticks;
mod volumes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spot_core::Migrator;
use spot_core::error::RunError;
use spot_core::migrator::Settings;
use spot_core::model::{self, Call, Fact, Halt, Model, Process, World};
use spot_core::node::key;
use spot_core::ports::{Edit, Observer};
use spot_core::progress::{OutcomeKind, Progress, Report};
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;

/// Remembers all progress.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Progress>>>);

impl Observer for Notes {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Notes {
    fn all(&self) -> Vec<Progress> {
        self.0.lock().unwrap().clone()
    }
}

fn settings() -> Settings {
    Settings::new(Schedule::parse("@hourly", &TimeZone::UTC).unwrap())
}

/// One run of a new process.
fn once(model: &Model, settings: &Settings) -> Report {
    try_once(model, &model.process(), settings).expect("it ends").expect("the run can be made")
}

fn try_once(model: &Model, process: &Process, settings: &Settings) -> Result<Result<Report, RunError>, Halt> {
    let notes = Notes::default();
    let migrator = Migrator::new(process.ports_alone(Arc::new(notes)), settings.clone());
    let stop = Stop::default();
    model::block_on(model, async { migrator.once(&stop).await })
}

fn names(nodes: &[spot_core::node::NodeRef]) -> Vec<&str> {
    nodes.iter().map(|node| &*node.name).collect()
}

fn outcome(report: &Report) -> OutcomeKind {
    report.outcome.kind()
}

/// The names of the nodes that are there, in order.
fn nodes(model: &Model) -> Vec<String> {
    let mut names: Vec<_> = model.with(|world| world.view().nodes().iter().map(|node| node.name.to_string()).collect());
    names.sort_unstable();
    names
}

fn calls(model: &Model, matches: impl Fn(&Call) -> bool) -> usize {
    model.with(|world| world.calls().iter().filter(|record| matches(&record.call)).count())
}

fn evictions(model: &Model) -> usize {
    calls(model, is_eviction)
}

fn is_eviction(call: &Call) -> bool {
    matches!(call, Call::Evict { .. })
}

fn is_delete(call: &Call) -> bool {
    matches!(call, Call::DeleteInstance { .. } | Call::DeleteNode(_))
}

/// Whether it marks a node.
fn is_claim(call: &Call) -> bool {
    matches!(call, Call::WriteNode { change, .. } if change.mark == Edit::Set(()))
}

/// Whether it puts the taint on that takes a node out of load balancers.
fn is_taint(call: &Call) -> bool {
    matches!(call, Call::WriteNode { change, .. }
        if change.taints.as_ref().is_some_and(|taints| taints.iter().any(|taint| taint.key == key::TO_BE_DELETED)))
}

fn evicting(name: &'static str) -> impl Fn(&Call) -> bool {
    move |call| matches!(call, Call::Evict { pod, .. } if pod.name.starts_with(name))
}

/// Nothing that we put on nodes is left on any.
fn assert_clean(model: &Model) {
    model.with(|world| {
        for node in world.view().nodes() {
            let ours = node.labels.keys().chain(node.taints.iter().map(|taint| &taint.key));
            let ours: Vec<_> =
                ours.filter(|key| key.starts_with("spot-migrator.io/") || key.starts_with("ToBeDel")).collect();
            assert!(ours.is_empty(), "{} still has {ours:?}", node.name);
            assert_eq!(node.claim, spot_core::node::ClaimAnnotation::Absent, "{}", node.name);
            assert!(!node.unschedulable, "{} is still cordoned", node.name);
        }
    });
}

fn machines_deleted(world: &World) -> Vec<String> {
    let deleted = |fact: &Fact| match fact {
        Fact::MachineDeleted { node, .. } => Some(node.name.to_string()),
        Fact::PodGone { .. }
        | Fact::BudgetOverrun { .. }
        | Fact::NodeJoined { .. }
        | Fact::NodeGone(_)
        | Fact::MachineGone(_) => None,
    };
    world.facts().iter().filter_map(|record| deleted(&record.fact)).collect()
}

const MINUTE: Duration = Duration::from_mins(1);
