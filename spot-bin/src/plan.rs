//! `plan`: what a run would do, and why. It reads, and writes nothing.

mod gather;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;
use spot_core::capacity::Class;
use spot_core::decision::{Preference, is_control_plane};
use spot_core::judge::{Batch, Judgement, Verdict};
use spot_core::node::{Node, NodeSnapshot};
use spot_core::reason::{Reason, ReasonKind, Span};
use spot_core::view::View;

use self::gather::Gathered;
use self::table::Columns;
use crate::cli::{Environment, PlanArgs, PlanOutput};
use crate::cost::{self, Bill, Dollars, PriceBook};
use crate::exit::{Exit, Fault};
use crate::output;

/// The judgement of every node, in the order in which they would go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The nodes that a run would retire first, side by side.
    next: Vec<String>,
    /// Why there is none, or what comes before.
    outlook: Outlook,
    summary: Summary,
    /// What the nodes cost; none where no price is known.
    costs: Option<Bill>,
    nodes: Vec<Row>,
}

/// What a run would do first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outlook {
    /// Retire these nodes.
    Retire,
    /// Wait: what is in the way may pass by itself.
    Wait,
    /// Nothing: no candidate is left.
    AllSpot,
    /// Nothing: no candidate may go.
    NothingEligible,
}

/// How many nodes of each kind there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    nodes: usize,
    eligible: usize,
    refused: usize,
    not_candidates: usize,
    by_class: BTreeMap<&'static str, usize>,
    /// Refused nodes by each of their reasons.
    refused_by: BTreeMap<&'static str, usize>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    class: &'static str,
    pool: Option<String>,
    instance_type: Option<String>,
    zone: Option<String>,
    /// How many pods are on it, whatever they are.
    pods: usize,
    /// What it costs a month, if that is known.
    monthly: Option<Dollars>,
    /// When it would go, counted from 1; only nodes that may go have one.
    rank: Option<usize>,
    /// Why it has this rank; only candidates have one.
    preference: Option<&'static str>,
    verdict: &'static str,
    reasons: Vec<Because>,
}

/// Why a node may not go, or is none of those that are looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Because {
    pub(crate) kind: &'static str,
    pub(crate) detail: String,
    /// Whether it may pass by itself within minutes.
    pub(crate) transient: bool,
    pub(crate) remedy: &'static str,
}

/// Prints the plan.
///
/// # Errors
/// When arguments or configuration are wrong, a file or the cluster can't be read, or nothing can be printed.
pub fn plan(args: &PlanArgs, overrides: &BTreeMap<String, String>, environment: &Environment) -> Result<Exit, Fault> {
    let Gathered { plan, notes } = gather::plan(args, overrides, environment)?;
    notes.iter().for_each(output::note);
    let width = output::width(environment.get("COLUMNS"));
    output::result(&match args.output {
        PlanOutput::Text => table::text(&plan, Columns::Few, width),
        PlanOutput::Wide => table::text(&plan, Columns::All, width),
        PlanOutput::Json => format!("{}\n", serde_json::to_string_pretty(&plan).context("can't write JSON")?),
        PlanOutput::Yaml => serde_saphyr::to_string(&plan).context("can't write YAML")?,
    })?;
    Ok(if plan.next.is_empty() { Exit::Orderly } else { Exit::more_to_do(args.detailed_exit_code) })
}

impl Plan {
    /// What this judgement of the nodes of a view says, for a migrator that runs on `own_node`.
    fn of(
        judgement: &Judgement<'_, Arc<NodeSnapshot>>,
        view: &View,
        own_node: Option<&str>,
        prices: &PriceBook,
    ) -> Self {
        let mut rank = 0;
        let mut row = |node: &Arc<NodeSnapshot>, verdict| {
            let class = judgement.class(node);
            let preference = Some(Preference::of(node, own_node).as_str());
            let (verdict, preference, reasons) = match verdict {
                Verdict::Eligible => ("eligible", preference, Vec::new()),
                Verdict::Refused(reasons) => ("refused", preference, reasons.iter().map(Because::from).collect()),
                Verdict::NotACandidate => ("not_a_candidate", None, vec![not_a_candidate(node, class)]),
            };
            let eligible = verdict == "eligible";
            rank += usize::from(eligible);
            Row {
                name: node.name().to_owned(),
                class: class.as_str(),
                pool: cost::pool(node).map(str::to_owned),
                instance_type: cost::instance_type(node).map(str::to_owned),
                zone: cost::zone(node).map(str::to_owned),
                pods: view.pods_on(node.name()).count(),
                monthly: prices.of(node).now(class).map(Dollars::monthly),
                rank: eligible.then_some(rank),
                preference,
                verdict,
                reasons,
            }
        };
        let nodes: Vec<_> = judgement.verdicts().into_iter().map(|(node, verdict)| row(node, verdict)).collect();
        let (outlook, next) = match judgement.batch() {
            Batch::Nodes(nodes) => (Outlook::Retire, nodes.iter().map(|node| node.name().to_owned()).collect()),
            Batch::Wait(_) => (Outlook::Wait, Vec::new()),
            Batch::AllSpot => (Outlook::AllSpot, Vec::new()),
            Batch::Nobody(_) => (Outlook::NothingEligible, Vec::new()),
        };
        let bill = Bill::of(view.nodes().iter().map(|node| (node, judgement.class(node))), prices);
        Self { next, outlook, summary: Summary::of(&nodes), costs: bill.is_known().then_some(bill), nodes }
    }
}

impl Summary {
    fn of(rows: &[Row]) -> Self {
        let of = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
        let mut by_class: BTreeMap<_, _> = Class::ALL.map(|class| (class.as_str(), 0)).into();
        let mut refused_by = BTreeMap::new();
        for row in rows {
            *by_class.entry(row.class).or_default() += 1;
            let is_refused = row.verdict == "refused";
            let kinds: BTreeSet<_> = row.reasons.iter().filter(|_| is_refused).map(|because| because.kind).collect();
            for kind in kinds {
                *refused_by.entry(kind).or_default() += 1;
            }
        }
        Self {
            nodes: rows.len(),
            eligible: of("eligible"),
            refused: of("refused"),
            not_candidates: of("not_a_candidate"),
            by_class,
            refused_by,
        }
    }
}

impl From<&Reason> for Because {
    fn from(reason: &Reason) -> Self {
        Self {
            kind: reason.kind().as_str(),
            detail: reason.to_string(),
            transient: reason.span() == Span::Transient,
            remedy: reason.kind().remedy(),
        }
    }
}

fn not_a_candidate(node: &impl Node, class: Class) -> Because {
    let because = |kind, remedy| Because { kind, detail: kind.to_owned(), transient: false, remedy };
    if is_control_plane(node) {
        return because(ReasonKind::ControlPlane.as_str(), ReasonKind::ControlPlane.remedy());
    }
    match class {
        Class::Spot => because("spot", "nothing to do: it is where workloads ought to run"),
        Class::Reserved => because("reserved", "nothing to do: its machine is paid for in advance"),
        Class::OnDemand | Class::Unknown => {
            because("not_selected", "let `selection.nodeSelector` match the node's labels to retire it")
        }
    }
}

#[cfg(test)]
mod tests;
