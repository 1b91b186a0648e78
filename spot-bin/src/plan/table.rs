//! The plan as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::Style;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use spot_aws::prices::Prices;

use super::{Because, Outlook, Plan, Row, Summary};
use crate::cost::{Bill, Sum, dollars};
use crate::output::{DOUBTFUL, FAINT, GOOD, STRONG, styled};

/// More nodes than this have all their reasons in the other formats only.
const NODES: usize = 20;
/// More reasons than this of one node are counted.
const REASONS: usize = 8;

/// Which columns there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// What a run goes by.
    Few,
    /// What else is known of the nodes.
    All,
}

/// The table, what is in the way and would help, what it costs, and what a run would do first. Lines are broken at
/// `width`, if there is one.
pub(super) fn text(plan: &Plan, columns: Columns, width: Option<u16>) -> String {
    let mut text = String::new();
    nodes(&mut text, plan, columns, width);
    let refused: Vec<_> = plan.nodes.iter().filter(|row| row.verdict == "refused").collect();
    in_the_way(&mut text, &refused);
    remedies(&mut text, &refused);
    if let Some(bill) = &plan.costs {
        costs(&mut text, bill);
    }
    line_of(&mut text, &format!("\n{}", counts(&plan.summary)));
    if let Some(refused) = refused_by(&plan.summary) {
        line_of(&mut text, &refused);
    }
    if let Some(saving) = plan.costs.as_ref().and_then(|bill| saving(&bill.total)) {
        line_of(&mut text, &saving);
    }
    line_of(&mut text, &styled(STRONG, &outlook(plan)));
    text
}

fn nodes(text: &mut String, plan: &Plan, columns: Columns, width: Option<u16>) {
    let wide = columns == Columns::All;
    let of_wide = ["POOL", "TYPE", "ZONE", "PODS", "A MONTH"].into_iter().filter(|_| wide);
    let mut table = plain();
    table.set_header(["RANK", "NODE", "CLASS"].into_iter().chain(of_wide).chain(["PREFERENCE", "VERDICT", "REASON"]));
    if let Some(width) = width {
        // Each cell has a space before and behind it, and lines lose the first.
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.saturating_add(1));
    }
    for row in &plan.nodes {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let of_wide = || {
            let monthly = row.monthly.map_or_else(|| "-".to_owned(), |monthly| dollars(monthly.0));
            [or_dash(&row.pool), or_dash(&row.instance_type), or_dash(&row.zone), row.pods.to_string(), monthly]
        };
        let first =
            [row.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()), row.name.clone(), row.class.to_owned()];
        let last = [row.preference.unwrap_or("-").to_owned(), row.verdict.to_owned(), reason(row)];
        let of_wide = wide.then(of_wide).into_iter().flatten();
        table.add_row(first.into_iter().chain(of_wide).chain(last));
    }
    // A row may be broken into several lines, of which only the first has a rank.
    let mut styles = plan.nodes.iter().map(style);
    let mut current = FAINT;
    for line in table.lines() {
        let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
        if line.starts_with("RANK") {
            line_of(text, &styled(STRONG, line));
            continue;
        }
        if !line.starts_with(' ') {
            current = styles.next().unwrap_or_default();
        }
        line_of(text, &styled(current, line));
    }
}

fn style(row: &Row) -> Style {
    match row.verdict {
        "eligible" => GOOD,
        "refused" => DOUBTFUL,
        _not_a_candidate => FAINT,
    }
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}

fn line_of(text: &mut String, line: &str) {
    // Writing into a String has no way to fail.
    let _written = writeln!(text, "{line}");
}

