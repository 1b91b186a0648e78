//! What is told.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use spot_core::error::ErrorClass;
use spot_core::interruption::{NoticeKind, Told};
use spot_core::progress::{Outcome, Progress, Report, Step};

use crate::cost::{Dollars, dollars};
use crate::feature::Feature;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A node begins to be retired.
    NodeClaimed,
    /// The retirement of a node failed.
    NodeReleased,
    /// A run ended that did something, or could not.
    RunEnded,
    /// A run could not go on.
    RunFailed,
    /// A node's machine is taken away: it was cordoned.
    Interrupted,
    /// It was empty in time.
    Emptied,
    /// It was not.
    NotEmptied,
    /// The process goes on without something that its configuration asks for.
    FeatureDisabled,
}

impl Kind {
    pub(super) const ALL: [Self; 8] = [
        Self::NodeClaimed,
        Self::NodeReleased,
        Self::RunEnded,
        Self::RunFailed,
        Self::Interrupted,
        Self::Emptied,
        Self::NotEmptied,
        Self::FeatureDisabled,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::NodeClaimed => "node_claimed",
            Self::NodeReleased => "node_released",
            Self::RunEnded => "run_ended",
            Self::RunFailed => "run_failed",
            Self::Interrupted => "interrupted",
            Self::Emptied => "emptied",
            Self::NotEmptied => "not_emptied",
            Self::FeatureDisabled => "feature_disabled",
        }
    }
}

/// One message: the variables of a template.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// Whether somebody ought to look.
    pub(super) is_warning: bool,
    pub(super) at: String,
    /// One sentence for people.
    pub(super) text: String,
    pub(super) node: Option<String>,
    pub(super) why: Option<String>,
    pub(super) outcome: Option<&'static str>,
    /// Dollars that the retired nodes cost less a month on spot, as far as prices are known.
    pub(super) saves_a_month: Option<f64>,
    pub(super) retired: Vec<String>,
    pub(super) failed: Vec<Failed>,
}

/// A node whose retirement failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Failed {
    pub(super) node: String,
    pub(super) why: String,
}

impl Message {
    /// That this part does nothing, and why.
    pub(super) fn without(at: Timestamp, feature: Feature, why: String) -> Self {
        let text = format!("disabled: {}, which is refused what it needs: {why}", feature.as_str());
        Self { is_warning: true, why: Some(why), ..Self::new(Kind::FeatureDisabled, at, text) }
    }

    /// What is worth telling of this; `saved` is asked for what the nodes of a run cost less an hour on spot.
    pub(super) fn of(at: Timestamp, event: &Progress, saved: impl Fn() -> f64) -> Option<Self> {
        match event {
            Progress::StepDone { node, step: Step::Claim, took: _ } => {
                let text = format!("node {node} is being retired: its pods are moved");
                Some(Self { node: Some(node.to_string()), ..Self::new(Kind::NodeClaimed, at, text) })
            }
            Progress::Released { node, step, why } => {
                let text = format!("node {node} was released, because its {step} failed: {why}");
                let (node, why) = (Some(node.to_string()), Some(why.clone()));
                Some(Self { is_warning: true, node, why, ..Self::new(Kind::NodeReleased, at, text) })
            }
            Progress::RunEnded { report } => Self::of_run(at, report, saved()),
            // Without the lead another process goes on.
            Progress::RunFailed { class, why } if *class != ErrorClass::NotLeader => {
                let text = format!("a run failed: {why}");
                Some(Self { is_warning: true, why: Some(why.clone()), ..Self::new(Kind::RunFailed, at, text) })
            }
            Progress::Interruption(told) => Self::of_notice(at, told),
            Progress::RunStarted { .. }
            | Progress::Judged { .. }
            | Progress::Refused { .. }
            | Progress::WouldRetire { .. }
            | Progress::Waiting { .. }
            | Progress::StepStarted { .. }
            | Progress::StepDone { .. }
            | Progress::StepHalted { .. }
            | Progress::Evicted { .. }
            | Progress::Retired { .. }
            | Progress::PodBlocked { .. }
            | Progress::Exposed { .. }
            | Progress::Postponed { .. }
            | Progress::Undone { .. }
            | Progress::Departing { .. }
            | Progress::Created { .. }
            | Progress::Problem { .. }
            | Progress::RunFailed { .. }
            | Progress::Pool(_)
            | Progress::NextRun { .. } => None,
        }
    }

