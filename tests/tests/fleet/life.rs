//! The whole life of a pool.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;
use spot_tests::{
    Workload,
    aws::Instance,
    fleet::POOL,
    wait::{PATIENCE, until},
};

use super::{COMMAND, MEMBER_OF, Scene, assert_fell_by_what_went, on_the_pool, weight, weights};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_created_scaled_rolled_and_deleted_and_nothing_of_it_is_left() {
    let scene = Scene::without_roles(json!({})).await;
    let (world, aws) = (&scene.world, scene.cloud.aws());
    let witness = world.witness().await;
    // It would run on any node that has no taint.
    let stranger = Workload::deployment("stranger", 2);
    world.create(std::slice::from_ref(&stranger)).await;

    scene.fleet.create_role(&["--yes"], COMMAND).await.assert_code(0);
    scene.fleet.run("plan", &["--detailed-exit-code"], COMMAND).await.assert_code(3);
    scene.created().await;
    scene.fleet.run("plan", &["--detailed-exit-code"], COMMAND).await.assert_code(0);

    let machines = scene.machines().await;
    assert_eq!(machines.iter().map(weight).collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]));
    assert_eq!(machines.iter().map(|one| one.subnet.as_str()).collect::<BTreeSet<_>>().len(), 2, "{machines:?}");
    for machine in &machines {
        assert_tagged(machine);
    }
    scene.balanced().await;
    witness.caught_up().await;
    for machine in &machines {
        let first = witness.states_of(&machine.private_dns_name).remove(0);
        assert_told(&first);
    }
    let bound = world.pods(&stranger).await.into_iter().filter_map(|pod| pod.spec?.node_name).collect::<Vec<_>>();
    assert_eq!(bound, Vec::<String>::new(), "the taints were there before a pod could be placed");

    let web = on_the_pool(Workload::deployment("web", 6)).max_unavailable(1);
    world.run(std::slice::from_ref(&web)).await;
    let witness = world.witness().await;

    // Smaller.
    let before = scene.calls().await.len();
    let target = BTreeMap::from([(scene.only_fleet().await.id, 6)]);
    scene.fleet.run("scale", &["--to", "3"], COMMAND).await.assert_code(0);
    scene.cloud.settled(world).await;
    let fleet = scene.only_fleet().await;
    assert_eq!((fleet.target, weights(&scene.machines().await)), (3, 3));
    assert_fell_by_what_went(&scene.calls().await[before..], &scene.cloud.instances().await, &target);
    scene.balanced().await;

    // New machines for old ones.
    let image = &scene.ground.images[1];
    let changed = scene.fleet.clone().with_pool(json!({"targetCapacity": 3, "image": image}));
    changed.run("plan", &["--detailed-exit-code"], COMMAND).await.assert_code(3);
    let (before, target) = (scene.calls().await.len(), BTreeMap::from([(fleet.id.clone(), 3)]));
    changed.run("roll", &[], COMMAND).await.assert_code(0);
    scene.cloud.settled(world).await;
    let rolled = scene.only_fleet().await;
    assert_ne!(rolled.id, fleet.id);
    assert_eq!((rolled.target, weights(&scene.machines().await)), (3, 3));
    assert!(scene.machines().await.iter().all(|machine| machine.tags[MEMBER_OF] == rolled.id));
    assert_eq!(images(&scene).await, BTreeSet::from([image.clone()]));
    assert_fell_by_what_went(&scene.calls().await[before..], &scene.cloud.instances().await, &target);
    scene.balanced().await;
    changed.run("plan", &["--detailed-exit-code"], COMMAND).await.assert_code(0);
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;
    witness.assert_budget_kept(&web);

    // Not while pods can't be evicted.
    let stuck = on_the_pool(Workload::deployment("stuck", 1)).max_unavailable(0);
    world.run(std::slice::from_ref(&stuck)).await;
    let before = scene.changes().await.len();
    let refused = changed.run("delete", &["--yes"], COMMAND).await;
    assert_ne!(refused.code, Some(0), "{}", refused.output);
    assert!(refused.output.contains("stuck"), "{}", refused.output);
    assert_eq!(scene.changes().await.len(), before, "nothing was touched");
    assert_eq!(weights(&scene.machines().await), 3);

    // Nothing is left.
    for name in ["stuck", "web"] {
        let _deleted = world.control_plane().kubectl(&["delete", "deployment,poddisruptionbudget", name, "--wait"]);
    }
    changed.run("delete", &["--yes"], COMMAND).await.assert_code(0);
    assert!(world.nodes().await.is_empty(), "{:?}", world.nodes().await.keys());
    let left: Vec<_> = scene.cloud.instances().await.into_values().filter(|one| one.state != "terminated").collect();
    assert_eq!(left, Vec::new());
    assert!(scene.fleets().await.is_empty());
    let templates = aws.call("ec2", "DescribeLaunchTemplates", json!({})).await;
    assert_eq!(templates["LaunchTemplates"], json!([]));
    until("the last target to be drained", PATIENCE, || async {
        let registered = aws.registered(&scene.ground).await;
        if registered == (Vec::new(), Vec::new()) { Ok(()) } else { Err(format!("{registered:?}")) }
    })
    .await;
    let refused: Vec<_> = scene.changes().await.into_iter().filter(|call| !call.succeeded()).collect();
    assert!(refused.is_empty(), "nothing was asked for in vain: {refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_can_be_created_again_and_created_twice_is_bought_once() {
    let scene = Scene::start(json!({"targetCapacity": 2})).await;
    scene.created().await;
    let first = scene.only_fleet().await;
    scene.created().await;
    assert_eq!(scene.only_fleet().await.id, first.id);
    assert_eq!(scene.cloud.instances().await.len(), scene.machines().await.len(), "nothing was bought twice");
    scene.fleet.run("delete", &["--yes"], COMMAND).await.assert_code(0);
    scene.created().await;
    let second = scene.only_fleet().await;
    assert_ne!(second.id, first.id);
    assert!(weights(&scene.machines().await) >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_template_of_user_data_reaches_the_kubelet_before_a_pod_does() {
    let scene = Scene::start(json!({"targetCapacity": 1})).await;
    let kubernetes = json!({"apiServer": "https://api.test", "certificateAuthority": "bm9uZQ=="});
    let mut nodeadm = kubernetes.clone();
    nodeadm["serviceCidr"] = json!("10.96.0.0/12");
    for (kind, settings) in [("nodeadm", nodeadm), ("bottlerocket", kubernetes)] {
        let witness = scene.world.witness().await;
        let fleet = scene.fleet.clone().without("userData").with_pool(json!({"userData": {kind: settings}}));
        fleet.run("create", &[], COMMAND).await.assert_code(0);
        scene.cloud.settled(&scene.world).await;
        let machines = scene.machines().await;
        assert!(!machines.is_empty());
        witness.caught_up().await;
        for machine in machines {
            assert_told(&witness.states_of(&machine.private_dns_name).remove(0));
        }
        fleet.run("delete", &["--yes"], COMMAND).await.assert_code(0);
    }
}

/// The labels and taints of the pool's file, and those that every pool has.
fn assert_told(node: &Node) {
    let labels = node.labels();
    for (key, value) in
        [("example.org/workload", "batch"), ("node.kubernetes.io/lifecycle", "spot"), ("spot-migrator.io/pool", POOL)]
    {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{}: {labels:?}", node.name_any());
    }
    let taints: Vec<_> = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).collect();
    let told = taints.iter().any(|taint| {
        (taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str())
            == ("example.org/batch", Some("yes"), "NoSchedule")
    });
    assert!(told, "{}: {taints:?}", node.name_any());
}

fn assert_tagged(machine: &Instance) {
    for (key, value) in [
        ("kubernetes.io/cluster/test", "owned"),
        ("KubernetesCluster", "test"),
        ("Name", "test-workers"),
        ("spot-migrator.io/pool", POOL),
    ] {
        assert_eq!(machine.tags.get(key).map(String::as_str), Some(value), "{machine:?}");
    }
    assert!(machine.tags.contains_key("spot-migrator.io/pool-hash"), "{machine:?}");
}

/// The images of the machines that run.
async fn images(scene: &Scene) -> BTreeSet<String> {
    let running = json!({"Filters": [{"Name": "instance-state-name", "Values": ["running"]}]});
    let answer = scene.cloud.aws().call("ec2", "DescribeInstances", running).await;
    let reservations = answer["Reservations"].as_array().into_iter().flatten();
    let instances = reservations.flat_map(|reservation| reservation["Instances"].as_array().into_iter().flatten());
    instances.filter_map(|instance| instance["ImageId"].as_str()).map(str::to_owned).collect()
}
