//! Announcements that leave more time than EC2 does: budgets are obeyed to the end.

use std::time::Duration;

use serde_json::json;
use spot_tests::{Workload, control_plane::User, notice, sqs::Happened};

use crate::{ANSWER, Cluster, DRAINED, cordons, now, ours, spot};

const HELD: &str = "spot_migrator_interruption_held_until_timestamp_seconds";

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_change_obeys_budgets_and_pauses_nothing_and_one_that_is_far_away_waits() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("leaves", 1), spot("stays", 2), spot("later", 3)]).await;
    let web = Workload::deployment("web", 4).max_unavailable(1).ready_after("1s");
    cluster.run_on("leaves", &web).await;
    // A pod that nobody would make anew, and one that asks to be left alone: the machine goes anyway.
    let lone = Workload::deployment("lone", 1).annotation("spot-migrator.io/do-not-evict", "true");
    cluster.run_on("leaves", &lone).await;
    let witness = cluster.world.witness().await;
    let running = cluster.running(json!({"interruption": {"scheduledChangeLead": "30m"}})).await;

    let in_minutes = |minutes| now() + Duration::from_mins(minutes);
    let far = cluster.queue.send(notice::scheduled_change(&notice::instance(3), in_minutes(120)));
    let near = cluster.queue.send(notice::scheduled_change(&notice::instance(1), in_minutes(20)));
    cluster.emptied("leaves").await;
    cluster.queue.deleted(&[near], ANSWER).await;
    cluster.queue.happened(&far, "received", |what| what == Happened::Received).await;
    cluster.world.settled(&[web.clone(), lone]).await;
    witness.caught_up().await;

    witness.assert_budget_kept(&web);
    let audit = cluster.world.audit().await;
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "pods").map(ToString::to_string).collect();
    assert_eq!(deleted, Vec::<String>::new(), "nothing is deleted");
    assert_eq!((cordons(&audit, "leaves").count(), cordons(&audit, "later").count()), (1, 0));
    assert_eq!(ours(&cluster.world.nodes().await["later"]), Vec::<String>::new());
    assert_eq!(cluster.queue.when(&far, crate::is_deleted), None);
    assert_eq!(running.metric(DRAINED, &[("kind", "scheduled_change"), ("result", "emptied")]), 1);
    assert_eq!(running.metric(HELD, &[]), 0, "planned work goes on");
}
