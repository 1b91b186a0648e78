//! The test world keeps its promises: what the end-to-end tests rely on is true of it.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use std::time::Duration;

use k8s_openapi::api::{core::v1::Pod, policy::v1::Eviction};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use spot_tests::{
    Machine, Verb, Workload, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pods_run_on_twenty_four_nodes() {
    let world = World::start().await;
    let machines: Vec<_> = (0..24).map(|number| Machine::spot(&format!("spot-{number}"))).collect();
    world.join(&machines).await;
    let web = Workload::deployment("web", 176).max_unavailable(10);
    let agent = Workload::daemon_set("agent");
    world.run(&[web.clone(), agent.clone()]).await;

    let pods = [world.pods(&web).await, world.pods(&agent).await].concat();
    assert_eq!(pods.len(), 200);
    for pod in pods {
        assert_eq!(pod.status.and_then(|status| status.phase).as_deref(), Some("Running"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_of_another_uid_is_refused_with_409_and_one_that_a_budget_blocks_with_429() {
    let world = World::start().await;
    world.join(&[Machine::spot("spot-1")]).await;
    let (free, held) = (Workload::deployment("free", 1), Workload::deployment("held", 1).max_unavailable(0));
    world.run(&[free.clone(), held.clone()]).await;
    let free = world.pods(&free).await.into_iter().next().expect("it runs");
    let held = world.pods(&held).await.into_iter().next().expect("it runs");
    let (others, uid) = ("00000000-0000-0000-0000-000000000000", held.uid().expect("a pod has a UID"));

    let wrong = evict(&world, &free, others).await.expect_err("the UID is another's");
    assert_eq!((wrong.code, wrong.reason.as_str()), (409, "Conflict"));

    let blocked = evict(&world, &held, &uid).await.expect_err("the budget allows none");
    let causes = blocked.details.iter().flat_map(|details| &details.causes).map(|cause| cause.reason.as_str());
    assert_eq!((blocked.code, causes.collect::<Vec<_>>()), (429, vec!["DisruptionBudget"]));

    let audit = world.audit().await;
    let answers: Vec<_> = audit.evictions_by(User::Admin).map(|entry| (entry.code, entry.uid_precondition())).collect();
    assert_eq!(answers, [(409, Some(others)), (429, Some(uid.as_str()))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_witness_sees_how_many_pods_were_down_and_how_many_nodes_cordoned() {
    let world = World::start().await;
    world.join(&[Machine::spot("spot-1"), Machine::spot("spot-2")]).await;
    let web = Workload::deployment("web", 4).max_unavailable(1).ready_after("1s");
    world.run(std::slice::from_ref(&web)).await;
    let witness = world.witness().await;

    let pods = world.pods(&web).await;
    let (first, second) = (&pods[0], &pods[1]);
    evict(&world, first, &first.uid().expect("it has one")).await.expect("the budget allows one");
    let answer = evict(&world, second, &second.uid().expect("it has one")).await.expect_err("and no second");
    assert_eq!(answer.code, 429);
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;
    assert_eq!(witness.fewest_up(&web), 3, "one was evicted, and its successor takes a second");
    witness.assert_budget_kept(&web);
    assert_eq!(witness.pods_gone().iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [first.name_any()]);

    // A deletion asks no budget.
    let pods: Api<Pod> = Api::namespaced(world.client(), "default");
    for pod in world.pods(&web).await.iter().take(2) {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await.expect("the pod can be deleted");
    }
    world.settled(std::slice::from_ref(&web)).await;
    for (node, cordoned) in [("spot-1", true), ("spot-2", true), ("spot-1", false)] {
        let verb = if cordoned { "cordon" } else { "uncordon" };
        assert!(world.control_plane().kubectl(&[verb, node]).contains(verb));
    }
    witness.caught_up().await;
    assert_eq!(witness.fewest_up(&web), 2);
    assert_eq!(witness.most_cordoned(), 2);
    assert_eq!(witness.cordoned(), ["spot-1", "spot-2"]);
    let audit = world.audit().await;
    assert_eq!(audit.deletes_by(User::Admin, "pods").count(), 2);
    assert_eq!(audit.writes_by(User::Admin).filter(|entry| entry.verb == Verb::Patch).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn karpenter_buys_spot_then_on_demand_and_a_machine_ends_with_its_node() {
    let world = World::with_karpenter().await;
    let first = Workload::deployment("first", 2).cpu("1");
    world.run(std::slice::from_ref(&first)).await;
    assert_eq!(capacity_types(&world).await, ["spot"]);

    world.karpenter().exhaust_spot().await;
    let second = Workload::deployment("second", 3).cpu("1");
    world.run(std::slice::from_ref(&second)).await;
    assert_eq!(capacity_types(&world).await, ["on-demand", "spot"]);

    let bought = world.nodes().await.into_values().find(|node| capacity_type(node) == "on-demand");
    let bought = bought.expect("an on-demand node was bought").name_any();
    world.delete_node(&bought).await;
    until("the machine to end", PATIENCE, || async {
        let machines = world.karpenter().machines().await;
        if machines.iter().any(|machine| bought.contains(machine.as_str())) {
            Err(format!("{machines:?}"))
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_stop_after_the_time_that_they_ask_for() {
    let world = World::start().await;
    world.join(&[Machine::spot("spot-1")]).await;
    let slow = Workload::deployment("slow", 1).stop_after("1h");
    world.run(std::slice::from_ref(&slow)).await;
    let pod = world.pods(&slow).await.into_iter().next().expect("it runs");
    evict(&world, &pod, &pod.uid().expect("it has one")).await.expect("nothing blocks it");
    // Its successor is up, and it is still stopping.
    until("both pods to be there", Duration::from_secs(30), || async {
        let stopping =
            world.pods(&slow).await.iter().map(|pod| pod.metadata.deletion_timestamp.is_some()).collect::<Vec<_>>();
        if stopping.len() == 2 && stopping.contains(&true) { Ok(()) } else { Err(format!("{stopping:?}")) }
    })
    .await;
}

async fn evict(world: &World, pod: &Pod, uid: &str) -> Result<(), Box<kube::core::Status>> {
    let name = pod.name_any();
    let eviction: Eviction = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }))
    .expect("the fields are those of an Eviction");
    let pods: Api<Pod> = Api::namespaced(world.client(), "default");
    match pods.create_subresource::<_, Value>("eviction", &name, &PostParams::default(), &eviction).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status),
        Err(other) => Err(Box::new(kube::core::Status::failure(&other.to_string(), "no answer"))),
    }
}

async fn capacity_types(world: &World) -> Vec<String> {
    let mut types: Vec<_> = world.nodes().await.values().map(capacity_type).collect();
    types.sort();
    types
}

fn capacity_type(node: &k8s_openapi::api::core::v1::Node) -> String {
    node.labels().get("karpenter.sh/capacity-type").cloned().unwrap_or_default()
}
