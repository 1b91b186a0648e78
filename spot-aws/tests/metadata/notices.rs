//! What is announced comes as a notice, once, until it is settled.

use spot_core::interruption::{Announcement, Handled, Reclaim, Source};
use spot_core::ports::{Clock as _, NoticeSource as _};

use crate::stub::{INSTANCE, INTERRUPTION, REBALANCE, SCHEDULED, TOKEN};
use crate::support::{TERMINATE, World, terminate};

#[tokio::test]
async fn nothing_announced_is_an_empty_answer() {
    let world = World::new().await;
    assert!(world.poll().await.is_empty());
    assert_eq!(world.source.kind(), Source::Metadata);
    assert!(world.heard.ignored().is_empty());
}

#[tokio::test]
async fn an_interruption_is_a_notice_of_this_machine_from_when_it_is_seen() {
    let world = World::new().await;
    world.poll().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    let delivery = world.poll().await.remove(0);
    assert_eq!(delivery.notice.announcement, terminate());
    assert_eq!(delivery.notice.instance.as_str(), INSTANCE);
    assert_eq!(delivery.notice.sent, world.clock.now());
}

#[tokio::test]
async fn all_that_is_announced_comes_with_one_poll() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, r#"{"action": "hibernate", "time": "2026-03-01T12:00:00Z"}"#);
    world.stub.announce(REBALANCE, r#"{"noticeTime": "2026-03-01T11:50:00Z"}"#);
    world.stub.announce(
        SCHEDULED,
        r#"[{"NotBefore": "3 Mar 2026 09:00:00 GMT", "Code": "instance-retirement", "Description": "gone",
            "EventId": "instance-event-0d59937288b749b32", "NotAfter": "", "State": "active"}]"#,
    );
    let announced: Vec<_> = world.poll().await.into_iter().map(|delivery| delivery.notice.announcement).collect();
    let time = |text: &str| text.parse().unwrap();
    let expected = [
        Announcement::Interruption { action: Reclaim::Hibernate, at: time("2026-03-01T12:00:00Z") },
        Announcement::Rebalance,
        Announcement::ScheduledChange { at: time("2026-03-03T09:00:00Z") },
    ];
    assert_eq!(announced, expected);
}

#[tokio::test]
async fn a_notice_comes_once_and_not_again_when_it_is_done() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    let delivery = world.poll().await.remove(0);
    assert!(world.poll().await.is_empty(), "it is being answered");
    world.source.extend(&delivery, world.clock.instant()).await.unwrap();
    world.settle(&delivery, Handled::Done).await;
    world.settle(&delivery, Handled::Done).await;
    for _ in 0..100 {
        assert!(world.poll().await.is_empty(), "it is done");
    }
}

#[tokio::test]
async fn another_time_is_another_notice() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    let first = world.poll().await.remove(0);
    world.stub.announce(INTERRUPTION, &TERMINATE.replace("12:02", "12:01"));
    let second = world.poll().await.remove(0);
    assert_ne!(first.ticket.message, second.ticket.message);
    assert_ne!(first.notice, second.notice);
}

#[tokio::test]
async fn a_notice_that_is_returned_comes_with_the_next_poll_and_one_for_later_with_a_later_one() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    let first = world.poll().await.remove(0);
    world.settle(&first, Handled::Returned).await;
    let second = world.poll().await.remove(0);
    assert_eq!((&first.ticket.message, &first.notice), (&second.ticket.message, &second.notice));
    world.settle(&second, Handled::Later).await;
    for _ in 1..15 {
        assert!(world.poll().await.is_empty(), "{:?}", world.clock.instant());
    }
    assert_eq!(world.poll().await.len(), 1, "thirty seconds have passed");
}

#[tokio::test]
async fn recommendations_are_asked_for_only_if_they_are_wanted() {
    let world = World::with_rebalance(false).await;
    world.stub.announce(REBALANCE, r#"{"noticeTime": "2026-03-01T11:50:00Z"}"#);
    assert!(world.poll().await.is_empty());
    assert_eq!((world.stub.count(REBALANCE), world.stub.count(INTERRUPTION)), (0, 1));
}

#[tokio::test]
async fn interruptions_are_asked_for_every_two_seconds_and_scheduled_events_every_thirty() {
    let world = World::new().await;
    for _ in 0..=30 {
        world.poll().await;
    }
    assert_eq!(world.clock.instant().0.as_secs(), 60);
    assert_eq!((world.stub.count(INTERRUPTION), world.stub.count(SCHEDULED)), (31, 3));
}

#[tokio::test]
async fn one_token_serves_all_requests() {
    let world = World::new().await;
    for _ in 0..10 {
        world.poll().await;
    }
    assert_eq!(world.stub.count(TOKEN), 1);
}
