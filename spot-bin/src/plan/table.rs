//! The plan as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Table, presets};

use super::{Outlook, Plan, Row, Summary};

/// The table, what would help, and what a run would do first.
pub(super) fn text(plan: &Plan) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["RANK", "NODE", "CLASS", "PREFERENCE", "VERDICT", "REASON"]);
    for row in &plan.nodes {
        table.add_row([
            row.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            row.name.clone(),
            row.class.to_owned(),
            row.preference.unwrap_or("-").to_owned(),
            row.verdict.to_owned(),
            reason(row),
        ]);
    }
    let mut text = String::new();
    for line in table.lines() {
        line_of(&mut text, line.trim());
    }
    let remedies: BTreeMap<_, _> = plan
        .nodes
        .iter()
        .filter(|row| row.verdict == "refused")
        .flat_map(|row| row.reasons.iter().map(|because| (because.kind, because.remedy)))
        .collect();
    if !remedies.is_empty() {
        line_of(&mut text, "\nWhat would help:");
    }
    for (kind, remedy) in remedies {
        line_of(&mut text, &format!("  {kind}: {remedy}"));
    }
    line_of(&mut text, &format!("\n{}\n{}", counts(&plan.summary), outlook(plan)));
    text
}

fn line_of(text: &mut String, line: &str) {
    // Writing into a String has no way to fail.
    let _written = writeln!(text, "{line}");
}

/// The first reason; one stands for many, all of which are in the other formats.
fn reason(row: &Row) -> String {
    match &row.reasons[..] {
        [] => "-".to_owned(),
        [only] => only.detail.clone(),
        [first, more @ ..] => format!("{} (and {} more)", first.detail, more.len()),
    }
}

fn counts(summary: &Summary) -> String {
    let classes: Vec<_> = summary
        .by_class
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(class, count)| format!("{count} {class}"))
        .collect();
    let Summary { nodes, eligible, refused, not_candidates, by_class: _ } = summary;
    let plural = if *nodes == 1 { "node" } else { "nodes" };
    format!(
        "{nodes} {plural} ({}): {eligible} eligible, {refused} refused, {not_candidates} not candidates.",
        classes.join(", ")
    )
}

fn outlook(plan: &Plan) -> String {
    match plan.outlook {
        Outlook::Retire => format!("`run` would first retire {}.", plan.next.join(", ")),
        Outlook::Wait => "`run` would wait: what is in the way may pass by itself.".to_owned(),
        Outlook::AllSpot => "`run` would find nothing to do: no on-demand node is left.".to_owned(),
        Outlook::NothingEligible => "`run` would retire nothing: no candidate may go.".to_owned(),
    }
}