/// The only reason, or how many there are of each kind: all of them stand below, or in the other formats.
fn reason(row: &Row) -> String {
    match &row.reasons[..] {
        [] => "-".to_owned(),
        [only] => only.detail.clone(),
        several => {
            let mut kinds: Vec<(&str, usize)> = Vec::new();
            for because in several {
                match kinds.iter_mut().find(|(kind, _)| *kind == because.kind) {
                    Some((_, count)) => *count += 1,
                    None => kinds.push((because.kind, 1)),
                }
            }
            kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Everything that is in the way of nodes with more than one reason.
fn in_the_way(text: &mut String, refused: &[&Row]) {
    let many: Vec<_> = refused.iter().filter(|row| row.reasons.len() > 1).collect();
    if many.is_empty() {
        return;
    }
    line_of(text, "\nIn the way:");
    let width = many.iter().take(NODES).map(|row| row.name.chars().count()).max().unwrap_or_default();
    for row in many.iter().take(NODES) {
        let hidden = row.reasons.len().saturating_sub(REASONS);
        let shown = row.reasons.iter().take(REASONS).map(|because| because.detail.clone());
        let more = (hidden > 0).then(|| format!("and {hidden} more, which `-o json` shows"));
        for (at, line) in shown.chain(more).enumerate() {
            let name = if at == 0 { row.name.as_str() } else { "" };
            line_of(text, &format!("  {name:<width$}  {line}"));
        }
    }
    if many.len() > NODES {
        line_of(text, &format!("  and {} more nodes, which `-o json` shows", many.len() - NODES));
    }
}

fn remedies(text: &mut String, refused: &[&Row]) {
    let of = |because: &Because| (because.kind, because.remedy);
    let remedies: BTreeMap<_, _> = refused.iter().flat_map(|row| row.reasons.iter().map(of)).collect();
    if !remedies.is_empty() {
        line_of(text, "\nWhat would help:");
    }
    for (kind, remedy) in remedies {
        line_of(text, &format!("  {kind}: {remedy}"));
    }
}

fn costs(text: &mut String, bill: &Bill) {
    let mut table = plain();
    table.set_header(["POOL", "ON-DEMAND", "SPOT", "A MONTH", "ALL ON SPOT", "SAVES"]);
    let total = (bill.pools.len() > 1).then_some(("total", &bill.total));
    for (pool, sum) in bill.pools.iter().map(|(pool, sum)| (pool.as_str(), sum)).chain(total) {
        let Sum { on_demand, spot, monthly, saving, .. } = sum;
        let known = |is_known: bool, amount: f64| if is_known { dollars(amount) } else { "-".to_owned() };
        let (is_priced, is_compared) = (sum.is_priced(), sum.is_compared());
        table.add_row([
            pool.to_owned(),
            on_demand.to_string(),
            spot.to_string(),
            known(is_priced, monthly.0),
            known(is_priced && (is_compared || *on_demand == 0), monthly.0 - saving.0),
            known(is_compared, saving.0),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line_of(text, "\nCosts:");
    for line in table.lines() {
        line_of(text, &format!(" {}", line.trim_end()));
    }
    if let Some(unknown) = unknown(&bill.total) {
        line_of(text, &format!("  {unknown}"));
    }
}

/// What the costs leave out.
fn unknown(total: &Sum) -> Option<String> {
    let nodes = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let unpriced = nodes(total.unpriced, "without a known price");
    let of_spot = nodes(total.without_spot_price, "on-demand without a known price on spot");
    let left_out: Vec<_> = unpriced.into_iter().chain(of_spot).collect();
    (!left_out.is_empty()).then(|| {
        let day = Prices::shipped_as_of();
        let left_out = left_out.join(", ");
        format!(
            "Left out: {left_out}. Built in are on-demand prices of us-east-1 of {day}; `--prices FILE` adds others."
        )
    })
}

fn saving(total: &Sum) -> Option<String> {
    (total.is_compared() && total.saving.0 > 0.0).then(|| {
        let (monthly, saving) = (dollars(total.monthly.0), dollars(total.saving.0));
        let on_spot = dollars(total.monthly.0 - total.saving.0);
        format!("All on spot would cost {on_spot} a month instead of {monthly}: {saving} less.")
    })
}

fn counts(summary: &Summary) -> String {
    let classes = listed(&summary.by_class);
    let Summary { nodes, eligible, refused, not_candidates, by_class: _, refused_by: _ } = summary;
    let plural = if *nodes == 1 { "node" } else { "nodes" };
    format!("{nodes} {plural} ({classes}): {eligible} eligible, {refused} refused, {not_candidates} not candidates.")
}

fn refused_by(summary: &Summary) -> Option<String> {
    (!summary.refused_by.is_empty()).then(|| format!("Refused by: {}.", listed(&summary.refused_by)))
}

fn listed(counts: &BTreeMap<&'static str, usize>) -> String {
    let counts = counts.iter().filter(|(_, count)| **count > 0);
    counts.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

fn outlook(plan: &Plan) -> String {
    match plan.outlook {
        Outlook::Retire => format!("`run` would first retire {}.", plan.next.join(", ")),
        Outlook::Wait => "`run` would wait: what is in the way may pass by itself.".to_owned(),
        Outlook::AllSpot => "`run` would find nothing to do: no on-demand node is left.".to_owned(),
        Outlook::NothingEligible => "`run` would retire nothing: no candidate may go.".to_owned(),
    }
}
