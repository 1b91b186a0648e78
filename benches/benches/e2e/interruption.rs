//! Machines that are taken back together: how long after its message could be read a node is cordoned, and when the
//! evictions begin.
//!
//! SQS is a double that answers each request after 10 ms, about as the real one does in its own region. The audit log
//! tells when a request arrived, and the double when a message could be read, both by this machine's clock.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;
use spot_tests::aws::REGION;
use spot_tests::control_plane::User;
use spot_tests::sqs::Happened;
use spot_tests::{Machine, Migrator, Sqs, Verb, Workload, World, notice, rights};

use crate::verdict;

/// How many notices come together, one round after the other.
const ROUNDS: [u32; 3] = [1, 20, 200];
const PODS_PER_NODE: u32 = 10;
/// Fewer Deployments than nodes, so that each node holds pods of all of them.
const DEPLOYMENTS: u32 = 10;

/// What must be reached, in seconds.
const MEDIAN: f64 = 0.25;
const LAST: f64 = 1.0;
const EVICTIONS: f64 = 10.0;

/// How long a round may take: far longer than it should.
const PATIENCE: Duration = Duration::from_mins(4);

pub(crate) async fn interruption() -> Result<()> {
    let world = World::start().await;
    let sqs = Sqs::start().await;
    let queue = sqs.queue("interruptions");
    let nodes: u32 = ROUNDS.iter().sum();
    let machine = |number: u32| Machine::spot(&format!("worker-{number}")).instance(&notice::instance(number));
    world.join(&(0..nodes).map(machine).collect::<Vec<_>>()).await;
    let replicas = nodes * PODS_PER_NODE / DEPLOYMENTS;
    let workload = |number| Workload::deployment(&format!("web-{number}"), replicas);
    let workloads: Vec<_> = (0..DEPLOYMENTS).map(workload).collect();
    world.run(&workloads).await;
    let configuration = json!({
        "schedule": "@every 1h",
        "cloudProvider": {"aws": {"region": REGION, "endpointUrl": sqs.endpoint()}},
        "interruption": {"queueUrl": queue.url()},
        "log": {"level": "info"},
    });
    let migrator = Migrator::install(&world, configuration).await.with_environment(sqs.environment("PRODUCT"));
    rights::grant_answers(&world).await;
    let running = migrator.run(&[]);
    let mut first = 0;
    for notices in ROUNDS {
        spot_tests::wait::until("the queue to be read", PATIENCE, || async {
            if sqs.waiting() > 0 { Ok(()) } else { Err(running.process().output()) }
        })
        .await;
        let mut hosts = BTreeMap::new();
        for workload in &workloads {
            let pods = world.pods(workload).await.into_iter();
            hosts.extend(pods.filter_map(|pod| Some((pod.uid()?, pod.spec?.node_name?))));
        }
        let leaving: Vec<_> = (first..first + notices).collect();
        first += notices;
        let announce = |number: &u32| notice::interruption(&notice::instance(*number), "terminate");
        let messages = queue.send_all(leaving.iter().map(announce));
        queue.deleted(&messages, PATIENCE).await;

        let audit = world.audit().await;
        let (mut read, mut cordoned, mut evicted) = (Vec::new(), Vec::new(), Vec::new());
        for (number, message) in leaving.iter().zip(&messages) {
            let name = format!("worker-{number}");
            let sent = queue.story(message)[0].at;
            let since = |at: Timestamp| at.duration_since(sent).as_secs_f64();
            let received = queue.when(message, |what| what == Happened::Received);
            read.push(since(received.context("a message was not read")?));
            let mut patches = audit.writes_by(User::Migrator).filter(|entry| entry.verb == Verb::Patch);
            let cordon = patches.find(|entry| entry.name == name && entry.body["spec"]["unschedulable"] == true);
            cordoned.push(since(cordon.with_context(|| format!("{name} is not cordoned"))?.at));
            let here = |uid: Option<&str>| uid.and_then(|uid| hosts.get(uid)).is_some_and(|host| *host == name);
            let eviction = audit.evictions_by(User::Migrator).find(|entry| here(entry.uid_precondition()));
            evicted.extend(eviction.map(|entry| since(entry.at)));
        }
        println!("\n{notices} of {nodes} machines taken back together, {PODS_PER_NODE} pods each");
        row("message read", &mut read, None);
        row("cordon arrived", &mut cordoned, Some((MEDIAN, LAST)));
        row("first eviction arrived", &mut evicted, Some((EVICTIONS, EVICTIONS)));
    }
    Ok(())
}

/// Median and last of so many seconds, with what must be reached.
fn row(what: &str, seconds: &mut [f64], limits: Option<(f64, f64)>) {
    seconds.sort_by(f64::total_cmp);
    let (Some(median), Some(last)) = (seconds.get(seconds.len() / 2).copied(), seconds.last().copied()) else {
        return println!("  {what:<24} never");
    };
    let verdicts = limits.map(|(first, second)| (verdict(median, first), verdict(last, second)));
    let (of_median, of_last) = verdicts.unwrap_or_default();
    println!("  {what:<24} median {median:.3} s{of_median}, last {last:.3} s{of_last}");
}
