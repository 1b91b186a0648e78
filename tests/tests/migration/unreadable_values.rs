//! Labels and annotations in which nobody can read anything: the log tells of each once, and the work goes on.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::json;
use spot_tests::{Machine, Migrator, Workload, World};

use crate::{RUN, assert_nothing_left_on};

/// Object and key of every warning about a value. Fails the test if one came twice.
fn told(output: &str) -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    for line in output.lines().filter(|line| line.contains("a value can't be read")) {
        let (_, rest) = line.split_once("object=").expect("a warning names its object");
        let (named, _) = rest.split_once(" fault=").expect("a warning says what is wrong");
        assert!(line.len() < 500, "{} bytes", line.len());
        assert!(told.insert(named.replace('"', "")), "told of twice: {line}\n{output}");
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_can_not_be_read_are_told_of_once_and_stop_nothing() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1"), Machine::on_demand("on-demand-2")]).await;
    let web = Workload::deployment("web", 4).max_unavailable(2).annotation("spot-migrator.io/do-not-evict", "True");
    world.run(std::slice::from_ref(&web)).await;
    world.join(&[Machine::spot("spot-1")]).await;
    let first = json!({"metadata": {
        "labels": {"spot-migrator.io/selected-for-deletion": "TRUE"},
        "annotations": {
            "spot-migrator.io/claim": "yesterday",
            "spot-migrator.io/back-off": "{\"until\": \"2026-02-30T25:00:00Z\", \"count\": 1}",
        },
    }});
    world.patch_node("on-demand-1", &first).await;
    let long = "x".repeat(200 * 1024);
    let second = json!({"metadata": {"annotations": {
        "spot-migrator.io/do-not-migrate": long,
        "karpenter.sh/do-not-disrupt": "Yes",
    }}});
    world.patch_node("on-demand-2", &second).await;
    let pods: Vec<_> = world.pods(&web).await.iter().map(ResourceExt::name_any).collect();
    let migrator = Migrator::install(&world, json!({})).await;
    let witness = world.witness().await;

    // What claims to be a claim is looked at first, and taken off.
    let first = migrator.run(&["--once", "--detailed-exit-code"]).ended(RUN).await;
    first.assert_code(3);
    let pods_told: BTreeSet<_> =
        pods.iter().map(|pod| format!("default/{pod} key=spot-migrator.io/do-not-evict")).collect();
    let mut expected = pods_told.clone();
    expected.extend(
        [
            "on-demand-1 key=spot-migrator.io/selected-for-deletion",
            "on-demand-1 key=spot-migrator.io/claim",
            "on-demand-1 key=spot-migrator.io/back-off",
            "on-demand-2 key=spot-migrator.io/do-not-migrate",
            "on-demand-2 key=karpenter.sh/do-not-disrupt",
        ]
        .map(str::to_owned),
    );
    assert_eq!(told(&first.output), expected);
    witness.caught_up().await;
    assert_eq!(witness.cordoned(), Vec::<String>::new());

    // Nobody is opted out, backing off or claimed.
    let second = migrator.run_once(RUN).await;
    second.assert_code(0);
    // Both write into one log.
    let told = told(&second.output[first.output.len()..]);
    assert!(told.is_superset(&pods_told) && !told.contains("on-demand-1 key=spot-migrator.io/claim"), "{told:#?}");
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;
    let gone: BTreeSet<_> = witness.gone().into_iter().collect();
    assert_eq!(gone, ["on-demand-1", "on-demand-2"].map(str::to_owned).into());
    world.nodes().await.values().for_each(assert_nothing_left_on);
}
