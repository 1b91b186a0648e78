//! How notices come, and what happens while they can't.

use std::time::Duration;

use futures::future;
use spot_core::error::ErrorClass;
use spot_core::interruption::{Announcement, Reclaim, Source};
use spot_core::ports::{Clock, NoticeSource};

use crate::double::Fault;
use crate::support::{URL, World, id, noon, secs};

const RECEIVE: &str = "sqs:ReceiveMessage";

#[tokio::test(start_paused = true)]
async fn a_notice_comes_as_soon_as_it_is_there_with_its_deadline() {
    let world = World::new();
    assert_eq!((world.queue.kind(), world.queue.receivers()), (Source::Queue, 4));
    assert!(world.is_silent_for(60).await);
    let begun = world.clock.now();
    let send = async {
        tokio::time::sleep(secs(7)).await;
        world.aws.messages(|messages| messages.age = secs(3));
        world.aws.send(&world.warning(1))
    };
    let (delivery, message) = future::join(world.delivery(), send).await;
    assert!(world.clock.now() <= begun + secs(7) + Duration::from_millis(100), "{}", world.clock.now());
    assert_eq!(delivery.notice.instance.as_str(), id(1));
    assert_eq!(&*delivery.ticket.message, message);
    let Announcement::Interruption { action: Reclaim::Terminate, at } = delivery.notice.announcement else {
        panic!("{delivery:?}");
    };
    let late = at.duration_since(begun).as_secs();
    assert!((126..=127).contains(&late), "two minutes after the event, whose time has no fractions: {late}");
    let age = world.clock.now().duration_since(delivery.notice.sent).as_millis();
    assert!((3000..3100).contains(&age), "as the queue says, which counts thousandths: {age}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_queue_is_no_error_and_seldom_asked() {
    let world = World::new();
    for _ in 0..20 {
        assert_eq!(world.queue.next().await.unwrap(), []);
    }
    let waited = world.clock.now().duration_since(noon()).as_secs();
    assert!(waited > 12 * 20, "{waited}");
    assert!(world.ignored().is_empty());
    let calls = world.aws.calls(RECEIVE);
    assert_eq!(world.aws.actions().len(), calls.len(), "an empty answer costs nothing else");
    for call in calls {
        assert_eq!(call.params["QueueUrl"], URL);
        assert_eq!(call.params["MaxNumberOfMessages"], 10);
        assert_eq!(call.params["VisibilityTimeout"], 15);
        assert_eq!(call.params["MessageSystemAttributeNames"], serde_json::json!(["SentTimestamp"]));
        assert!(call.params["WaitTimeSeconds"].as_u64().is_some_and(|wait| (1..=20).contains(&wait)));
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_at_once_come_within_a_second_each_of_them_once() {
    let world = World::new();
    for number in 0..200 {
        world.aws.send(&world.warning(number));
    }
    let fifty = || async {
        let mut received = Vec::new();
        while received.len() < 50 {
            received.extend(world.queue.next().await.unwrap());
        }
        received
    };
    let received = future::join_all((0..world.queue.receivers()).map(|_| fifty())).await.concat();
    assert!(world.clock.now() < noon() + secs(1), "{}", world.clock.now());
    let mut instances: Vec<_> = received.iter().map(|delivery| delivery.notice.instance.as_str()).collect();
    instances.sort_unstable();
    assert_eq!(instances, (0..200).map(id).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_loses_nothing() {
    let world = World::new();
    world.aws.send(&world.warning(1));
    // After it was received, and before the answer is here.
    let dropped = tokio::time::timeout(Duration::from_millis(30), world.queue.next()).await;
    assert!(dropped.is_err());
    assert_eq!(world.aws.messages(|messages| (messages.len(), messages.visible())), (1, 0));
    let delivery = world.delivery().await;
    assert_eq!(delivery.notice.instance.as_str(), id(1));
    assert!(world.clock.now() <= noon() + secs(16), "{}", world.clock.now());
}

#[tokio::test(start_paused = true)]
async fn rb_33_an_endpoint_that_accepts_and_never_answers_is_left_and_found_again_within_seconds() {
    for silent in [3, 20].into_iter().chain((300..330).step_by(3)) {
        let world = World::new();
        assert!(world.is_silent_for(90).await, "all is well");
        world.aws.fail(RECEIVE, Fault::Hang, u32::MAX);
        let receivers = future::select_all((0..world.queue.receivers()).map(|_| Box::pin(world.deliveries())));
        let recovered = async {
            tokio::time::sleep(secs(silent)).await;
            world.aws.recover(RECEIVE);
            world.aws.send(&world.warning(1));
            world.clock.now()
        };
        let ((deliveries, ..), recovered) = future::join(receivers, recovered).await;
        assert_eq!(deliveries[0].notice.instance.as_str(), id(1));
        let after = world.clock.now().duration_since(recovered).as_secs();
        // While it is not known that it does not answer, those that wait go on waiting, but not all of them as long.
        let longest = if silent < 25 { 14 } else { 7 };
        assert!(after <= longest, "silent for {silent} s, found again after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_a_few_seconds_after_its_wait() {
    let world = World::new();
    assert_eq!(world.queue.next().await.unwrap(), []);
    world.aws.fail(RECEIVE, Fault::Hang, u32::MAX);
    let begun = world.clock.now();
    let error = world.queue.next().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Timeout);
    let took = world.clock.now().duration_since(begun).as_secs();
    assert!((25..=26).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_told_from_what_will_not_and_the_right_is_named() {
    for (fault, class) in [
        (Fault::Throttled, ErrorClass::Transient),
        (Fault::ServerError, ErrorClass::Transient),
        (Fault::Reset, ErrorClass::Transient),
        (Fault::LostAnswer, ErrorClass::Transient),
        (Fault::HalfAnswer, ErrorClass::Transient),
        (Fault::Denied, ErrorClass::Denied),
    ] {
        let world = World::new();
        world.aws.send(&world.warning(1));
        world.aws.fail(RECEIVE, fault, 1);
        let error = world.queue.next().await.unwrap_err();
        assert_eq!(error.class, class, "{fault:?}: {error}");
        let names_it = error.to_string().contains("sqs:ReceiveMessage, see deploy/iam/interruptions.json");
        assert_eq!(names_it, fault == Fault::Denied, "{error}");
        assert_eq!(world.aws.calls(RECEIVE).len(), 1, "whoever asks is told at once");
        assert_eq!(world.delivery().await.notice.instance.as_str(), id(1), "nothing is lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_exist_is_definite() {
    let world = World::new();
    world.aws.messages(|messages| messages.url = None);
    let error = world.queue.next().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    let expected = format!("there is no queue {URL} in region eu-west-1: look at `interruption.queueUrl`");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_found_by_its_provider_id_alone() {
    let world = World::new();
    let instance = world.queue.instance_of(&format!("aws:///eu-west-1a/{}", id(7)));
    assert_eq!(instance.unwrap().as_str(), id(7));
    for other in ["", "kwok://node-1", "aws:///eu-west-1a/ip-10-0-0-1.ec2.internal", &id(7)] {
        assert_eq!(world.queue.instance_of(other), None, "{other}");
    }
}
