//! A pool beside `spot-migrator`: it moves pods onto the pool, and answers for the pool's machines.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use spot_tests::{
    Migrator, Sqs, Workload,
    aws::{Call, Group, Instance, REGION, cloud::CLUSTER},
    notice, rights,
    wait::{PATIENCE, until},
};

use super::{COMMAND, MEMBER_OF, STILL, Scene, on_the_pool, weight, weights};

/// The access key of `spot-migrator`.
const MIGRATOR: &str = "MIGRATOR";

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_machine_leaves_the_pools_balancers_before_it_ends_and_is_replaced() {
    let scene = Scene::start(json!({})).await;
    let (world, aws) = (&scene.world, scene.cloud.aws());
    let sqs = Sqs::before(aws).await;
    let queue = sqs.queue("interruptions");
    scene.created().await;
    scene.balanced().await;
    let web = on_the_pool(Workload::deployment("web", 6)).max_unavailable(1);
    world.run(std::slice::from_ref(&web)).await;
    let (before, fleet) = (scene.machines().await, scene.only_fleet().await);
    let leaving = before.iter().find(|machine| weight(machine) == 2).expect("there is one of each weight");

    let answers = json!({"schedule": "@every 1h", "interruption": {"queueUrl": queue.url()}});
    let migrator = migrator(&scene, sqs.endpoint(), answers).await;
    rights::grant_answers(world).await;
    let running = migrator.with_environment(sqs.environment(MIGRATOR)).run(&[]);
    let message = queue.send(notice::interruption(&leaving.id, "terminate"));
    queue.deleted(&[message], PATIENCE).await;
    until("the machine to be served by nobody", PATIENCE, || async {
        let (classic, group) = aws.registered(&scene.ground).await;
        let served = classic.contains(&leaving.id) || group.contains(&leaving.id);
        if served { Err(format!("{classic:?}, {group:?}")) } else { Ok(()) }
    })
    .await;
    assert_eq!(world.pods_on(&leaving.private_dns_name).await.len(), 0);
    assert_eq!(ids(&scene.machines().await), ids(&before), "EC2 ends it, and nobody else");
    let calls = aws.calls_of(MIGRATOR).await;
    let changes: Vec<_> = calls.iter().filter(|call| call.changes()).collect();
    let names = |call: &Call| call.parameters.values().any(|value| *value == *leaving.id);
    assert!(changes.iter().all(|call| call.succeeded() && names(call)), "{changes:?}");
    let actions: BTreeSet<_> = changes.iter().map(|call| call.action.as_str()).collect();
    assert_eq!(actions, BTreeSet::from(["DeregisterInstancesFromLoadBalancer", "DeregisterTargets"]));

    // As EC2 does when the two minutes are over.
    aws.call("ec2", "TerminateInstances", json!({"InstanceIds": [leaving.id]})).await;
    until("the machine to be replaced", PATIENCE, || async {
        let machines = scene.machines().await;
        let stays = machines.iter().all(|machine| machine.id != leaving.id);
        if stays && weights(&machines) >= 6 { Ok(()) } else { Err(format!("{machines:?}")) }
    })
    .await;
    scene.cloud.settled(world).await;
    scene.balanced().await;
    world.settled(std::slice::from_ref(&web)).await;
    let now = scene.only_fleet().await;
    assert_eq!((now.id, now.target), (fleet.id, 6), "nobody changed what the fleet wants");
    running.terminate(COMMAND).await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_takes_two_nodes_at_once_for_what_a_pool_still_launches_and_their_pods_move_onto_it() {
    let scene = Scene::start(json!({"targetCapacity": 0, "taints": []})).await;
    let (world, aws) = (&scene.world, scene.cloud.aws());
    scene.cloud.create(world, &[Group::on_demand("od", 3)]).await;
    let on_demand: BTreeSet<_> = world.nodes().await.into_keys().collect();
    let web = Workload::deployment("web", 6).max_unavailable(2);
    world.run(std::slice::from_ref(&web)).await;
    scene.created().await;

    // The fleet wants three units, and launches none of them before its change is over.
    let fleet = scene.only_fleet().await;
    aws.pace(STILL).await;
    let change = json!({"SpotFleetRequestId": fleet.id, "TargetCapacity": 3});
    aws.call("ec2", "ModifySpotFleetRequest", change).await;
    let witness = world.witness().await;
    let migrator = migrator(&scene, aws.endpoint(), json!({"selection": {"nodesAtOnce": 2}})).await;
    let running = migrator.with_environment(aws.environment(MIGRATOR)).run(&["--once"]);
    until("two nodes to be cordoned", PATIENCE, || async {
        let cordoned = witness.most_cordoned();
        if cordoned == 2 { Ok(()) } else { Err(format!("{cordoned}; it printed {}", running.process().output())) }
    })
    .await;
    assert_eq!(world.nodes().await.into_keys().collect::<BTreeSet<_>>(), on_demand, "the pool has no node yet");
    aws.pace(Duration::from_secs(1)).await;
    running.ended(COMMAND).await.assert_code(0);
    scene.cloud.settled(world).await;
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    assert_eq!(aws.group("od").await.0, 0);
    let machines = scene.machines().await;
    assert!(machines.iter().all(|machine| machine.tags[MEMBER_OF] == fleet.id), "{machines:?}");
    let names: BTreeSet<_> = machines.iter().map(|machine| machine.private_dns_name.clone()).collect();
    assert_eq!(world.nodes().await.into_keys().collect::<BTreeSet<_>>(), names, "only the pool is left");
    assert_eq!(scene.only_fleet().await.target, 3);
    witness.assert_budget_kept(&web);
}

/// `spot-migrator` with its rights, without an environment.
async fn migrator(scene: &Scene, endpoint: &str, changes: Value) -> Migrator {
    let aws = json!({"region": REGION, "clusterName": CLUSTER, "endpointUrl": endpoint});
    let mut configuration = json!({"cloudProvider": {"name": "aws", "aws": aws}});
    spot_tests::migrator::merge(&mut configuration, changes);
    Migrator::install(&scene.world, configuration).await
}

fn ids(machines: &[Instance]) -> BTreeSet<&str> {
    machines.iter().map(|machine| machine.id.as_str()).collect()
}
