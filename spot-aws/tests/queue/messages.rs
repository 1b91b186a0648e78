//! What is read of messages as AWS documents them, and that nothing whatever breaks the reading.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use spot_aws::interruption::message::{Content, Home, HookName, LifecycleAction, Message, Transition, Unusable};
use spot_core::claim::InstanceId;
use spot_core::interruption::{Announcement, Ignored, MachineState, Reclaim};

/// One of each kind, as AWS' documentation has them.
pub(crate) const SAMPLES: [(&str, &str); 9] = [
    ("interruption", include_str!("../corpus/message/good/interruption.json")),
    ("rebalance", include_str!("../corpus/message/good/rebalance.json")),
    ("state change", include_str!("../corpus/message/good/state-change.json")),
    ("health", include_str!("../corpus/message/good/health.json")),
    ("launch", include_str!("../corpus/message/good/launch.json")),
    ("terminate", include_str!("../corpus/message/good/terminate.json")),
    ("of a group", include_str!("../corpus/message/good/of-a-group.json")),
    ("test of a group", include_str!("../corpus/message/refused/test-of-a-group.json")),
    ("by a topic", include_str!("../corpus/message/good/by-a-topic.json")),
];

fn sample(name: &str) -> Value {
    let (_, text) = SAMPLES.into_iter().find(|(known, _)| *known == name).unwrap();
    serde_json::from_str(text).unwrap()
}

fn home() -> Home {
    Home { region: Some("us-west-2".to_owned()), account: Some("123456789012".to_owned()) }
}

fn read(message: &Value) -> Result<Message, Unusable> {
    Message::parse(&message.to_string(), &home())
}

