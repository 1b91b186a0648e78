//! What AWS does not give: one clear sentence, and its remedy.

use serde_json::{Value, json};
use spot_tests::{
    SpotFleet,
    aws::{cloud::network, fleet::ROLE},
};

use super::{COMMAND, Scene};

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
        (of_two, vec![elsewhere[1].as_str(), "VPC"]),
        (unknown, vec!["m5.tiny"]),
        (json!({"image": "ami-0123456789abcdef0"}), vec!["ami-0123456789abcdef0"]),
        (json!({"securityGroups": ["sg-0123456789abcdef0"]}), vec!["sg-0123456789abcdef0"]),
        (json!({"sshKey": "lost"}), vec!["lost"]),
        (json!({"instanceProfile": "none"}), vec!["none"]),
        (json!({"loadBalancers": ["none"]}), vec!["none"]),
    ] {
        let output = create(&scene, &scene.fleet.clone().with_pool(changes)).await;
        assert_told(&output, &words);
    }

    aws.deny(&["iam:PassRole"]).await;
    assert_told(&create(&scene, &scene.fleet).await, &["iam:PassRole"]);
    aws.deny(&["ec2:RequestSpotFleet"]).await;
    assert_told(&create(&scene, &scene.fleet).await, &["ec2:RequestSpotFleet"]);
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
    assert_told(&ended.output, &[ROLE, "iam:ListAttachedRolePolicies"]);
    assert_told(&ended.output, &[&scene.cloud.subnets()[0], "ec2:DescribeSubnets"]);
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
    assert_told(&ended.output, &["quota"]);
    scene.cloud.aws().market(json!({})).await;
    scene.created().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_gets_too_little_says_why_and_stays_as_it_is() {
    let scene = Scene::start(json!({})).await;
    for (market, changes, words) in [
        (json!({"exhausted": ["m5.large", "m5.xlarge", "m5.2xlarge"]}), json!({}), vec!["no spot capacity"]),
        (json!({"instances": 1}), json!({}), vec!["quota"]),
        (json!({"prices": {"m5.large": 1.0}}), cheap(), vec!["price"]),
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
        assert_told(&ended.output, &[&by_hand]);
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

/// Fails the test unless one line holds all of `words`, and a remedy after a colon.
fn assert_told(output: &str, words: &[&str]) {
    let told = output.lines().any(|line| words.iter().all(|word| line.contains(word)) && line.contains(": "));
    assert!(told, "no line tells of {words:?}:\n{output}");
    assert!(!output.contains("panicked"), "{output}");
}

/// One type, for little money.
fn cheap() -> Value {
    json!({"launchSpecifications": [{"instanceType": "m5.large", "maxPrice": "0.05"}]})
}
