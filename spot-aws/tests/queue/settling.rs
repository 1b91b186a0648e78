//! What becomes of messages: nothing is deleted before it had its effect, and nothing is forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use spot_core::error::ErrorClass;
use spot_core::interruption::{Announcement, Handled};
use spot_core::ports::{Clock, NoticeSource};

use crate::double::Fault;
use crate::support::{World, id, noon, secs, settings};

const DELETE: &str = "sqs:DeleteMessage";

#[tokio::test(start_paused = true)]
async fn what_is_done_is_deleted_and_nothing_else_is() {
    let world = World::new();
    world.aws.send(&world.warning(1));
    world.aws.send(&world.warning(2));
    let deliveries = world.deliveries().await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 2, "nothing is deleted before its effect");
    world.settle(&deliveries[0], Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 1);
    assert_eq!(world.delivery().await.notice, deliveries[1].notice, "the other one comes again");
}

#[tokio::test(start_paused = true)]
async fn rb_22_what_nobody_settles_comes_again_after_fifteen_seconds_as_the_same_message() {
    let world = World::new();
    world.aws.send(&world.warning(1));
    let first = world.delivery().await;
    let second = world.delivery().await;
    assert_eq!((&second.notice, &second.ticket.message), (&first.notice, &first.ticket.message));
    assert_ne!(second.ticket.receipt, first.ticket.receipt, "it is another delivery");
    let after = world.clock.now().duration_since(noon()).as_secs();
    assert!((15..=16).contains(&after), "{after}");
}

