//! Beside the rest of AWS: a group that waits for an answer, and messages about what the product did itself.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::{Value, json};
use spot_tests::{
    Migrator, Sqs, Workload, World,
    aws::{Cloud, Group, Instance, Member, REGION, cloud::CLUSTER},
    control_plane::User,
    notice, rights,
    sqs::Queue,
    wait::{PATIENCE, until},
};

use crate::{DRAINED, END, FAILURES, IGNORED, cluster::PRODUCT};

const HOOK: &str = "drain-first";

const HELD: &str = "spot_migrator_interruption_held_until_timestamp_seconds";

#[tokio::test(flavor = "multi_thread")]
async fn a_terminate_action_obeys_budgets_and_its_hook_is_completed_once_the_node_is_empty() {
    let (world, cloud, sqs) = lay_out().await;
    let queue = sqs.queue("interruptions");
    let hook = json!({
        "AutoScalingGroupName": "spot",
        "LifecycleHookName": HOOK,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "HeartbeatTimeout": 600,
    });
    cloud.create(&world, &[Group::spot("spot", 2), Group::spot("stays", 1)]).await;
    cloud.aws().call("autoscaling", "PutLifecycleHook", hook).await;
    let web = Workload::deployment("web", 6).max_unavailable(1).ready_after("1s");
    world.run(std::slice::from_ref(&web)).await;
    let changes = json!({"interruption": {"completeLifecycleHooks": [HOOK]}});
    let running = install(&world, &sqs, &queue, changes).await.run(&[]);
    let witness = world.witness().await;

    let members = cloud.instances().await.into_values().filter(|instance| instance.group() == Some("spot"));
    let leaving: Vec<_> = members.collect();
    ends(&cloud, &leaving[0].id).await;
    // One was passed on by EventBridge, the other one comes from the group itself.
    let passed_on = queue.send(notice::terminate_action(&leaving[0].id, "spot", HOOK));
    queue.deleted(&[passed_on], PATIENCE).await;
    cloud.settled(&world).await;
    ends(&cloud, &leaving[1].id).await;
    let direct = queue.send(notice::terminate_action_from_the_group(&leaving[1].id, "spot", HOOK));
    queue.deleted(&[direct], PATIENCE).await;
    cloud.settled(&world).await;
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    witness.assert_budget_kept(&web);
    let audit = world.audit().await;
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "pods").map(ToString::to_string).collect();
    assert_eq!(deleted, Vec::<String>::new());
    let calls = cloud.aws().calls_of(PRODUCT).await;
    let completed: Vec<_> =
        calls.iter().filter(|call| call.action == "CompleteLifecycleAction" && call.succeeded()).collect();
    let ids: Vec<_> = completed.iter().map(|call| &call.parameters["InstanceId"]).collect();
    assert_eq!(ids, [&json!(leaving[0].id), &json!(leaving[1].id)]);
    assert!(completed.iter().all(|call| call.parameters["LifecycleActionResult"] == "CONTINUE"), "{completed:?}");
    assert!(!calls.iter().any(|call| call.action.starts_with("Terminate")), "the group ends its instances itself");
    assert_eq!(running.metric(DRAINED, &[("kind", "terminate_action"), ("result", "emptied")]), 2);
    assert_eq!(running.metric(HELD, &[]), 0, "planned work goes on");
    running.terminate(END).await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_about_instances_that_the_product_ends_itself_pause_nothing() {
    let (world, cloud, sqs) = lay_out().await;
    let queue = sqs.queue("interruptions");
    cloud.create(&world, &[Group::on_demand("od", 3)]).await;
    let on_demand: BTreeSet<_> = cloud.instances().await.into_keys().collect();
    let web = Workload::deployment("web", 6);
    world.run(std::slice::from_ref(&web)).await;
    cloud.create(&world, &[Group::spot("spot", 2)]).await;
    let running = install(&world, &sqs, &queue, json!({"schedule": "@every 1s"})).await.run(&[]);

    // As EventBridge does, each change of an instance is told of as soon as it is seen.
    let mut told = BTreeSet::new();
    let mut messages = Vec::new();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while told.iter().filter(|(_, state)| state == "terminated").count() < on_demand.len() {
        assert!(tokio::time::Instant::now() < deadline, "{told:?}; it printed {}", running.process().output());
        for instance in cloud.instances().await.into_values().filter(|instance| !instance.is_running()) {
            let Instance { id, state, .. } = instance;
            if told.insert((id.clone(), state.clone())) {
                messages.push(queue.send(notice::state(&id, &state)));
            }
        }
    }
    queue.deleted(&messages, 2 * PATIENCE).await;
    cloud.settled(&world).await;
    world.settled(std::slice::from_ref(&web)).await;

    assert_eq!(running.metric(HELD, &[]), 0, "nothing was paused");
    assert_eq!(running.metric(FAILURES, &[]), 0);
    let ignored = |reason| running.metric(IGNORED, &[("source", "queue"), ("reason", reason)]);
    assert!(ignored("our_own") + ignored("unknown_instance") + ignored("no_action") >= messages.len() as u64);
    let calls = cloud.aws().calls_of(PRODUCT).await;
    let ended = calls.iter().filter(|call| call.action == "TerminateInstanceInAutoScalingGroup" && call.succeeded());
    assert_eq!(ended.count(), on_demand.len(), "each of them once");
    running.terminate(END).await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_takes_a_node_over_whose_planned_drain_is_stuck_and_that_is_no_failure() {
    let (world, cloud, sqs) = lay_out().await;
    let queue = sqs.queue("interruptions");
    cloud.create(&world, &[Group::on_demand("od", 1)]).await;
    let leaving = cloud.instances().await.into_values().next().expect("it has one");
    // Two pods, of which one may be down, and who goes takes his time: so the other one waits for the budget.
    let db = Workload::stateful_set("db", 2).max_unavailable(1).stop_after("40s");
    world.run(std::slice::from_ref(&db)).await;
    cloud.create(&world, &[Group::spot("spot", 1)]).await;
    let changes = json!({"schedule": "@every 1s", "interruption": {"deleteBlockedPodsAfter": "3s"}});
    let running = install(&world, &sqs, &queue, changes).await.run(&[]);
    until("the planned drain to wait for the budget", PATIENCE, || async {
        let audit = world.audit().await;
        let waits = audit.evictions_by(User::Migrator).any(|entry| entry.code == 429);
        if waits { Ok(()) } else { Err(format!("it printed {}", running.process().output())) }
    })
    .await;

    let message = queue.send(notice::interruption(&leaving.id, "terminate"));
    queue.deleted(&[message], PATIENCE).await;
    let audit = world.audit().await;
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "pods").filter(|entry| entry.succeeded()).collect();
    assert_eq!(deleted.len(), 1, "the budget held one of them: {deleted:?}");
    let node = world.nodes().await.remove(&leaving.private_dns_name).expect("EC2 ends it, and nobody else");
    assert!(crate::is_cordoned(&node), "{:?}", crate::ours(&node));
    let claim: Value = serde_json::from_str(&node.annotations()["spot-migrator.io/claim"]).expect("the claim is JSON");
    assert_eq!((&claim["owner"], &claim["cordoned"]), (&json!("interruption"), &json!(true)));
    assert_eq!(running.metric(DRAINED, &[("kind", "spot_interruption"), ("result", "emptied")]), 1);
    assert_eq!(running.metric(FAILURES, &[]), 0);
    let calls = cloud.aws().calls_of(PRODUCT).await;
    assert!(!calls.iter().any(|call| call.action.starts_with("Terminate")), "EC2 ends it by itself");
    running.terminate(END).await.assert_code(0);
}

/// Has the group end an instance, and waits until the group waits: only then does it tell.
async fn ends(cloud: &Cloud, instance: &str) {
    cloud.aws().terminate_in_group(instance, true).await.expect("it is accepted");
    until("the group to wait for an answer", PATIENCE, || async {
        let (_, members) = cloud.aws().group("spot").await;
        let waits = |member: &Member| member.instance_id == instance && member.lifecycle_state == "Terminating:Wait";
        if members.iter().any(waits) { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
}

async fn lay_out() -> (World, Cloud, Sqs) {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    let sqs = Sqs::before(cloud.aws()).await;
    (world, cloud, sqs)
}

async fn install(world: &World, sqs: &Sqs, queue: &Queue, changes: Value) -> Migrator {
    let mut configuration = json!({
        "schedule": "@every 1h",
        "cloudProvider": {
            "name": "aws",
            "aws": {"region": REGION, "clusterName": CLUSTER, "endpointUrl": sqs.endpoint()},
        },
        "interruption": {"queueUrl": queue.url()},
    });
    spot_tests::migrator::merge(&mut configuration, changes);
    let migrator = Migrator::install(world, configuration).await;
    rights::grant_answers(world).await;
    migrator.with_environment(sqs.environment(PRODUCT))
}