    /// Runs in which nothing happened are many.
    fn of_run(at: Timestamp, report: &Report, saved: f64) -> Option<Self> {
        let is_told = match report.outcome {
            Outcome::SpotExhausted(_) | Outcome::NotSettled(_) => true,
            Outcome::AllSpot
            | Outcome::NothingEligible(_)
            | Outcome::Recovered
            | Outcome::DryRun(_)
            | Outcome::Stopped => !(report.retired.is_empty() && report.failed.is_empty()),
        };
        let outcome = report.outcome.kind().as_str();
        let (retired, failed) = (report.retired.len(), report.failed.len());
        let mut text = format!("a run ended ({outcome}): {} retired, {failed} failed", nodes(retired));
        if let Some((node, why)) = report.failed.first() {
            let _infallible = write!(text, "; node {node}: {why}");
        }
        let month = (saved > 0.0).then(|| Dollars::monthly(saved).0);
        if let Some(month) = month {
            let _infallible = write!(text, "; saves {} a month", dollars(month));
        }
        is_told.then(|| Self {
            is_warning: failed > 0 || matches!(report.outcome, Outcome::SpotExhausted(_) | Outcome::NotSettled(_)),
            outcome: Some(outcome),
            saves_a_month: month,
            retired: report.retired.iter().map(ToString::to_string).collect(),
            failed: report
                .failed
                .iter()
                .map(|(node, why)| Failed { node: node.to_string(), why: why.clone() })
                .collect(),
            ..Self::new(Kind::RunEnded, at, text)
        })
    }

    fn of_notice(at: Timestamp, told: &Told) -> Option<Self> {
        let (kind, node, why, text) = match told {
            Told::Cordoned { node, kind, after: _ } => {
                (Kind::Interrupted, node, None, format!("{}: node {node} is being emptied", announced(*kind)))
            }
            Told::Emptied { node, kind: _, after: _ } => {
                (Kind::Emptied, node, None, format!("node {node} is empty, and its machine may go"))
            }
            Told::NotEmptied { node, kind: _, why } => {
                (Kind::NotEmptied, node, Some(why.clone()), format!("node {node} was not empty in time: {why}"))
            }
            Told::Polled { .. }
            | Told::Received { .. }
            | Told::Ignored { .. }
            | Told::Held { .. }
            | Told::Softened { .. }
            | Told::Hardened { .. }
            | Told::Returned { .. } => return None,
        };
        let is_warning = kind != Kind::Emptied;
        Some(Self { is_warning, node: Some(node.to_string()), why, ..Self::new(kind, at, text) })
    }

    /// One of each kind, to try a template on: with all that it may hold, and with as little as it may.
    pub(super) fn samples() -> impl Iterator<Item = Self> {
        let at = Timestamp::UNIX_EPOCH;
        let bare = Kind::ALL.map(|kind| Self::new(kind, at, "text".to_owned()));
        let full = bare.clone().map(|message| Self {
            text: "<!text> & \"quotes\", a \\ and\na line".to_owned(),
            node: Some("node".to_owned()),
            why: Some("why".to_owned()),
            outcome: Some("all_spot"),
            saves_a_month: Some(1234.5),
            retired: vec!["a".to_owned(), "b".to_owned()],
            failed: vec![Failed { node: "c".to_owned(), why: "why".to_owned() }],
            ..message
        });
        bare.into_iter().chain(full)
    }

    fn new(kind: Kind, at: Timestamp, text: String) -> Self {
        Self {
            kind,
            is_warning: false,
            at: at.to_string(),
            text,
            node: None,
            why: None,
            outcome: None,
            saves_a_month: None,
            retired: Vec::new(),
            failed: Vec::new(),
        }
    }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

const fn announced(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Interruption => "a spot machine is taken back",
        NoticeKind::Rebalance => "a spot machine may be taken back soon",
        NoticeKind::ScheduledChange => "a machine is scheduled to be retired, rebooted or worked on",
        NoticeKind::TerminateAction => "a group terminates a machine",
        NoticeKind::LaunchAction => "a group launched a machine",
        NoticeKind::StateChange => "a machine stops, or is gone",
    }
}
