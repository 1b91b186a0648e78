//! The plan as a table.

mod layout;

use std::collections::BTreeMap;

use anstyle::Style;

use self::layout::Column::{Left, Right};
use self::layout::{Grid, paragraph};
use super::{Because, Outlook, Plan, Row, Summary};
use crate::cost::{self, Bill, Sum, dollars};
use crate::output::{DOUBTFUL, FAINT, GOOD, STRONG, styled};

/// How most of it is written.
const PLAIN: Style = Style::new();

/// More nodes than this, or groups of such with the same reasons, have all their reasons in the other formats only.
const NODES: usize = 20;
/// More reasons than this of one node are counted.
const REASONS: usize = 8;
/// More names than this in a sentence are counted.
const NAMES: usize = 3;

/// Which columns there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// What a run goes by.
    Few,
    /// What else is known of the nodes.
    All,
}

/// The text, and how wide it may be.
struct Page {
    text: String,
    width: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// What a part is called, after an empty line.
    fn head(&mut self, title: &str) {
        self.line("");
        self.say(STRONG, 0, title);
    }

    /// A text that is indented so far, and further lines of it a little more.
    fn say(&mut self, style: Style, indent: usize, text: &str) {
        for line in paragraph(" ".repeat(indent), indent + 2, text, self.width) {
            self.line(&styled(style, &line));
        }
    }

    fn grid(&mut self, grid: &Grid) {
        for line in grid.lines(self.width) {
            self.line(&line);
        }
    }
}

/// The table, what is in the way and would help, what it costs, and what a run would do first. Lines are broken at
/// `width`, if there is one.
pub(super) fn text(plan: &Plan, columns: Columns, width: Option<usize>) -> String {
    let mut page = Page { text: String::new(), width: width.unwrap_or(usize::MAX) };
    page.grid(&nodes(plan, columns));
    let refused: Vec<_> = plan.nodes.iter().filter(|row| row.verdict == "refused").collect();
    in_the_way(&mut page, &refused);
    remedies(&mut page, &refused);
    if let Some(bill) = &plan.costs {
        costs(&mut page, bill);
    }
    page.line("");
    page.say(PLAIN, 0, &counts(&plan.summary));
    if let Some(refused) = refused_by(&plan.summary) {
        page.say(PLAIN, 0, &refused);
    }
    if let Some(saving) = plan.costs.as_ref().and_then(|bill| saving(&bill.total)) {
        page.say(PLAIN, 0, &saving);
    }
    page.say(STRONG, 0, &outlook(plan));
    page.text
}

fn nodes(plan: &Plan, columns: Columns) -> Grid {
    let wide = columns == Columns::All;
    let first = [Left("RANK"), Left("NODE"), Left("CLASS")];
    let of_wide = [Left("POOL"), Left("TYPE"), Left("ZONE"), Right("PODS"), Right("A MONTH"), Left("PREFERENCE")];
    let of_wide = of_wide.into_iter().filter(|_| wide);
    let mut grid = Grid::new(0, first.into_iter().chain(of_wide).chain([Left("VERDICT"), Left("REASON")]));
    let dash = || "-".to_owned();
    for row in &plan.nodes {
        let of_wide = || {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(dash);
            let monthly = row.monthly.map_or_else(dash, |monthly| dollars(monthly.0));
            let preference = row.preference.unwrap_or("-").to_owned();
            [
                or_dash(&row.pool),
                or_dash(&row.instance_type),
                or_dash(&row.zone),
                row.pods.to_string(),
                monthly,
                preference,
            ]
        };
        let first = [row.rank.map_or_else(dash, |rank| rank.to_string()), row.name.clone(), row.class.to_owned()];
        let of_wide = wide.then(of_wide).into_iter().flatten();
        grid.row(style(row), first.into_iter().chain(of_wide).chain([row.verdict.to_owned(), reason(row)]));
    }
    grid
}

