//! Writes down what a simulated migrator reports.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde::Serialize;
use spot_core::model::Process;
use spot_core::node::NodeRef;
use spot_core::ports::Observer;
use spot_core::progress::{Answered, Outcome, Progress, Report, Step};
use spot_core::reason::Reason;
use spot_core::stop::Stop;

/// One thing that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    /// Since the beginning.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub(super) at: Duration,
    #[serde(flatten)]
    pub(super) what: What,
}

/// What happened. Single evictions are counted by node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum What {
    RunStarted {
        nodes: BTreeMap<&'static str, usize>,
    },
    Judged {
        eligible: usize,
        refused: BTreeMap<&'static str, usize>,
    },
    Waiting {
        nodes: usize,
    },
    StepDone {
        node: String,
        step: &'static str,
        #[serde(rename = "took", serialize_with = "as_seconds")]
        took: Duration,
        #[serde(skip_serializing_if = "Option::is_none")]
        evictions: Option<usize>,
    },
    PodBlocked {
        node: String,
        pod: String,
        obstacle: String,
    },
    Retired {
        node: String,
    },
    Released {
        node: String,
        step: &'static str,
        why: String,
    },
    Postponed {
        node: String,
        why: String,
    },
    Undone {
        node: String,
        undo: String,
    },
    Departing {
        node: String,
        why: String,
    },
    Created {
        node: String,
    },
    Problem {
        node: Option<String>,
        what: String,
    },
    RunEnded {
        outcome: &'static str,
        detail: String,
        retired: usize,
    },
    RunFailed {
        why: String,
    },
    NextRun {
        at: Timestamp,
    },
    /// The process was killed while it worked on this node.
    Killed {
        node: String,
    },
    /// A new process started.
    Started,
}

impl What {
    /// The node that it is about.
    pub(super) fn node(&self) -> Option<&String> {
        match self {
            Self::StepDone { node, .. }
            | Self::PodBlocked { node, .. }
            | Self::Retired { node }
            | Self::Released { node, .. }
            | Self::Postponed { node, .. }
            | Self::Undone { node, .. }
            | Self::Departing { node, .. }
            | Self::Created { node }
            | Self::Killed { node } => Some(node),
            Self::Problem { node, .. } => node.as_ref(),
            Self::RunStarted { .. }
            | Self::Judged { .. }
            | Self::Waiting { .. }
            | Self::RunEnded { .. }
            | Self::RunFailed { .. }
            | Self::NextRun { .. }
            | Self::Started => None,
        }
    }

    /// Whether it happens to every node that goes as planned.
    pub(super) const fn is_routine(&self) -> bool {
        match self {
            Self::StepDone { .. } | Self::Retired { .. } => true,
            Self::RunStarted { .. }
            | Self::Judged { .. }
            | Self::Waiting { .. }
            | Self::PodBlocked { .. }
            | Self::Released { .. }
            | Self::Postponed { .. }
            | Self::Undone { .. }
            | Self::Departing { .. }
            | Self::Created { .. }
            | Self::Problem { .. }
            | Self::RunEnded { .. }
            | Self::RunFailed { .. }
            | Self::NextRun { .. }
            | Self::Killed { .. }
            | Self::Started => false,
        }
    }
}

/// All that was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) timeline: Vec<Entry>,
    pub(super) retired: usize,
    pub(super) evictions: usize,
    pub(super) refused_evictions: usize,
    pub(super) report: Option<Report>,
    /// What each node that was begun went through, and since when; nothing: it was left alone from then on.
    pub(super) phases: BTreeMap<Arc<str>, Vec<(Duration, Option<Phase>)>>,
    /// Why nodes were not to go, as the latest run judged.
    pub(super) refused: BTreeMap<Arc<str>, Vec<Reason>>,
    /// Nodes that were begun.
    begun: usize,
    /// Evictions of the nodes that are being drained.
    draining: BTreeMap<Arc<str>, usize>,
}

/// What a node goes through that is retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Its pods are evicted.
    Drains,
    /// Load balancers take it out.
    Detaches,
    /// Its machine ends, and then its Node.
    Ends,
}

