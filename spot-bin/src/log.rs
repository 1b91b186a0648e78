//! What the core reports, as log lines: one for each step, with its fields.

use jiff::Timestamp;
use spot_core::error::ErrorClass;
use spot_core::node::NodeRef;
use spot_core::ports::Observer;
use spot_core::progress::{Answered, Outcome, Progress, Report};
use tracing::{debug, error, info, warn};

/// Writes a line for everything that is reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Observer for Log {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        match event {
            Progress::RunStarted { nodes } => {
                let nodes: Vec<_> = nodes.iter().map(|(class, count)| format!("{class}={count}")).collect();
                info!(nodes = nodes.join(" "), "run started");
            }
            Progress::Judged { eligible, refused } => {
                let refused: Vec<_> = refused.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
                info!(eligible, refused = refused.join(" "), "nodes judged");
            }
            Progress::WouldRetire { node } => info!(%node, "dry run: would be retired next"),
            Progress::Waiting { reasons } => {
                info!(nodes = reasons.len(), "waiting: what is in the way may pass by itself");
                for (node, reason) in reasons {
                    debug!(%node, %reason, remedy = reason.kind().remedy(), "in the way");
                }
            }
            Progress::StepStarted { node, step } => debug!(%node, %step, outcome = "begun", "step"),
            Progress::StepDone { node, step, took } => {
                info!(%node, %step, outcome = "done", seconds = took.as_secs_f64(), "step");
            }
            Progress::Evicted { node, pod, answered } => match answered {
                Answered::Accepted | Answered::Gone | Answered::Blocked => {
                    debug!(%node, %pod, answer = answered.as_str(), "eviction");
                }
                Answered::Failed => warn!(%node, %pod, answer = answered.as_str(), "eviction"),
            },
            Progress::PodBlocked { node, pod, obstacle, since } => {
                warn!(%node, %pod, %obstacle, seconds = since.as_secs(), "a pod is in the way");
            }
            Progress::Retired { node } => info!(%node, "node retired"),
            Progress::Released { node, step, why } => {
                error!(%node, %step, outcome = "failed", why, "node released: its retirement failed");
            }
            Progress::Undone { node, undo } => warn!(%node, %undo, "node released: a person took it back"),
            Progress::Departing { node, why } => {
                warn!(%node, why, "deletion accepted, or its answer unknown; the node is still there");
            }
            Progress::Created { node } => {
                warn!(%node, "an on-demand node came while nodes were being retired: spot is exhausted");
            }
            Progress::Problem { node, class, what } => problem(node.as_ref(), *class, what),
            Progress::RunEnded { report } => ended(report),
            Progress::RunFailed { why } => error!(why, "run failed"),
            Progress::NextRun { at } => info!(%at, "next run"),
        }
    }
}

fn problem(node: Option<&NodeRef>, class: ErrorClass, what: &str) {
    let node = node.map(|node| tracing::field::display(&node.name));
    warn!(node, class = class.as_str(), what, "problem");
}

fn ended(report: &Report) {
    let Report { outcome, retired, failed, undone, departing, evictions } = report;
    let detail = match outcome {
        Outcome::AllSpot | Outcome::Recovered | Outcome::Stopped => String::new(),
        Outcome::NothingEligible(kinds) => {
            kinds.iter().map(|(kind, count)| format!("{kind}={count}")).collect::<Vec<_>>().join(" ")
        }
        Outcome::SpotExhausted(node) => format!("node {node} came"),
        Outcome::NotSettled(pending) => pending.clone(),
        Outcome::DryRun(nodes) => nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    info!(
        outcome = outcome.kind().as_str(),
        detail,
        retired = retired.len(),
        failed = failed.len(),
        undone = undone.len(),
        departing = departing.len(),
        evictions,
        "run ended"
    );
}
