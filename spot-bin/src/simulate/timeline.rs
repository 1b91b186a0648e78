//! A simulation as people read it: who was there, what happened, how it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use super::recorder::{Entry, What};
use super::{Cast, Story};

/// More nodes than this are not shown one by one.
const MANY: usize = 12;
/// Of many nodes, so many are shown at the beginning and at the end.
const SHOWN: (usize, usize) = (3, 2);

/// How wide the column of names is, at least and at most.
const NAME: (usize, usize) = (14, 48);

/// The whole text.
pub(super) fn text(story: &Story) -> String {
    let mut text = String::new();
    line_of(
        &mut text,
        &format!("A model of {} (scenario {}, seed {}).\n", cast(&story.cast), story.scenario.as_str(), story.seed),
    );
    let hidden = hidden(&story.timeline);
    let width = story.timeline.iter().filter_map(|entry| entry.what.node()).map(|name| name.chars().count()).max();
    let width = width.unwrap_or_default().clamp(NAME.0, NAME.1);
    let mut told = false;
    for Entry { at, what } in &story.timeline {
        let is_hidden = what.is_routine() && what.node().is_some_and(|node| hidden.contains(node));
        if is_hidden {
            if !told {
                line_of(&mut text, &format!("{:>10}  … and so on: {} …", "", several(hidden.len(), "more node")));
                told = true;
            }
        } else if let Some(words) = words(what) {
            let words = match what.node() {
                Some(node) => format!("{node:<width$} {words}"),
                None => words,
            };
            line_of(&mut text, &format!("{:>10}  {words}", clock(*at)));
        }
    }
    line_of(&mut text, &summary(story));
    if !story.assumptions.is_empty() {
        line_of(&mut text, "\nAssumed:");
    }
    for assumption in &story.assumptions {
        line_of(&mut text, &format!("  - {assumption}"));
    }
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

/// What is told of it, the name of its node aside; nothing of what only takes a moment.
pub(super) fn words(what: &What) -> Option<String> {
    Some(match what {
        What::RunStarted { nodes } => format!("run begins: {}", counts(nodes)),
        What::Judged { eligible, refused } if refused.is_empty() => format!("judged: {eligible} may go"),
        What::Judged { eligible, refused } => format!("judged: {eligible} may go, others not: {}", counts(refused)),
        What::Waiting { nodes } => format!("waiting: what is in the way of {} may pass", several(*nodes, "node")),
        What::StepDone { node: _, step, took, evictions } => {
            let took = brief(*took);
            match (*step, evictions) {
                ("claim", _) => "marked and cordoned".to_owned(),
                ("drain", evictions) => {
                    format!("empty after {took}: {} moved", several(evictions.unwrap_or_default(), "pod"))
                }
                ("detach", _) => format!("out of the load balancers after {took}"),
                ("await_gone", _) => format!("machine and Node gone after {took}"),
                ("settle", _) => format!("its pods run elsewhere after {took}"),
                _ => return None,
            }
        }
        What::Retired { .. } => return None,
        What::PodBlocked { node: _, pod, obstacle } => format!("pod {pod} is in the way: {obstacle}"),
        What::Released { node: _, step, why } => format!("released, because its {step} failed: {why}"),
        What::Postponed { node: _, why } => format!("released, to go another time: {why}"),
        What::Undone { node: _, undo } => format!("taken back by a person: {undo}"),
        What::Departing { node: _, why } => format!("still on its way out: {why}"),
        What::Created { node: _ } => "is new and on-demand: spot is exhausted".to_owned(),
        What::Problem { node: _, what } => format!("problem: {what}"),
        What::RunEnded { outcome, detail, retired } => {
            format!("run ends: {outcome}: {detail}; {} retired", several(*retired, "node"))
        }
        What::RunFailed { why } => format!("run fails: {why}"),
        What::NextRun { at } => format!("next run at {}", at.strftime("%H:%M")),
        What::Killed { node: _ } => "the process is killed in the middle of the drain".to_owned(),
        What::Started => "a new process starts".to_owned(),
    })
}

/// Who is there at the beginning.
pub(super) fn cast(cast: &Cast) -> String {
    let Cast { control_plane, on_demand, spot, others, pods } = *cast;
    let some = |count, what: &str| (count > 0).then(|| several(count, what));
    let nodes = format!("{} with {}", several(on_demand, "on-demand node"), several(pods, "pod"));
    let parts = [
        some(control_plane, "control-plane node"),
        Some(nodes),
        Some(several(spot, "spot node")),
        some(others, "other node"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn summary(story: &Story) -> String {
    let refused = match story.refused_evictions {
        0 => String::new(),
        refused => format!(" ({refused} more refused at first)"),
    };
    let costs = story.costs.as_ref().map(|costs| format!("\n  costs a month  {}", costs.words())).unwrap_or_default();
    format!(
        "\nOutcome: {}: {}\n  nodes retired  {} of {}\n  pods moved     {}{refused}\n  virtual time   {}{costs}",
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

pub(super) fn several(count: usize, what: &str) -> String {
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use spot_core::model::Scenario;

    use super::*;
    use crate::simulate::film::Taken;

    fn step(node: &str, step: &'static str, seconds: u64, evictions: Option<usize>) -> What {
        What::StepDone { node: node.to_owned(), step, took: Duration::from_secs(seconds), evictions }
    }

    fn story(timeline: Vec<(u64, What)>) -> Story {
        let entry = |(seconds, what)| Entry { at: Duration::from_secs(seconds), what };
        Story {
            scenario: Scenario::KilledHalfway,
            seed: 7,
            cast: Cast { control_plane: 1, on_demand: 3, spot: 1, others: 0, pods: 10 },
            outcome: "spot_exhausted",
            detail: "on-demand node od-4 came, so spot is exhausted".to_owned(),
            retired: 2,
            evictions: 11,
            refused_evictions: 4,
            lasted: Duration::from_secs(3_723),
            timeline: timeline.into_iter().map(entry).collect(),
            start: Timestamp::UNIX_EPOCH,
            costs: None,
            kept: Vec::new(),
            assumptions: Vec::new(),
            phases: BTreeMap::new(),
            film: Taken::default(),
        }
    }

    #[test]
    fn everything_that_can_happen_has_its_words() {
        let at: Timestamp = "2026-01-05T01:00:00Z".parse().expect("it is a time");
        let (a, b) = (|| "od-1".to_owned(), || "od-2".to_owned());
        let text = text(&story(vec![
            (0, What::RunStarted { nodes: [("on-demand", 4), ("spot", 1), ("unknown", 0)].into() }),
            (0, What::Judged { eligible: 2, refused: [("budget_allows_none", 1)].into() }),
            (1, What::Waiting { nodes: 1 }),
            (2, step("od-1", "claim", 0, None)),
            (62, What::PodBlocked { node: a(), pod: "default/web".to_owned(), obstacle: "budget web".to_owned() }),
            (70, step("od-1", "drain", 68, Some(4))),
            (70, step("od-1", "taint", 0, None)),
            (130, step("od-1", "detach", 60, None)),
            (130, step("od-1", "delete", 0, None)),
            (165, step("od-1", "await_gone", 35, None)),
            (165, What::Retired { node: a() }),
            (168, step("od-1", "settle", 3, None)),
            (170, What::Killed { node: b() }),
            (180, What::Started),
            (190, What::Released { node: b(), step: "drain", why: "1 pod could not be evicted".to_owned() }),
            (190, What::Postponed { node: b(), why: "no window is open".to_owned() }),
            (191, What::Undone { node: b(), undo: "uncordoned".to_owned() }),
            (192, What::Departing { node: b(), why: "its Node is still there".to_owned() }),
            (193, What::Problem { node: Some(b()), what: "no answer".to_owned() }),
            (194, What::Problem { node: None, what: "no answer".to_owned() }),
            (195, What::NextRun { at }),
            (3_600, What::RunFailed { why: "could not read the cluster".to_owned() }),
            (3_700, What::Created { node: "od-4".to_owned() }),
            (3_723, What::RunEnded { outcome: "spot_exhausted", detail: "od-4 came".to_owned(), retired: 2 }),
        ]));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn of_many_nodes_the_routine_of_the_first_and_the_last_is_told_and_everything_odd() {
        let names: Vec<_> = (1..=20).map(|number| format!("od-{number}")).collect();
        let mut timeline: Vec<_> = names.iter().zip(0..).map(|(node, at)| (at, step(node, "claim", 0, None))).collect();
        timeline.push((20, What::Undone { node: "od-9".to_owned(), undo: "uncordoned".to_owned() }));
        let text = text(&story(timeline));
        let told: Vec<_> = names.iter().filter(|name| text.contains(&format!("{name:<14} marked"))).collect();
        assert_eq!(told, ["od-1", "od-2", "od-3", "od-19", "od-20"]);
        assert_eq!(text.matches("and so on: 15 more nodes").count(), 1);
        assert!(text.contains("od-9           taken back by a person: uncordoned"), "{text}");
    }
}