/// Writes down what its witnesses are told, and shows how far it has come.
#[derive(Debug)]
pub(super) struct Recorder {
    start: Timestamp,
    told: Mutex<Told>,
    bar: ProgressBar,
}

/// How long a process is listened to, and what happens to it.
#[derive(Debug)]
pub(super) enum Until {
    /// To its own end.
    Ever,
    /// It is killed in the middle of the drain of the node with this number.
    Killed { process: Process, node: usize },
    /// It is asked to stop after its first run that is more than a recovery.
    Migrated(Stop),
}

/// One process's observer.
struct Witness {
    recorder: Arc<Recorder>,
    until: Until,
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("until", &self.until).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins at that time; shows progress only to somebody who watches.
    pub(super) fn new(start: Timestamp, nodes: usize, watched: bool) -> Self {
        let bar = if watched { ProgressBar::new(nodes as u64) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} nodes retired, {msg}");
        Self {
            start,
            told: Mutex::default(),
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
        }
    }

    /// An observer for one process.
    pub(super) fn witness(self: &Arc<Self>, until: Until) -> Arc<dyn Observer> {
        Arc::new(Witness { recorder: Arc::clone(self), until })
    }

    /// A new process starts.
    pub(super) fn started(&self, at: Timestamp) {
        let at = self.since_start(at);
        self.lock().timeline.push(Entry { at, what: What::Started });
    }

    /// All that was told, once there is nothing more to come.
    pub(super) fn told(&self) -> Told {
        self.bar.finish_and_clear();
        std::mem::take(&mut *self.lock())
    }

    fn since_start(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.start)).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, at: Duration) {
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{} of virtual time", super::timeline::clock(at)));
        }
    }
}

impl Observer for Witness {
    fn observe(&self, at: Timestamp, event: &Progress) {
        let recorder = &*self.recorder;
        let at = recorder.since_start(at);
        let mut told = recorder.lock();
        told.follow(at, event);
        if let Some(what) = told.take_in(event) {
            told.timeline.push(Entry { at, what });
        }
        if matches!(event, Progress::Retired { .. }) {
            recorder.bar.inc(1);
            recorder.show(at);
        }
        match &self.until {
            Until::Ever => {}
            Until::Killed { process, node } => {
                if told.begun == *node
                    && let Some(name) = in_mid_drain(event)
                {
                    told.timeline.push(Entry { at, what: What::Killed { node: name.name.to_string() } });
                    drop(told);
                    process.kill();
                }
            }
            Until::Migrated(stop) => {
                if let Progress::RunEnded { report } = event
                    && report.outcome != Outcome::Recovered
                {
                    stop.set();
                }
            }
        }
    }
}

impl Phase {
    const fn of(step: Step) -> Option<Self> {
        match step {
            Step::Claim | Step::Drain => Some(Self::Drains),
            Step::Taint | Step::Detach => Some(Self::Detaches),
            Step::Delete | Step::AwaitGone => Some(Self::Ends),
            Step::Settle | Step::Release => None,
        }
    }
}

/// The node, if this happens in the middle of its drain, or at the end of one that had nothing to do.
fn in_mid_drain(event: &Progress) -> Option<&NodeRef> {
    match event {
        Progress::Evicted { node, answered: Answered::Accepted, .. }
        | Progress::StepStarted { node, step: Step::Taint } => Some(node),
        _ => None,
    }
}

impl Told {
    /// Keeps what nodes go through, and why others don't.
    fn follow(&mut self, at: Duration, event: &Progress) {
        let (node, phase) = match event {
            Progress::RunStarted { .. } => {
                self.refused.clear();
                return;
            }
            Progress::Refused { node, reasons } => {
                self.refused.insert(Arc::clone(&node.name), reasons.clone());
                return;
            }
            Progress::StepStarted { node, step } => (node, Phase::of(*step)),
            Progress::Retired { node }
            | Progress::Released { node, .. }
            | Progress::Postponed { node, .. }
            | Progress::Undone { node, .. } => (node, None),
            _other => return,
        };
        self.phases.entry(Arc::clone(&node.name)).or_default().push((at, phase));
    }

