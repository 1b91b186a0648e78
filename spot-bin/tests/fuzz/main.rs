//! The files that people write: whatever they hold, they are read or refused, with all that is wrong in one plain line each
//! and its place, and what is read is shown as a file that reads as the same.

#![expect(clippy::unwrap_used, reason = "what fails in a test ends it")]

#[path = "../../../spot-core/tests/fuzz/mutator.rs"]
mod mutator;
#[cfg(feature = "aws")]
mod pool;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use spot_bin::config::{Config, ConfigError, Place};

use self::mutator::{Corpus, config, is_plain};

static CONFIGURATIONS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("configuration"));

fn load(text: &str) -> Result<Config, ConfigError> {
    Config::load(Some(("spot.yaml", text)), [], &BTreeMap::new())
}

/// Whether each problem is told in one plain line that is not endless, at a place that is there.
fn is_well_told(error: &ConfigError, text: &str) -> bool {
    // YAML takes a carriage return for the end of a line too.
    let lines = text.split(['\n', '\r']).count() as u64;
    let is_there = |place: &Place| match place {
        Place::File { line, column } => (1..=lines).contains(line) && *column >= 1,
        Place::Variable(_) | Place::Flag(_) => false,
        Place::Default => true,
    };
    let mut problems = error.problems().iter();
    !error.problems().is_empty()
        && problems.all(|problem| {
            let whole = format!("{}: {}", problem.key, problem.message);
            is_there(&problem.place)
                && is_plain(&problem.message)
                && is_plain(&whole)
                && whole.len() < 16 * mutator::LONGEST
        })
}

#[test]
fn the_corpus_holds_configurations_and_many_refusals() {
    for text in CONFIGURATIONS.good() {
        assert!(load(&text).is_ok(), "{}\n{text}", load(&text).unwrap_err());
    }
    for text in CONFIGURATIONS.refused() {
        let error = load(&text).expect_err(&text);
        assert!(is_well_told(&error, &text), "{error:?}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_configuration_is_shown_as_one_that_reads_the_same_or_refused_at_its_places(text in CONFIGURATIONS.texts()) {
        let config = match load(&text) {
            Ok(config) => config,
            Err(error) => {
                prop_assert!(is_well_told(&error, &text), "{:?}", error);
                return Ok(());
            }
        };
        for shown in [config.to_yaml(), config.to_json()] {
            let again = load(&shown);
            prop_assert!(again.as_ref().is_ok_and(|again| *again == config), "{:?}\n{}", again, shown);
        }
        let day = Duration::from_hours(24);
        prop_assert!(config.windows.iter().all(|window| !window.days.is_empty() && window.duration <= day));
        prop_assert!(config.back_off.initial <= config.back_off.max);
        prop_assert!(config.exhaustion_back_off.initial <= config.exhaustion_back_off.max);
        prop_assert!(config.interruption.delete_blocked_pods_after <= Duration::from_mins(2));
        let election = &config.leader_election;
        prop_assert!(election.retry_period < election.renew_deadline && election.renew_deadline < election.lease_duration);
        prop_assert!(election.lease_duration.subsec_nanos() == 0 && !election.lease_name.is_empty());
        let year = Duration::from_hours(366 * 24);
        for timeout in [config.drain.timeout, config.settle_timeout, config.node_gone.timeout, config.shutdown_grace_period] {
            prop_assert!(!timeout.is_zero() && timeout <= year, "{:?}", timeout);
        }
        prop_assert!(config.drain.pod_grace_period.is_none_or(|grace| grace.subsec_nanos() == 0));
    }
}
