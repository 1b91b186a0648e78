//! The drain of one node with fifty pods that stop at once, side by side with `kubectl drain`.
//!
//! Both work on the same control plane, taking turns, each time on a new node with new pods and with the same rights.
//! The audit log tells when they began, what they asked for and when they knew that the node was empty: `kubectl`
//! when it found the last pod gone, the product when it had listed the node's pods once more before it went on. The
//! product does more than that: it also tells what may go, and deletes the node.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use spot_tests::control_plane::User;
use spot_tests::{AuditLog, Entry, Machine, Migrator, Verb, Workload, World, programs};

use crate::{RUN, as_f64, table, verdict};

const PODS: u32 = 50;
const SPOT_NODES: u32 = 2;
/// Each one's turns. Odd, so that one of them is the median.
const TURNS: usize = 5;

/// What must be reached: parts of what `kubectl drain` takes.
const OF_ITS_TIME: f64 = 0.1;
const OF_ITS_REQUESTS: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Kubectl,
    Migrator,
}

/// One drain.
struct Turn {
    /// From the cordon until it knew that the node was empty.
    drain: Duration,
    /// From the cordon until KWOK had deleted the last pod.
    stopped: Duration,
    /// From the start of the process to its end.
    process: Duration,
    /// Requests of the drain, the cordon included.
    requests: usize,
    /// Requests of the process.
    all: usize,
}

pub(crate) async fn drain() -> Result<()> {
    let world = World::start().await;
    let migrator = Migrator::install(&world, json!({"log": {"level": "info"}})).await;
    grant_everything(&world);
    println!("\none node with {PODS} pods that stop at once, in turns");
    println!("                 cordon to empty   last pod gone   requests   whole process   its requests");
    let (mut kubectl, mut product) = (Vec::new(), Vec::new());
    for number in 0..TURNS {
        for (who, turns) in [(Who::Kubectl, &mut kubectl), (Who::Migrator, &mut product)] {
            let last = number + 1 == TURNS;
            let turn = turn(&world, &migrator, who, &format!("{who:?}-{number}").to_lowercase(), last).await?;
            turn.print(&format!("{who:?} {number}"));
            turns.push(turn);
        }
    }
    let time = |turns: &[Turn]| median(turns.iter().map(|turn| turn.drain.as_secs_f64()));
    let requests = |turns: &[Turn]| median(turns.iter().map(|turn| as_f64(turn.requests)));
    let process = |turns: &[Turn]| median(turns.iter().map(|turn| turn.process.as_secs_f64()));
    let all = |turns: &[Turn]| median(turns.iter().map(|turn| as_f64(turn.all)));
    let line = |what: &str, of: &dyn Fn(&[Turn]) -> f64, limit: Option<f64>| {
        let (theirs, ours) = (of(&kubectl), of(&product));
        let part = ours / theirs;
        let verdict = limit.map_or_else(String::new, |limit| verdict(part, limit));
        println!("  {what:<28} kubectl {theirs:>8.3}   product {ours:>8.3}   {part:.3} of it{verdict}");
    };
    println!("  medians");
    line("seconds from cordon to empty", &time, Some(OF_ITS_TIME));
    line("requests of the drain", &requests, Some(OF_ITS_REQUESTS));
    line("seconds of the process", &process, None);
    line("requests of the process", &all, None);
    Ok(())
}

/// The audit log holds all that the product's user asks for: `kubectl` goes by the same, and may do what it needs.
fn grant_everything(world: &World) {
    let group = json!({"kind": "Group", "name": "spot-migrators", "apiGroup": "rbac.authorization.k8s.io"});
    let role = json!({"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"});
    world.apply(&[json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "everything"},
        "subjects": [group],
        "roleRef": role,
    })]);
}

