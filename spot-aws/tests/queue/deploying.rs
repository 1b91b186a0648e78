//! The queue and rules that are shipped, twice: both say the same, and let through exactly what is answered.

use std::collections::BTreeMap;

use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::{Block, Body};
use serde_json::{Value, json};
use spot_aws::interruption::message::{Content, Home, Message};
use spot_core::interruption::{Announcement, Ignored, MachineState};

use crate::messages::SAMPLES;

const CLOUD_FORMATION: &str = include_str!("../../../deploy/aws/notices.yaml");
const TERRAFORM: [&str; 3] = [
    include_str!("../../../deploy/aws/terraform/main.tf"),
    include_str!("../../../deploy/aws/terraform/variables.tf"),
    include_str!("../../../deploy/aws/terraform/outputs.tf"),
];

/// The resources of the template, by their names.
fn template() -> BTreeMap<String, Value> {
    let template: Value = serde_saphyr::from_str(CLOUD_FORMATION).unwrap();
    let resources = template["Resources"].as_object().unwrap();
    resources.iter().map(|(name, resource)| (name.clone(), resource.clone())).collect()
}

/// The properties of the template's resources of one type.
fn of_type<'a>(template: &'a BTreeMap<String, Value>, kind: &str) -> Vec<(&'a str, &'a Value)> {
    let all = template.iter().filter(|(_, resource)| resource["Type"] == kind);
    all.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
}

/// The blocks of the module.
fn module() -> Vec<Block> {
    let bodies = TERRAFORM.map(|text| text.parse::<Body>().unwrap());
    bodies.into_iter().flat_map(|body| body.into_blocks().collect::<Vec<_>>()).collect()
}

/// The block with this type and labels.
fn block<'a>(module: &'a [Block], labels: &[&str]) -> &'a Block {
    let names = |block: &Block| {
        let own = std::iter::once(block.ident.as_str().to_owned());
        own.chain(block.labels.iter().map(|label| label.as_str().to_owned())).collect::<Vec<_>>()
    };
    module.iter().find(|block| names(block) == labels).unwrap()
}

fn attribute<'a>(block: &'a Block, name: &str) -> &'a Expression {
    &block.body.get_attribute(name).unwrap_or_else(|| panic!("no {name}")).value
}

/// An expression without references as the value that it is; what refers to something else is its own text.
fn value(expression: &Expression) -> Value {
    match expression {
        Expression::String(text) => json!(text.as_str()),
        Expression::Bool(yes) => json!(**yes),
        Expression::Number(number) => json!(number.as_f64().unwrap()),
        Expression::Array(items) => items.iter().map(value).collect(),
        Expression::Object(entries) => {
            let key = |key: &ObjectKey| match key {
                ObjectKey::Ident(ident) => ident.as_str().to_owned(),
                ObjectKey::Expression(expression) => value(expression).as_str().unwrap().to_owned(),
            };
            Value::Object(entries.iter().map(|(name, entry)| (key(name), value(entry.expr()))).collect())
        }
        // Whatever is encoded is looked at as it is.
        Expression::FuncCall(call) if call.name.name.as_str() == "jsonencode" => {
            value(call.args.iter().next().unwrap())
        }
        other => json!(other.to_string().trim()),
    }
}

/// The patterns of the template's rules.
fn patterns() -> Vec<Value> {
    of_type(&template(), "AWS::Events::Rule").into_iter().map(|(_, rule)| rule["EventPattern"].clone()).collect()
}

/// The patterns of the module's rules.
fn patterns_of_module() -> Vec<Value> {
    let module = module();
    let rule = block(&module, &["resource", "aws_cloudwatch_event_rule", "notices"]);
    assert_eq!(value(attribute(rule, "for_each")), "local.rules");
    assert_eq!(value(attribute(rule, "event_pattern")), "each.value");
    let target = block(&module, &["resource", "aws_cloudwatch_event_target", "notices"]);
    assert_eq!(value(attribute(target, "for_each")), "local.rules");
    assert_eq!(value(attribute(target, "arn")), "aws_sqs_queue.notices.arn");
    let rules = value(attribute(block(&module, &["locals"]), "rules"));
    rules.as_object().unwrap().values().cloned().collect()
}

/// Whether an event is as a pattern wants it, as EventBridge decides that.
fn matches(pattern: &Value, event: &Value) -> bool {
    match pattern {
        Value::Object(fields) => fields.iter().all(|(key, pattern)| matches(pattern, &event[key])),
        Value::Array(values) => values.contains(event),
        other => panic!("no pattern: {other}"),
    }
}

