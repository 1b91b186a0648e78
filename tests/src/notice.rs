//! What AWS says of an instance, in its own words: the messages of EventBridge and of Auto Scaling.
//!
//! They follow the examples in AWS's documentation; see
//! <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html> and its neighbours.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::aws::REGION;

/// Of whom all of them are.
const ACCOUNT: &str = "123456789012";

/// The ID of the instance with this number.
#[must_use]
pub fn instance(number: u32) -> String {
    format!("i-0abc{number:013x}")
}

/// EC2 takes the instance back in two minutes: `terminate`, `stop` or `hibernate`.
#[must_use]
pub fn interruption(instance: &str, action: &str) -> Value {
    let detail = json!({"instance-id": instance, "instance-action": action});
    of_ec2("EC2 Spot Instance Interruption Warning", instance, detail)
}

/// The instance is likelier than others to be taken back.
#[must_use]
pub fn rebalance(instance: &str) -> Value {
    of_ec2("EC2 Instance Rebalance Recommendation", instance, json!({"instance-id": instance}))
}

/// The instance is in another state: `pending`, `running`, `stopping`, `stopped`, `shutting-down`, `terminated`.
#[must_use]
pub fn state(instance: &str, state: &str) -> Value {
    of_ec2("EC2 Instance State-change Notification", instance, json!({"instance-id": instance, "state": state}))
}

/// The machine of the instance is to be retired at `at`.
#[must_use]
pub fn scheduled_change(instance: &str, at: Timestamp) -> Value {
    let code = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED";
    let detail = json!({
        "eventArn": format!("arn:aws:health:{REGION}::event/EC2/{code}/{code}_{}", unique()),
        "service": "EC2",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "startTime": at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        "eventRegion": REGION,
        "eventDescription": [{"language": "en_US", "latestDescription": "The instance is scheduled for retirement."}],
        "affectedEntities": [{"entityValue": instance, "lastUpdatedTime": "Sat, 05 Jun 2027 15:10:09 GMT"}],
    });
    event("AWS Health Event", "aws.health", json!([instance]), detail)
}

/// Group `group` ends the instance, and waits until hook `hook` is completed; as EventBridge passes it on.
#[must_use]
pub fn terminate_action(instance: &str, group: &str, hook: &str) -> Value {
    let resource = format!("arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/{group}");
    let mut detail = lifecycle_action(instance, group, hook);
    detail["Origin"] = json!("AutoScalingGroup");
    detail["Destination"] = json!("EC2");
    event("EC2 Instance-terminate Lifecycle Action", "aws.autoscaling", json!([resource]), detail)
}

/// The same as the group sends it to a queue itself.
#[must_use]
pub fn terminate_action_from_the_group(instance: &str, group: &str, hook: &str) -> Value {
    let mut message = lifecycle_action(instance, group, hook);
    message["Service"] = json!("AWS Auto Scaling");
    message["AccountId"] = json!(ACCOUNT);
    message["RequestId"] = json!(unique());
    message["Time"] = json!(format!("{:.3}", now()));
    message["Origin"] = json!("AutoScalingGroup");
    message["Destination"] = json!("EC2");
    message
}

/// What EventBridge wraps whatever it passes on in.
#[must_use]
pub fn event(kind: &str, source: &str, resources: Value, detail: Value) -> Value {
    let mut event = json!({
        "version": "0",
        "id": unique(),
        "detail-type": kind,
        "source": source,
        "account": ACCOUNT,
        // Whole seconds, as EventBridge has it.
        "time": format!("{now:.0}", now = now()),
        "region": REGION,
    });
    event["resources"] = resources;
    event["detail"] = detail;
    event
}

fn of_ec2(kind: &str, instance: &str, detail: Value) -> Value {
    let resource = format!("arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{instance}");
    event(kind, "aws.ec2", json!([resource]), detail)
}

fn lifecycle_action(instance: &str, group: &str, hook: &str) -> Value {
    json!({
        "LifecycleActionToken": unique(),
        "AutoScalingGroupName": group,
        "LifecycleHookName": hook,
        "EC2InstanceId": instance,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    })
}

/// An ID in the form of a UUID that no other event of this process has.
fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    format!("00000000-0000-4000-8000-{:012x}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

#[expect(clippy::disallowed_methods, reason = "AWS's clock is this machine's")]
fn now() -> Timestamp {
    Timestamp::now()
}
