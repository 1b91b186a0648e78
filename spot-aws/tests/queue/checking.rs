//! The policy that is shipped allows what is called, and nothing else; and what `check` finds.

use std::collections::BTreeSet;

use spot_aws::interruption::queue::QueueSettings;
use spot_aws::{Action, Checked};
use spot_core::error::ErrorClass;

use crate::double::{Fault, allowed};
use crate::support::{URL, World, settings};

const POLICY: &str = "deploy/iam/interruptions.json";

/// What is asked.
const ALL: [Action; 5] = [
    Action::GetQueueAttributes,
    Action::ReceiveMessage,
    Action::ChangeMessageVisibility,
    Action::DeleteMessage,
    Action::DescribeLifecycleHooks,
];

async fn check(world: &World) -> Vec<(Action, Result<(), (ErrorClass, String)>)> {
    let checked = world.queue.check(world.by(30)).await;
    let read = |Checked { action, outcome, dispensable }| {
        assert_eq!(dispensable, action == Action::DescribeLifecycleHooks, "a queue that was asked for is wanted");
        (action, outcome.map_err(|error| (error.class, error.to_string())))
    };
    checked.into_iter().map(read).collect()
}

#[test]
fn the_policy_allows_exactly_the_calls_that_are_made() {
    let of_queue = Action::ALL.into_iter().filter(|action| action.policy() == POLICY);
    let mut made: BTreeSet<_> = of_queue.map(|action| action.right().to_owned()).collect();
    // Which the provider needs as well.
    made.insert(Action::DescribeLifecycleHooks.right().to_owned());
    assert_eq!(*allowed(), made);
}

#[test]
fn what_the_policy_allows_to_change_is_limited_to_the_queue_and_to_groups_of_the_cluster() {
    let policy = include_str!("../../../deploy/iam/interruptions.json");
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap();
    for statement in policy["Statement"].as_array().unwrap() {
        let limits = format!("{}{}", statement["Resource"], statement["Condition"]);
        for action in statement["Action"].as_array().unwrap() {
            let action = action.as_str().unwrap();
            let known = Action::ALL.into_iter().find(|known| known.right() == action).unwrap();
            let expected = if action.starts_with("sqs:") { "QUEUE_NAME" } else { "CLUSTER_NAME" };
            assert!(!known.is_write() || limits.contains(expected), "{action}: {limits}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn check_finds_everything_in_order_and_changes_nothing() {
    let world = World::new();
    world.aws.send(&world.warning(1));
    let checked = check(&world).await;
    let asked: Vec<_> = checked.iter().map(|(action, _)| *action).collect();
    assert_eq!(asked, ALL);
    assert!(checked.iter().all(|(_, outcome)| outcome.is_ok()), "{checked:?}");
    assert_eq!(world.aws.messages(|messages| (messages.len(), messages.visible(), messages.received())), (1, 1, 0));
}

/// The others are limited to the groups of the cluster, and Auto Scaling has no dry run: they would change something.
#[test]
fn check_asks_for_every_right_of_the_policy_but_those_to_answer_hooks() {
    let asked = ALL.iter().map(|action| action.right().to_owned());
    let unasked = [Action::RecordLifecycleActionHeartbeat, Action::CompleteLifecycleAction];
    assert_eq!(*allowed(), asked.chain(unasked.map(|action| action.right().to_owned())).collect());
}

#[tokio::test(start_paused = true)]
async fn check_names_each_right_that_is_missing_and_where_it_stands() {
    for action in ALL {
        let world = World::new();
        world.aws.fail(action.right(), Fault::Denied, 1);
        let checked = check(&world).await;
        for (asked, outcome) in checked {
            let denied = outcome.err().map(|(class, what)| {
                assert!(what.contains(&format!("not allowed to call {asked}, see {}", asked.policy())), "{what}");
                class
            });
            assert_eq!(denied, (asked == action).then_some(ErrorClass::Denied), "{asked}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn check_tells_what_may_pass_from_what_will_not() {
    for (fault, class) in [
        (Fault::ServerError, ErrorClass::Transient),
        (Fault::Throttled, ErrorClass::Transient),
        (Fault::Hang, ErrorClass::Timeout),
    ] {
        let world = World::new();
        world.aws.fail("sqs:DeleteMessage", fault, u32::MAX);
        let checked = check(&world).await;
        let (_, outcome) = checked.into_iter().find(|(action, _)| *action == Action::DeleteMessage).unwrap();
        let (found, what) = outcome.unwrap_err();
        let passing = [ErrorClass::Transient, ErrorClass::Timeout];
        assert!(passing.contains(&found) && passing.contains(&class), "{fault:?}: {what}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_finds_that_there_is_no_such_queue() {
    let world = World::new();
    world.aws.messages(|messages| messages.url = None);
    let checked = check(&world).await;
    let expected = format!("there is no queue {URL} in region eu-west-1: look at `interruption.queueUrl`");
    assert_eq!(checked, [(Action::GetQueueAttributes, Err((ErrorClass::Permanent, expected)))]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_in_another_region_is_found_by_its_url_before_anything_is_called() {
    let url = "https://sqs.us-east-1.amazonaws.com/123456789012/notices";
    let Err(error) = World::with(QueueSettings { url: url.to_owned(), ..settings() }, "eu-west-1") else {
        panic!("its messages would all be foreign");
    };
    assert_eq!(error.class, ErrorClass::Permanent);
    let expected = "queue https://sqs.us-east-1.amazonaws.com/123456789012/notices is in region us-east-1, the \
                    machines are in eu-west-1: look at `interruption.queueUrl` and `cloudProvider.aws.region`";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn check_finds_by_the_queues_own_word_that_it_is_in_another_region() {
    let world = World::new();
    world.aws.messages(|messages| messages.arn = "arn:aws:sqs:us-east-1:123456789012:notices".to_owned());
    let (_, outcome) = check(&world).await.pop().unwrap();
    let (class, what) = outcome.unwrap_err();
    assert_eq!(class, ErrorClass::Permanent);
    assert!(what.contains("is in region us-east-1, the machines are in eu-west-1"), "{what}");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_url_of_a_queue_is_refused_with_the_key_to_look_at() {
    for url in ["https://sqs.eu-west-1.amazonaws.com", "arn:aws:sqs:eu-west-1:123456789012:notices", ""] {
        let Err(error) = World::with(QueueSettings { url: url.to_owned(), ..settings() }, "eu-west-1") else {
            panic!("{url}");
        };
        assert_eq!(error.class, ErrorClass::Permanent);
        assert_eq!(error.to_string(), format!("{url:?} is not the URL of a queue: look at `interruption.queueUrl`"));
    }
}
