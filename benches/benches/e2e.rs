//! The product on a real control plane: how long a node takes, what it asks the API server for, how much memory it
//! needs.
//!
//! Twenty on-demand nodes with ten pods each are migrated one by one, by the process that users run. Machines are
//! instant (KWOK), the wait for load balancers is zero and the clients' limits are raised, so that what is measured is
//! the migration and the API server. It needs the release build of the binary: `cargo build --release -p spot-bin`.

#![expect(clippy::print_stdout, reason = "what a bench is for")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use spot_tests::control_plane::{User, free_port};
use spot_tests::wait::{PATIENCE, until};
use spot_tests::{Entry, Machine, Migrator, Running, Verb, Workload, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const NODES: u32 = 20;
const PODS_PER_NODE: u32 = 10;
/// Fewer Deployments than nodes, so that each node holds pods of all of them.
const DEPLOYMENTS: u32 = 10;
const SPOT_NODES: u32 = 4;

/// What must be reached.
const SECONDS_A_NODE: f64 = 0.25;
const REQUESTS_A_NODE: f64 = 6.0;
const EVICTIONS_A_POD: f64 = 1.05;
const IDLE_MEBIBYTES: f64 = 20.0;

/// How long a run may take: far longer than it should.
const RUN: Duration = Duration::from_mins(3);

#[tokio::main]
async fn main() -> Result<()> {
    // Cargo's own argument; a filter that names another bench asks for nothing here.
    let filter: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if !filter.is_empty() && !filter.iter().any(|word| "e2e".contains(word.as_str())) {
        return Ok(());
    }
    migration(None).await?;
    migration(Some(DEPLOYMENTS)).await?;
    idle().await
}

/// Migrates everything; with budgets, so many pods of each Deployment may be down.
async fn migration(budget: Option<u32>) -> Result<()> {
    let world = World::start().await;
    let on_demand: Vec<_> = (0..NODES).map(|number| Machine::on_demand(&format!("on-demand-{number}"))).collect();
    world.join(&on_demand).await;
    let replicas = NODES * PODS_PER_NODE / DEPLOYMENTS;
    let workloads: Vec<_> = (0..DEPLOYMENTS)
        .map(|number| Workload::deployment(&format!("web-{number}"), replicas))
        .map(|workload| budget.map_or_else(|| workload.clone(), |down| workload.clone().max_unavailable(down)))
        .collect();
    world.run(&workloads).await;
    let spot: Vec<_> = (0..SPOT_NODES).map(|number| Machine::spot(&format!("spot-{number}"))).collect();
    world.join(&spot).await;
    let migrator = Migrator::install(&world, json!({"log": {"level": "info"}})).await;

    let start = Instant::now();
    let ended = migrator.run_once(RUN).await;
    let process = start.elapsed();
    ended.assert_code(0);
    let left = world.nodes().await.len();
    ensure!(left == spot.len(), "{left} nodes are left, of which {} are spot", spot.len());

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

/// How many of each kind.
fn table(entries: &[&Entry]) {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries {
        let slash = if entry.subresource.is_empty() { "" } else { "/" };
        let kind = format!("{:?} {}{slash}{} -> {}", entry.verb, entry.resource, entry.subresource, entry.code);
        *kinds.entry(kind).or_default() += 1;
    }
    for (kind, count) in kinds {
        println!("    {count:>6}  {kind}");
    }
}

/// The resident memory of a process that waits for its schedule, in the cluster as it is before a migration.
async fn idle() -> Result<()> {
    let world = World::start().await;
    let machines: Vec<_> = (0..NODES + SPOT_NODES).map(|number| Machine::spot(&format!("spot-{number}"))).collect();
    world.join(&machines).await;
    world.run(&[Workload::deployment("web", NODES * PODS_PER_NODE)]).await;
    let address = format!("127.0.0.1:{}", free_port());
    let changes = json!({"schedule": "0 0 29 2 *", "server": {"address": address}, "log": {"level": "info"}});
    let running = Migrator::install(&world, changes).await.run(&[]);
    until("the migrator to be ready", PATIENCE, || is_ready(&address)).await;
    let resident = steady(&running).await;
    println!(
        "\nidle, {} nodes and {} pods: {resident:.1} MiB resident{}",
        machines.len(),
        NODES * PODS_PER_NODE,
        verdict(resident, IDLE_MEBIBYTES)
    );
    running.terminate(RUN).await.assert_code(0);
    Ok(())
}

async fn is_ready(address: &str) -> Result<(), String> {
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = answer.await.map_err(|error| error.to_string())?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
}

/// Its memory once it no longer changes, in MiB.
async fn steady(running: &Running) -> f64 {
    let mut before = 0;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = running.process().resident();
        if now == before {
            break;
        }
        before = now;
    }
    let kibibytes = u32::try_from(before / 1024).unwrap_or(u32::MAX);
    f64::from(kibibytes) / 1024.0
}

fn verdict(figure: f64, limit: f64) -> String {
    let word = if figure <= limit { "reached" } else { "MISSED" };
    format!(" (at most {limit}: {word})")
}

fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
