//! `check` on AWS: the rights, the groups, and the machines that nobody sees.

use std::time::Duration;

use serde_json::json;
use spot_tests::{
    Migrator, World,
    aws::{Cloud, Group, Instance, cloud::CLUSTER},
    wait::PATIENCE,
};

use crate::migration::{PRODUCT, configuration};
use crate::refusals::run_instance;

/// What a run asks AWS for in a cluster of groups and a target group.
const ASKED: [&str; 14] = [
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceAttribute",
    "ec2:TerminateInstances",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeInstanceRefreshes",
    "autoscaling:DescribeLifecycleHooks",
    "ec2:DescribeFleets",
    "ec2:DescribeSpotFleetRequests",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTags",
    "elasticloadbalancing:DescribeTargetHealth",
    "elasticloadbalancing:DescribeLoadBalancers",
    "ec2:DescribeSpotPriceHistory",
];

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_of_every_right_of_groups_and_machines_in_a_fixed_order_and_changes_nothing() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    let target_group = json!({"Name": "web", "Protocol": "HTTP", "Port": 80, "VpcId": cloud.vpc()});
    cloud.aws().call("elbv2", "CreateTargetGroup", target_group).await;
    let groups =
        [Group::on_demand("held", 1).minimum(1), Group::spot("early", 1).field("CapacityRebalance", json!(true))];
    cloud.create(&world, &groups).await;
    let lost = without_node(&world, &cloud).await;
    let migrator =
        Migrator::install(&world, configuration(&cloud)).await.with_environment(cloud.aws().environment(PRODUCT));

    let check = migrator.check();
    check.assert_code(0);
    let lines: Vec<_> = check.output.lines().filter(|line| !line.starts_with(' ')).collect();
    let mut subjects: Vec<_> = lines.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    subjects.dedup();
    let in_order =
        ["configuration", "schedule", "cluster", "rights", "cluster", "clock", "lease", "autoscaler", "cloud"];
    assert_eq!(subjects, in_order, "{}", check.output);
    let answered: Vec<_> = lines.iter().filter_map(|line| line.strip_suffix(" is answered")).collect();
    let expected: Vec<_> = ASKED.iter().map(|right| format!("ok       cloud          {right}")).collect();
    assert_eq!(answered, expected, "{}", check.output);
    for advice in [
        format!("instances of the cluster run without a Node: {}", lost.id),
        "group held has 1 and may not have less than 1: none of its 1 on-demand nodes can go".to_owned(),
        "group early replaces spot instances when EC2 recommends it".to_owned(),
        "whether a cluster-autoscaler prefers spot is not known".to_owned(),
    ] {
        assert_followed_by_a_remedy("advice", &advice, &check.output);
    }
    assert_eq!(lines.iter().filter(|line| line.starts_with("advice")).count(), 4, "{}", check.output);

    cloud.aws().deny(&["autoscaling:DescribeInstanceRefreshes", "ec2:DescribeSpotPriceHistory"]).await;
    let denied = migrator.check();
    denied.assert_code(1);
    let call = "not allowed to call autoscaling:DescribeInstanceRefreshes, see deploy/iam/spot-migrator.json";
    assert_followed_by_a_remedy("failure", call, &denied.output);
    assert_followed_by_a_remedy("advice", "not allowed to call ec2:DescribeSpotPriceHistory", &denied.output);
    let failures = denied.output.lines().filter(|line| line.starts_with("failure")).count();
    assert_eq!(failures, 1, "{}", denied.output);
    assert!(denied.output.contains("group held has 1"), "what can be told is told: {}", denied.output);

    let calls = cloud.aws().calls_of(PRODUCT).await;
    assert!(!calls.is_empty() && calls.iter().all(|call| !call.changes()), "it only asks: {calls:?}");
    assert!(cloud.instances().await.values().all(Instance::is_running));
}

/// An instance of the cluster that has had the time to join, and whose Node is gone.
async fn without_node(world: &World, cloud: &Cloud) -> Instance {
    let lost = run_instance(cloud, CLUSTER).await;
    world.node_when(&lost.private_dns_name, "there", PATIENCE, |_| true).await;
    world.delete_node(&lost.private_dns_name).await;
    cloud.aws().age(Duration::from_hours(1)).await;
    lost
}

/// Fails the test unless a line with this verdict tells it, and the next one what would help.
fn assert_followed_by_a_remedy(verdict: &str, words: &str, output: &str) {
    let mut lines = output.lines();
    let line = lines.find(|line| line.contains(words));
    assert!(line.is_some_and(|line| line.starts_with(verdict)), "no {verdict} tells {words} in\n{output}");
    let remedy = lines.next().unwrap_or_default().trim_start();
    assert!(remedy.starts_with('→'), "{words} has no remedy in\n{output}");
}
