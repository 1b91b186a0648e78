//! What AWS does not give: one clear sentence, and its remedy.

use serde_json::{Value, json};
use spot_tests::{
    SpotFleet,
    aws::{cloud::network, fleet::ROLE},
};

use super::{COMMAND, Scene};

/// What helps where a right is missing.
const POLICY: &str = "attach deploy/iam/spot-fleet.json";
/// Why a fleet gets nothing of types that are sold out, and what helps.
const NO_CAPACITY: [&str; 2] = ["no spot capacity", "add instance types to `launchSpecifications`"];

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_names_and_is_not_there_is_told_with_a_remedy_and_nothing_is_created() {
    let scene = Scene::without_roles(json!({})).await;
    let aws = scene.cloud.aws();
    let roles = create(&scene, &scene.fleet).await;
    assert_told(&roles, &[ROLE, "spot-fleet create-role"]);
    aws.create_fleet_roles().await;

    let (_, elsewhere) = network(aws).await;
    let of_two = json!({"subnets": [scene.cloud.subnets()[0], elsewhere[1]]});
    let unknown = json!({"launchSpecifications": [{"instanceType": "m5.large"}, {"instanceType": "m5.tiny"}]});
    for (changes, words) in [
        (of_two, [elsewhere[1].as_str(), "name only what is in one VPC in `subnets`"]),
        (unknown, ["m5.tiny", "correct `launchSpecifications`"]),
        (json!({"image": "ami-0123456789abcdef0"}), ["ami-0123456789abcdef0", "correct `image`"]),
        (json!({"securityGroups": ["sg-0123456789abcdef0"]}), ["sg-0123456789abcdef0", "correct `securityGroups`"]),
        (json!({"sshKey": "lost-key"}), ["lost-key", "correct `sshKey`"]),
        (json!({"instanceProfile": "lost-profile"}), ["lost-profile", "correct `instanceProfile`"]),
        (json!({"loadBalancers": ["lost-balancer"]}), ["lost-balancer", "correct `loadBalancers`"]),
    ] {
        let output = create(&scene, &scene.fleet.clone().with_pool(changes)).await;
        assert_told(&output, &words);
    }

    aws.deny(&["iam:PassRole"]).await;
    assert_told(&create(&scene, &scene.fleet).await, &["the right iam:PassRole", POLICY]);
    aws.deny(&["ec2:RequestSpotFleet"]).await;
    assert_told(&create(&scene, &scene.fleet).await, &["the right ec2:RequestSpotFleet", POLICY]);
    aws.deny(&[]).await;
    assert_eq!(scene.cloud.instances().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_asked_stops_nothing_and_of_a_pool_that_is_there_nothing_is_asked() {
    let scene = Scene::start(json!({})).await;
    let aws = scene.cloud.aws();
    aws.deny(&["iam:ListAttachedRolePolicies", "ec2:DescribeKeyPairs", "ec2:DescribeSubnets"]).await;
    let ended = scene.fleet.run("create", &[], COMMAND).await;
    ended.assert_code(0);
    assert_told(&ended.output, &[ROLE, "iam:ListAttachedRolePolicies", "attach that policy"]);
    assert_told(&ended.output, &[&scene.cloud.subnets()[0], "the right ec2:DescribeSubnets", POLICY]);
    aws.deny(&["ec2:RequestSpotFleet", "ec2:RunInstances", "iam:PassRole"]).await;
    scene.fleet.run("create", &[], COMMAND).await.assert_code(0);
    aws.deny(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_of_fleets_is_named_as_such() {
    let scene = Scene::start(json!({})).await;
    scene.cloud.aws().market(json!({"fleets": 0})).await;
    let ended = scene.fleet.run("create", &[], COMMAND).await;
    ended.assert_code(1);
    assert_told(&ended.output, &["quota of Spot Fleets", "delete fleets that are not needed"]);
    scene.cloud.aws().market(json!({})).await;
    scene.created().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_gets_too_little_says_why_and_stays_as_it_is() {
    let scene = Scene::start(json!({})).await;
    for (market, changes, words) in [
        (json!({"exhausted": ["m5.large", "m5.xlarge", "m5.2xlarge"]}), json!({}), NO_CAPACITY),
        (json!({"instances": 1}), json!({}), ["quota of spot instances", "ask for more at Service Quotas"]),
        (json!({"prices": {"m5.large": 1.0}}), cheap(), ["above `maxPrice`", "raise it"]),
    ] {
        scene.cloud.aws().market(market.clone()).await;
        let fleet = scene.fleet.clone().with_pool(changes);
        let ended = fleet.run("create", &["--timeout", "10s"], COMMAND).await;
        ended.assert_code(1);
        assert_told(&ended.output, &words);
        let left = scene.only_fleet().await;
        assert_eq!((left.target, left.state.as_str()), (6, "active"), "{market}");
        scene.cloud.aws().market(json!({})).await;
        fleet.run("create", &[], COMMAND).await.assert_code(0);
        fleet.run("delete", &["--yes"], COMMAND).await.assert_code(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_lacks_capacity_as_it_grows_says_why_and_status_says_it_again() {
    let scene = Scene::start(json!({"ready": {"timeout": "10s"}})).await;
    scene.created().await;
    scene.cloud.aws().market(json!({"exhausted": ["m5.large", "m5.xlarge", "m5.2xlarge"]})).await;
    let ended = scene.fleet.run("scale", &["--to", "8"], COMMAND).await;
    ended.assert_code(1);
    assert_told(&ended.output, &["2 units lack", "the fleet says", NO_CAPACITY[0], NO_CAPACITY[1]]);
    let status = scene.fleet.run("status", &[], COMMAND).await;
    status.assert_code(0);
    assert_told(&status.output, &[&scene.only_fleet().await.id, NO_CAPACITY[0], NO_CAPACITY[1]]);
    scene.cloud.aws().market(json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_the_same_name_that_was_made_by_hand_is_refused_and_not_touched() {
    let scene = Scene::start(json!({})).await;
    let aws = scene.cloud.aws();
    let data = json!({"ImageId": scene.ground.images[0], "InstanceType": "m5.large"});
    let template = json!({"LaunchTemplateName": "by-hand", "LaunchTemplateData": data});
    aws.call("ec2", "CreateLaunchTemplate", template).await;
    let name = json!({"Key": "Name", "Value": "test-workers"});
    let config = json!({
        "IamFleetRole": format!("arn:aws:iam::123456789012:role/{ROLE}"),
        "TargetCapacity": 1,
        "TagSpecifications": [{"ResourceType": "spot-fleet-request", "Tags": [name]}],
        "LaunchTemplateConfigs": [{
            "LaunchTemplateSpecification": {"LaunchTemplateName": "by-hand", "Version": "1"},
            "Overrides": [{"SubnetId": scene.cloud.subnets()[0]}],
        }],
    });
    let answer = aws.call("ec2", "RequestSpotFleet", json!({"SpotFleetRequestConfig": config})).await;
    let by_hand = answer["SpotFleetRequestId"].as_str().expect("it has an ID").to_owned();
    for (command, arguments) in
        [("create", vec![]), ("scale", vec!["--to", "3"]), ("roll", vec![]), ("delete", vec!["--yes"])]
    {
        let ended = scene.fleet.run(command, &arguments, COMMAND).await;
        ended.assert_code(1);
        assert_told(&ended.output, &[&by_hand, "delete it, or give the pool another name"]);
    }
    let changes = scene.changes().await;
    assert!(changes.is_empty(), "{changes:?}");
}

/// Tries to create the pool, which must fail without any change, and returns what it printed.
async fn create(scene: &Scene, fleet: &SpotFleet) -> String {
    let ended = fleet.run("create", &[], COMMAND).await;
    ended.assert_code(1);
    let changes = scene.changes().await;
    assert!(changes.is_empty(), "{changes:?}: {}", ended.output);
    ended.output
}

/// Fails the test unless one line holds all of `words`: what is wrong, and what helps.
fn assert_told(output: &str, words: &[&str]) {
    let told = output.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(told, "no line tells of {words:?}:\n{output}");
    assert!(!output.contains("panicked"), "{output}");
}

/// One type, for little money.
fn cheap() -> Value {
    json!({"launchSpecifications": [{"instanceType": "m5.large", "maxPrice": "0.05"}]})
}
