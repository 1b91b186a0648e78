//! Notices on the model: what is answered, when, and how, whatever fails.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy's allowance for tests does not reach their helpers: a test that can't go on is to fail"
)]

mod answers;
mod embedding;
mod faults;
mod messages;
mod obstacles;
mod pressure;
mod returns;
mod unread;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use spot_core::Migrator;
use spot_core::error::RunError;
use spot_core::interruption::{Handled, Hold, InterruptionSettings, Interruptions, NoticeKind, Told};
use spot_core::migrator::Settings;
use spot_core::model::{self, Call, Fact, Halt, Invariants, Limits, Model, Process, Removal, World};
use spot_core::node::{ClaimAnnotation, NodeSnapshot, key};
use spot_core::ports::{Edit, Instant, Observer};
use spot_core::progress::Progress;
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Remembers all progress, and when it was told.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(Timestamp, Progress)>>>);

impl Observer for Notes {
    fn observe(&self, at: Timestamp, event: &Progress) {
        self.0.lock().unwrap().push((at, event.clone()));
    }
}

impl Notes {
    fn all(&self) -> Vec<Progress> {
        self.0.lock().unwrap().iter().map(|(_, event)| event.clone()).collect()
    }

    /// What was told of notices.
    fn told(&self) -> Vec<Told> {
        let told = |event: Progress| match event {
            Progress::Interruption(told) => Some(told),
            _other => None,
        };
        self.all().into_iter().filter_map(told).collect()
    }

    /// The nodes that were cordoned, each as often as it was, in order, and how long after the notice.
    fn cordoned(&self) -> Vec<(String, Duration)> {
        let cordoned = |told: &Told| match told {
            Told::Cordoned { node, after, .. } => Some((node.name.to_string(), *after)),
            _other => None,
        };
        self.told().iter().filter_map(cordoned).collect()
    }

    fn emptied(&self) -> Vec<(String, NoticeKind)> {
        let emptied = |told: &Told| match told {
            Told::Emptied { node, kind, .. } => Some((node.name.to_string(), *kind)),
            _other => None,
        };
        self.told().iter().filter_map(emptied).collect()
    }

    fn returned(&self) -> Vec<String> {
        let returned = |told: &Told| match told {
            Told::Returned { node, .. } => Some(node.name.to_string()),
            _other => None,
        };
        self.told().iter().filter_map(returned).collect()
    }

    fn ignored(&self) -> Vec<&'static str> {
        let ignored = |told: &Told| match told {
            Told::Ignored { why, .. } => Some(why.as_str()),
            _other => None,
        };
        self.told().iter().filter_map(ignored).collect()
    }
}

fn settings() -> InterruptionSettings {
    InterruptionSettings::default()
}

/// A new process answers notices for so long, and is told to end then; what it told.
fn answering(model: &Model, settings: &InterruptionSettings, lasts: Duration) -> Notes {
    let notes = Notes::default();
    let ended = try_answering(model, &model.process(), settings, lasts, &notes);
    ended.expect("it ends").expect("only a lost lease ends it");
    notes
}

fn try_answering(
    model: &Model,
    process: &Process,
    settings: &InterruptionSettings,
    lasts: Duration,
    notes: &Notes,
) -> Result<Result<(), RunError>, Halt> {
    let ports = process.ports_alone(Arc::new(notes.clone()));
    let interruptions = Interruptions::new(ports, process.notices(), settings.clone(), Hold::default());
    let stop = stop_after(model, lasts);
    model::block_on(model, async { interruptions.run(&stop).await })
}

/// A new process that migrates, and answers notices beside it, for so long.
fn both(model: &Model, planned: &Settings, settings: &InterruptionSettings, lasts: Duration) -> Notes {
    let notes = Notes::default();
    let (process, hold, stop) = (model.process(), Hold::default(), stop_after(model, lasts));
    let ports = process.ports_alone(Arc::new(notes.clone()));
    let migrator = Migrator::new(ports.clone(), planned.clone()).with_hold(hold.clone());
    let interruptions = Interruptions::new(ports, process.notices(), settings.clone(), hold);
    let work = future::join(Box::pin(migrator.run(&stop)), Box::pin(interruptions.run(&stop)));
    let (migrated, answered) = model::block_on(model, work).expect("both end");
    migrated.unwrap();
    answered.unwrap();
    notes
}

fn planned() -> Settings {
    Settings::new(Schedule::parse("@hourly", &TimeZone::UTC).unwrap())
}

/// What a cluster-autoscaler that starts does to a node.
fn take_off(world: &mut World) {
    world.edit_node("spot-1", |node| {
        node.unschedulable = false;
        node.taints.retain(|taint| taint.key != key::TO_BE_DELETED);
    });
}

fn stop_after(model: &Model, lasts: Duration) -> Stop {
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(lasts, move |_| asked.set()));
    stop
}

/// Checks the promises after each call from now on.
fn watch(model: &Model) -> Invariants {
    Invariants::watch(model, Limits::default())
}

/// The promises were kept so far.
fn kept(model: &Model, invariants: &Invariants) {
    let broken = invariants.at_the_end(model);
    assert!(broken.is_empty(), "{broken:#?}");
}

fn now(model: &Model) -> Instant {
    model.with(|world| world.now())
}

fn node(model: &Model, name: &str) -> Arc<NodeSnapshot> {
    model.with(|world| world.node(name).map(Arc::clone)).expect("it is there")
}

fn exists(model: &Model, name: &str) -> bool {
    model.with(|world| world.node(name).is_some())
}

fn calls(model: &Model, matches: impl Fn(&Call) -> bool) -> usize {
    model.with(|world| world.calls().iter().filter(|record| matches(&record.call)).count())
}

fn is_eviction(call: &Call) -> bool {
    matches!(call, Call::Evict { .. })
}

fn is_pod_deletion(call: &Call) -> bool {
    matches!(call, Call::DeletePod { .. })
}

/// Whether it records a claim.
fn is_claim(call: &Call) -> bool {
    matches!(call, Call::WriteNode { change, .. } if matches!(change.claim, Edit::Set(_)))
}

fn evicting(name: &'static str) -> impl Fn(&Call) -> bool {
    move |call| matches!(call, Call::Evict { pod, .. } if pod.name.starts_with(name))
}

/// How the pods went that ran on this node and ought to have been moved, and when.
fn departures(model: &Model, node: &str) -> Vec<(String, Removal, Instant)> {
    model.with(|world| {
        let gone = |at: Instant, fact: &Fact| match fact {
            Fact::PodGone { pod, node: Some(from), removal, movable: true } if **from == *node => {
                Some((pod.name.to_string(), *removal, at))
            }
            _other => None,
        };
        world.facts().iter().filter_map(|record| gone(record.at, &record.fact)).collect()
    })
}

/// Whether nothing of ours is on the node.
fn is_clean(node: &NodeSnapshot) -> bool {
    let ours = |key: &String| key.starts_with("spot-migrator.io/") || *key == key::TO_BE_DELETED;
    node.claim == ClaimAnnotation::Absent
        && !node.unschedulable
        && !node.labels.keys().any(ours)
        && !node.taints.iter().any(|taint| ours(&taint.key))
}
