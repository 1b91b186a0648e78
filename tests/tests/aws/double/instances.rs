//! EC2 instances.

use std::time::Duration;

use serde_json::json;
use spot_tests::aws::Group;

use super::{Region, STILL};

#[tokio::test(flavor = "multi_thread")]
async fn malformed_ids_are_told_from_unknown_ones() {
    let region = Region::start().await;
    for (id, code) in [
        ("i-xyz", "InvalidInstanceID.Malformed"),
        ("ip-10-0-0-1", "InvalidInstanceID.Malformed"),
        ("i-0123456789abcdef0", "InvalidInstanceID.NotFound"),
    ] {
        let ids = json!({"InstanceIds": [id]});
        let attribute = json!({"InstanceId": id, "Attribute": "disableApiTermination"});
        assert_eq!(region.refused("ec2", "DescribeInstances", ids.clone()).await.code, code);
        assert_eq!(region.refused("ec2", "TerminateInstances", ids).await.code, code);
        assert_eq!(region.refused("ec2", "DescribeInstanceAttribute", attribute).await.code, code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_unknown_id_fails_a_whole_describe_and_a_filter_leaves_it_out() {
    let region = Region::start().await;
    let known = region.group("od", &Group::on_demand("od", 1)).await.remove(0).id;
    let ids = [known.as_str(), "i-0123456789abcdef0"];
    let refusal = region.refused("ec2", "DescribeInstances", json!({"InstanceIds": ids})).await;
    assert_eq!(refusal.code, "InvalidInstanceID.NotFound");
    assert!(refusal.message.contains(ids[1]), "{}", refusal.message);

    let filters = json!({"Filters": [{"Name": "instance-id", "Values": ids}]});
    let answer = region.aws.call("ec2", "DescribeInstances", filters).await;
    assert_eq!(answer["Reservations"][0]["Instances"][0]["InstanceId"], json!(known));
    assert_eq!(answer["Reservations"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_asked_for_twice_is_told_of_once() {
    let region = Region::start().await;
    let id = region.group("od", &Group::on_demand("od", 1)).await.remove(0).id;
    let answer = region.aws.call("ec2", "DescribeInstances", json!({"InstanceIds": [id, id]})).await;
    assert_eq!(answer["Reservations"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_take_no_more_than_two_hundred_values() {
    let region = Region::start().await;
    let filters = |count: u32| {
        let values: Vec<_> = (0..count).map(|number| format!("i-{number:08x}")).collect();
        json!({"Filters": [{"Name": "instance-id", "Values": values}]})
    };
    region.aws.call("ec2", "DescribeInstances", filters(200)).await;
    let refusal = region.refused("ec2", "DescribeInstances", filters(201)).await;
    assert_eq!(refusal.code, "FilterLimitExceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_image_launches_nothing() {
    let region = Region::start().await;
    for (image, code) in [("ami-0123456789abcdef0", "InvalidAMIID.NotFound"), ("ami-x", "InvalidAMIID.Malformed")] {
        let request = json!({"ImageId": image, "MinCount": 1, "MaxCount": 1, "InstanceType": "m5.large"});
        assert_eq!(region.refused("ec2", "RunInstances", request).await.code, code);
    }
    assert!(region.aws.instances().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_shuts_down_for_a_while_and_then_loses_its_name() {
    let region = Region::start().await;
    let instance = region.group("od", &Group::on_demand("od", 1)).await.remove(0);
    region.aws.pace(STILL).await;
    let ids = json!({"InstanceIds": [instance.id]});
    region.aws.call("ec2", "TerminateInstances", ids.clone()).await;
    let ending = region.instance(&instance.id).await;
    assert_eq!((ending.state.as_str(), ending.private_dns_name), ("shutting-down", instance.private_dns_name));

    region.aws.call("ec2", "TerminateInstances", ids.clone()).await;
    region.aws.pace(Duration::ZERO).await;
    let ended = region.instance(&instance.id).await;
    assert_eq!((ended.state.as_str(), ended.private_dns_name.as_str()), ("terminated", ""));
    region.aws.call("ec2", "TerminateInstances", ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_protected_from_termination_keeps_all_of_a_call_and_its_group_ends_it_all_the_same() {
    let region = Region::start().await;
    let instances = region.group("od", &Group::on_demand("od", 2)).await;
    let protect = json!({"InstanceId": instances[1].id, "DisableApiTermination": {"Value": true}});
    region.aws.call("ec2", "ModifyInstanceAttribute", protect).await;
    let both = json!({"InstanceIds": [instances[0].id, instances[1].id]});
    assert_eq!(region.refused("ec2", "TerminateInstances", both).await.code, "OperationNotPermitted");
    for instance in &instances {
        assert!(region.instance(&instance.id).await.is_running());
    }
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_ChangingDisableAPITermination.html
    region.aws.terminate_in_group(&instances[1].id, true).await.expect("it is accepted");
    region.in_service("od").await;
    assert_eq!(region.instance(&instances[1].id).await.state, "terminated");
}