async fn turn(world: &World, migrator: &Migrator, who: Who, name: &str, tells: bool) -> Result<Turn> {
    let (node, web) = (format!("{name}-on-demand"), Workload::deployment(name, PODS));
    world.join(&[Machine::on_demand(&node)]).await;
    world.run(std::slice::from_ref(&web)).await;
    let spot: Vec<_> = (0..SPOT_NODES).map(|number| Machine::spot(&format!("{name}-spot-{number}"))).collect();
    world.join(&spot).await;

    let (begin, start) = (Timestamp::now(), Instant::now());
    match who {
        Who::Kubectl => kubectl_drain(world, &node).await?,
        Who::Migrator => migrator.run_once(RUN).await.assert_code(0),
    }
    let process = start.elapsed();
    world.settled(std::slice::from_ref(&web)).await;

    let audit = world.audit().await;
    let all = requests(&audit, begin);
    let cordon = all.iter().find(|entry| entry.verb == Verb::Patch && entry.resource == "nodes" && entry.name == node);
    let cordon = cordon.context("nobody cordoned the node")?.at;
    let knew = all.iter().filter(|entry| knows(who, entry)).map(|entry| entry.at).max().context("it never looked")?;
    let drain: Vec<_> = all.iter().copied().filter(|entry| (cordon..=knew).contains(&entry.at)).collect();
    let stops = audit.deletes_by(User::Kwok, "pods").map(|entry| entry.at);
    let stopped = stops.filter(|at| (cordon..=knew).contains(at)).max().context("no pod stopped")?;
    let evictions = drain.iter().filter(|entry| entry.is_eviction() && entry.succeeded()).count();
    ensure!(u32::try_from(evictions)? == PODS, "{evictions} evictions of {PODS} pods");
    if tells {
        println!("  what {who:?} asks for, in its last turn");
        table(&drain);
    }
    let turn = Turn {
        drain: Duration::try_from(knew.duration_since(cordon))?,
        stopped: Duration::try_from(stopped.duration_since(cordon))?,
        process,
        requests: drain.len(),
        all: all.len(),
    };
    clear(world, name, &node, &spot).await;
    Ok(turn)
}

/// Whether the request is one by which its sender learns that no pod is left.
fn knows(who: Who, entry: &Entry) -> bool {
    entry.resource == "pods"
        && match who {
            Who::Kubectl => entry.verb == Verb::Get,
            Who::Migrator => entry.verb == Verb::List && !entry.uri.contains("watch=true"),
        }
}

/// What was asked for from then on. Leases and Events are no part of a drain, and a watch counts once, though its
/// beginning and its end are both logged.
fn requests(audit: &AuditLog, begin: Timestamp) -> Vec<&Entry> {
    let mut seen = BTreeSet::new();
    let entries = audit.by(User::Migrator).filter(|entry| entry.at >= begin);
    let counted = entries.filter(|entry| !matches!(entry.resource.as_str(), "leases" | "events"));
    counted.filter(|entry| entry.verb != Verb::Watch || seen.insert((entry.at, &entry.uri))).collect()
}

async fn kubectl_drain(world: &World, node: &str) -> Result<()> {
    let folder = world.control_plane().folder();
    let mut command = Command::new(programs::path("controlplane"));
    command.arg("kubectl").arg("--kubeconfig").arg(world.control_plane().kubeconfig(User::Migrator));
    command.arg("--cache-dir").arg(folder.join("kubectl")).args(["drain", node]).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Removes what a turn left, so that the next finds an empty cluster.
async fn clear(world: &World, name: &str, node: &str, spot: &[Machine]) {
    let _printed: String =
        world.control_plane().kubectl(&["delete", "deployment", name, "--cascade=foreground", "--wait"]);
    let here = world.nodes().await;
    for name in spot.iter().map(Machine::name).chain([node]).filter(|name| here.contains_key(*name)) {
        world.delete_node(name).await;
    }
}

impl Turn {
    fn print(&self, who: &str) {
        println!(
            "  {who:<14} {:>13.3} s {:>13.3} s {:>10} {:>13.3} s {:>14}",
            self.drain.as_secs_f64(),
            self.stopped.as_secs_f64(),
            self.requests,
            self.process.as_secs_f64(),
            self.all
        );
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