fn style(row: &Row) -> Style {
    match row.verdict {
        "eligible" => GOOD,
        "refused" => DOUBTFUL,
        _not_a_candidate => FAINT,
    }
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

/// Everything that is in the way of nodes with more than one reason; once of those with the same.
fn in_the_way(page: &mut Page, refused: &[&Row]) {
    let mut groups: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    for row in refused.iter().filter(|row| row.reasons.len() > 1) {
        let reasons = sentences(&row.reasons);
        match groups.iter_mut().find(|(of, _)| *of == reasons) {
            Some((_, names)) => names.push(&row.name),
            None => groups.push((reasons, vec![&row.name])),
        }
    }
    if groups.is_empty() {
        return;
    }
    page.head("In the way:");
    for (reasons, names) in groups.iter().take(NODES) {
        page.say(DOUBTFUL, 2, &some(names));
        for reason in reasons.iter().take(REASONS) {
            page.say(PLAIN, 4, reason);
        }
        if reasons.len() > REASONS {
            page.say(PLAIN, 4, &format!("and {} more, which `-o json` shows", reasons.len() - REASONS));
        }
    }
    let hidden: usize = groups.iter().skip(NODES).map(|(_, names)| names.len()).sum();
    if hidden > 0 {
        page.say(PLAIN, 2, &format!("and {hidden} more nodes, which `-o json` shows"));
    }
}

/// What these reasons say. Those that differ in their pod alone are one.
fn sentences(reasons: &[Because]) -> Vec<String> {
    let mut groups: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for because in reasons {
        let (before, rest) = because.detail.split_once(" pod ").unwrap_or((&because.detail, ""));
        let (pod, behind) = rest.split_at(rest.find([' ', ',']).unwrap_or(rest.len()));
        match groups.iter_mut().find(|(around, _)| *around == (before, behind)) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push(((before, behind), vec![pod])),
        }
    }
    let sentence = |((before, behind), pods): ((&str, &str), Vec<&str>)| match &pods[..] {
        ["", ..] => before.to_owned(),
        [pod] => format!("{before} pod {pod}{behind}"),
        pods => format!("{before} pods {}{}", some(pods), behind.replacen(" is ", " are ", 1)),
    };
    groups.into_iter().map(sentence).collect()
}

/// The first of these names, and how many more there are.
fn some(names: &[&str]) -> String {
    let hidden = names.len().saturating_sub(NAMES);
    let more = (hidden > 0).then(|| format!("{hidden} more"));
    let parts: Vec<_> = names.iter().take(NAMES).map(|name| (*name).to_owned()).chain(more).collect();
    match &parts[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        parts => parts.concat(),
    }
}

fn remedies(page: &mut Page, refused: &[&Row]) {
    let of = |because: &Because| (because.kind, because.remedy);
    let remedies: BTreeMap<_, _> = refused.iter().flat_map(|row| row.reasons.iter().map(of)).collect();
    if !remedies.is_empty() {
        page.head("What would help:");
    }
    for (kind, remedy) in remedies {
        page.say(PLAIN, 2, &format!("{kind}: {remedy}"));
    }
}

fn costs(page: &mut Page, bill: &Bill) {
    let columns =
        [Left("POOL"), Right("ON-DEMAND"), Right("SPOT"), Right("A MONTH"), Right("ALL ON SPOT"), Right("SAVES")];
    let mut grid = Grid::new(2, columns);
    let total = (bill.pools.len() > 1).then_some(("total", &bill.total));
    for (pool, sum) in bill.pools.iter().map(|(pool, sum)| (pool.as_str(), sum)).chain(total) {
        let Sum { on_demand, spot, monthly, saving, .. } = sum;
        let known = |is_known: bool, amount: f64| if is_known { dollars(amount) } else { "-".to_owned() };
        let (is_priced, is_compared) = (sum.is_priced(), sum.is_compared());
        let cells = [
            pool.to_owned(),
            on_demand.to_string(),
            spot.to_string(),
            known(is_priced, monthly.0),
            known(is_priced && (is_compared || sum.may_be_spot == 0), monthly.0 - saving.0),
            known(is_compared, saving.0),
        ];
        grid.row(PLAIN, cells);
    }
    page.head("Costs:");
    page.grid(&grid);
    if let Some(unknown) = unknown(&bill.total) {
        page.say(PLAIN, 2, &unknown);
    }
}

/// What the costs leave out.
fn unknown(total: &Sum) -> Option<String> {
    let nodes = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let unpriced = nodes(total.unpriced, "without a known price");
    let of_spot = nodes(total.without_spot_price, "on-demand without a known price on spot");
    let left_out: Vec<_> = unpriced.into_iter().chain(of_spot).collect();
    (!left_out.is_empty()).then(|| format!("Left out: {}. {}", left_out.join(", "), cost::built_in()))
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

#[cfg(test)]
mod tests;
