//! A pod takes its time to stop, and meanwhile another one is bound to the node, past its cordon.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};
use spot_tests::{Migrator, World, control_plane::User};

use crate::{RUN, asked, assert_no_pod_deleted, deployment, evicted, host, lay_out, settings, uids, version};

#[tokio::test(flavor = "multi_thread")]
async fn rb_06_rb_38_the_node_goes_after_the_last_pod_of_a_slow_shutdown_and_one_bound_meanwhile_goes_too() {
    let world = World::start().await;
    // Nine tenths of a long grace period, a tenth of it all: nobody cuts it short.
    let slow =
        deployment("slow", 2).max_unavailable(2).spec("terminationGracePeriodSeconds", json!(9)).stop_after("8s");
    lay_out(&world, &[("on-demand-1", &slow)]).await;
    let before = uids(&world.pods(&slow).await);
    // What controls the late pod does not bring it back.
    let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "owner"}})).expect("it is a ConfigMap");
    let owners: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let owner = owners.create(&PostParams::default(), &owner).await.expect("it is accepted");
    let late: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "late",
            "annotations": {"world.spot.test/stop-after": "1s"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(), "controller": true,
            }],
        },
        "spec": {
            "nodeName": "on-demand-1",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "nothing"}],
        },
    }))
    .expect("the fields are those of a Pod");
    let migrator = Migrator::install(&world, settings("60s")).await;
    let witness = world.witness().await;

    let running = migrator.run(&["--once"]);
    asked(&world, &running, "both evictions", |audit| (evicted(audit) == before).then_some(())).await;
    let pods: Api<Pod> = Api::namespaced(world.client(), "default");
    let late = pods.create(&PostParams::default(), &late).await.expect("the pod is accepted");
    running.ended(RUN).await.assert_code(0);
    witness.caught_up().await;

    let audit = world.audit().await;
    let expected = before.iter().cloned().chain(late.uid()).collect();
    assert_eq!(evicted(&audit), expected, "each of them, and nobody else");
    assert_no_pod_deleted(&audit);
    let nodes = witness.nodes_gone();
    assert_eq!(nodes.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["on-demand-1"]);
    let gone = witness.pods_gone();
    assert_eq!(uids(&gone), expected);
    for pod in &gone {
        assert_eq!(host(pod), "on-demand-1");
        assert!(version(pod) < version(&nodes[0]), "{} went after its node", pod.name_any());
    }
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "nodes").collect();
    let first = audit.evictions_by(User::Migrator).map(|entry| entry.at).min().expect("there were some");
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    for entry in audit.evictions_by(User::Migrator) {
        assert_eq!(entry.body["deleteOptions"]["gracePeriodSeconds"], Value::Null, "each has its own: {entry}");
    }
    assert!(deleted[0].at.duration_since(first).as_secs() >= 7, "{} is before they have stopped", deleted[0]);
}
