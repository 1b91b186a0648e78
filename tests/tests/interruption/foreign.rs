//! Messages of which most are about somebody else, or about nothing.

use std::time::Duration;

use serde_json::{Value, json};
use spot_tests::{Machine, Workload, notice, sqs::Happened};

use crate::{ANSWER, Cluster, END, IGNORED, RECEIVED, cordons, evictions, interruption, now, ours, spot};

#[tokio::test(flavor = "multi_thread")]
async fn rb_21_of_fifty_messages_the_one_that_is_ours_is_answered_and_the_others_are_counted_by_reason() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("sp-1", 1), spot("sp-2", 2)]).await;
    let web = Workload::deployment("web", 4);
    cluster.run(&web).await;
    let running = cluster.running(json!({})).await;

    // They waited in the queue for longer than a Node takes to join.
    let while_ago = now() - Duration::from_mins(3);
    let dated = |mut event: Value| {
        event["time"] = json!(format!("{while_ago:.0}"));
        cluster.queue.send_dated(&event, while_ago)
    };
    let foreign = (0..40).map(|number| dated(notice::interruption(&notice::instance(1_000 + number), "terminate")));
    let ended = (0..5).map(|number| notice::state(&notice::instance(2_000 + number), "terminated")).map(dated);
    let mut others: Vec<_> = foreign.chain(ended).collect();
    let not_json = ["", "{\"version\": \"0\", \"id\"", "\u{0}\u{feff}<xml/>"];
    others.extend(not_json.map(|text| cluster.queue.send(text)));
    let detail = json!({"bucket": {"name": "a"}});
    others.push(cluster.queue.send(notice::event("Object Created", "aws.s3", json!([]), detail)));
    let mine = cluster.queue.send(interruption(2));
    // Its Node may still come.
    let early = cluster.queue.send(interruption(3_000));

    cluster.emptied("sp-2").await;
    cluster.queue.deleted(&[mine], ANSWER).await;
    cluster.queue.deleted(&others, ANSWER).await;
    cluster.queue.happened(&early, "received", |what| what == Happened::Received).await;

    let ignored = |reason| running.metric(IGNORED, &[("source", "queue"), ("reason", reason)]);
    assert_eq!(ignored("unknown_instance"), 45);
    assert_eq!(ignored("unreadable"), 3);
    assert_eq!(ignored("unknown_kind") + ignored("foreign"), 1);
    assert!(running.metric(RECEIVED, &[("kind", "spot_interruption")]) >= 42);
    assert_eq!(cluster.queue.when(&early, crate::is_deleted), None, "{:?}", cluster.queue.story(&early));

    let audit = cluster.world.audit().await;
    assert_eq!((cordons(&audit, "sp-1").count(), cordons(&audit, "sp-2").count()), (0, 1));
    assert!(!evictions(&audit).is_empty());
    assert_eq!(ours(&cluster.world.nodes().await["sp-1"]), Vec::<String>::new());

    // And then its Node comes.
    cluster.world.join(&[spot("sp-3", 3_000)]).await;
    cluster.queue.deleted(&[early], ANSWER).await;
    assert_eq!(cordons(&cluster.world.audit().await, "sp-3").count(), 1);
    running.terminate(END).await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_23_a_node_is_found_by_its_instance_and_never_by_a_name() {
    let cluster = Cluster::start().await;
    // One is named after another's instance, and one as its instance's address would be.
    let misleading = notice::instance(2);
    cluster.world.join(&[spot(&misleading, 1), spot("worker-7.corp", 2), spot("ip-10-1-0-2.ec2.internal", 3)]).await;
    cluster.world.join(&[Machine::spot("stays")]).await;
    let web = Workload::deployment("web", 8);
    cluster.run(&web).await;
    let _running = cluster.running(json!({})).await;

    let message = cluster.queue.send(interruption(2));
    cluster.emptied("worker-7.corp").await;
    cluster.queue.deleted(&[message], ANSWER).await;

    let nodes = cluster.world.nodes().await;
    let touched: Vec<_> = nodes.iter().filter(|(_, node)| !ours(node).is_empty()).map(|(name, _)| name).collect();
    assert_eq!(touched, ["worker-7.corp"], "cordon, mark, record and taint are all on one node");
    let claim = nodes["worker-7.corp"].metadata.annotations.as_ref().and_then(|all| all.get("spot-migrator.io/claim"));
    let claim: Value = claim.and_then(|claim| serde_json::from_str(claim).ok()).expect("it is claimed");
    assert_eq!((&claim["owner"], &claim["machine"]["instance"]), (&json!("interruption"), &json!(misleading)));
}
