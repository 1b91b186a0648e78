//! Auto Scaling groups.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use spot_tests::aws::{Group, Instance};

use super::{Region, STILL, ids};

#[tokio::test(flavor = "multi_thread")]
async fn an_end_with_decrement_takes_one_and_buys_none() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 3)).await;
    region.aws.terminate_in_group(&before[0].id, true).await.expect("it is accepted");
    let after = region.in_service("od").await;
    assert_eq!(ids(&after), ids(&before[1..]));
    assert_eq!(region.aws.group("od").await.0, 2);
    assert_eq!(region.aws.instances().await.len(), 3, "nothing was bought");
    assert_eq!(region.instance(&before[0].id).await.state, "terminated");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_without_decrement_buys_a_replacement() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 2)).await;
    region.aws.terminate_in_group(&before[0].id, false).await.expect("it is accepted");
    let after = region.in_service("od").await;
    assert_eq!(after.len(), 2);
    assert_eq!(region.aws.instances().await.len(), 3);
    assert_eq!(region.instance(&before[0].id).await.state, "terminated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_ec2_ended_is_replaced() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 2)).await;
    region.aws.call("ec2", "TerminateInstances", json!({"InstanceIds": [before[0].id]})).await;
    let after = region.in_service("od").await;
    assert!(after.iter().all(|instance| instance.id != before[0].id));
    assert_eq!((after.len(), region.aws.instances().await.len()), (2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_at_its_minimum_refuses_to_shrink_and_says_so() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 2).minimum(2)).await;
    let refusal = region.aws.terminate_in_group(&before[0].id, true).await.expect_err("it is at its minimum");
    assert_eq!(refusal.code, "ValidationError");
    assert!(refusal.message.starts_with("Currently, desiredSize equals minSize (2)."), "{}", refusal.message);
    assert_eq!(ids(&region.in_service("od").await), ids(&before));

    region.aws.terminate_in_group(&before[0].id, false).await.expect("a replacement keeps the number");
    for below in [
        region.refused(
            "autoscaling",
            "SetDesiredCapacity",
            json!({"AutoScalingGroupName": "od", "DesiredCapacity": 1}),
        ),
        region.refused(
            "autoscaling",
            "UpdateAutoScalingGroup",
            json!({"AutoScalingGroupName": "od", "DesiredCapacity": 1}),
        ),
    ] {
        assert_eq!(below.await.code, "ValidationError");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_member_any_more_or_never_was_is_refused() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 1)).await;
    region.aws.terminate_in_group(&before[0].id, true).await.expect("it is accepted");
    region.in_service("od").await;
    for id in [&before[0].id, "i-0123456789abcdef0"] {
        let refusal = region.aws.terminate_in_group(id, true).await.expect_err("it is no member");
        assert_eq!(refusal.code, "ValidationError");
        let message = format!("Instance Id not found - No managed instance found for instance ID: {id}");
        assert_eq!(refusal.message, message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_end_of_a_member_that_leaves_lowers_the_number_again() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 3)).await;
    region.aws.pace(STILL).await;
    for desired in [2, 1] {
        region.aws.terminate_in_group(&before[0].id, true).await.expect("it is accepted");
        assert_eq!(region.aws.group("od").await.0, desired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_protected_from_scale_in_stays() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 2)).await;
    let protect = json!({
        "AutoScalingGroupName": "od", "InstanceIds": [before[0].id], "ProtectedFromScaleIn": true,
    });
    region.aws.call("autoscaling", "SetInstanceProtection", protect).await;
    let refusal = region.aws.terminate_in_group(&before[0].id, true).await.expect_err("it is protected");
    assert_eq!(refusal.code, "ValidationError");
    region
        .aws
        .call("autoscaling", "SetDesiredCapacity", json!({"AutoScalingGroupName": "od", "DesiredCapacity": 1}))
        .await;
    assert_eq!(ids(&region.in_service("od").await), [before[0].id.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_of_spot_instances_are_spot_and_the_others_are_not() {
    let region = Region::start().await;
    let spot = region.group("spot", &Group::spot("spot", 2)).await;
    let on_demand = region.group("od", &Group::on_demand("od", 2)).await;
    assert!(spot.iter().all(|instance| instance.spot && instance.group() == Some("spot")), "{spot:?}");
    assert!(on_demand.iter().all(|instance| !instance.spot && instance.group() == Some("od")), "{on_demand:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_group_keeps_its_on_demand_base_by_buying_the_machine_again() {
    let region = Region::start().await;
    let before = region.group("mixed", &Group::on_demand("mixed", 4).mixed(1)).await;
    let on_demand = |instances: &[Instance]| instances.iter().filter(|instance| !instance.spot).count();
    assert_eq!((before.len(), on_demand(&before)), (4, 1));
    let base = before.iter().find(|instance| !instance.spot).expect("there is one");

    region.aws.terminate_in_group(&base.id, true).await.expect("it is accepted");
    let after = region.in_service("mixed").await;
    assert_eq!((after.len(), on_demand(&after)), (3, 1));
    assert_eq!(region.aws.instances().await.len(), 5, "another on-demand instance was bought, for a spot one");

    let smaller = json!({"AutoScalingGroupName": "mixed", "MinSize": 1, "MaxSize": 10});
    region.aws.call("autoscaling", "UpdateAutoScalingGroup", smaller).await;
    assert_eq!(on_demand(&region.in_service("mixed").await), 1, "an update of the limits keeps the policy");
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_more_than_one_apart_cost_another_machine_unless_rebalancing_is_suspended() {
    for (suspended, bought) in [(false, 1), (true, 0)] {
        let region = Region::start().await;
        let before = region.group("od", &Group::on_demand("od", 4)).await;
        let by_zone = before.iter().fold(BTreeMap::<_, Vec<_>>::new(), |mut zones, instance| {
            zones.entry(instance.zone.clone()).or_default().push(instance.id.clone());
            zones
        });
        assert_eq!(by_zone.values().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        if suspended {
            let suspend = json!({"AutoScalingGroupName": "od", "ScalingProcesses": ["AZRebalance"]});
            region.aws.call("autoscaling", "SuspendProcesses", suspend).await;
        }
        for id in by_zone.values().next().expect("there are two zones") {
            region.aws.terminate_in_group(id, true).await.expect("it is accepted");
        }
        assert_eq!(region.in_service("od").await.len(), 2);
        assert_eq!(region.aws.instances().await.len(), 4 + bought, "rebalancing suspended: {suspended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_holds_an_ending_member_until_it_is_completed() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 2)).await;
    hook(&region, 3_600).await;
    region.aws.terminate_in_group(&before[0].id, true).await.expect("it is accepted");
    assert_eq!(region.lifecycle("od", &before[0].id).await.as_deref(), Some("Terminating:Wait"));
    assert!(region.instance(&before[0].id).await.is_running(), "it runs as long as the hook holds it");

    let complete = |name: &str| {
        json!({
            "AutoScalingGroupName": "od",
            "LifecycleHookName": name,
            "InstanceId": before[0].id,
            "LifecycleActionResult": "CONTINUE",
        })
    };
    let refusal = region.refused("autoscaling", "CompleteLifecycleAction", complete("another")).await;
    assert_eq!(refusal.code, "ValidationError");
    region.aws.call("autoscaling", "CompleteLifecycleAction", complete("hold")).await;
    assert_eq!(ids(&region.in_service("od").await), [before[1].id.as_str()]);
    assert_eq!(region.instance(&before[0].id).await.state, "terminated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_holds_no_longer_than_its_heartbeat() {
    let region = Region::start().await;
    let before = region.group("od", &Group::on_demand("od", 2)).await;
    hook(&region, 1).await;
    region.aws.terminate_in_group(&before[0].id, true).await.expect("it is accepted");
    assert_eq!(ids(&region.in_service("od").await), [before[1].id.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_not_in_service_before_it_came_and_leaves_in_steps() {
    let region = Region::start().await;
    region.aws.pace(STILL).await;
    region.aws.create_group(&Group::on_demand("od", 1), &region.subnets).await;
    let (_, members) = region.aws.group("od").await;
    let id = members[0].instance_id.as_str();
    assert_eq!(members[0].lifecycle_state, "Pending");
    region.aws.pace(Duration::ZERO).await;
    region.in_service("od").await;

    region.aws.pace(STILL).await;
    region.aws.terminate_in_group(id, true).await.expect("it is accepted");
    assert_eq!(region.lifecycle("od", id).await.as_deref(), Some("Terminating"));
    region.aws.pace(Duration::ZERO).await;
    region.in_service("od").await;
    assert_eq!(region.lifecycle("od", id).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_is_running_until_it_is_cancelled() {
    let region = Region::start().await;
    region.group("od", &Group::on_demand("od", 1)).await;
    let od = json!({"AutoScalingGroupName": "od"});
    let running = |answer: &Value| answer["InstanceRefreshes"][0]["Status"] == "InProgress";
    assert!(!running(&region.aws.call("autoscaling", "DescribeInstanceRefreshes", od.clone()).await));
    region.aws.call("autoscaling", "StartInstanceRefresh", od.clone()).await;
    assert!(running(&region.aws.call("autoscaling", "DescribeInstanceRefreshes", od.clone()).await));
    let refusal = region.refused("autoscaling", "StartInstanceRefresh", od.clone()).await;
    assert_eq!(refusal.code, "InstanceRefreshInProgress");
    region.aws.call("autoscaling", "CancelInstanceRefresh", od.clone()).await;
    assert!(!running(&region.aws.call("autoscaling", "DescribeInstanceRefreshes", od).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_fifty_members_can_not_be_asked_for_in_one_call() {
    let region = Region::start().await;
    let ask =
        |count: u32| json!({"InstanceIds": (0..count).map(|number| format!("i-{number:08x}")).collect::<Vec<_>>()});
    region.aws.call("autoscaling", "DescribeAutoScalingInstances", ask(50)).await;
    let refusal = region.refused("autoscaling", "DescribeAutoScalingInstances", ask(51)).await;
    assert_eq!(refusal.code, "ValidationError");
}

async fn hook(region: &Region, heartbeat: u32) {
    let hook = json!({
        "AutoScalingGroupName": "od",
        "LifecycleHookName": "hold",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "HeartbeatTimeout": heartbeat,
    });
    region.aws.call("autoscaling", "PutLifecycleHook", hook).await;
}
