//! Answers near those of the real service: whatever it is, it announces what it says or is told of in a few plain words.

use std::future::Future;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;
use spot_core::error::{ErrorClass, chain};
use spot_core::interruption::Announcement;
use spot_core::ports::NoticeSource as _;
use tokio::runtime::Builder;

use crate::mutator::{Corpus, config, is_plain};
use crate::stub::{INSTANCE, INSTANCE_ID, INTERRUPTION, REBALANCE, SCHEDULED, Stub};
use crate::support::{Heard, Time, World, open};

static ANSWERS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("metadata"));

fn run<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// What is announced, and what is told of, when each of these documents is this text.
fn read(documents: &[&str], text: &str) -> (Vec<Announcement>, Vec<String>) {
    run(async {
        let world = World::new().await;
        for document in documents {
            world.stub.announce(document, text);
        }
        // A busy machine may take longer than the second that an answer has: then nothing was read.
        let delivered = loop {
            match world.source.next().await {
                Ok(delivered) => break delivered,
                Err(error) => assert_eq!(error.class, ErrorClass::Transient, "{error}"),
            }
        };
        let announced = delivered.into_iter().map(|delivery| delivery.notice.announcement).collect();
        (announced, world.heard.ignored().into_iter().map(|(_, what)| what).collect())
    })
}

/// The time that a key holds.
fn time(json: &Value, key: &str) -> Option<Timestamp> {
    json[key].as_str()?.parse().ok()
}

#[test]
fn the_corpus_holds_answers_and_what_is_none() {
    for text in ANSWERS.good() {
        let read_by = |document: &str| read(&[document], &text).1.is_empty();
        assert!([INTERRUPTION, REBALANCE, SCHEDULED].into_iter().any(read_by), "{text}");
    }
    for text in ANSWERS.refused() {
        let (announced, told) = read(&[INTERRUPTION, REBALANCE, SCHEDULED], &text);
        assert!(announced.is_empty() && told.iter().all(|what| is_plain(what) && what.len() < 2048), "{told:?}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_answer_announces_what_it_says_or_is_told_of_in_a_few_plain_words(text in ANSWERS.texts()) {
        let (announced, told) = read(&[INTERRUPTION, REBALANCE, SCHEDULED], &text);
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        for announcement in &announced {
            match announcement {
                Announcement::Interruption { at, .. } => prop_assert_eq!(Some(*at), time(&json, "time")),
                Announcement::Rebalance => prop_assert!(time(&json, "noticeTime").is_some()),
                Announcement::ScheduledChange { .. } => {
                    let active = json.as_array().into_iter().flatten().filter(|event| event["State"] == "active").count();
                    prop_assert!((1..=active).contains(&announced.len()));
                }
                other => prop_assert!(false, "no document tells of {:?}", other),
            }
        }
        let one = json["action"].is_string() || json["noticeTime"].is_string();
        prop_assert!(json.is_array() || one || told.len() == 3, "{:?}", told);
        for what in &told {
            prop_assert!(is_plain(what), "{:?}", what);
            prop_assert!(what.len() < 2048, "{} bytes", what.len());
        }
    }

    #[test]
    fn only_the_machine_itself_is_taken_for_it(text in prop_oneof![Just(INSTANCE.to_owned()), ANSWERS.texts()]) {
        let opened = run(async {
            let stub = Stub::start().await;
            stub.announce(INSTANCE_ID, &text);
            let (clock, heard) = (Arc::new(Time::default()), Arc::new(Heard::default()));
            open(&stub, INSTANCE, &clock, &heard, true, 0).await.map(drop).map_err(|error| chain(&error))
        });
        prop_assert_eq!(opened.is_ok(), text == INSTANCE);
        if let Err(said) = opened {
            prop_assert!(is_plain(&said), "{:?}", said);
        }
    }
}
