//! The leader's own node is taken back, with nineteen others, while a planned drain waits for a budget.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::json;
use spot_tests::{
    Machine, Workload,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{ANSWER, Cluster, END, FAILURES, cordons, evictions, interruption, ours, spot};

const NODES: u32 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn rb_16_twenty_notices_pass_a_stuck_planned_drain_and_the_leader_hands_over_on_its_own_node() {
    let cluster = Cluster::start().await;
    let world = &cluster.world;
    world.join(&[Machine::on_demand("od-1")]).await;
    // Two pods, of which one may be down, and who goes takes his time: so the other one waits for the budget.
    let db = Workload::stateful_set("db", 2).max_unavailable(1).stop_after("25s");
    cluster.run_on("od-1", &db).await;
    world.join(&[Machine::spot("stays").cpus(64)]).await;
    let standby_pod = Workload::deployment("standby", 1);
    cluster.run_on("stays", &standby_pod).await;
    world.patch_node("od-1", &json!({"spec": {"unschedulable": true}})).await;
    let leaving: Vec<_> = (0..NODES).map(|number| spot(&format!("sp-{number}"), number)).collect();
    world.join(&leaving).await;
    let leader_pod = Workload::deployment("leader", 1);
    cluster.run_on("sp-1", &leader_pod).await;
    cluster.run(&Workload::deployment("web", 2 * NODES)).await;
    world.patch_node("od-1", &json!({"spec": {"unschedulable": null}})).await;

    let migrator = cluster.install(json!({"schedule": "@every 1s"})).await;
    let uid = |pods: Vec<k8s_openapi::api::core::v1::Pod>| pods[0].uid().expect("a pod has a UID");
    let leader_uid = uid(world.pods(&leader_pod).await);
    let identity = |node: &str, uid: &str| [("NODE_NAME", node.to_owned()), ("POD_UID", uid.to_owned())];
    let leader = migrator.clone().with_environment(identity("sp-1", &leader_uid)).run(&[]);
    until("the planned drain to wait for the budget", PATIENCE, || async {
        let audit = world.audit().await;
        let waits = audit.evictions_by(User::Migrator).any(|entry| entry.code == 429);
        if waits { Ok(()) } else { Err(format!("it printed {}", leader.process().output())) }
    })
    .await;
    let standby = migrator.another().with_environment(identity("stays", &uid(world.pods(&standby_pod).await)));
    let standby = standby.run(&["--schedule", "@every 1h"]);
    standby.serves().await;

    let messages = cluster.queue.send_all((0..NODES).map(interruption));
    until("the leader's own pod to be evicted", PATIENCE, || async {
        let evicted = evictions(&world.audit().await).contains_key(&leader_uid);
        if evicted { Ok(()) } else { Err(format!("it printed {}", leader.process().output())) }
    })
    .await;
    assert_eq!(leader.metric(FAILURES, &[]), 0, "what was put off has not failed");
    // As its kubelet does.
    leader.terminate(END).await.assert_code(0);
    cluster.queue.deleted(&messages, ANSWER).await;
    for machine in &leaving {
        cluster.emptied(machine.name()).await;
    }

    let audit = world.audit().await;
    let cordoned: Vec<_> =
        leaving.iter().map(|machine| cordons(&audit, machine.name()).next().map(|entry| entry.at)).collect();
    let last = cordoned.iter().max().copied().flatten().expect("all of them are cordoned");
    let own: Vec<_> = audit.evictions_by(User::Migrator).filter(|entry| entry.succeeded()).collect();
    let at = own.iter().find(|entry| entry.uid_precondition() == Some(&leader_uid)).expect("it was seen").at;
    assert!(cordoned.iter().all(Option::is_some) && last < at, "the cordons go before the hand-over");
    let before: BTreeSet<_> =
        own.iter().filter(|entry| entry.at <= at).filter_map(|entry| entry.uid_precondition()).collect();
    let on_own_node: Vec<_> = hosts_of(&audit, "sp-1");
    let missing: Vec<_> =
        on_own_node.iter().filter(|name| own.iter().any(|entry| entry.name == **name && entry.at > at)).collect();
    assert!(missing.is_empty() && !before.is_empty(), "its own pod is the last of its node: {missing:?}");
    let retired = world.nodes().await.remove("od-1").expect("nothing planned went on");
    assert_eq!(ours(&retired), Vec::<String>::new(), "it is released, without a back-off");
    assert_eq!(standby.metric(FAILURES, &[]), 0);
    standby.terminate(END).await.assert_code(0);
}

/// The names of the pods that were bound to `node`.
fn hosts_of<'a>(audit: &'a spot_tests::AuditLog, node: &str) -> Vec<&'a str> {
    let bound = audit.entries().filter(|entry| entry.subresource == "binding" && entry.succeeded());
    bound.filter(|entry| entry.body["target"]["name"] == node).map(|entry| entry.name.as_str()).collect()
}
