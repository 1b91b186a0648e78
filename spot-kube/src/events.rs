//! Progress as Kubernetes Events, on the nodes and pods that it is about.

mod reason;
mod told;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde::Serialize;
use spot_core::drain::plan::Loss;
use spot_core::error::chain;
use spot_core::node::{NodeRef, Uid};
use spot_core::pod::PodRef;
use spot_core::ports::{Clock, Instant, Observer};
use spot_core::progress::{Answered, Progress, Step};
use tokio::sync::mpsc;

pub use self::reason::EventReason;
use crate::requests::{Call, Needs, Requests, escaped};

/// Events that wait to be sent: room for what happens to two hundred nodes at once, whose machines are all taken back.
/// More are dropped and counted.
const WAITING: usize = 1024;

/// Of what comes in crowds, fewer: they must leave room for what happens to nodes.
const WAITING_OF_A_CROWD: usize = 128;

/// The pause after each in the long run: at most fifty a second.
const PAUSE: Duration = Duration::from_millis(20);

/// How much of it can be put off: so that the first hundred go at once.
const CREDIT: Duration = Duration::from_secs(2);

/// How long sending one may take.
const SENDING: Duration = Duration::from_secs(5);

/// How often the same blocked pod is told of.
const BLOCKED_AGAIN: Duration = Duration::from_mins(5);

/// Blocked pods that are remembered for that.
const BLOCKED_PODS: usize = 4096;

/// A name, of at most 253 bytes, has room for what the API server appends.
const LONGEST_BASE: usize = 200;

/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// Publishes progress as Kubernetes Events: an [`Observer`] that never blocks.
pub struct Events {
    queue: mpsc::Sender<Note>,
    dropped: Arc<Dropped>,
    /// When each blocked pod was told of last.
    blocked: Mutex<BTreeMap<Uid, Timestamp>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

/// Sends what [`Events`] queued.
pub struct EventsWorker {
    queue: mpsc::Receiver<Note>,
    dropped: Arc<Dropped>,
    requests: Requests,
    instance: String,
}

impl fmt::Debug for EventsWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventsWorker").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// How many Events were not published.
#[derive(Debug, Default)]
struct Dropped(AtomicU64);

impl Dropped {
    /// One more. The first tells that something is wrong; the count tells the rest.
    fn count(&self, reason: EventReason, error: &str) {
        let reason = reason.as_str();
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(error, reason, "an Event was not published");
        } else {
            tracing::debug!(error, reason, "an Event was not published");
        }
    }
}

/// One Event to be.
#[derive(Debug)]
struct Note {
    at: Timestamp,
    about: About,
    is_warning: bool,
    reason: EventReason,
    action: &'static str,
    text: String,
}

#[derive(Clone, Debug)]
enum About {
    Node(NodeRef),
    Pod(PodRef),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'e> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'e>,
    #[serde(rename = "eventTime")]
    time: String,
    reporting_controller: &'static str,
    reporting_instance: &'e str,
    action: &'static str,
    reason: &'static str,
    regarding: Regarding<'e>,
    note: &'e str,
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'e> {
    generate_name: String,
    namespace: &'e str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Regarding<'e> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'e str>,
    name: &'e str,
    uid: &'e str,
}

impl Events {
    /// An observer, and the worker that has to be [run](EventsWorker::run) beside it. `instance` tells who reports,
    /// such as the pod's name.
    #[must_use]
    pub fn new(client: kube::Client, clock: Arc<dyn Clock>, instance: impl Into<String>) -> (Self, EventsWorker) {
        let (sender, queue) = mpsc::channel(WAITING);
        let dropped = Arc::<Dropped>::default();
        let requests = Requests::new(client, clock);
        let worker = EventsWorker { queue, dropped: Arc::clone(&dropped), requests, instance: instance.into() };
        (Self { queue: sender, dropped, blocked: Mutex::default() }, worker)
    }

    /// How many were dropped, because too many waited or the API server refused them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.0.load(Ordering::Relaxed)
    }

    fn queue(&self, note: Note) {
        let reason = note.reason;
        if let Err(error) = self.queue.try_send(note) {
            self.dropped.count(reason, &error.to_string());
        }
    }

    fn queue_of_a_crowd(&self, note: Note) {
        if self.queue.capacity() > WAITING - WAITING_OF_A_CROWD {
            self.queue(note);
        } else {
            self.dropped.count(note.reason, "too many wait");
        }
    }

    /// Whether the pod was told of a while ago, or never.
    fn tells_again(&self, pod: &PodRef, at: Timestamp) -> bool {
        let mut blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        let recently =
            |told: &Timestamp| Duration::try_from(at.duration_since(*told)).is_ok_and(|passed| passed < BLOCKED_AGAIN);
        if blocked.get(&pod.uid).is_some_and(recently) {
            return false;
        }
        if blocked.len() >= BLOCKED_PODS {
            blocked.clear();
        }
        blocked.insert(pod.uid.clone(), at);
        true
    }
}

