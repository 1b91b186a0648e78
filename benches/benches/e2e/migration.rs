//! Twenty nodes, one by one: time and requests of a node.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use spot_tests::control_plane::User;
use spot_tests::{Entry, Verb, World};

use crate::cluster::{self, NODES, PODS_PER_NODE, SPOT_NODES};
use crate::{as_f64, table, verdict};

/// How many pods of a Deployment may be down, where they have budgets.
pub(crate) const DOWN: u32 = 10;

/// What must be reached.
const SECONDS_A_NODE: f64 = 0.25;
const REQUESTS_A_NODE: f64 = 6.0;
const EVICTIONS_A_POD: f64 = 1.05;

/// Migrates everything; with budgets, so many pods of each Deployment may be down.
pub(crate) async fn migration(budget: Option<u32>) -> Result<()> {
    let world = World::start().await;
    cluster::lay_out(&world, SPOT_NODES, |workload| {
        budget.map_or_else(|| workload.clone(), |down| workload.clone().max_unavailable(down))
    })
    .await;
    let process = cluster::migrate(&world).await?;

    let audit = world.audit().await;
    let entries: Vec<_> = audit.by(User::Migrator).collect();
    let stops: Vec<_> = audit.deletes_by(User::Kwok, "pods").map(|entry| entry.at).collect();
    let kind = budget.map_or_else(|| "no budgets".to_owned(), |down| format!("budgets of maxUnavailable {down}"));
    println!("\n{NODES} nodes x {PODS_PER_NODE} pods, one by one, {kind}");
    Requests::of(&entries)?.print(process, &stops);
    Ok(())
}

/// What a migration asked the API server for, watches, leases and events aside.
struct Requests<'a> {
    /// From the first claim to the last deletion of a Node.
    work: Duration,
    all: Vec<&'a Entry>,
    before: Vec<&'a Entry>,
    within: Vec<&'a Entry>,
    evictions: Vec<&'a Entry>,
}

impl<'a> Requests<'a> {
    fn of(entries: &[&'a Entry]) -> Result<Self> {
        let counted = entries.iter().copied().filter(|entry| {
            entry.verb != Verb::Watch
                && !matches!(entry.resource.as_str(), "leases" | "events")
                && !entry.uri.contains("watch=true")
        });
        let (evictions, others): (Vec<_>, Vec<_>) = counted.partition(|entry| entry.is_eviction());
        let first = claim(&others).context("no node was claimed")?;
        let last = others.iter().filter(|entry| is_node_deletion(entry)).map(|entry| entry.at).max();
        let last = last.context("no Node was deleted")?;
        let work = Duration::try_from(last.duration_since(first)).context("the last deletion came before the claim")?;
        let (within, before) = others.into_iter().partition(|entry| entry.at >= first);
        Ok(Self { work, all: entries.to_vec(), before, within, evictions })
    }

    fn print(&self, process: Duration, stops: &[Timestamp]) {
        let (nodes, pods) = (f64::from(NODES), f64::from(NODES * PODS_PER_NODE));
        let work = self.work.as_secs_f64() / nodes;
        println!(
            "  first claim to last deletion  {:>8.3} s  {work:.3} s a node{}",
            self.work.as_secs_f64(),
            verdict(work, SECONDS_A_NODE)
        );
        print_phases(&self.all, stops);
        println!(
            "  the whole process             {:>8.3} s  {:.3} s a node",
            process.as_secs_f64(),
            process.as_secs_f64() / nodes
        );
        let requests = as_f64(self.within.len()) / nodes;
        println!(
            "  requests since the first claim {:>7}    {requests:.2} a node{}",
            self.within.len(),
            verdict(requests, REQUESTS_A_NODE)
        );
        table(&self.within);
        println!("  requests before it             {:>7}", self.before.len());
        table(&self.before);
        let accepted = self.evictions.iter().filter(|entry| entry.succeeded()).count();
        let evictions = as_f64(self.evictions.len()) / pods;
        println!(
            "  evictions                      {:>7}    {evictions:.2} a pod, {accepted} accepted{}",
            self.evictions.len(),
            verdict(evictions, EVICTIONS_A_POD)
        );
    }
}

/// Where the time of a node goes, on average, as the API server saw it; `stops` is when KWOK deleted a pod.
fn print_phases(entries: &[&Entry], stops: &[Timestamp]) {
    let mut sums = [Duration::ZERO; 5];
    let mut nodes = 0;
    let mut before: Option<Timestamp> = None;
    for deletion in entries.iter().filter(|entry| is_node_deletion(entry)) {
        let patches = || {
            let own =
                |entry: &&&Entry| entry.verb == Verb::Patch && entry.resource == "nodes" && entry.name == deletion.name;
            entries.iter().filter(own)
        };
        let Some(claim) = patches().find(|entry| is_claim(entry)).map(|entry| entry.at) else { continue };
        let Some(taint) = patches().map(|entry| entry.at).filter(|at| *at > claim).min() else { continue };
        let evictions = entries.iter().filter(|entry| entry.is_eviction()).map(|entry| entry.at);
        let Some(evicted) = evictions.filter(|at| (claim..taint).contains(at)).max() else { continue };
        let Some(stopped) = stops.iter().copied().filter(|at| (claim..taint).contains(at)).max() else { continue };
        let moments = [before.unwrap_or(claim), claim, evicted, stopped, taint, deletion.at];
        for (sum, pair) in sums.iter_mut().zip(moments.windows(2)) {
            // Evictions run side by side: the first pods are gone before the last is asked for.
            *sum += Duration::try_from(pair[1].duration_since(pair[0])).unwrap_or(Duration::ZERO);
        }
        nodes += 1;
        before = Some(deletion.at);
    }
    let [settled, claimed, stopped, noticed, deleted] = sums.map(|sum| sum / nodes.max(1));
    println!("    of which {claimed:>7.0?} from the claim to the last eviction");
    println!("             {stopped:>7.0?} until KWOK has deleted the last pod");
    println!("             {noticed:>7.0?} from there to the taint");
    println!("             {deleted:>7.0?} from the taint to the deletion");
    println!("             {settled:>7.0?} until it is gone, its pods run elsewhere, and the next is claimed");
}

/// A claim marks the node; the soft taint of those that may go later does not.
fn is_claim(entry: &Entry) -> bool {
    entry.verb == Verb::Patch && entry.body.pointer("/metadata/labels").is_some()
}

fn claim(entries: &[&Entry]) -> Option<Timestamp> {
    entries.iter().filter(|entry| entry.verb == Verb::Patch && entry.resource == "nodes").map(|entry| entry.at).min()
}

fn is_node_deletion(entry: &Entry) -> bool {
    entry.verb == Verb::Delete && entry.resource == "nodes"
}