/// Events that the same senders send, and nobody here has an answer to.
fn others() -> Vec<Value> {
    let sample = |name: &str| {
        let (_, text) = SAMPLES.into_iter().find(|(known, _)| *known == name).unwrap();
        serde_json::from_str::<Value>(text).unwrap()
    };
    let mut others = Vec::new();
    for (name, kinds) in [
        (
            "interruption",
            &["EC2 Fleet Instance Change", "EC2 Spot Instance Request Fulfillment", "EBS Volume Notification"][..],
        ),
        (
            "terminate",
            &["EC2 Instance Terminate Successful", "EC2 Instance Launch Unsuccessful", "EC2 Instance Terminate"],
        ),
        ("health", &["AWS Health Abuse Event"]),
        ("rebalance", &["AWS API Call via CloudTrail"]),
    ] {
        for kind in kinds {
            let mut event = sample(name);
            event["detail-type"] = json!(kind);
            others.push(event);
        }
    }
    for (key, value) in
        [("service", "RDS"), ("eventTypeCategory", "issue"), ("eventTypeCategory", "accountNotification")]
    {
        let mut event = sample("health");
        event["detail"][key] = json!(value);
        others.push(event);
    }
    for (name, source) in [("interruption", "my.app"), ("health", "aws.ec2"), ("terminate", "aws.ec2")] {
        let mut event = sample(name);
        event["source"] = json!(source);
        others.push(event);
    }
    others
}

#[test]
fn the_rules_let_through_what_is_answered_and_nothing_else() {
    for patterns in [patterns(), patterns_of_module()] {
        let passed = |event: &Value| patterns.iter().filter(|pattern| matches(pattern, event)).count();
        let mut used = vec![false; patterns.len()];
        for (name, text) in SAMPLES {
            let event: Value = serde_json::from_str(text).unwrap();
            if event["detail-type"].is_null() {
                // A group sends it to the queue itself.
                continue;
            }
            assert!(Message::parse(text, &Home::default()).is_ok(), "{name}");
            assert_eq!(passed(&event), 1, "{name} comes, and once");
            for (used, pattern) in used.iter_mut().zip(&patterns) {
                *used |= matches(pattern, &event);
            }
        }
        assert!(used.iter().all(|used| *used), "each rule is for something: {patterns:?}");
        for event in others() {
            assert_eq!(passed(&event), 0, "{event}");
            let why = Message::parse(&event.to_string(), &Home::default()).unwrap_err().why;
            assert!(matches!(why, Ignored::UnknownKind | Ignored::Foreign), "{why}: {event}");
        }
    }
}

#[test]
fn of_all_changes_of_state_those_come_that_end_a_machine_s_work() {
    let (_, text) = SAMPLES.into_iter().find(|(name, _)| *name == "state change").unwrap();
    let mut event: Value = serde_json::from_str(text).unwrap();
    for patterns in [patterns(), patterns_of_module()] {
        for state in ["pending", "running", "stopping", "stopped", "shutting-down", "terminated"] {
            event["detail"]["state"] = json!(state);
            let Content::Announced(_, announcement) =
                Message::parse(&event.to_string(), &Home::default()).unwrap().content
            else {
                panic!("{state} is waited for")
            };
            let passed = patterns.iter().any(|pattern| matches(pattern, &event));
            assert_eq!(passed, announcement == Announcement::StateChange(MachineState::Down), "{state}");
        }
    }
}

#[test]
fn both_make_the_same_rules() {
    let sorted = |patterns: Vec<Value>| {
        let mut texts: Vec<_> = patterns.iter().map(Value::to_string).collect();
        texts.sort_unstable();
        texts
    };
    assert_eq!(sorted(patterns()), sorted(patterns_of_module()));
}

#[test]
fn both_make_the_same_queues() {
    let (template, module) = (template(), module());
    for (theirs, ours) in [("Notices", "notices"), ("DeadLetters", "dead_letters")] {
        let properties = &template[theirs]["Properties"];
        let queue = block(&module, &["resource", "aws_sqs_queue", ours]);
        for (property, name) in [
            ("MessageRetentionPeriod", "message_retention_seconds"),
            ("VisibilityTimeout", "visibility_timeout_seconds"),
            ("ReceiveMessageWaitTimeSeconds", "receive_wait_time_seconds"),
            ("SqsManagedSseEnabled", "sqs_managed_sse_enabled"),
        ] {
            let other = queue.body.get_attribute(name).map_or(Value::Null, |attribute| value(&attribute.value));
            let same =
                properties[property].as_f64().map_or_else(|| properties[property].clone(), |number| json!(number));
            assert_eq!(same, other, "{theirs} {property}");
        }
        assert_eq!(properties["MessageRetentionPeriod"], 14 * 24 * 3600, "the most that SQS keeps");
        assert_eq!(properties["SqsManagedSseEnabled"], true);
    }
    let redrive = value(attribute(block(&module, &["resource", "aws_sqs_queue", "notices"]), "redrive_policy"));
    assert_eq!(redrive["deadLetterTargetArn"], "aws_sqs_queue.dead_letters.arn");
    let count = template["Notices"]["Properties"]["RedrivePolicy"]["maxReceiveCount"].as_f64();
    assert_eq!(redrive["maxReceiveCount"].as_f64(), count);
    // A message of a change in two weeks is received twice a day, others every quarter of a minute.
    assert!(count.is_some_and(|count| count >= 2.0 * 14.0 + 8.0));
}

