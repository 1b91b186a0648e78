//! The queue's endpoint takes connections and answers nothing, and then it does again.

use std::time::Duration;

use serde_json::json;
use spot_tests::{Workload, wait::until};

use crate::{ANSWER, Cluster, END, cordons, interruption, now, spot};

/// A poll waits twenty seconds, and is given up somewhat later.
const GIVEN_UP: Duration = Duration::from_mins(1);

const LAST_POLL: &str = "spot_migrator_interruption_last_poll_timestamp_seconds";

#[tokio::test(flavor = "multi_thread")]
async fn rb_33_polls_that_are_never_answered_are_given_up_and_a_notice_after_the_recovery_is_answered() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("leaves", 1), spot("stays", 2)]).await;
    cluster.run(&Workload::deployment("web", 4)).await;
    let running = cluster.running(json!({})).await;

    cluster.sqs.silent(true);
    let before = cluster.sqs.asked("ReceiveMessage");
    until("a poll to be given up and another to be tried", GIVEN_UP, || async {
        let polls = cluster.sqs.asked("ReceiveMessage") - before;
        if polls > 0 { Ok(()) } else { Err("none came".to_owned()) }
    })
    .await;
    assert_eq!(running.metric("spot_migrator_leader", &[]), 1, "the rest of it works on");
    let recovered = now().as_second();
    cluster.sqs.silent(false);
    let message = cluster.queue.send(interruption(1));
    cluster.emptied("leaves").await;
    cluster.queue.deleted(&[message], ANSWER).await;

    assert_eq!(cordons(&cluster.world.audit().await, "leaves").count(), 1);
    let last = running.metric(LAST_POLL, &[("source", "queue")]);
    assert!(last >= u64::try_from(recovered).expect("after 1970"), "{last}, {recovered}");
    running.terminate(END).await.assert_code(0);
}