impl Observer for Events {
    fn observe(&self, at: Timestamp, event: &Progress) {
        use EventReason::{Claimed, Departing, Drained, Evicted, Exposed, PodBlocked};
        use EventReason::{Postponed, Refused, Released, Retired, SpotExhausted, Undone};

        let note =
            |about, is_warning, reason, action, text: String| Note { at, about, is_warning, reason, action, text };
        let about = |node: &NodeRef| About::Node(node.clone());
        match event {
            Progress::StepDone { node: on, step: Step::Claim, .. } => {
                self.queue(note(about(on), false, Claimed, "Claim", "cordoned: its pods are moved off it".to_owned()));
            }
            Progress::StepDone { node: on, step: Step::Drain, took } => {
                let text = format!("its pods are gone, after {} s", took.as_secs());
                self.queue(note(about(on), false, Drained, "Drain", text));
            }
            Progress::Retired { node: on } => {
                self.queue(note(about(on), false, Retired, "Retire", "the node and its machine are gone".to_owned()));
            }
            Progress::Released { node: on, step, why } => {
                let text = format!("released, because its {step} failed: {why}");
                self.queue(note(about(on), true, Released, "Release", text));
            }
            Progress::Postponed { node: on, why } => {
                self.queue(note(
                    about(on),
                    false,
                    Postponed,
                    "Release",
                    format!("released, to go another time: {why}"),
                ));
            }
            Progress::Undone { node: on, undo } => {
                self.queue(note(about(on), false, Undone, "Release", format!("taken back by a person: {undo}")));
            }
            Progress::Departing { node: on, why } => {
                self.queue(note(about(on), true, Departing, "Delete", format!("still on its way out: {why}")));
            }
            Progress::Created { node: on } => {
                let text = "came while on-demand nodes were retired: spot is exhausted".to_owned();
                self.queue(note(about(on), true, SpotExhausted, "Stop", text));
            }
            Progress::Refused { node: on, reasons } => {
                let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
                let text = format!("may not be retired now: {}", reasons.join("; "));
                self.queue_of_a_crowd(note(about(on), false, Refused, "Judge", text));
            }
            Progress::Evicted { node: on, pod, loses, answered: Answered::Accepted } => {
                let lost = match loses {
                    None => "",
                    Some(Loss::Pod) => ": no controller brings it back",
                    Some(Loss::LocalData) => ": what is in its emptyDir volumes is lost",
                };
                let text = format!("moved off node {on}, which is being retired{lost}");
                self.queue_of_a_crowd(note(About::Pod(pod.clone()), loses.is_some(), Evicted, "Drain", text));
            }
            Progress::PodBlocked { node: on, pod, obstacle, since } => {
                if self.tells_again(pod, at) {
                    let text = format!("pod {pod} has been in the way for {} s: {obstacle}", since.as_secs());
                    self.queue(note(about(on), true, PodBlocked, "Drain", text));
                    let text = format!("can't be moved off node {on} for {} s: {obstacle}", since.as_secs());
                    self.queue(note(About::Pod(pod.clone()), true, PodBlocked, "Drain", text));
                }
            }
            Progress::Exposed { exposed } => {
                if let Some(pod) = exposed.pods.first() {
                    self.queue(note(About::Pod(pod.clone()), true, Exposed, "Drain", exposed.to_string()));
                }
            }
            Progress::Interruption(told) => {
                if let Some(note) = told::note(at, told) {
                    self.queue(note);
                }
            }
            Progress::RunStarted { .. }
            | Progress::Judged { .. }
            | Progress::WouldRetire { .. }
            | Progress::Waiting { .. }
            | Progress::StepStarted { .. }
            | Progress::StepDone { .. }
            | Progress::StepHalted { .. }
            | Progress::Evicted { .. }
            | Progress::Problem { .. }
            | Progress::RunEnded { .. }
            | Progress::RunFailed { .. }
            | Progress::Pool(_)
            | Progress::NextRun { .. } => {}
        }
    }
}

impl EventsWorker {
    /// Sends what is queued, until the [`Events`] is dropped and the queue is empty. One that can't be sent is dropped.
    pub async fn run(mut self) {
        let clock = Arc::clone(self.requests.clock());
        // When the pauses of all that were sent are over.
        let mut due = clock.instant();
        while let Some(note) = self.queue.recv().await {
            let call = self.call(&note);
            let failed = match self.requests.once(&call, clock.instant() + SENDING, None).await {
                Ok(reply) if reply.is_success() => None,
                Ok(reply) => Some(reply.error(&call)),
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                self.dropped.count(note.reason, &chain(&error));
            }
            due = due.max(clock.instant()) + PAUSE;
            clock.sleep_until(Instant(due.0.saturating_sub(CREDIT))).await;
        }
    }

    fn call(&self, note: &Note) -> Call {
        let regarding = match &note.about {
            About::Node(on) => {
                Regarding { api_version: "v1", kind: "Node", namespace: None, name: &on.name, uid: on.uid.as_str() }
            }
            About::Pod(pod) => Regarding {
                api_version: "v1",
                kind: "Pod",
                namespace: Some(&pod.namespace),
                name: &pod.name,
                uid: pod.uid.as_str(),
            },
        };
        // Events about what has no namespace belong there.
        let namespace = regarding.namespace.unwrap_or("default");
        let event = Event {
            api_version: "events.k8s.io/v1",
            kind: "Event",
            metadata: Metadata { generate_name: format!("{}-", cut(regarding.name, LONGEST_BASE)), namespace },
            time: note.at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            reporting_controller: "spot-migrator.io/spot-migrator",
            reporting_instance: cut(&self.instance, 128),
            action: note.action,
            reason: note.reason.as_str(),
            note: cut(&note.text, LONGEST_NOTE),
            r#type: if note.is_warning { "Warning" } else { "Normal" },
            regarding,
        };
        let uri = format!("/apis/events.k8s.io/v1/namespaces/{}/events", escaped(namespace));
        let needs = Needs { verb: "create", resource: "events" };
        // Writing plain structs of strings to JSON can't fail.
        let body = serde_json::to_vec(&event).unwrap_or_default();
        Call::new(Method::POST, needs, "", uri, body)
    }
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}
