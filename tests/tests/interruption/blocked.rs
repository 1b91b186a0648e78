//! Budgets in the way of a machine that is taken back.

use serde_json::json;
use spot_tests::{Workload, control_plane::User, sqs::Happened};

use crate::{ANSWER, Cluster, DRAINED, cordons, grace, interruption, spot};

/// EC2 leaves two minutes.
const LEFT: i64 = 120;

#[tokio::test(flavor = "multi_thread")]
async fn rb_15_budgets_are_obeyed_until_the_configured_point_and_each_grace_period_is_cut_to_the_time_left() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("leaves", 7), spot("stays", 8)]).await;
    let quick = Workload::deployment("quick", 1).spec("terminationGracePeriodSeconds", json!(30)).stop_after("1s");
    let slow = Workload::deployment("slow", 1).spec("terminationGracePeriodSeconds", json!(600)).stop_after("3s");
    // A budget that never allows anything.
    let held = Workload::deployment("held", 2).spec("terminationGracePeriodSeconds", json!(600)).max_unavailable(0);
    for workload in [&quick, &slow, &held] {
        cluster.run_on("leaves", workload).await;
    }
    let running = cluster.running(json!({"interruption": {"deleteBlockedPodsAfter": "5s"}})).await;
    let witness = cluster.world.witness().await;

    let message = cluster.queue.send(interruption(7));
    cluster.emptied("leaves").await;
    cluster.queue.deleted(std::slice::from_ref(&message), ANSWER).await;
    witness.caught_up().await;

    let received = cluster.queue.when(&message, |what| what == Happened::Received).expect("it was read");
    let audit = cluster.world.audit().await;
    let cordon = cordons(&audit, "leaves").next().expect("it is cordoned").at;
    let of = |workload: &'static str| {
        let pods = move |name: &str| name.starts_with(workload);
        audit.by(User::Migrator).filter(move |entry| entry.resource == "pods" && pods(&entry.name))
    };
    let first = |workload| of(workload).find(|entry| entry.is_eviction()).expect("it is evicted");
    for workload in ["quick", "slow"] {
        assert!(first(workload).at >= cordon, "cordons go first");
    }
    assert!(matches!(grace(first("quick")), None | Some(30)), "{}", first("quick"));
    let slow = grace(first("slow")).expect("600 s are more than are left");
    assert!((60..=LEFT).contains(&slow), "{slow}");

    assert!(!of("held").any(|entry| entry.is_eviction() && entry.succeeded()), "the budget allows none");
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "pods").collect();
    assert_eq!(deleted.len(), 2, "what the budget holds, and nothing else: {deleted:?}");
    for entry in deleted {
        assert!(entry.name.starts_with("held") && entry.uid_precondition().is_some() && entry.succeeded(), "{entry}");
        let waited = entry.at.duration_since(received).as_secs_f64();
        assert!(waited >= 4.9, "obeyed for {waited} s only: {entry}");
        let given = grace(entry).expect("600 s are more than are left");
        let left = LEFT - i64::from(i32::try_from(entry.at.duration_since(received).as_secs()).unwrap_or(i32::MAX));
        assert!((60..=left).contains(&given), "{given} of {left}");
    }
    assert_eq!(running.metric(DRAINED, &[("result", "emptied")]), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_going_for_longer_than_its_machine_stays_gets_what_is_left() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("leaves", 7), spot("stays", 8)]).await;
    let slow = Workload::deployment("slow", 1).spec("terminationGracePeriodSeconds", json!(600)).stop_after("10s");
    cluster.run_on("leaves", &slow).await;
    // Somebody else evicted it before, with all of its grace.
    let pod = cluster.world.pods_on("leaves").await.remove(0);
    let name = pod.metadata.name.expect("a pod has a name");
    let _printed: String = cluster.world.control_plane().kubectl(&["delete", "pod", &name, "--wait=false"]);
    let _running = cluster.running(json!({})).await;
    let witness = cluster.world.witness().await;

    let message = cluster.queue.send(interruption(7));
    cluster.queue.deleted(&[message], ANSWER).await;
    witness.caught_up().await;

    let audit = cluster.world.audit().await;
    let eviction = audit.evictions_by(User::Migrator).find(|entry| entry.name == name && entry.succeeded());
    let given = eviction.and_then(grace).expect("it is evicted, with what is left");
    assert!((60..=LEFT).contains(&given), "{given}");
    let went = witness.pods_gone().into_iter().find(|pod| pod.metadata.name.as_deref() == Some(&name));
    let at_last = went.and_then(|pod| pod.metadata.deletion_grace_period_seconds).expect("it went by a deletion");
    assert!(at_last <= LEFT, "the API server took the shorter one: {at_last}");
}