#[test]
fn only_the_rules_may_send_to_the_queue() {
    let template = template();
    let statements = template["NoticesPolicy"]["Properties"]["PolicyDocument"]["Statement"].as_array().unwrap();
    let module = module();
    let policy = value(attribute(block(&module, &["resource", "aws_sqs_queue_policy", "notices"]), "policy"));
    let others = policy["Statement"].as_array().unwrap();
    for statements in [statements, others] {
        let [allow, deny] = &statements[..] else { panic!("{statements:?}") };
        assert_eq!(allow["Effect"], "Allow");
        assert_eq!(allow["Principal"], json!({ "Service": "events.amazonaws.com" }));
        assert_eq!(allow["Action"], json!(["sqs:SendMessage"]));
        let condition = allow["Condition"].as_object().unwrap();
        assert_eq!(condition.keys().collect::<Vec<_>>(), ["ArnEquals", "StringEquals"]);
        assert!(!condition["StringEquals"]["aws:SourceAccount"].is_null());
        assert_eq!(deny["Effect"], "Deny");
        assert_eq!(deny["Condition"], json!({ "Bool": { "aws:SecureTransport": "false" } }));
    }
    let rules: Vec<_> = of_type(&template, "AWS::Events::Rule").into_iter().map(|(name, _)| name).collect();
    let arns = statements[0]["Condition"]["ArnEquals"]["aws:SourceArn"].as_array().unwrap();
    let mut named: Vec<_> = arns.iter().map(|arn| arn["Fn::GetAtt"][0].as_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, rules);
    let arns = others[0]["Condition"]["ArnEquals"]["aws:SourceArn"].as_str().unwrap();
    assert!(arns.contains("aws_cloudwatch_event_rule.notices") && arns.contains(".arn"), "{arns}");
    for (name, rule) in of_type(&template, "AWS::Events::Rule") {
        assert_eq!(
            rule["Targets"],
            json!([{ "Id": "notices", "Arn": { "Fn::GetAtt": ["Notices", "Arn"] } }]),
            "{name}"
        );
    }
}

#[test]
fn both_make_the_same_hook_where_a_group_is_named() {
    let (template, module) = (template(), module());
    let hooks = of_type(&template, "AWS::AutoScaling::LifecycleHook");
    let [(_, hook)] = hooks[..] else { panic!("{hooks:?}") };
    let other = block(&module, &["resource", "aws_autoscaling_lifecycle_hook", "empty_before_termination"]);
    for (property, name) in [("LifecycleTransition", "lifecycle_transition"), ("DefaultResult", "default_result")] {
        assert_eq!(hook[property], value(attribute(other, name)), "{property}");
    }
    // Messages of all groups of the account come: a hook is completed by the cluster whose name it bears.
    assert_eq!(hook["LifecycleHookName"], json!({ "Fn::Sub": "${ClusterName}-spot-migrator" }));
    assert_eq!(value(attribute(other, "name")), r#""${var.cluster_name}-spot-migrator""#);
    assert_eq!(hook["DefaultResult"], "CONTINUE", "a machine goes though nobody answers");
    assert_eq!(value(attribute(other, "for_each")), "var.autoscaling_group_names");
    let default = value(attribute(block(&module, &["variable", "heartbeat_timeout"]), "default"));
    let document: Value = serde_saphyr::from_str(CLOUD_FORMATION).unwrap();
    assert_eq!(document["Parameters"]["HeartbeatTimeout"]["Default"].as_f64(), default.as_f64());
    let named = value(attribute(block(&module, &["output", "lifecycle_hook_name"]), "value"));
    assert_eq!(named, value(attribute(other, "name")), "it is told");
    assert_eq!(document["Outputs"]["LifecycleHookName"]["Value"], hook["LifecycleHookName"], "it is told");
}
