//! Two hundred machines are taken back within a second.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt;
use serde_json::json;
use spot_tests::{Workload, control_plane::User, notice, sqs::Happened};

use crate::{Cluster, DRAINED, RECEIVED, cordons, evictions, interruption, spot};

const NODES: u32 = 200;
const PODS_PER_NODE: u32 = 10;
/// Fewer Deployments than nodes, so that each node holds pods of all of them.
const DEPLOYMENTS: u32 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_notices_within_a_second_are_each_answered_once_and_cordons_go_first() {
    let cluster = Cluster::start().await;
    let nodes: Vec<_> = (0..NODES).map(|number| spot(&format!("worker-{number}"), number)).collect();
    cluster.world.join(&nodes).await;
    let replicas = NODES * PODS_PER_NODE / DEPLOYMENTS;
    let workloads: Vec<_> =
        (0..DEPLOYMENTS).map(|number| Workload::deployment(&format!("web-{number}"), replicas)).collect();
    cluster.world.run(&workloads).await;
    let mut hosts = BTreeMap::new();
    for workload in &workloads {
        let pods = cluster.world.pods(workload).await.into_iter();
        hosts.extend(pods.filter_map(|pod| Some((pod.uid()?, pod.spec?.node_name?))));
    }
    let running = cluster.running(json!({"log": {"level": "info"}})).await;

    let messages = cluster.queue.send_all((0..NODES).map(interruption));
    cluster.queue.deleted(&messages, Duration::from_mins(4)).await;

    let audit = cluster.world.audit().await;
    let sent: Vec<_> = messages.iter().map(|id| cluster.queue.story(id)[0].at).collect();
    let mut waits = Vec::new();
    let mut cordoned = Vec::new();
    for (node, sent) in nodes.iter().zip(&sent) {
        let cordon: Vec<_> = cordons(&audit, node.name()).map(|entry| entry.at).collect();
        assert_eq!(cordon.len(), 1, "{} is cordoned once: {cordon:?}", node.name());
        waits.push(Duration::try_from(cordon[0].duration_since(*sent)).expect("effects follow causes"));
        cordoned.push(cordon[0]);
    }
    let times = evictions(&audit);
    assert!(hosts.keys().all(|uid| times.contains_key(uid)), "every pod is evicted");
    assert!(times.values().all(|times| *times == 1), "each of them once");
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "pods").map(ToString::to_string).collect();
    assert_eq!(deleted, Vec::<String>::new(), "no budget was in the way");
    for id in &messages {
        assert_eq!(cluster.queue.received(id), 1, "nothing is read twice: {:?}", cluster.queue.story(id));
    }
    let interruptions = [("kind", "spot_interruption")];
    assert_eq!(running.metric(RECEIVED, &interruptions), u64::from(NODES));
    assert_eq!(running.metric(DRAINED, &[("kind", "spot_interruption"), ("result", "emptied")]), u64::from(NODES));

    let mut first = BTreeMap::new();
    for entry in audit.evictions_by(User::Migrator) {
        if let Some(host) = entry.uid_precondition().and_then(|uid| hosts.get(uid)) {
            first.entry(host).or_insert(entry.at);
        }
    }
    assert_eq!(first.len(), nodes.len());
    let begun = first.values().max().expect("there were evictions").duration_since(sent[0]);
    waits.sort();
    // The scheduler may have been faster than a cordon.
    println!("{} of {} pods had to move twice", times.len() - hosts.len(), hosts.len());
    println!("from when a message could be read until its node's cordon arrived at the API server:");
    print!("{}", histogram(&waits));
    println!(
        "median {:?}, last {:?}; the last node's first eviction arrived after {begun:#}",
        waits[waits.len() / 2],
        waits[waits.len() - 1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_duplicates_of_one_message_are_one_drain() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("worker-a", 1), spot("worker-b", 2)]).await;
    let web = Workload::deployment("web", 6).spec("terminationGracePeriodSeconds", json!(5)).stop_after("5s");
    cluster.run(&web).await;
    let on_a = cluster.world.pods_on("worker-a").await.len();
    let running = cluster.running(json!({})).await;

    // One event: ten messages of it, of which the first is delivered ten times more.
    let event = notice::interruption(&notice::instance(1), "terminate");
    let messages = cluster.queue.send_all(vec![event; 10]);
    cluster.queue.deliver_again(&messages[0], 10);
    cluster.queue.deleted(&messages, Duration::from_mins(1)).await;

    let received: usize = messages.iter().map(|id| cluster.queue.received(id)).sum();
    assert!(received >= 20, "{received}");
    let audit = cluster.world.audit().await;
    assert_eq!(cordons(&audit, "worker-a").count(), 1);
    assert_eq!(cordons(&audit, "worker-b").count(), 0);
    let times = evictions(&audit);
    assert_eq!((times.len(), times.values().sum::<usize>()), (on_a, on_a));
    assert_eq!(running.metric(DRAINED, &[]), 1);
    cluster.emptied("worker-a").await;
    for id in &messages {
        let story = cluster.queue.story(id);
        assert_eq!(story.last().map(|moment| moment.what), Some(Happened::Deleted), "{story:?}");
    }
}

fn histogram(waits: &[Duration]) -> String {
    let bounds = [10, 25, 50, 100, 150, 200, 250, 500, 750, 1_000, 2_000, 5_000, 60_000].map(Duration::from_millis);
    let count = |bound: Duration| waits.iter().filter(|wait| **wait <= bound).count();
    let lines = bounds.iter().enumerate().map(|(number, bound)| {
        let within = count(*bound) - number.checked_sub(1).map_or(0, |before| count(bounds[before]));
        format!("  up to {bound:>6?} {within:>4} {}\n", "#".repeat(within.div_ceil(2)))
    });
    lines.collect()
}
