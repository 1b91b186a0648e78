//! What people write and what a kubelet may write, in the languages that the core reads: whatever it is, it is read or
//! refused with one plain line, and what is read means what it says.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod mutator;

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use proptest::prelude::*;
use spot_core::Schedule;
use spot_core::interruption::returning::{SOFT_FOR, hardening};
use spot_core::labels::Labels;
use spot_core::node::{ClaimAnnotation, Effect, NodeSnapshot, Readiness, Taint, Uid, key};
use spot_core::schedule::{ScheduleError, time_zone};
use spot_core::selector::{LabelSelector, Operator, SelectorError, key_fault, value_fault};

use self::mutator::{Corpus, LONGEST, config, is_plain};

static SCHEDULES: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("schedule"));
static SELECTORS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("selector"));
/// Values of the taints that say when they were put on.
static SECONDS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("seconds"));

/// What quotes its input twice, with each byte of it escaped, is no longer.
const SAID: usize = 16 * LONGEST;

fn schedule(text: &str) -> Result<Schedule, ScheduleError> {
    Schedule::parse(text, &TimeZone::UTC)
}

fn noon() -> Timestamp {
    "2026-03-02T12:00:00Z".parse().unwrap()
}

/// A node with the soft taint.
fn softened(value: &str) -> NodeSnapshot {
    NodeSnapshot {
        name: "a".into(),
        uid: Uid::new("u"),
        resource_version: "1".to_owned(),
        created_at: noon(),
        provider_id: String::new(),
        labels: Labels::default(),
        annotations: Labels::default(),
        taints: vec![Taint::new(key::REBALANCE, value, Effect::PreferNoSchedule)],
        unschedulable: false,
        readiness: Readiness::Ready,
        ready_since: None,
        boot_id: String::new(),
        internal_addresses: Vec::new(),
        deleting_since: None,
        finalizers: Vec::new(),
        claim: ClaimAnnotation::Absent,
        back_off: None,
    }
}

/// The end of a soft taint with this value, told without the core: a text of whole seconds since 1970.
fn ends(value: &str) -> Option<Timestamp> {
    let seconds: i64 = value.parse().ok()?;
    Timestamp::from_second(seconds).ok()
}

#[test]
fn the_corpus_holds_schedules_and_one_of_each_refusal() {
    for text in SCHEDULES.good() {
        assert!(schedule(&text).is_ok(), "{text}: {:?}", schedule(&text));
    }
    let refusals: Vec<_> = SCHEDULES.refused().map(|text| schedule(&text).expect_err(&text)).collect();
    for (index, error) in refusals.iter().enumerate() {
        let same = refusals[..index].iter().filter(|other| discriminant(*other) == discriminant(error)).count();
        assert!(same < refusals.len() / 2, "{error}");
    }
    let kinds: BTreeSet<_> = refusals.iter().map(|error| format!("{:?}", discriminant(error))).collect();
    assert_eq!(kinds.len(), 12);
}

#[test]
fn the_corpus_holds_selectors_and_one_of_each_refusal() {
    for text in SELECTORS.good() {
        assert!(LabelSelector::parse(&text).is_ok(), "{text}");
    }
    let refusals: Vec<_> = SELECTORS.refused().map(|text| LabelSelector::parse(&text).expect_err(&text)).collect();
    assert!(refusals.iter().any(|error| matches!(error, SelectorError::Unexpected { .. })));
    assert!(refusals.iter().any(|error| matches!(error, SelectorError::Key { .. })));
    assert!(refusals.iter().any(|error| matches!(error, SelectorError::Value { .. })));
}

#[test]
fn the_corpus_holds_times_of_taints_and_what_is_none() {
    assert!(SECONDS.good().all(|text| ends(&text).is_some()));
    assert!(SECONDS.refused().all(|text| ends(&text).is_none()));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_schedule_is_read_as_it_is_shown_or_refused_in_a_plain_line(text in SCHEDULES.texts(), seconds in any::<i32>()) {
        match schedule(&text) {
            Ok(read) => {
                prop_assert_eq!(read.to_string(), text.as_str());
                prop_assert_eq!(schedule(&read.to_string()), Ok(read.clone()));
                let now = Timestamp::from_second(seconds.into()).unwrap();
                let next = read.next_after(now);
                prop_assert!(next.is_none_or(|next| next > now));
                let Some(interval) = read.interval() else {
                    return Ok(());
                };
                prop_assert!(interval >= SignedDuration::from_secs(1) && interval <= SignedDuration::from_hours(43_800));
                prop_assert!(next.unwrap().duration_since(now) <= interval);
            }
            Err(error) => {
                let said = error.to_string();
                prop_assert!(is_plain(&said), "{:?}", said);
                prop_assert!(said.len() <= SAID, "{} bytes", said.len());
            }
        }
    }

    #[test]
    fn a_time_zone_is_one_of_the_database_or_refused_in_a_plain_line(text in SCHEDULES.texts()) {
        let name = text.trim_start_matches("CRON_").trim_start_matches("TZ=").split(' ').next().unwrap_or_default();
        match time_zone(name) {
            Ok(zone) => prop_assert!(zone.iana_name().is_some_and(|found| found.eq_ignore_ascii_case(name)), "{}", name),
            Err(error) => prop_assert!(is_plain(&error.to_string()), "{:?}", error.to_string()),
        }
    }

    #[test]
    fn a_selector_is_read_as_it_is_shown_or_refused_in_a_plain_line(text in SELECTORS.texts()) {
        match LabelSelector::parse(&text) {
            Ok(read) => {
                prop_assert_eq!(LabelSelector::parse(&read.to_string()), Ok(read.clone()));
                for requirement in read.requirements() {
                    prop_assert_eq!(key_fault(requirement.key()), None);
                    prop_assert!(requirement.values().all(|value| value_fault(value).is_none()));
                    let counts = matches!(requirement.operator(), Operator::In | Operator::NotIn);
                    prop_assert_eq!(requirement.values().next().is_some(), counts);
                }
            }
            Err(error) => {
                let said = error.to_string();
                prop_assert!(is_plain(&said), "{:?}", said);
                prop_assert!(said.len() <= SAID, "{} bytes", said.len());
            }
        }
    }

    #[test]
    fn a_soft_taint_stays_only_while_its_time_is_near(text in SECONDS.texts()) {
        let node = softened(&text);
        let stays = |at: Timestamp| hardening(&node, at).taints.is_none();
        let near = ends(&text).filter(|time| time.duration_since(noon()).unsigned_abs() < SOFT_FOR);
        prop_assert_eq!(stays(noon()), near.is_some());
        if let Some(time) = ends(&text) {
            prop_assert!(stays(time));
        }
    }
}
