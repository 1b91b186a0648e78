//! Machines that stop or hibernate, and come back.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use spot_tests::{Workload, notice};

use crate::{ANSWER, Cluster, DEPARTING, is_cordoned, ours, spot};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_boots_again_after_a_stop_or_a_hibernation_takes_pods_again() {
    let cluster = Cluster::start().await;
    let world = &cluster.world;
    world.join(&[spot("stops", 1), spot("hibernates", 2), spot("held", 3), spot("stays", 4)]).await;
    for node in ["stops", "hibernates", "held"] {
        world.patch_node_status(node, &booted("first")).await;
    }
    cluster.run(&Workload::deployment("web", 8)).await;
    // Somebody's own cordon is none of ours.
    world.patch_node("held", &json!({"spec": {"unschedulable": true}})).await;
    let _running = cluster.running(json!({})).await;

    let notices = [("stop", 1), ("hibernate", 2), ("stop", 3)];
    let messages = notices.map(|(action, number)| notice::interruption(&notice::instance(number), action));
    let messages = cluster.queue.send_all(messages);
    for node in ["stops", "hibernates", "held"] {
        cluster.emptied(node).await;
    }
    cluster.queue.deleted(&messages, ANSWER).await;
    for (node, state) in world.nodes().await {
        let tainted = ours(&state).iter().any(|key| key == DEPARTING);
        assert_eq!((is_cordoned(&state), tainted), (node != "stays", node != "stays"), "{node}: {:?}", ours(&state));
    }

    for node in ["stops", "hibernates", "held"] {
        world.patch_node_status(node, &booted("second")).await;
    }
    let released = |node: &Node| ours(node).iter().all(|key| key == "cordon");
    world.node_when("stops", "released", ANSWER, |node| ours(node).is_empty()).await;
    world.node_when("hibernates", "released", ANSWER, |node| ours(node).is_empty()).await;
    let held = world.node_when("held", "released", ANSWER, released).await;
    assert!(is_cordoned(&held), "whoever cordoned it has not changed his mind");
}

/// What a kubelet says after a boot with this ID.
fn booted(id: &str) -> Value {
    let names = ["machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion"];
    let mut info: Value = names.map(|name| (name, "test")).into_iter().collect();
    for (name, value) in
        [("kubeProxyVersion", ""), ("operatingSystem", "linux"), ("architecture", "amd64"), ("bootID", id)]
    {
        info[name] = json!(value);
    }
    json!({"nodeInfo": info})
}