fn why(message: &Value) -> Ignored {
    read(message).unwrap_err().why
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn id(text: &str) -> InstanceId {
    InstanceId::new(text)
}

/// The sample with something else in its detail.
fn with(name: &str, key: &str, value: Value) -> Value {
    let mut message = sample(name);
    message["detail"][key] = value;
    message
}

#[test]
fn a_spot_interruption_is_due_two_minutes_after_its_event_unless_it_begins_at_once() {
    for (word, action, at) in [
        ("terminate", Reclaim::Terminate, "2026-03-01T12:02:03Z"),
        ("stop", Reclaim::Stop, "2026-03-01T12:02:03Z"),
        ("hibernate", Reclaim::Hibernate, "2026-03-01T12:00:03Z"),
    ] {
        let message = read(&with("interruption", "instance-action", json!(word))).unwrap();
        let announcement = Announcement::Interruption { action, at: time(at) };
        let content = Content::Announced(vec![id("i-1234567890abcdef0")], announcement);
        assert_eq!(message, Message { at: time("2026-03-01T12:00:03Z"), content });
    }
}

#[test]
fn a_rebalance_recommendation_and_states_are_read() {
    let content = |message: Value| read(&message).unwrap().content;
    let announced = |announcement| Content::Announced(vec![id("i-1234567890abcdef0")], announcement);
    assert_eq!(content(sample("rebalance")), announced(Announcement::Rebalance));
    for (states, state) in [
        (&["pending", "running"][..], MachineState::Up),
        (&["stopping", "stopped", "shutting-down", "terminated"][..], MachineState::Down),
    ] {
        for word in states {
            let message = with("state change", "state", json!(word));
            assert_eq!(content(message), announced(Announcement::StateChange(state)), "{word}");
        }
    }
}

#[test]
fn a_scheduled_change_names_each_instance_once_and_nothing_else() {
    let at = time("2026-03-15T15:10:09Z");
    let instances = vec![id("i-0a1b2c3d"), id("i-1234567890abcdef0")];
    let read = read(&sample("health")).unwrap();
    assert_eq!(read.content, Content::Announced(instances, Announcement::ScheduledChange { at }));
}

#[test]
fn the_times_of_a_scheduled_change_may_be_written_either_way_or_missing() {
    for (written, expected) in [
        (json!("Sun, 15 Mar 2026 15:10:09 GMT"), "2026-03-15T15:10:09Z"),
        // AWS' own examples have the wrong day.
        (json!("Tue, 15 Mar 2026 15:10:09 GMT"), "2026-03-15T15:10:09Z"),
        (json!("2026-03-15T15:10:09Z"), "2026-03-15T15:10:09Z"),
        (Value::Null, "2026-03-01T12:00:03Z"),
    ] {
        let message = read(&with("health", "startTime", written.clone())).unwrap();
        let Content::Announced(_, Announcement::ScheduledChange { at }) = message.content else {
            panic!("{message:?}")
        };
        assert_eq!(at, time(expected), "{written}");
    }
    assert_eq!(why(&with("health", "startTime", json!("soon"))), Ignored::Unreadable);
}

#[test]
fn a_group_that_waits_is_read_whoever_brings_the_word() {
    let action = |transition| LifecycleAction {
        instance: id("i-1234567890abcdef0"),
        transition,
        hook: HookName { group: "my-asg".to_owned(), name: "my-lifecycle-hook".to_owned() },
        token: Some("87654321-4321-4321-4321-210987654321".to_owned()),
    };
    for (name, transition, at) in [
        ("launch", Transition::Launch, "2026-03-01T12:00:03Z"),
        ("terminate", Transition::Terminate, "2026-03-01T12:00:03Z"),
        ("of a group", Transition::Terminate, "2026-03-01T12:00:03.456Z"),
        ("by a topic", Transition::Terminate, "2026-03-01T12:00:03.456Z"),
    ] {
        let content = Content::Waiting(action(transition));
        assert_eq!(read(&sample(name)).unwrap(), Message { at: time(at), content }, "{name}");
    }
    assert_eq!(why(&sample("test of a group")), Ignored::NoAction);
}

#[test]
fn what_is_of_another_region_account_or_sender_is_foreign() {
    for name in ["interruption", "rebalance", "state change", "launch", "terminate"] {
        for (key, value) in [("region", "eu-west-1"), ("account", "210987654321"), ("source", "my.app")] {
            let mut message = sample(name);
            message[key] = json!(value);
            assert_eq!(why(&message), Ignored::Foreign, "{name} {key}");
            assert_eq!(Message::parse(&message.to_string(), &Home::default()).is_ok(), key != "source", "{name} {key}");
        }
    }
    // AWS Health says in the detail whose it is; the rest tells only which way it came.
    let mut message = with("health", "eventRegion", json!("us-west-2"));
    message["region"] = json!("us-east-1");
    assert!(read(&message).is_ok());
    assert_eq!(why(&with("health", "eventRegion", json!("us-east-1"))), Ignored::Foreign);
    assert_eq!(why(&with("health", "affectedAccount", json!("210987654321"))), Ignored::Foreign);
    let mut message = sample("of a group");
    message["AccountId"] = json!("210987654321");
    assert_eq!(why(&message), Ignored::Foreign);
}

#[test]
fn what_nobody_has_an_answer_to_is_of_unknown_kind() {
    let mut other = sample("interruption");
    other["detail-type"] = json!("EC2 Fleet Error");
    let mut launched = sample("of a group");
    launched["LifecycleTransition"] = Value::Null;
    launched["Event"] = json!("autoscaling:EC2_INSTANCE_LAUNCH");
    for message in [
        other,
        launched,
        json!({ "hello": "world" }),
        with("interruption", "instance-action", json!("explode")),
        with("state change", "state", json!("tired")),
        with("health", "service", json!("RDS")),
        with("health", "eventTypeCategory", json!("issue")),
    ] {
        assert_eq!(why(&message), Ignored::UnknownKind, "{message}");
    }
}

#[test]
fn a_change_that_is_over_or_of_no_instance_needs_no_answer() {
    assert_eq!(why(&with("health", "statusCode", json!("closed"))), Ignored::NoAction);
    assert_eq!(why(&with("health", "affectedEntities", json!([{ "entityValue": "h-0123456789" }]))), Ignored::NoAction);
    assert_eq!(why(&with("health", "affectedEntities", Value::Null)), Ignored::NoAction);
}

#[test]
fn what_an_answer_rests_on_is_read_strictly() {
    for name in ["interruption", "rebalance", "state change"] {
        for odd in
            ["", "i-", "i-123", "i-1234567890ABCDEF0", "mi-1234567890abcdef0", "x/i-1234567890abcdef0", " i-0a1b2c3d"]
        {
            assert_eq!(why(&with(name, "instance-id", json!(odd))), Ignored::Unreadable, "{name} {odd:?}");
        }
        assert_eq!(why(&with(name, "instance-id", json!(7))), Ignored::Unreadable, "{name}");
        for odd in ["", "now", "2026-03-01", "2026-03-01T12:00:03", "2026-13-01T12:00:03Z"] {
            let mut message = sample(name);
            message["time"] = json!(odd);
            assert_eq!(why(&message), Ignored::Unreadable, "{name} {odd:?}");
        }
    }
    for key in ["AutoScalingGroupName", "LifecycleHookName", "EC2InstanceId"] {
        assert_eq!(why(&with("terminate", key, Value::Null)), Ignored::Unreadable, "{key}");
        assert_eq!(why(&with("terminate", key, json!("x".repeat(5000)))), Ignored::Unreadable, "{key}");
    }
    let mut last = sample("interruption");
    last["time"] = json!("9999-12-30T21:59:00Z");
    assert!(matches!(read(&last), Ok(_) | Err(Unusable { why: Ignored::Unreadable, .. })));
}

#[test]
fn what_is_no_json_or_too_long_is_unreadable_and_told_in_a_few_words() {
    let long = json!({ "detail-type": "x".repeat(1024 * 1024) }).to_string();
    let deep = "[".repeat(100_000);
    for body in ["", "null", "[]", "7", "\"x\"", "{", "not JSON \u{1b}[31m", &long, &deep] {
        let Unusable { why, what } = Message::parse(body, &home()).unwrap_err();
        assert_eq!(why, Ignored::Unreadable, "{what}");
        assert!(what.len() < 300 && !what.contains('\u{1b}'), "{what}");
    }
    let unknown = json!({ "detail-type": "y".repeat(1000), "source": "z" });
    let what = read(&unknown).unwrap_err().what;
    assert!(what.len() < 300, "{what}");
}

#[test]
fn a_message_about_too_many_is_cut() {
    let many: Vec<_> = (0..3000).map(|number| json!({ "entityValue": format!("i-{number:08x}") })).collect();
    let Content::Announced(instances, _) = read(&with("health", "affectedEntities", json!(many))).unwrap().content
    else {
        panic!("it is announced");
    };
    assert_eq!(instances.len(), 1000);
}

/// A sample of which something is missing, or another type, or another text.
fn mutated() -> impl Strategy<Value = String> {
    let odd = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({ "detail": {} })),
        Just(json!([{ "entityValue": 7 }, "x"])),
    ];
    (0..SAMPLES.len(), any::<prop::sample::Index>(), any::<bool>(), odd).prop_map(|(sample, at, inside, odd)| {
        let mut message: Value = serde_json::from_str(SAMPLES[sample].1).unwrap();
        let target = if inside && message["detail"].is_object() { &mut message["detail"] } else { &mut message };
        let fields = target.as_object_mut().unwrap();
        let key = fields.keys().nth(at.index(fields.len())).unwrap().clone();
        fields.insert(key, odd);
        message.to_string()
    })
}