    /// Counts, and says what belongs into the time line.
    fn take_in(&mut self, event: &Progress) -> Option<What> {
        let name = |node: &NodeRef| node.name.to_string();
        Some(match event {
            Progress::RunStarted { nodes } => {
                What::RunStarted { nodes: nodes.iter().map(|(class, count)| (class.as_str(), *count)).collect() }
            }
            Progress::Judged { eligible, refused } => {
                let refused = refused.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
                What::Judged { eligible: *eligible, refused }
            }
            Progress::Waiting { reasons } => What::Waiting { nodes: reasons.len() },
            Progress::StepStarted { step: Step::Claim, .. } => {
                self.begun += 1;
                return None;
            }
            // What halts a step is told by itself, and those that are refused are counted.
            Progress::Refused { .. }
            | Progress::StepStarted { .. }
            | Progress::StepHalted { .. }
            | Progress::Interruption(_)
            | Progress::Pool(_)
            | Progress::WouldRetire { .. } => return None,
            Progress::StepDone { node, step, took } => {
                let evictions = (*step == Step::Drain).then(|| self.draining.remove(&node.name).unwrap_or_default());
                What::StepDone { node: name(node), step: step.as_str(), took: *took, evictions }
            }
            Progress::Evicted { node, pod: _, loses: _, answered } => {
                match answered {
                    Answered::Accepted => {
                        self.evictions += 1;
                        *self.draining.entry(Arc::clone(&node.name)).or_default() += 1;
                    }
                    Answered::Blocked | Answered::Failed => self.refused_evictions += 1,
                    Answered::Gone => {}
                }
                return None;
            }
            Progress::PodBlocked { node, pod, obstacle, since: _ } => {
                What::PodBlocked { node: name(node), pod: pod.to_string(), obstacle: obstacle.to_string() }
            }
            Progress::Retired { node } => {
                self.retired += 1;
                What::Retired { node: name(node) }
            }
            Progress::Released { node, step, why } => {
                What::Released { node: name(node), step: step.as_str(), why: why.clone() }
            }
            Progress::Postponed { node, why } => What::Postponed { node: name(node), why: why.clone() },
            Progress::Undone { node, undo } => What::Undone { node: name(node), undo: undo.to_string() },
            Progress::Departing { node, why } => What::Departing { node: name(node), why: why.clone() },
            Progress::Created { node } => What::Created { node: name(node) },
            Progress::Problem { node, class: _, what } => {
                What::Problem { node: node.as_ref().map(name), what: what.clone() }
            }
            Progress::Exposed { exposed } => What::Problem { node: None, what: exposed.to_string() },
            Progress::RunEnded { report } => {
                self.report = Some(report.clone());
                What::RunEnded {
                    outcome: report.outcome.kind().as_str(),
                    detail: detail(&report.outcome),
                    retired: report.retired.len(),
                }
            }
            Progress::RunFailed { class: _, why } => What::RunFailed { why: why.clone() },
            Progress::NextRun { at } => What::NextRun { at: *at },
        })
    }
}

/// What is behind an outcome, in words.
pub(super) fn detail(outcome: &Outcome) -> String {
    match outcome {
        Outcome::AllSpot => "no on-demand node is left".to_owned(),
        Outcome::NothingEligible(kinds) => {
            let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            format!("what is left may not go: {}", kinds.join(", "))
        }
        Outcome::SpotExhausted(node) => format!("on-demand node {node} came, so spot is exhausted"),
        Outcome::NotSettled(pending) => format!("what was moved does not run yet: {pending}"),
        Outcome::Recovered => "what an earlier process left is finished".to_owned(),
        Outcome::DryRun(nodes) => format!("{} would go first", nodes.len()),
        Outcome::Stopped => "told to stop".to_owned(),
    }
}

/// To the millisecond, which is finer than anything that happens in the model.
#[expect(clippy::cast_precision_loss, reason = "a simulation lasts less than 2^53 ms")]
pub(super) fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1_000.0
}

fn as_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds(*duration))
}
