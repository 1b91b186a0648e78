//! The product on AWS, end to end.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use spot_tests::{
    Migrator, Workload, World,
    aws::{Call, Cloud, Fault, Group, Instance, REGION, cloud::CLUSTER},
    control_plane::User,
    wait::{PATIENCE, until},
};

/// How long a run may take.
pub(super) const RUN: Duration = Duration::from_mins(5);

/// The access key of the product.
pub(super) const PRODUCT: &str = "PRODUCT";

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_on_demand_instances_ends_through_its_group_and_nothing_is_bought_again() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    let target_group = target_group(&cloud, 1).await;
    let balanced = Group::on_demand("od", 4).field("TargetGroupARNs", json!([target_group]));
    let (web, on_demand) = on_both(&world, &cloud, balanced).await;

    let migrator = install(&world, &cloud).await;
    let witness = world.witness().await;
    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    cloud.settled(&world).await;
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    let (desired, members) = cloud.aws().group("od").await;
    assert_eq!((desired, members), (0, Vec::new()));
    let instances = cloud.instances().await;
    assert_eq!(instances.len(), 4 + 2, "nothing was bought: {instances:?}");
    assert!(on_demand.iter().all(|id| instances[id].state == "terminated"), "{instances:?}");
    let spot = instances.values().filter(|instance| instance.is_running());
    let spot: BTreeSet<_> = spot.map(|instance| instance.private_dns_name.clone()).collect();
    assert_eq!(world.nodes().await.into_keys().collect::<BTreeSet<_>>(), spot);
    witness.assert_budget_kept(&web);
    let audit = world.audit().await;
    let by_us: Vec<_> = audit.deletes_by(User::Migrator, "nodes").map(ToString::to_string).collect();
    assert_eq!(by_us, Vec::<String>::new(), "the cloud controller manager removes the Nodes of ended instances");

    let calls = cloud.aws().calls_of(PRODUCT).await;
    let refused: Vec<_> = calls.iter().filter(|call| !call.succeeded()).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let changes: Vec<_> = calls.iter().filter(|call| call.changes()).map(|call| call.action.as_str()).collect();
    let expected = |action: &str| changes.iter().filter(|change| **change == action).count();
    assert_eq!(expected("TerminateInstanceInAutoScalingGroup"), 4, "{changes:?}");
    assert_eq!(expected("DeregisterTargets"), 4, "{changes:?}");
    assert_eq!(changes.len(), 8, "nothing else is changed: {changes:?}");
    for id in &on_demand {
        let at = |action: &str| calls.iter().position(|call| call.action == action && names(call, id));
        let (deregistered, ended) = (at("DeregisterTargets"), at("TerminateInstanceInAutoScalingGroup"));
        assert!(deregistered.is_some() && deregistered < ended, "{id}: {deregistered:?}, {ended:?}");
    }
    assert!(calls.iter().filter(|call| call.action.starts_with("Terminate")).all(decrements), "{calls:?}");
    // Of four nodes, one after the other: each survey asks about all of them at once.
    assert!(calls.len() <= 4 * 30, "{} calls", calls.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_at_its_minimum_is_left_alone_and_the_other_one_still_moves() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    cloud.create(&world, &[Group::on_demand("held", 2).minimum(2)]).await;
    let held: BTreeSet<_> = cloud.instances().await.into_values().map(|instance| instance.private_dns_name).collect();
    let (web, _) = on_both(&world, &cloud, Group::on_demand("od", 2)).await;

    let migrator = install(&world, &cloud).await;
    let plan = migrator.plan(&[]);
    assert!(plan.contains("minimum"), "{plan}");
    let witness = world.witness().await;
    migrator.run_once(RUN).await.assert_code(0);
    cloud.settled(&world).await;
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    assert_eq!(cloud.aws().group("held").await.0, 2);
    assert_eq!(cloud.aws().group("od").await.0, 0);
    let cordoned: BTreeSet<_> = witness.cordoned().into_iter().collect();
    assert!(cordoned.is_disjoint(&held), "nothing of it was touched: {cordoned:?}");
    let calls = cloud.aws().calls_of(PRODUCT).await;
    let refused: Vec<_> = calls.iter().filter(|call| !call.succeeded()).collect();
    assert!(refused.is_empty(), "it was known before anything was asked for: {refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_reaches_its_minimum_in_mid_retirement_keeps_its_machine_and_the_node_is_released() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    let target_group = target_group(&cloud, 5).await;
    let balanced = Group::on_demand("od", 2).field("TargetGroupARNs", json!([target_group]));
    on_both(&world, &cloud, balanced).await;

    let running = install(&world, &cloud).await.run(&["--once"]);
    until("a target to drain, after everything was looked at", PATIENCE, || async {
        let calls = cloud.aws().calls_of(PRODUCT).await;
        let draining = calls.iter().any(|call| call.action == "DeregisterTargets");
        if draining { Ok(()) } else { Err(format!("{} calls", calls.len())) }
    })
    .await;
    let minimum = json!({"AutoScalingGroupName": "od", "MinSize": 2});
    cloud.aws().call("autoscaling", "UpdateAutoScalingGroup", minimum).await;
    let ended = running.ended(RUN).await;
    ended.assert_code(1);
    let reports: Vec<_> = ended.output.lines().filter(|line| line.contains("node released")).collect();
    assert!(matches!(reports[..], [one] if one.contains("group_at_minimum")), "{}", ended.output);
    assert!(ended.output.contains("backing_off=1"), "{}", ended.output);
    cloud.settled(&world).await;

    let instances = cloud.instances().await;
    assert!(instances.len() == 4 && instances.values().all(Instance::is_running), "{instances:?}");
    for (name, node) in world.nodes().await {
        let spec = node.spec.unwrap_or_default();
        assert_ne!(spec.unschedulable, Some(true), "{name} is cordoned: {}", ended.output);
        assert_eq!(spec.taints, None, "{name} is tainted: {}", ended.output);
    }
    let calls = cloud.aws().calls_of(PRODUCT).await;
    let ends = calls.iter().filter(|call| call.action.starts_with("Terminate") && call.succeeded());
    assert_eq!(ends.count(), 0, "{}", ended.output);
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_errors_and_lost_answers_end_in_the_same_state() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    let (web, on_demand) = on_both(&world, &cloud, Group::on_demand("od", 2)).await;
    let faults = cloud.aws().faults();
    // Of the reads one each: the checks at the start have half a minute for all of them.
    let end = "TerminateInstanceInAutoScalingGroup";
    let injected = [
        ("DescribeInstances", Fault::Throttled),
        ("DescribeAutoScalingInstances", Fault::Reset),
        ("DescribeAutoScalingGroups", Fault::Internal),
        // In this order: the first member is asked for twice, and the second again after a minute, as nobody knows before
        // that whether its group was asked already.
        (end, Fault::Throttled),
        (end, Fault::AnswerLost),
        (end, Fault::Internal),
    ];
    for (operation, fault) in injected {
        faults.inject(operation, fault, 1).await;
    }

    let migrator = install(&world, &cloud).await;
    migrator.run_once(RUN).await.assert_code(0);
    cloud.settled(&world).await;
    world.settled(std::slice::from_ref(&web)).await;

    assert_eq!(faults.fired().await.len(), injected.len());
    let (desired, members) = cloud.aws().group("od").await;
    assert_eq!((desired, members), (0, Vec::new()));
    let instances = cloud.instances().await;
    assert_eq!(instances.len(), 2 + 2, "nothing was bought");
    assert!(on_demand.iter().all(|id| instances[id].state == "terminated"), "{instances:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_service_is_asked_only_when_told_to() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    // No credentials: the metadata service would be the last resort.
    let without_credentials = |told: &str| {
        let cleared = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let environment = cloud.aws().environment(PRODUCT).into_iter().filter(move |(name, _)| !cleared.contains(name));
        let told = ("AWS_EC2_METADATA_DISABLED", told.to_owned());
        environment.chain([told, ("AWS_EC2_METADATA_SERVICE_ENDPOINT", cloud.aws().metadata_endpoint().to_owned())])
    };
    let migrator = Migrator::install(&world, configuration(&cloud)).await;
    for (told, asks) in [("", false), ("true", false), ("false", true)] {
        let ended = migrator.clone().with_environment(without_credentials(told)).run_once(RUN).await;
        assert_ne!(ended.code, Some(0), "it has no credentials: {}", ended.output);
        let metadata = cloud.aws().calls_of("").await;
        assert_eq!(metadata.iter().any(|call| call.action.contains("/latest/")), asks, "{told:?}: {metadata:?}");
    }
}

/// A workload on the instances of `group`, and then two spot instances for it to go to. With it, the instances' IDs.
async fn on_both(world: &World, cloud: &Cloud, group: Group) -> (Workload, BTreeSet<String>) {
    let before: BTreeSet<_> = cloud.instances().await.into_keys().collect();
    cloud.create(world, &[group]).await;
    let on_demand = cloud.instances().await.into_keys().filter(|id| !before.contains(id)).collect();
    let web = Workload::deployment("web", 12).max_unavailable(2);
    world.run(std::slice::from_ref(&web)).await;
    cloud.create(world, &[Group::spot("spot", 2)]).await;
    (web, on_demand)
}

async fn install(world: &World, cloud: &Cloud) -> Migrator {
    let migrator = Migrator::install(world, configuration(cloud)).await;
    migrator.with_environment(cloud.aws().environment(PRODUCT))
}

pub(super) fn configuration(cloud: &Cloud) -> Value {
    let aws = json!({"region": REGION, "clusterName": CLUSTER, "endpointUrl": cloud.aws().endpoint()});
    json!({"cloudProvider": {"name": "aws", "aws": aws}})
}

/// A target group whose targets drain for so many seconds.
async fn target_group(cloud: &Cloud, seconds: u32) -> String {
    let create = json!({"Name": "web", "Protocol": "HTTP", "Port": 80, "VpcId": cloud.vpc()});
    let answer = cloud.aws().call("elbv2", "CreateTargetGroup", create).await;
    let arn = answer["TargetGroups"][0]["TargetGroupArn"].as_str().expect("it has an ARN").to_owned();
    let attribute = json!({"Key": "deregistration_delay.timeout_seconds", "Value": seconds.to_string()});
    let modify = json!({"TargetGroupArn": arn, "Attributes": [attribute]});
    cloud.aws().call("elbv2", "ModifyTargetGroupAttributes", modify).await;
    arn
}

/// Whether `call` has `id` among its parameters.
fn names(call: &Call, id: &str) -> bool {
    call.parameters.values().any(|value| value == id)
}

fn decrements(call: &Call) -> bool {
    call.parameters.get("ShouldDecrementDesiredCapacity") == Some(&json!("true"))
}
