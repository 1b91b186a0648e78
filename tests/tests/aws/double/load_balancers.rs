//! Target groups and classic load balancers.

use serde_json::{Value, json};
use spot_tests::aws::{Group, Instance};

use super::{Region, STILL, ids};

#[tokio::test(flavor = "multi_thread")]
async fn a_target_drains_as_long_as_its_group_says() {
    let region = Region::start().await;
    let target_group = target_group(&region).await;
    let members = balanced(&region, &target_group).await;
    let target = members[0].id.as_str();
    assert_eq!(health(&region, &target_group, target).await, "healthy");

    deregister(&region, &target_group, target).await;
    assert_eq!(health(&region, &target_group, target).await, "draining");
    assert_eq!(all_health(&region, &target_group).await.len(), 2, "a draining target is listed");
    // What is not registered is no error.
    deregister(&region, &target_group, target).await;

    delay(&region, &target_group, 0).await;
    assert_eq!(health(&region, &target_group, target).await, "unused");
    assert_eq!(all_health(&region, &target_group).await, [(members[1].id.clone(), "healthy".to_owned())]);
    assert_eq!(ids(&region.in_service("od").await), ids(&members), "it is a member as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_member_ends_only_when_it_is_drained() {
    let region = Region::start().await;
    let target_group = target_group(&region).await;
    let members = balanced(&region, &target_group).await;
    let target = members[0].id.as_str();
    region.aws.terminate_in_group(target, true).await.expect("it is accepted");
    assert_eq!(health(&region, &target_group, target).await, "draining");
    assert_eq!(region.lifecycle("od", target).await.as_deref(), Some("Terminating"));
    assert!(region.instance(target).await.is_running());

    delay(&region, &target_group, 0).await;
    assert_eq!(ids(&region.in_service("od").await), [members[1].id.as_str()]);
    assert_eq!(region.instance(target).await.state, "terminated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_targets_of_an_instance_that_ec2_ended_drain_too() {
    let region = Region::start().await;
    let target_group = target_group(&region).await;
    let members = balanced(&region, &target_group).await;
    region.aws.pace(STILL).await;
    region.aws.call("ec2", "TerminateInstances", json!({"InstanceIds": [members[0].id]})).await;
    assert_eq!(health(&region, &target_group, &members[0].id).await, "draining");
    assert_eq!(health(&region, &target_group, &members[1].id).await, "healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_balancer_drains_as_long_as_it_says_whoever_registered_the_instance() {
    let region = Region::start().await;
    let members = region.group("od", &Group::on_demand("od", 1)).await;
    let listener = json!({"Protocol": "HTTP", "LoadBalancerPort": 80, "InstanceProtocol": "HTTP", "InstancePort": 80});
    let create = json!({"LoadBalancerName": "classic", "Listeners": [listener], "Subnets": region.subnets});
    region.aws.call("elb", "CreateLoadBalancer", create).await;
    classic_draining(&region, 3_600).await;
    let attach = json!({"AutoScalingGroupName": "od", "LoadBalancerNames": ["classic"]});
    region.aws.call("autoscaling", "AttachLoadBalancers", attach).await;
    let state = ("InService".to_owned(), "N/A".to_owned());
    assert_eq!(classic_health(&region, &members[0].id).await, state);

    let deregister = json!({"LoadBalancerName": "classic", "Instances": [{"InstanceId": members[0].id}]});
    region.aws.call("elb", "DeregisterInstancesFromLoadBalancer", deregister).await;
    let draining = "Instance deregistration currently in progress.".to_owned();
    assert_eq!(classic_health(&region, &members[0].id).await, ("InService".to_owned(), draining));

    classic_draining(&region, 1).await;
    let gone = ("OutOfService".to_owned(), "Instance is not currently registered with the LoadBalancer.".to_owned());
    spot_tests::wait::until("the instance to be drained", spot_tests::wait::PATIENCE, || async {
        let health = classic_health(&region, &members[0].id).await;
        if health == gone { Ok(()) } else { Err(format!("{health:?}")) }
    })
    .await;
}

/// A target group with a delay of fifty minutes.
async fn target_group(region: &Region) -> String {
    let create = json!({"Name": "web", "Protocol": "HTTP", "Port": 80, "VpcId": region.vpc});
    let answer = region.aws.call("elbv2", "CreateTargetGroup", create).await;
    let arn = answer["TargetGroups"][0]["TargetGroupArn"].as_str().expect("it has an ARN").to_owned();
    delay(region, &arn, 3_000).await;
    arn
}

/// Two members of `od`, registered with `target_group`.
async fn balanced(region: &Region, target_group: &str) -> Vec<Instance> {
    region.group("od", &Group::on_demand("od", 2).field("TargetGroupARNs", json!([target_group]))).await
}

async fn delay(region: &Region, target_group: &str, seconds: u32) {
    let attribute = json!({"Key": "deregistration_delay.timeout_seconds", "Value": seconds.to_string()});
    let modify = json!({"TargetGroupArn": target_group, "Attributes": [attribute]});
    region.aws.call("elbv2", "ModifyTargetGroupAttributes", modify).await;
}

async fn deregister(region: &Region, target_group: &str, target: &str) {
    let request = json!({"TargetGroupArn": target_group, "Targets": [{"Id": target}]});
    region.aws.call("elbv2", "DeregisterTargets", request).await;
}

async fn health(region: &Region, target_group: &str, target: &str) -> String {
    let request = json!({"TargetGroupArn": target_group, "Targets": [{"Id": target}]});
    states(&region.aws.call("elbv2", "DescribeTargetHealth", request).await).remove(0).1
}

async fn all_health(region: &Region, target_group: &str) -> Vec<(String, String)> {
    states(&region.aws.call("elbv2", "DescribeTargetHealth", json!({"TargetGroupArn": target_group})).await)
}

fn states(answer: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let all = answer["TargetHealthDescriptions"].as_array().into_iter().flatten();
    all.map(|one| (text(&one["Target"]["Id"]), text(&one["TargetHealth"]["State"]))).collect()
}

async fn classic_draining(region: &Region, seconds: u32) {
    let draining = json!({"ConnectionDraining": {"Enabled": true, "Timeout": seconds}});
    let modify = json!({"LoadBalancerName": "classic", "LoadBalancerAttributes": draining});
    region.aws.call("elb", "ModifyLoadBalancerAttributes", modify).await;
}

async fn classic_health(region: &Region, instance: &str) -> (String, String) {
    let request = json!({"LoadBalancerName": "classic", "Instances": [{"InstanceId": instance}]});
    let answer = region.aws.call("elb", "DescribeInstanceHealth", request).await;
    let state = &answer["InstanceStates"][0];
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    (text(&state["State"]), text(&state["Description"]))
}
