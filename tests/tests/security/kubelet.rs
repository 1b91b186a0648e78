//! What a kubelet may write.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use spot_tests::{Machine, World};

/// The annotation of our record on a node.
const CLAIM: &str = "spot-migrator.io/claim";

/// The label of our mark on a node.
const MARK: &str = "spot-migrator.io/selected-for-deletion";

/// The label by which the tests' nodes tell their class.
const CLASS: &str = "node.kubernetes.io/lifecycle";

/// The security model rests on this, and so it is asked of the API server itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_may_mark_and_label_its_own_node_and_change_neither_its_machine_nor_its_taints_nor_another_node() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("one"), Machine::on_demand("two")]).await;
    let nodes = Api::<Node>::all(world.control_plane().client_of_kubelet("one"));
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}});
    let annotation = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let taint = json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}});
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    for (what, node, patch, may) in [
        ("our mark", "one", label(MARK, "true"), true),
        ("its class", "one", label(CLASS, "spot"), true),
        ("its class on EKS", "one", label("eks.amazonaws.com/capacityType", "SPOT"), true),
        ("its pool", "one", label("karpenter.sh/nodepool", "x"), true),
        ("our record", "one", annotation(CLAIM, json!("{}")), true),
        ("the cordon", "one", json!({"spec": {"unschedulable": true}}), true),
        ("its machine", "one", json!({"spec": {"providerID": "kwok://two"}}), false),
        ("a taint", "one", taint.clone(), false),
        ("its role", "one", label("node-role.kubernetes.io/control-plane", ""), false),
        ("what is restricted", "one", label("node-restriction.kubernetes.io/x", ""), false),
        ("another's mark", "two", label(MARK, "true"), false),
        ("another's class", "two", label(CLASS, "spot"), false),
        ("another's record", "two", annotation(CLAIM, json!("{}")), false),
        ("another's cordon", "two", json!({"spec": {"unschedulable": true}}), false),
        ("another's taint", "two", taint, false),
    ] {
        let answer = nodes.patch(node, &dry, &Patch::Merge(patch)).await;
        assert_eq!(answer.is_ok(), may, "{what}: {:?}", answer.err());
    }
    let params = PostParams { dry_run: true, ..PostParams::default() };
    for (name, may) in [("three", false), ("four", true)] {
        let of_four = Api::<Node>::all(world.control_plane().client_of_kubelet("four"));
        let mut node = Machine::spot(name).node();
        // Nobody compares it with anything.
        node.spec.get_or_insert_default().provider_id = Some("kwok://two".to_owned());
        node.spec.get_or_insert_default().unschedulable = None;
        let answer = of_four.create(&params, &node).await;
        assert_eq!(answer.is_ok(), may, "{name}: {:?}", answer.err());
    }
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    for node in ["one", "two"] {
        assert!(nodes.delete(node, &dry).await.is_err(), "{node}: a kubelet takes no Node away, nor its own");
    }
}

/// That is confined by the API server, and not by us.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_deletes_pods_of_its_own_node_alone() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("one"), Machine::on_demand("two")]).await;
    let pod = |name: &str, node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "c"}]},
        })
    };
    world.apply(&[pod("on-one", "one"), pod("on-two", "two")]);
    let pods = Api::<Pod>::namespaced(world.control_plane().client_of_kubelet("one"), "default");
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    assert!(pods.delete("on-one", &dry).await.is_ok());
    assert!(pods.delete("on-two", &dry).await.is_err());
}