#[tokio::test(start_paused = true)]
async fn what_is_extended_is_not_delivered_again_meanwhile() {
    let world = World::new();
    world.aws.send(&world.warning(1));
    let delivery = world.delivery().await;
    let work = async {
        world.work(&delivery, 120).await;
        world.settle(&delivery, Handled::Done).await;
    };
    let (silent, ()) = futures::future::join(world.is_silent_for(180), work).await;
    assert!(silent);
    assert_eq!(world.aws.messages(|messages| messages.deleted.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_comes_again_at_once_and_what_is_wanted_later_after_a_while() {
    for (handled, soonest, latest) in [(Handled::Returned, 0, 1), (Handled::Later, 15, 16)] {
        let world = World::new();
        world.aws.send(&world.warning(1));
        let delivery = world.delivery().await;
        world.work(&delivery, 20).await;
        world.settle(&delivery, handled).await;
        let settled = world.clock.now();
        assert_eq!(world.delivery().await.notice, delivery.notice);
        let after = world.clock.now().duration_since(settled).as_secs();
        assert!((soonest..=latest).contains(&after), "{handled:?}: {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_far_ahead_is_left_alone_until_it_is_time_to_begin() {
    for (ahead, expected) in [(900, 15), (1800, 15), (1800 + 600, 600), (14 * 86_400, 11 * 3600)] {
        let world = World::new();
        let at = noon() + secs(ahead);
        world.aws.send(&world.scheduled(&[1], at));
        let delivery = world.delivery().await;
        assert_eq!(delivery.notice.announcement, Announcement::ScheduledChange { at });
        world.settle(&delivery, Handled::Later).await;
        let settled = world.clock.now();
        assert_eq!(world.delivery().await.notice.announcement, delivery.notice.announcement);
        let after = world.clock.now().duration_since(settled).as_secs();
        assert!((expected - 1..=expected + 1).contains(&after), "{ahead} s ahead: {after} s instead of {expected}");
    }
}

/// Two weeks are as long as a queue keeps anything.
#[tokio::test(start_paused = true)]
async fn a_change_two_weeks_ahead_comes_in_time_and_too_seldom_for_a_dead_letter_queue() {
    let world = World::new();
    let at = noon() + Duration::from_hours(14 * 24 - 1);
    world.aws.send(&world.scheduled(&[1], at));
    let begin = at - settings().scheduled_change_lead;
    let mut delivery = world.delivery().await;
    while world.clock.now() < begin {
        assert!(world.aws.messages(|messages| messages.received()) < 40, "it is received too often");
        world.settle(&delivery, Handled::Later).await;
        // Nobody asks meanwhile, as nothing comes.
        tokio::time::sleep_until(world.aws.messages(|messages| messages.next_visible()).unwrap()).await;
        delivery = world.delivery().await;
    }
    assert!(world.clock.now() < begin + secs(20), "{}", world.clock.now());
    world.settle(&delivery, Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_about_several_machines_is_deleted_when_each_of_them_was_settled() {
    let world = World::new();
    world.aws.send(&world.scheduled(&[1, 2, 3], noon() + secs(60)));
    let deliveries = world.deliveries().await;
    let instances: Vec<_> = deliveries.iter().map(|delivery| delivery.notice.instance.as_str()).collect();
    assert_eq!(instances, [id(1), id(2), id(3)]);
    let messages: BTreeSet<_> = deliveries.iter().map(|delivery| &delivery.ticket.message).collect();
    assert_eq!(messages.len(), 3, "whoever answers them takes each for a message of its own");
    world.settle(&deliveries[1], Handled::Done).await;
    world.settle(&deliveries[1], Handled::Done).await;
    world.settle(&deliveries[0], Handled::Later).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 1);
    world.settle(&deliveries[2], Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 1, "one of them is wanted later");
    // What is done is not done again.
    let again = world.delivery().await;
    assert_eq!(again.notice.instance.as_str(), id(1));
    assert_eq!(again.ticket.message, deliveries[0].ticket.message);
    world.extend(&again).await.unwrap();
    world.settle(&again, Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn one_machine_given_back_gives_back_what_is_left_of_its_message() {
    let world = World::new();
    world.aws.send(&world.scheduled(&[1, 2], noon() + secs(60)));
    let deliveries = world.deliveries().await;
    world.settle(&deliveries[0], Handled::Done).await;
    world.settle(&deliveries[1], Handled::Returned).await;
    assert_eq!(world.delivery().await.notice.instance.as_str(), id(2));
}

#[tokio::test(start_paused = true)]
async fn settling_is_idempotent_and_a_message_that_is_not_known_any_more_is_settled() {
    let world = World::new();
    world.aws.send(&world.warning(1));
    let first = world.delivery().await;
    let second = world.delivery().await;
    for handled in [Handled::Done, Handled::Returned, Handled::Later] {
        world.settle(&first, handled).await;
        assert_eq!(world.aws.messages(|messages| messages.len()), 1, "that delivery is over: it changes nothing");
    }
    for handled in [Handled::Done, Handled::Done, Handled::Returned, Handled::Later] {
        world.settle(&second, handled).await;
        assert_eq!(world.aws.messages(|messages| messages.len()), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_duplicates_are_twenty_messages_about_one_machine() {
    let world = World::new();
    for _ in 0..20 {
        world.aws.send(&world.warning(1));
    }
    let mut deliveries = Vec::new();
    while deliveries.len() < 20 {
        deliveries.extend(world.deliveries().await);
    }
    assert!(deliveries.iter().all(|delivery| delivery.notice.instance.as_str() == id(1)));
    for delivery in &deliveries {
        world.settle(delivery, Handled::Done).await;
    }
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_deleted_says_so_and_comes_again() {
    for (fault, class) in [
        (Fault::Denied, ErrorClass::Denied),
        (Fault::Hang, ErrorClass::Timeout),
        (Fault::ServerError, ErrorClass::Transient),
        (Fault::Throttled, ErrorClass::Transient),
    ] {
        let world = World::new();
        world.aws.send(&world.warning(1));
        let delivery = world.delivery().await;
        world.aws.fail(DELETE, fault, u32::MAX);
        let begun = world.clock.now();
        let error = world.try_settle(&delivery, Handled::Done).await.unwrap_err();
        let passing = [ErrorClass::Transient, ErrorClass::Timeout];
        assert!(
            error.class == class || passing.contains(&class) && passing.contains(&error.class),
            "{fault:?}: {error}"
        );
        assert!(world.clock.now().duration_since(begun) <= SignedDuration::from_secs(10), "the deadline is kept");
        world.aws.recover(DELETE);
        let again = world.delivery().await;
        assert_eq!(again.notice, delivery.notice);
        world.settle(&again, Handled::Done).await;
        assert_eq!(world.aws.messages(|messages| messages.len()), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_once_is_made_again_within_its_deadline() {
    for fault in [Fault::ServerError, Fault::Reset, Fault::LostAnswer, Fault::Throttled, Fault::Hang] {
        let world = World::new();
        world.aws.send(&world.warning(1));
        let delivery = world.delivery().await;
        world.aws.fail("sqs:ChangeMessageVisibility", fault, 1);
        world.queue.extend(&delivery, world.by(9)).await.unwrap();
        world.aws.fail(DELETE, fault, 1);
        world.settle(&delivery, Handled::Done).await;
        assert_eq!(world.aws.messages(|messages| messages.len()), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_others_may_have_by_now_can_not_be_extended() {
    let world = World::new();
    world.aws.send(&world.warning(1));
    let first = world.delivery().await;
    tokio::time::sleep(secs(16)).await;
    let error = world.extend(&first).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient, "it is visible");
    let second = world.delivery().await;
    let error = world.extend(&first).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient, "it was delivered again");
    world.extend(&second).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_as_long_as_sqs_lets_us_comes_again_and_can_be_kept_as_long_again() {
    let world = World::new();
    world.aws.messages(|messages| messages.kept = secs(600));
    world.aws.send(&world.scheduled(&[1], noon() + secs(3600)));
    let mut delivery = world.delivery().await;
    let mut deliveries = 1;
    while world.clock.now() < noon() + secs(1500) {
        if world.extend(&delivery).await.is_ok() {
            tokio::time::sleep(secs(10)).await;
        } else {
            delivery = world.delivery().await;
            deliveries += 1;
        }
    }
    assert_eq!(deliveries, 3);
    world.settle(&delivery, Handled::Done).await;
    assert_eq!(world.aws.messages(|messages| messages.len()), 0);
}
