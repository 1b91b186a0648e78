//! What nodes, people and queues bring in AWS' notations: whatever it is, it is read or refused with one plain line, and
//! what is read keeps its bounds.

#![expect(clippy::unwrap_used, reason = "what fails in a test ends it")]

#[path = "../../../spot-core/tests/fuzz/mutator.rs"]
mod mutator;

use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;
use spot_aws::interruption::message::{Content, Home, Message};
use spot_aws::prices::{Prices, PricesError};
use spot_aws::{ProviderId, ProviderIdError};
use spot_core::claim::InstanceId;
use spot_core::interruption::Ignored;

use self::mutator::{Corpus, config, is_plain};

static PROVIDER_IDS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("provider_id"));
static PRICES: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("price"));
static MESSAGES: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("message"));

fn home() -> Home {
    Home { region: Some("us-west-2".to_owned()), account: Some("123456789012".to_owned()) }
}

/// How many kinds there are among refusals.
fn kinds<E>(refusals: &[E]) -> usize {
    let mut kinds: Vec<Discriminant<E>> = Vec::new();
    for refusal in refusals {
        if !kinds.contains(&discriminant(refusal)) {
            kinds.push(discriminant(refusal));
        }
    }
    kinds.len()
}

fn is_instance(id: &InstanceId) -> bool {
    let digits = id.as_str().strip_prefix("i-").unwrap_or_default();
    [8, 17].contains(&digits.len()) && digits.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
}

/// What a message is in the end: an SNS topic puts it into one of its own.
fn inner(body: &str) -> Value {
    let outer: Value = serde_json::from_str(body).unwrap();
    match (&outer["Type"], outer["Message"].as_str()) {
        (Value::String(kind), Some(message)) if kind == "Notification" => serde_json::from_str(message).unwrap(),
        _ => outer,
    }
}

#[test]
fn the_corpus_holds_provider_ids_and_one_of_each_refusal() {
    for text in PROVIDER_IDS.good() {
        assert!(ProviderId::parse(&text).is_ok(), "{text}");
    }
    let refusals: Vec<ProviderIdError> =
        PROVIDER_IDS.refused().map(|text| ProviderId::parse(&text).expect_err(&text)).collect();
    assert_eq!(kinds(&refusals), 8);
    assert!(refusals.iter().all(|error| is_plain(&error.to_string())));
}

#[test]
fn the_corpus_holds_tables_of_prices_and_one_of_each_refusal() {
    for text in PRICES.good() {
        assert!(Prices::parse(&text).is_ok_and(|prices| prices != Prices::default()), "{text}");
    }
    // A line that is left out is none.
    let refused = PRICES.refused().filter(|text| !text.is_empty());
    let refusals: Vec<PricesError> = refused.map(|text| Prices::parse(&text).expect_err(&text)).collect();
    assert_eq!(kinds(&refusals), 6);
    assert!(refusals.iter().all(|error| is_plain(&error.to_string())));
}

#[test]
fn the_corpus_holds_messages_and_one_of_each_refusal() {
    for text in MESSAGES.good() {
        assert!(Message::parse(&text, &home()).is_ok(), "{text}");
    }
    let refusals: BTreeSet<_> =
        MESSAGES.refused().map(|text| Message::parse(&text, &home()).expect_err(&text).why).collect();
    for why in [Ignored::Unreadable, Ignored::UnknownKind, Ignored::Foreign, Ignored::NoAction] {
        assert!(refusals.contains(&why), "{why:?}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_provider_id_is_written_as_it_was_read_or_refused_in_a_plain_line(text in PROVIDER_IDS.texts()) {
        match ProviderId::parse(&text) {
            Ok(id) => {
                prop_assert_eq!(id.to_string(), text);
                prop_assert!(is_instance(&InstanceId::new(id.instance_id())));
                let zone = id.zone().unwrap_or("a");
                prop_assert!(!zone.is_empty() && zone.bytes().all(|byte| b"abcdefghijklmnopqrstuvwxyz0123456789-".contains(&byte)));
            }
            Err(error) => prop_assert!(is_plain(&error.to_string()), "{:?}", error.to_string()),
        }
    }

    #[test]
    fn a_price_is_one_that_is_written_and_within_bounds_or_its_line_is_named(text in PRICES.texts()) {
        match Prices::parse(&text) {
            Ok(prices) => for line in text.trim_start_matches('\u{feff}').lines() {
                let columns: Vec<_> = line.split([',', '\t']).map(str::trim).collect();
                let [region, kind, on_demand, ..] = columns[..] else { continue };
                let Some(dollars) = prices.on_demand(region, kind) else { continue };
                prop_assert_eq!(Ok(dollars), on_demand.parse());
                prop_assert!(dollars > 0.0 && dollars <= 10_000.0, "{}", dollars);
                let spot = columns.get(3).and_then(|spot| spot.parse().ok());
                prop_assert_eq!(prices.spot(region, kind), spot);
                prop_assert!(spot.is_none_or(|spot| spot > 0.0 && spot <= 10.0 * dollars), "{:?}", spot);
            },
            Err(error) => {
                let said = error.to_string();
                prop_assert!(is_plain(&said), "{:?}", said);
                let number = said.trim_start_matches("line ").split([' ', ':']).next().and_then(|at| at.parse().ok());
                prop_assert!(number.is_some_and(|at| (1..=text.lines().count()).contains(&at)), "{}", said);
            }
        }
    }

    #[test]
    fn a_message_is_about_machines_of_ours_or_refused_in_a_few_plain_words(body in MESSAGES.texts()) {
        match Message::parse(&body, &home()) {
            Ok(Message { content, .. }) => {
                match content {
                    Content::Announced(instances, _) => {
                        prop_assert!((1..=1000).contains(&instances.len()));
                        prop_assert!(instances.iter().all(is_instance));
                        prop_assert_eq!(instances.iter().collect::<BTreeSet<_>>().len(), instances.len());
                    }
                    Content::Waiting(action) => {
                        prop_assert!(is_instance(&action.instance));
                        for name in [&action.hook.group, &action.hook.name] {
                            prop_assert!((1..=2048).contains(&name.len()));
                        }
                        prop_assert!(action.token.is_none_or(|token| token.len() <= 2048));
                    }
                }
                let event = inner(&body);
                if event["detail-type"].is_string() {
                    prop_assert!(event["source"].as_str().is_some_and(|source| source.starts_with("aws.")));
                    let of = |inner: &str, outer: &str| event["detail"][inner].as_str().or_else(|| event[outer].as_str()).map(str::to_owned);
                    prop_assert!(of("eventRegion", "region").is_none_or(|region| Some(region) == home().region));
                    prop_assert!(of("affectedAccount", "account").is_none_or(|account| Some(account) == home().account));
                }
            }
            Err(unusable) => {
                prop_assert!(is_plain(&unusable.what), "{:?}", unusable.what);
                prop_assert!(unusable.what.len() < 1024, "{} bytes", unusable.what.len());
            }
        }
    }
}
