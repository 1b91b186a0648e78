//! Writes that are refused for a while, and a queue that can't be read at all.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use spot_tests::{
    Machine, Workload, World,
    control_plane::User,
    rights,
    wait::{PATIENCE, until},
};

use crate::{ANSWER, Cluster, END, cordons, evictions, interruption, spot, writes_on};

/// The name of a policy that lets the product write no node.
const POLICY: &str = "no-nodes-for-now";

#[tokio::test(flavor = "multi_thread")]
async fn rb_22_a_message_stays_while_its_nodes_first_write_is_refused_and_is_answered_once() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("leaves", 1), spot("stays", 2)]).await;
    cluster.run(&Workload::deployment("web", 6)).await;
    let running = cluster.running(json!({})).await;
    refuse_writes(&cluster.world).await;

    let message = cluster.queue.send(interruption(1));
    until("a write to be refused", PATIENCE, || async {
        let audit = cluster.world.audit().await;
        let refused = writes_on(&audit, "leaves").any(|entry| !entry.succeeded() && !entry.uri.contains("dryRun"));
        if refused { Ok(()) } else { Err(format!("it printed {}", running.process().output())) }
    })
    .await;
    assert_eq!(cluster.queue.when(&message, crate::is_deleted), None, "{:?}", cluster.queue.story(&message));
    assert!(evictions(&cluster.world.audit().await).is_empty(), "nothing is evicted from a node that takes pods");
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        let _printed: String = cluster.world.control_plane().kubectl(&["delete", kind, POLICY]);
    }

    cluster.emptied("leaves").await;
    cluster.queue.deleted(std::slice::from_ref(&message), ANSWER).await;
    let audit = cluster.world.audit().await;
    assert_eq!(cordons(&audit, "leaves").count(), 1);
    assert!(evictions(&audit).values().all(|times| *times == 1));
    running.terminate(END).await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_missing_or_may_not_be_read_is_named_and_the_migration_goes_on_without_it() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[spot("stays", 1)]).await;
    cluster.run(&Workload::deployment("web", 4)).await;
    let read = cluster.install(json!({})).await;
    let check = read.check();
    check.assert_code(0);
    assert!(check.output.contains("sqs:ReceiveMessage"), "{}", check.output);

    let cases = [
        (cluster.queue.url(), "sqs:ReceiveMessage"),
        (cluster.queue.url().replace("interruptions", "no-such-queue"), "no-such-queue"),
        (cluster.queue.url().replace("eu-west-1", "us-east-1"), "us-east-1"),
    ];
    for (url, named) in cases {
        cluster.sqs.deny("sqs:ReceiveMessage", named == "sqs:ReceiveMessage");
        let changes = json!({"interruption": {"queueUrl": url}, "schedule": "@every 1s"});
        let migrator = read.with_configuration(changes);
        let check = migrator.check();
        assert_ne!(check.code, Some(0), "{}", check.output);
        assert!(
            check.output.lines().any(|line| line.starts_with("failure") && line.contains(named)),
            "{}",
            check.output
        );

        cluster.world.join(&[Machine::on_demand("od-1")]).await;
        let running = migrator.run(&[]);
        retired(&cluster.world, "od-1").await;
        let printed = running.process().output();
        let loud = |line: &&str| line.contains("ERROR") && line.contains(named);
        assert!(printed.lines().any(|line| loud(&line)), "{named}: {printed}");
        running.terminate(END).await.assert_code(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interruptions_are_answered_without_a_right_of_the_migration_which_is_named() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[Machine::on_demand("od-1"), spot("leaves", 1), spot("stays", 2)]).await;
    cluster.run(&Workload::deployment("web", 6)).await;
    let migrator = cluster.install(json!({"schedule": "@every 1s"})).await;
    rights::revoke(&cluster.world, "", "nodes", "delete").await;
    let running = migrator.run(&[]);
    cluster.reads(&running).await;

    let message = cluster.queue.send(interruption(1));
    cluster.emptied("leaves").await;
    cluster.queue.deleted(&[message], ANSWER).await;
    let printed = running.process().output();
    let loud = |line: &str| line.contains("ERROR") && line.contains("delete nodes");
    assert!(printed.lines().any(loud), "{printed}");
    running.terminate(END).await.assert_code(0);
    let audit = cluster.world.audit().await;
    assert_eq!(writes_on(&audit, "od-1").count(), 0, "nothing is migrated");
}

async fn retired(world: &World, node: &str) {
    until(&format!("{node} to be retired"), PATIENCE, || async {
        if world.nodes().await.contains_key(node) { Err("it is there".to_owned()) } else { Ok(()) }
    })
    .await;
}

/// Refuses every write of the product's to nodes, and waits until that is in force.
async fn refuse_writes(world: &World) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]});
    let expression = format!("request.userInfo.username != '{}'", User::Migrator.name());
    world.apply(&[
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": POLICY},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression, "message": "no nodes for now"}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": POLICY},
            "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
        }),
    ]);
    let nodes: Api<Node> = Api::all(world.control_plane().client_of(User::Migrator));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"test": "test"}}}));
    until("the policy to be in force", PATIENCE, || async {
        match nodes.patch("leaves", &dry, &patch).await {
            Err(kube::Error::Api(status)) if status.message.contains("no nodes for now") => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
}
