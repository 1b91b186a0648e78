//! Planned work while machines are taken back.

use serde_json::json;
use spot_tests::{
    Machine, Workload,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{ANSWER, Cluster, END, FAILURES, interruption, ours, spot};

/// What remembers a failure on its node.
const BACK_OFF: &str = "spot-migrator.io/back-off";

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_drain_that_waits_for_a_budget_is_put_off_by_a_notice_and_goes_on_after_the_pause() {
    let cluster = Cluster::start().await;
    let world = &cluster.world;
    world.join(&[Machine::on_demand("od-1")]).await;
    let db = Workload::stateful_set("db", 2).max_unavailable(1).stop_after("20s");
    cluster.run(&db).await;
    world.join(&[spot("leaves", 1), spot("stays", 2)]).await;
    let witness = world.witness().await;
    let changes = json!({"schedule": "@every 1s", "interruption": {"pauseMigrationFor": "8s"}});
    let running = cluster.running(changes).await;
    until("the planned drain to wait for the budget", PATIENCE, || async {
        let audit = world.audit().await;
        let waits = audit.evictions_by(User::Migrator).any(|entry| entry.code == 429);
        if waits { Ok(()) } else { Err(format!("it printed {}", running.process().output())) }
    })
    .await;

    let message = cluster.queue.send(interruption(1));
    cluster.queue.deleted(&[message], ANSWER).await;
    world.node_when("od-1", "released", ANSWER, |node| ours(node).iter().all(|key| key.ends_with("leaving"))).await;
    assert_eq!(running.metric(FAILURES, &[]), 0, "what is put off has not failed");

    until("the migration to go on", PATIENCE, || async {
        let left = world.nodes().await.contains_key("od-1");
        if left { Err(format!("it printed {}", running.process().output())) } else { Ok(()) }
    })
    .await;
    world.settled(std::slice::from_ref(&db)).await;
    witness.caught_up().await;
    witness.assert_budget_kept(&db);
    let backed_off = |node: &k8s_openapi::api::core::v1::Node| {
        node.metadata.annotations.iter().any(|annotations| annotations.contains_key(BACK_OFF))
    };
    assert!(!witness.states_of("od-1").iter().any(backed_off), "it is no failure of the node");
    assert_eq!(running.metric(FAILURES, &[]), 0);
    running.terminate(END).await.assert_code(0);
}
