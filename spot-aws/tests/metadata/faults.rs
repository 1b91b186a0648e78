//! Odd answers: none of them is a notice, none of them ends anything, and after each the work goes on.

use futures::FutureExt as _;
use spot_core::error::{ErrorClass, chain};
use spot_core::interruption::Ignored;
use spot_core::ports::{Clock as _, NoticeSource as _};

use crate::stub::{INTERRUPTION, Odd, REBALANCE, SCHEDULED, Stub, TOKEN};
use crate::support::{TERMINATE, World, terminate};

/// Those after which it is not known what is announced.
async fn failures() -> (Vec<Odd>, Stub) {
    let elsewhere = Stub::start().await;
    let failures = vec![
        Odd::Status(400),
        Odd::Status(403),
        Odd::Status(429),
        Odd::Status(500),
        Odd::Status(503),
        Odd::NoHttp,
        Odd::Silence,
        Odd::HalfThenSilence,
        Odd::HalfThenEnd,
        Odd::Reset,
        Odd::Elsewhere(elsewhere.address()),
    ];
    (failures, elsewhere)
}

#[tokio::test]
async fn a_document_that_can_not_be_had_costs_one_poll() {
    let (failures, elsewhere) = failures().await;
    for odd in failures {
        let world = World::new().await;
        world.stub.announce(INTERRUPTION, TERMINATE);
        world.stub.answer_oddly(INTERRUPTION, &odd, 1);
        let error = world.source.next().await.expect_err(&format!("{odd:?} is no answer"));
        assert_eq!(error.class, ErrorClass::Transient, "{odd:?}");
        let said = chain(&error);
        assert!(said.contains(INTERRUPTION) && said.contains(&world.stub.url()), "{said}");
        assert_eq!(world.announced().await, Some(terminate()), "{odd:?}");
    }
    assert_eq!(elsewhere.count(""), 0, "whoever else is named is not asked");
}

#[tokio::test]
async fn a_token_that_can_not_be_had_costs_one_poll() {
    let (mut failures, elsewhere) = failures().await;
    failures.extend([Odd::Garbage("no token"), Odd::NoText, Odd::TooShort, Odd::Status(404), Odd::Status(401)]);
    for odd in failures {
        let world = World::new().await;
        world.stub.announce(INTERRUPTION, TERMINATE);
        world.stub.forget_tokens();
        // Each of the three documents asks for one.
        world.stub.answer_oddly(TOKEN, &odd, 3);
        assert!(world.source.next().await.is_err(), "{odd:?}");
        assert_eq!(world.announced().await, Some(terminate()), "{odd:?}");
    }
    assert_eq!(elsewhere.count(""), 0, "whoever else is named is not asked");
}

#[tokio::test]
async fn a_token_that_is_not_accepted_any_more_is_replaced_within_the_poll() {
    let world = World::new().await;
    world.poll().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    world.stub.forget_tokens();
    assert_eq!(world.announced().await, Some(terminate()));
}

#[tokio::test]
async fn a_service_that_accepts_no_token_is_asked_again_with_the_next_poll() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    world.stub.answer_oddly(INTERRUPTION, &Odd::Status(401), 4);
    for _ in 0..2 {
        let error = world.source.next().await.unwrap_err();
        assert!(error.to_string().contains("401"), "{error}");
    }
    assert_eq!(world.announced().await, Some(terminate()));
}

#[tokio::test]
async fn what_is_not_there_is_no_failure() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    world.stub.answer_oddly(INTERRUPTION, &Odd::Status(404), 1);
    assert_eq!(world.announced().await, None);
    assert_eq!(world.announced().await, Some(terminate()));
}

#[tokio::test]
async fn an_answer_that_can_not_be_read_is_no_notice_and_is_told() {
    for odd in [Odd::Garbage(""), Odd::Garbage("<html>"), Odd::Garbage("{}"), Odd::TooShort] {
        let world = World::new().await;
        world.stub.announce(INTERRUPTION, TERMINATE);
        world.stub.answer_oddly(INTERRUPTION, &odd, 2);
        for _ in 0..2 {
            assert_eq!(world.announced().await, None, "{odd:?}");
        }
        let ignored = world.heard.ignored();
        assert_eq!(ignored.len(), 2, "{ignored:?}");
        assert!(ignored.iter().all(|(why, what)| *why == Ignored::Unreadable && what.contains(INTERRUPTION)));
        assert_eq!(world.announced().await, Some(terminate()), "{odd:?}");
    }
}

#[tokio::test]
async fn an_action_that_nobody_knows_is_told_as_such() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, &TERMINATE.replace("terminate", "explode"));
    assert_eq!(world.announced().await, None);
    let ignored = world.heard.ignored();
    assert!(matches!(&*ignored, [(Ignored::UnknownKind, what)] if what.contains("explode")), "{ignored:?}");
}

#[tokio::test]
async fn a_document_that_fails_holds_up_no_notice_of_another() {
    for odd in [Odd::Status(500), Odd::Silence, Odd::Garbage("<html>")] {
        let world = World::new().await;
        world.stub.announce(INTERRUPTION, TERMINATE);
        world.stub.answer_oddly(REBALANCE, &odd, 1);
        world.stub.answer_oddly(SCHEDULED, &odd, 1);
        assert_eq!(world.announced().await, Some(terminate()), "{odd:?}");
    }
}

#[tokio::test]
async fn scheduled_events_that_could_not_be_had_are_asked_for_with_the_next_poll() {
    let world = World::new().await;
    world.stub.answer_oddly(SCHEDULED, &Odd::Status(500), 1);
    world.source.next().await.unwrap_err();
    world.poll().await;
    assert_eq!(world.stub.count(SCHEDULED), 2);
}

#[tokio::test]
async fn a_wait_that_is_dropped_loses_nothing() {
    let world = World::new().await;
    world.stub.announce(INTERRUPTION, TERMINATE);
    assert!(world.source.next().now_or_never().is_none(), "it waits for the answer");
    assert_eq!(world.announced().await, Some(terminate()));
}

#[tokio::test]
async fn a_service_that_is_gone_for_a_while_is_asked_until_it_is_back() {
    let world = World::new().await;
    for _ in 0..20 {
        world.stub.answer_oddly(INTERRUPTION, &Odd::Reset, 1);
        world.source.next().await.unwrap_err();
    }
    assert_eq!(world.clock.instant().0.as_secs(), 38, "every two seconds, and no faster");
    world.stub.announce(INTERRUPTION, TERMINATE);
    assert_eq!(world.announced().await, Some(terminate()));
    world.stub.withdraw(INTERRUPTION);
    assert_eq!(world.announced().await, None);
}
