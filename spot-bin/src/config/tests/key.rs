//! Keys with their flags and variables, and which of them wins.

use std::time::Duration;

use clap::Command;
use rstest::rstest;
use serde_json::Value;

use super::{HEADER, NODE_OBJECT, at, effective, flags, load, load_environment, pairs};
use crate::config::Config;
use crate::config::key::{self, Kind, keys};

#[test]
fn every_key_has_a_flag_and_a_variable_that_set_it() {
    for key in keys().iter().filter(|key| key.is_overridable()) {
        let value = match (&key.kind, key.path.as_str()) {
            (_, "schedule") => "0 3 * * *",
            (_, "timeZone") => "Europe/London",
            (_, "server.address") => "127.0.0.1:9",
            (_, "cloudProvider.aws.endpointUrl") => "https://example.org",
            (_, "interruption.queueUrl") => "https://sqs.eu-west-1.amazonaws.com/1/spot",
            (_, "leaderElection.leaseDuration") => "20s",
            (_, "leaderElection.renewDeadline") => "11s",
            (_, "leaderElection.retryPeriod") => "3s",
            (_, "backOff.max" | "exhaustion.backOff.max") => "48h",
            (_, "selection.nodeSelector") => "a=b",
            (Kind::Boolean, _) if key.default == "true" => "false",
            (Kind::Boolean, _) => "true",
            (Kind::Count, _) => "7",
            (Kind::Duration, _) => "90s",
            (Kind::Word(words), _) if words.iter().any(|(word, _)| word == "node-object") => "node-object",
            (Kind::Word(words), _) => &words.iter().find(|(word, _)| !key.default.contains(word)).unwrap().0,
            (Kind::Text | Kind::List | Kind::Map, _) => "some-name",
        };
        let expected: Value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        assert_ne!(expected.to_string(), key.default, "{} must change", key.path);

        let by_variable = load_environment(&[(&key.variable(), value)]).unwrap();
        assert_eq!(at(&effective(&by_variable), &key.path), &expected, "{}", key.variable());

        let command = Command::new("run").args(key::flags());
        let matches = command.get_matches_from(["run".to_owned(), format!("--{}={value}", key.flag())]);
        let given = key::flag_values(&matches);
        assert_eq!(given, flags(&[(&key.path, value)]));
        let by_flag = Config::load(None, pairs(&[NODE_OBJECT]), &given).unwrap();
        assert_eq!(at(&effective(&by_flag), &key.path), &expected, "--{}", key.flag());
    }
}

/// The table of keys comes from the schema, the effective configuration from serde: they name the same.
#[test]
fn the_table_and_the_structures_name_the_same_keys() {
    fn leaves(value: &Value, prefix: &str, paths: &mut Vec<String>) {
        for (name, value) in value.as_object().unwrap() {
            let path = format!("{prefix}{name}");
            if path != "selection.capacityLabels" && value.is_object() {
                leaves(value, &format!("{path}."), paths);
            } else {
                paths.push(path);
            }
        }
    }
    let mut written = Vec::new();
    leaves(&effective(&load("").unwrap()), "", &mut written);
    let mut named: Vec<_> = keys().iter().map(|key| key.path.clone()).collect();
    named.sort();
    written.sort();
    assert_eq!(named, written);
    assert!(named.len() > 40, "{named:?}");
}

#[test]
fn no_key_has_the_variable_of_a_service_or_of_another_key() {
    let mut names: Vec<_> = keys().iter().map(key::Key::variable).collect();
    assert!(names.iter().all(|name| !name.contains("_PORT") && !name.contains("_SERVICE_")), "{names:?}");
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let file = format!("{HEADER}drain: {{timeout: 1m}}\nsettle: {{timeout: 1m}}\nnodeGone: {{timeout: 1m}}\n");
    let environment = pairs(&[
        NODE_OBJECT,
        ("SPOT_MIGRATOR_DRAIN_TIMEOUT", "2m"),
        ("SPOT_MIGRATOR_SETTLE_TIMEOUT", "2m"),
        ("DRAIN_TIMEOUT", "9m"),
    ]);
    let flags = flags(&[("drain.timeout", "3m")]);
    let config = Config::load(Some(("spot.yaml", &file)), environment, &flags).unwrap();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    assert_eq!(config.drain.timeout, minutes(3));
    assert_eq!(config.settle_timeout, minutes(2));
    assert_eq!(config.node_gone.timeout, minutes(1));
    assert!(config.drain.delete_empty_dir_data, "a sibling keeps its default");
}

#[test]
fn a_boolean_flag_alone_says_true_and_eats_nothing() {
    let command = Command::new("run").args(key::flags()).arg(clap::Arg::new("more"));
    let matches = command.get_matches_from(["run", "--dry-run", "rest"]);
    assert_eq!(key::flag_values(&matches), flags(&[("dryRun", "true")]));
    assert_eq!(matches.get_one::<String>("more").unwrap(), "rest");
}

#[test]
fn the_flags_make_a_valid_command() {
    Command::new("run").args(key::flags()).debug_assert();
}

#[rstest]
#[case("SPOT_MIGRATOR_SERVICE_HOST")]
#[case("SPOT_MIGRATOR_SERVICE_PORT")]
#[case("SPOT_MIGRATOR_SERVICE_PORT_HTTP")]
#[case("SPOT_MIGRATOR_PORT")]
#[case("SPOT_MIGRATOR_PORT_8080_TCP")]
#[case("SPOT_MIGRATOR_PORT_8080_TCP_ADDR")]
#[case("SPOT_MIGRATOR_METRICS_SERVICE_HOST")]
#[case("SPOT_MIGRATOR_CONFIG")]
#[case("SPOTLESS")]
fn variables_of_services_and_of_others_are_ignored(#[case] name: &str) {
    assert_eq!(load_environment(&[(name, "tcp://10.0.0.1:8080")]).unwrap(), load_environment(&[]).unwrap());
}