proptest! {
    #[test]
    fn whatever_bytes_arrive_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let body = String::from_utf8_lossy(&bytes);
        prop_assert!(Message::parse(&body, &home()).is_err());
    }

    #[test]
    fn a_sample_with_bytes_cut_or_changed_is_read_or_refused(
        sample in 0..SAMPLES.len(), cut in any::<prop::sample::Index>(), byte in any::<u8>(), replace in any::<bool>(),
    ) {
        let mut bytes = SAMPLES[sample].1.as_bytes().to_vec();
        let at = cut.index(bytes.len());
        if replace { bytes[at] = byte } else { bytes.truncate(at) }
        if let Err(unusable) = Message::parse(&String::from_utf8_lossy(&bytes), &home()) {
            prop_assert!(unusable.what.len() < 600);
        }
    }

    #[test]
    fn a_sample_with_an_odd_field_is_read_or_refused_in_a_few_words(body in mutated()) {
        if let Err(unusable) = Message::parse(&body, &home()) {
            prop_assert!(unusable.what.len() < 600, "{}", unusable.what);
        }
    }

    #[test]
    fn what_is_added_to_a_sample_changes_nothing(sample in 0..SAMPLES.len(), key in "[a-z]{9,12}", value in ".{0,20}") {
        let mut message: Value = serde_json::from_str(SAMPLES[sample].1).unwrap();
        let before = read(&message);
        message[key.as_str()] = json!(value);
        if message["detail"].is_object() {
            message["detail"][key.as_str()] = json!(value);
        }
        prop_assert_eq!(read(&message), before);
    }
}
