//! A simulation as people read it: who was there, what happened, how it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use super::Story;
use super::recorder::{Entry, What};

/// More nodes than this are not shown one by one.
const MANY: usize = 12;
/// Of many nodes, so many are shown at the beginning and at the end.
const SHOWN: (usize, usize) = (3, 2);

/// The whole text.
pub(super) fn text(story: &Story) -> String {
    let mut text = String::new();
    let cast = &story.cast;
    line_of(
        &mut text,
        &format!(
            "A model of {}, {} with {}, {} (scenario {}, seed {}).\n",
            several(cast.control_plane, "control-plane node"),
            several(cast.on_demand, "on-demand node"),
            several(cast.pods, "pod"),
            several(cast.spot, "spot node"),
            story.scenario.as_str(),
            story.seed,
        ),
    );
    let hidden = hidden(&story.timeline);
    let mut told = false;
    for Entry { at, what } in &story.timeline {
        let is_hidden = what.is_routine() && what.node().is_some_and(|node| hidden.contains(node));
        if is_hidden {
            if !told {
                line_of(&mut text, &format!("{:>10}  … and so on: {} …", "", several(hidden.len(), "more node")));
                told = true;
            }
        } else if let Some(words) = words(what) {
            line_of(&mut text, &format!("{:>10}  {words}", clock(*at)));
        }
    }
    line_of(&mut text, &summary(story));
    text
}

fn line_of(text: &mut String, line: &str) {
    // Writing into a String has no way to fail.
    let _written = writeln!(text, "{line}");
}

/// The nodes of which nothing is told that happens to every node.
fn hidden(timeline: &[Entry]) -> BTreeSet<&String> {
    let mut order: Vec<&String> = Vec::new();
    let mut seen = BTreeSet::new();
    for node in timeline.iter().filter(|entry| entry.what.is_routine()).filter_map(|entry| entry.what.node()) {
        if seen.insert(node) {
            order.push(node);
        }
    }
    if order.len() <= MANY {
        return BTreeSet::new();
    }
    let (first, last) = SHOWN;
    order.iter().skip(first).take(order.len() - first - last).copied().collect()
}

/// What is told of it; nothing of what only takes a moment.
fn words(what: &What) -> Option<String> {
    Some(match what {
        What::RunStarted { nodes } => format!("run begins: {}", counts(nodes)),
        What::Judged { eligible, refused } if refused.is_empty() => format!("judged: {eligible} may go"),
        What::Judged { eligible, refused } => format!("judged: {eligible} may go, others not: {}", counts(refused)),
        What::Waiting { nodes } => format!("waiting: what is in the way of {} may pass", several(*nodes, "node")),
        What::StepDone { node, step, took, evictions } => {
            let took = brief(*took);
            let done = match (*step, evictions) {
                ("claim", _) => "marked and cordoned".to_owned(),
                ("drain", evictions) => {
                    format!("empty after {took}: {} moved", several(evictions.unwrap_or_default(), "pod"))
                }
                ("detach", _) => format!("out of the load balancers after {took}"),
                ("await_gone", _) => format!("machine and Node gone after {took}"),
                ("release", _) => "released".to_owned(),
                _ => return None,
            };
            format!("{node:<14} {done}")
        }
        What::Retired { .. } => return None,
        What::PodBlocked { node, pod, obstacle } => format!("{node:<14} pod {pod} is in the way: {obstacle}"),
        What::Released { node, step, why } => format!("{node:<14} released, because its {step} failed: {why}"),
        What::Undone { node, undo } => format!("{node:<14} taken back by a person: {undo}"),
        What::Departing { node, why } => format!("{node:<14} still on its way out: {why}"),
        What::Created { node } => format!("{node:<14} is new and on-demand: spot is exhausted"),
        What::Problem { node: Some(node), what } => format!("{node:<14} problem: {what}"),
        What::Problem { node: None, what } => format!("problem: {what}"),
        What::RunEnded { outcome, detail, retired } => {
            format!("run ends: {outcome}: {detail}; {} retired", several(*retired, "node"))
        }
        What::RunFailed { why } => format!("run fails: {why}"),
        What::NextRun { at } => format!("next run at {}", at.strftime("%H:%M")),
        What::Killed { node } => format!("{node:<14} the process is killed in the middle of the drain"),
        What::Started => "a new process starts".to_owned(),
    })
}

fn summary(story: &Story) -> String {
    let refused = match story.refused_evictions {
        0 => String::new(),
        refused => format!(" ({refused} more refused at first)"),
    };
    format!(
        "\nOutcome: {}: {}\n  nodes retired  {} of {}\n  pods moved     {}{refused}\n  virtual time   {}",
        story.outcome,
        story.detail,
        story.retired,
        story.cast.on_demand,
        story.evictions,
        clock(story.lasted),
    )
}

fn counts(counts: &BTreeMap<&'static str, usize>) -> String {
    let counts: Vec<_> =
        counts.iter().filter(|(_, count)| **count > 0).map(|(word, count)| format!("{count} {word}")).collect();
    counts.join(", ")
}

fn several(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn brief(duration: Duration) -> String {
    if duration < Duration::from_mins(1) { format!("{:.1} s", duration.as_secs_f64()) } else { clock(duration) }
}

/// Hours, minutes and seconds.
pub(super) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
