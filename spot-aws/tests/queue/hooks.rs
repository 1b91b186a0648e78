//! Auto Scaling groups that wait for an answer.

use std::time::Duration;

use serde_json::json;
use spot_core::interruption::{Announcement, Handled, Ignored};
use spot_core::ports::Clock;

use crate::double::{Ended, Fault};
use crate::support::{World, id, noon, secs};

const BEAT: &str = "autoscaling:RecordLifecycleActionHeartbeat";
const COMPLETE: &str = "autoscaling:CompleteLifecycleAction";
const DESCRIBE: &str = "autoscaling:DescribeLifecycleHooks";

fn ended(world: &World, instance: u32) -> Option<Ended> {
    world.aws.hooks(|hooks| hooks.ended.get(&format!("token-{instance}")).copied())
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_named_waits_for_as_long_as_the_work_takes_and_not_longer() {
    let world = World::new();
    world.hook("drain", 60);
    world.wait_at("drain", "terminating", 1);
    let delivery = world.delivery().await;
    assert_eq!(delivery.notice.instance.as_str(), id(1));
    let until = noon() + secs(60 * 100);
    assert_eq!(delivery.notice.announcement, Announcement::TerminateAction { until });
    world.work(&delivery, 600).await;
    assert_eq!(ended(&world, 1), None, "it would have let go after a minute");
    let beats = world.aws.calls(BEAT).len();
    assert!((30..=31).contains(&beats), "one each third of its time-out: {beats}");
    world.settle(&delivery, Handled::Done).await;
    assert!(matches!(ended(&world, 1), Some(Ended::Completed(600..=610))), "{:?}", ended(&world, 1));
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
    let actions = world.aws.actions();
    assert!(actions.ends_with(&[COMPLETE.to_owned(), "sqs:DeleteMessage".to_owned()]), "first the hook: {actions:?}");
    assert_eq!(world.aws.calls(DESCRIBE).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_hook_waits_for_more_than_two_days() {
    let world = World::new();
    world.hook("drain", 7200);
    world.wait_at("drain", "terminating", 1);
    let until = noon() + Duration::from_hours(48);
    assert_eq!(world.delivery().await.notice.announcement, Announcement::TerminateAction { until });
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_somebody_else_gets_its_node_emptied_and_no_answer() {
    let world = World::new();
    world.hook("theirs", 300);
    world.wait_at("theirs", "terminating", 1);
    let delivery = world.delivery().await;
    assert_eq!(delivery.notice.announcement, Announcement::TerminateAction { until: noon() + secs(300) });
    world.work(&delivery, 120).await;
    world.settle(&delivery, Handled::Done).await;
    assert_eq!((world.aws.calls(BEAT).len(), world.aws.calls(COMPLETE).len()), (0, 0));
    assert_eq!(ended(&world, 1), None);
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_launch_is_answered_for_hooks_that_are_named_and_ignored_for_others() {
    let world = World::new();
    world.hook("drain", 60);
    world.hook("theirs", 60);
    world.wait_at("theirs", "launching", 1);
    world.wait_at("drain", "launching", 2);
    let delivery = world.delivery().await;
    assert_eq!(delivery.notice.instance.as_str(), id(2));
    assert_eq!(delivery.notice.announcement, Announcement::LaunchAction { until: noon() + secs(6000) });
    let (silent, ()) = futures::future::join(world.is_silent_for(60), world.work(&delivery, 90)).await;
    assert!(silent);
    world.settle(&delivery, Handled::Done).await;
    assert!(matches!(ended(&world, 2), Some(Ended::Completed(_))));
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
    assert_eq!(world.ignored().iter().map(|(why, _)| *why).collect::<Vec<_>>(), [Ignored::NoAction]);
    assert!(matches!(ended(&world, 1), Some(Ended::TimedOut(60))), "somebody else is to answer it");
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_the_group_sends_itself_is_as_good() {
    let world = World::new();
    world.hook("drain", 60);
    world.aws.hooks(|hooks| hooks.begin("workers", "drain", &id(1), "token-1"));
    let body = json!({
        "Origin": "AutoScalingGroup", "Destination": "EC2", "LifecycleHookName": "drain", "AccountId": "123456789012",
        "RequestId": "r", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "Service": "AWS Auto Scaling",
        "AutoScalingGroupName": "workers", "Time": "2026-03-01T12:00:00.123Z", "EC2InstanceId": id(1),
        "LifecycleActionToken": "token-1",
    });
    world.aws.send(&body.to_string());
    let delivery = world.delivery().await;
    let until = "2026-03-01T13:40:00.123Z".parse().unwrap();
    assert_eq!(delivery.notice.announcement, Announcement::TerminateAction { until });
    world.settle(&delivery, Handled::Done).await;
    assert!(matches!(ended(&world, 1), Some(Ended::Completed(_))));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_can_not_be_asked_for_waits_an_hour_and_keeps_nobody_waiting() {
    for fault in [Fault::Denied, Fault::ServerError, Fault::Hang] {
        let world = World::new();
        world.hook("theirs", 300);
        world.aws.fail(DESCRIBE, fault, u32::MAX);
        world.wait_at("theirs", "terminating", 1);
        world.aws.send(&world.warning(2));
        let deliveries = world.deliveries().await;
        assert_eq!(deliveries[0].notice.announcement, Announcement::TerminateAction { until: noon() + secs(3600) });
        assert_eq!(deliveries[1].notice.instance.as_str(), id(2));
        assert!(world.clock.now() < noon() + Duration::from_millis(1100), "{fault:?}: {}", world.clock.now());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_can_not_be_asked_for_gets_heartbeats_as_if_it_waited_for_the_shortest() {
    for heartbeat in [30, 60, 300] {
        let world = World::new();
        world.hook("drain", heartbeat);
        world.aws.fail(DESCRIBE, Fault::Throttled, u32::MAX);
        world.wait_at("drain", "terminating", 1);
        let delivery = world.delivery().await;
        world.work(&delivery, 600).await;
        assert_eq!(ended(&world, 1), None, "it would have let go after {heartbeat} s");
        world.settle(&delivery, Handled::Done).await;
        assert!(matches!(ended(&world, 1), Some(Ended::Completed(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_asked_of_a_hook_is_learnt_when_its_message_comes_again() {
    let world = World::new();
    world.hook("drain", 300);
    world.aws.fail(DESCRIBE, Fault::Denied, u32::MAX);
    world.wait_at("drain", "terminating", 1);
    let delivery = world.delivery().await;
    world.work(&delivery, 60).await;
    assert_eq!(world.aws.calls(BEAT).len(), 6);
    world.settle(&delivery, Handled::Returned).await;
    world.aws.recover(DESCRIBE);
    let again = world.delivery().await;
    world.work(&again, 300).await;
    assert_eq!(world.aws.calls(BEAT).len(), 6 + 3, "one each third of its time-out");
}

#[tokio::test(start_paused = true)]
async fn many_instances_that_come_to_a_hook_at_once_have_it_asked_for_once() {
    for fault in [None, Some(Fault::Hang)] {
        let world = World::new();
        world.hook("drain", 300);
        if let Some(fault) = fault {
            world.aws.fail(DESCRIBE, fault, u32::MAX);
        }
        for number in 1..=10 {
            world.wait_at("drain", "terminating", number);
        }
        assert_eq!(world.deliveries().await.len(), 10);
        assert_eq!(world.aws.calls(DESCRIBE).len(), 1, "{fault:?}");
    }
}

/// Its node may come later than its hook's patience ends.
#[tokio::test(start_paused = true)]
async fn a_hook_waits_while_its_notice_is_wanted_later() {
    let world = World::new();
    world.hook("drain", 60);
    world.wait_at("drain", "launching", 1);
    for _ in 0..6 {
        let delivery = world.delivery().await;
        world.settle(&delivery, Handled::Later).await;
    }
    let delivery = world.delivery().await;
    assert!(world.clock.now() > noon() + secs(75));
    assert_eq!(ended(&world, 1), None, "it would have let go after a minute");
    world.settle(&delivery, Handled::Done).await;
    assert!(matches!(ended(&world, 1), Some(Ended::Completed(_))));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_waits_no_more_is_left_alone_and_its_message_settled() {
    let world = World::new();
    world.hook("drain", 60);
    world.wait_at("drain", "terminating", 1);
    let delivery = world.delivery().await;
    // Whoever else answered it.
    world
        .aws
        .hooks(|hooks| hooks.known.get_mut(&("workers".to_owned(), "drain".to_owned())).unwrap().heartbeat = secs(0));
    world.work(&delivery, 300).await;
    assert_eq!(world.aws.calls(BEAT).len(), 4, "that it is over is known by its first refusal after a minute");
    world.settle(&delivery, Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
}

/// The message may be there before the instance waits.
#[tokio::test(start_paused = true)]
async fn a_hook_that_begins_to_wait_after_its_message_came_gets_its_answer() {
    let world = World::new();
    world.hook("drain", 60);
    world.aws.send(&world.lifecycle("drain", "terminating", 1).to_string());
    let delivery = world.delivery().await;
    world.settle(&delivery, Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 1, "nobody knows yet whether it is over");
    world.aws.hooks(|hooks| hooks.begin("workers", "drain", &id(1), "token-1"));
    let again = world.delivery().await;
    assert_eq!(again.notice, delivery.notice);
    world.settle(&again, Handled::Done).await;
    assert!(matches!(ended(&world, 1), Some(Ended::Completed(14..=16))), "{:?}", ended(&world, 1));
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_begins_to_wait_after_its_first_heartbeat_gets_the_others() {
    let world = World::new();
    world.hook("drain", 60);
    world.aws.send(&world.lifecycle("drain", "terminating", 1).to_string());
    let delivery = world.delivery().await;
    world.work(&delivery, 5).await;
    world.aws.hooks(|hooks| hooks.begin("workers", "drain", &id(1), "token-1"));
    world.work(&delivery, 300).await;
    assert_eq!(ended(&world, 1), None, "it would have let go after a minute");
    world.settle(&delivery, Handled::Done).await;
    assert!(matches!(ended(&world, 1), Some(Ended::Completed(_))));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_waits_is_tried_for_a_minute() {
    let world = World::new();
    world.hook("drain", 60);
    world.aws.send(&world.lifecycle("drain", "terminating", 1).to_string());
    while world.aws.messages(|messages| messages.len()) > 0 {
        let delivery = world.delivery().await;
        world.settle(&delivery, Handled::Done).await;
    }
    assert_eq!(world.aws.calls(COMPLETE).len(), 5);
    assert!(world.clock.now() < noon() + secs(75), "{}", world.clock.now());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_given_already_is_given_to_a_message_that_comes_again() {
    let world = World::new();
    world.hook("drain", 60);
    world.wait_at("drain", "terminating", 1);
    let delivery = world.delivery().await;
    world.aws.fail("sqs:DeleteMessage", Fault::Denied, 1);
    world.try_settle(&delivery, Handled::Done).await.unwrap_err();
    assert!(matches!(ended(&world, 1), Some(Ended::Completed(_))));
    let again = world.delivery().await;
    world.settle(&again, Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
    assert_eq!(world.aws.calls(COMPLETE).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_did_not_get_its_answer_keeps_its_message() {
    for fault in [Fault::ServerError, Fault::Hang] {
        let world = World::new();
        world.hook("drain", 600);
        world.wait_at("drain", "terminating", 1);
        let delivery = world.delivery().await;
        world.aws.fail(COMPLETE, fault, u32::MAX);
        let error = world.try_settle(&delivery, Handled::Done).await.unwrap_err();
        assert!(error.to_string().contains(COMPLETE), "{error}");
        world.aws.recover(COMPLETE);
        let again = world.delivery().await;
        world.settle(&again, Handled::Done).await;
        assert!(matches!(ended(&world, 1), Some(Ended::Completed(_))), "{fault:?}");
        assert_eq!(world.aws.messages(|messages| messages.len()), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_may_not_be_answered_is_told_of_once() {
    let world = World::new();
    world.hook("drain", 600);
    world.wait_at("drain", "terminating", 1);
    let delivery = world.delivery().await;
    world.aws.fail(COMPLETE, Fault::Denied, u32::MAX);
    world.settle(&delivery, Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 0, "it would come again for ever");
    let problems = world.problems();
    assert!(problems.len() == 1 && problems[0].contains(COMPLETE) && problems[0].contains("drain"), "{problems:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_a_machine_that_is_not_ours_waits_on() {
    for transition in ["launching", "terminating"] {
        let world = World::new();
        world.hook("drain", 600);
        world.wait_at("drain", transition, 1);
        let delivery = world.delivery().await;
        world.settle(&delivery, Handled::Ignored).await;
        assert_eq!(world.aws.messages(|messages| messages.len()), 0);
        assert_eq!(ended(&world, 1), None, "whoever knows it is to answer it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_fails_says_so_keeps_the_message_and_is_tried_again() {
    let world = World::new();
    world.hook("drain", 60);
    world.wait_at("drain", "terminating", 1);
    let delivery = world.delivery().await;
    world.aws.fail(BEAT, Fault::Denied, 1);
    let error = world.extend(&delivery).await.unwrap_err();
    assert!(error.to_string().contains("see deploy/iam/interruptions.json"), "{error}");
    tokio::time::sleep(secs(10)).await;
    assert_eq!(world.aws.messages(|messages| messages.visible()), 0, "it is kept all the same");
    world.extend(&delivery).await.unwrap();
    assert_eq!(world.aws.calls(BEAT).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_process_goes_on_where_one_ended() {
    let world = World::new();
    world.hook("drain", 60);
    world.wait_at("drain", "terminating", 1);
    let delivery = world.delivery().await;
    world.work(&delivery, 50).await;
    world.settle(&delivery, Handled::Returned).await;
    assert_eq!(ended(&world, 1), None, "it was given back, not answered");
    let again = world.delivery().await;
    world.work(&again, 50).await;
    assert_eq!(ended(&world, 1), None);
    world.settle(&again, Handled::Done).await;
    assert!(matches!(ended(&world, 1), Some(Ended::Completed(_))));
}
