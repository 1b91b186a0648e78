//! What is refused: the place, the reason, the remedy.

use std::collections::BTreeMap;

use rstest::rstest;

use super::{HEADER, NODE_OBJECT, flags, load, load_environment, load_text, pairs};
use crate::config::{Config, Place};

#[rstest]
// Misspelt and misplaced keys.
#[case("shedule: '0 3 * * *'", "spot.yaml:3:1: shedule: unknown key: did you mean `schedule`?")]
#[case("drain: {timout: 1h}", "spot.yaml:3:9: drain.timout: unknown key: did you mean `timeout`?")]
#[case("drain: {time-out: 1h}", "spot.yaml:3:9: drain.time-out: unknown key: did you mean `timeout`?")]
#[case("nodesAtOnce: 2", "spot.yaml:3:1: nodesAtOnce: unknown key: did you mean `selection.nodesAtOnce`?")]
#[case("settle: {wait: 1h}", "spot.yaml:3:10: settle.wait: unknown key: write `timeout`")]
#[case(
    "windows: [{strat: '22:00', duration: 1h}]",
    "spot.yaml:3:12: windows[0].strat: unknown key: did you mean `start`?"
)]
// Durations.
#[case("drain: {timeout: 10}", "spot.yaml:3:18: drain.timeout: found 10, which has no unit: write 10s, 10m or 10h")]
#[case("drain: {timeout: '10'}", "spot.yaml:3:18: drain.timeout: found 10, which has no unit: write 10s, 10m or 10h")]
#[case(
    "drain: {timeout: 10 minutes}",
    "spot.yaml:3:18: drain.timeout: found \"10 minutes\", which is no duration: write 10m"
)]
#[case(
    "drain: {timeout: -5m}",
    "spot.yaml:3:18: drain.timeout: found -5m, but a duration is never negative: write a duration such as 60s, 10m or \
     1h30m"
)]
#[case(
    "drain: {timeout: -5}",
    "spot.yaml:3:18: drain.timeout: found -5, but a duration is never negative: write a duration such as 60s, 10m or \
     1h30m"
)]
#[case("drain: {timeout: '0'}", "spot.yaml:3:18: drain.timeout: found 0, which has no unit: write 0s, 0m or 0h")]
#[case(
    "drain: {timeout: 0s}",
    "spot.yaml:3:18: drain.timeout: found \"0s\", but it must be longer than zero: write a duration such as 30s or 10m"
)]
#[case("drain: {timeout: }", "spot.yaml:3:9: drain.timeout: found nothing: write a duration such as 60s, 10m or 1h30m")]
#[case(
    "drain: {timeout: [1h]}",
    "spot.yaml:3:18: drain.timeout: found a list: write a duration such as 60s, 10m or 1h30m"
)]
#[case(
    "drain: {podGracePeriod: 500ms}",
    "spot.yaml:3:25: drain.podGracePeriod: found 500ms, but Kubernetes counts whole seconds: write 1s"
)]
// Types.
#[case("dryRun: yes", "spot.yaml:3:9: dryRun: found \"yes\": write true or false")]
#[case(
    "drain:",
    "spot.yaml:3:1: drain: found nothing: write keys below it, of `timeout`, `force`, `deleteEmptyDirData` or `podGracePeriod`"
)]
#[case(
    "selection: {nodesAtOnce: two}",
    "spot.yaml:3:26: selection.nodesAtOnce: found \"two\": write a whole number from 0 to 4294967295"
)]
#[case(
    "selection: {nodesAtOnce: -1}",
    "spot.yaml:3:26: selection.nodesAtOnce: found -1: write a whole number from 0 to 4294967295"
)]
#[case(
    "selection: {nodesAtOnce: 1.5}",
    "spot.yaml:3:26: selection.nodesAtOnce: found 1.5: write a whole number from 0 to 4294967295"
)]
#[case(
    "selection: {nodesAtOnce: 0}",
    "spot.yaml:3:26: selection.nodesAtOnce: found 0: write at least 1; to retire no node, `dryRun: true`"
)]
#[case("state: {configMap: 12}", "spot.yaml:3:20: state.configMap: found 12: write text, in quotes: \"12\"")]
#[case("state: {configMap: }", "spot.yaml:3:9: state.configMap: found nothing: write text, or \"\" for none")]
#[case("windows: {}", "spot.yaml:3:10: windows: found a mapping: write a list, which may be empty: []")]
#[case(
    "selection: {capacityLabels: []}",
    "spot.yaml:3:29: selection.capacityLabels: found a list: write a mapping, which may be empty: {}"
)]
// Words.
#[case("log: {level: inof}", "spot.yaml:3:14: log.level: found \"inof\": did you mean `info`?")]
#[case("log: {format: xml}", "spot.yaml:3:15: log.format: found \"xml\": write `auto`, `text` or `json`")]
#[case("log: {level: 3}", "spot.yaml:3:14: log.level: found 3: write `error`, `warn`, `info`, `debug` or `trace`")]
// Schedule, time zones, windows.
#[case("schedule: '0 0 3 * * *'", "drop the seconds and write `0 3 * * *`")]
#[case("schedule: '0 3 * * 7'", "spot.yaml:3:11: schedule: day of week `7`")]
#[case("schedule: '0 3 * * fri-mon'", "spot.yaml:3:11: schedule: day of week range `fri-mon` runs backwards")]
#[case("schedule: '0 0 30 2 *'", "never fires")]
#[case("timeZone: Europe/Lundon", "spot.yaml:3:11: timeZone: time zone `Europe/Lundon` is not known")]
#[case("windows: [{start: '22:00'}]", "spot.yaml:3:11: windows[0]: the key `duration` is missing: add it")]
#[case(
    "windows: [{start: '24:00', duration: 1h}]",
    "spot.yaml:3:19: windows[0].start: found \"24:00\": write a time of day such as \"22:00\""
)]
#[case("windows: [{start: 22:00, duration: 25h}]", "spot.yaml:3:36: windows[0].duration: found 25h: write at most 24h")]
#[case("windows: [{start: 9:00, duration: 1h}]", "windows[0].start: found \"9:00\"")]
#[case(
    "windows: [{start: '22:00', duration: 1h, days: [monday]}]",
    "spot.yaml:3:49: windows[0].days[0]: found \"monday\": write `mon`, `tue`"
)]
#[case(
    "windows: [{start: '22:00', duration: 1h, timeZone: Mars}]",
    "spot.yaml:3:52: windows[0].timeZone: time zone `Mars` is not known"
)]
// Selectors and labels.
#[case(
    "selection: {nodeSelector: 'a in x'}",
    "spot.yaml:3:27: selection.nodeSelector: expected `(` at character 6, found `x`: write a label selector such as `pool=batch,!pinned`"
)]
#[case(
    "selection: {capacityLabels: {tier: spot}}",
    "spot.yaml:3:30: selection.capacityLabels[\"tier\"]: not a label with its value (no `=`): write it like `capacity=spot`"
)]
#[case(
    "selection: {capacityLabels: {-a=b: spot}}",
    "spot.yaml:3:30: selection.capacityLabels[\"-a=b\"]: not a label with its value (the key `-a` can't be one"
)]
#[case(
    "selection: {capacityLabels: {a=b: cheap}}",
    "spot.yaml:3:35: selection.capacityLabels[\"a=b\"]: found \"cheap\": write `spot`, `on-demand` or `reserved`"
)]
// Values that go together.
#[case(
    "leaderElection: {renewDeadline: 15s}",
    "spot.yaml:3:33: leaderElection.renewDeadline: found 15s, but it must be shorter than `leaderElection.leaseDuration`, which is 15s"
)]
#[case(
    "leaderElection: {leaseDuration: 5s}",
    "spot.yaml:3:33: leaderElection.leaseDuration: found 5s, but `leaderElection.renewDeadline`, which is 10s, must be shorter than it"
)]
#[case(
    "leaderElection: {retryPeriod: 10s}",
    "leaderElection.retryPeriod: found 10s, but it must be shorter than `leaderElection.renewDeadline`"
)]
#[case(
    "leaderElection: {leaseDuration: 15500ms}",
    "leaderElection.leaseDuration: found 15s500ms, but Kubernetes counts whole seconds: write 16s"
)]
#[case(
    "backOff: {initial: 25h}",
    "spot.yaml:3:20: backOff.initial: found 25h, but it must not be longer than `backOff.max`, which is 24h"
)]
#[case(
    "exhaustion: {backOff: {max: 30m}}",
    "spot.yaml:3:29: exhaustion.backOff.max: found 30m, but `exhaustion.backOff.initial`, which is 1h"
)]
// Names and addresses.
#[case("server: {address: ':8080'}", "spot.yaml:3:19: server.address: found \":8080\": write \"0.0.0.0:8080\"")]
#[case("server: {address: localhost:8080}", "server.address: found \"localhost:8080\": write \"127.0.0.1:8080\"")]
#[case("server: {address: 8080}", "server.address: found 8080: write text, in quotes")]
#[case(
    "leaderElection: {leaseName: My_Lease}",
    "leaderElection.leaseName: found \"My_Lease\", which can't be the name of an object"
)]
#[case("leaderElection: {leaseName: ''}", "leaderElection.leaseName: found \"\", which can't be the name of an object")]
#[case("state: {namespace: a.b}", "state.namespace: found \"a.b\", which can't be the name of a namespace")]
#[case(
    "interruption: {queueUrl: sqs.example.org}",
    "interruption.queueUrl: found \"sqs.example.org\": write the URL that `aws sqs get-queue-url` prints"
)]
#[case(
    "interruption: {queueUrl: 'http://sqs.example.org/1/spot'}",
    "interruption.queueUrl: found \"http://sqs.example.org/1/spot\", but nodes are emptied because of what the queue says"
)]
#[case(
    "interruption: {deleteBlockedPodsAfter: 3m}",
    "spot.yaml:3:40: interruption.deleteBlockedPodsAfter: found 3m, but a spot machine is gone 2m after its notice"
)]
#[case(
    "interruption: {completeLifecycleHooks: [drained]}",
    "spot.yaml:3:40: interruption.completeLifecycleHooks: nobody hears of lifecycle hooks without a queue"
)]
#[case("cloudProvider: {aws: {endpointUrl: 'http://'}}", "cloudProvider.aws.endpointUrl: found \"http://\"")]
#[case("cloudProvider: {name: awz}", "cloudProvider.name: found \"awz\": did you mean `aws`?")]
// Duplicates, and what is no YAML.
#[case(
    "dryRun: true\ndryRun: false",
    "spot.yaml:4:1: dryRun: duplicate key, first written in line 3: keep one of the two"
)]
#[case("drain:\n  force: true\n  force: true", "spot.yaml:5:3: drain.force: duplicate key, first written in line 4")]
#[case("schedule: @hourly", "put quotes round what begins with `@`")]
#[case("drain:\n\ttimeout: 1h", "indent by spaces")]
#[case("drain:\n  timeout: 1h\n\tforce: true", "indent by spaces")]
#[case("drain: [", "not YAML")]
#[case("---\ndryRun: true", "spot.yaml:4:1: a second document begins")]
fn a_bad_file_is_refused_with_its_place_the_reason_and_the_remedy(#[case] body: &str, #[case] message: &str) {
    let error = load(body).unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
    assert!(error.to_string().contains(message), "wanted: {message}\nfound:  {error}");
    assert!(error.to_string().contains("spot.yaml:"), "{error}");
}

#[rstest]
#[case("", &["apiVersion: the key is missing", "kind: the key is missing"])]
#[case("kind: SpotMigratorConfiguration", &["apiVersion: the key is missing: add `apiVersion: spot-migrator.io/v1alpha1`"])]
#[case(
    "apiVersion: spot-migrator.io/v1\nkind: SpotMigratorConfiguration",
    &["spot.yaml:1:13: apiVersion: found \"spot-migrator.io/v1\": write `spot-migrator.io/v1alpha1`"]
)]
#[case(
    "apiVersion: v1\nkind: ConfigMap",
    &["apiVersion: found \"v1\": write `spot-migrator.io/v1alpha1`", "kind: found \"ConfigMap\": write `SpotMigratorConfiguration`"]
)]
#[case("- a\n- b", &["found a list: write keys below it"])]
#[case("just text", &["found \"just text\": write keys below it"])]
fn a_file_of_another_kind_is_refused_with_the_right_one(#[case] text: &str, #[case] messages: &[&str]) {
    let error = load_text(text).unwrap_err();
    for message in messages {
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[rstest]
#[case(
    "SPOT_MIGRATOR_DRAIN_TIMOUT",
    "1h",
    "variable SPOT_MIGRATOR_DRAIN_TIMOUT: names no key: did you mean SPOT_MIGRATOR_DRAIN_TIMEOUT?"
)]
#[case("SPOT_MIGRATOR_COLOUR", "red", "variable SPOT_MIGRATOR_COLOUR: names no key: unset it")]
#[case(
    "SPOT_MIGRATOR_DRAIN_TIMEOUT",
    "10",
    "variable SPOT_MIGRATOR_DRAIN_TIMEOUT: drain.timeout: found 10, which has no unit: write 10s, 10m or 10h"
)]
#[case(
    "SPOT_MIGRATOR_DRAIN_FORCE",
    "1",
    "variable SPOT_MIGRATOR_DRAIN_FORCE: drain.force: found \"1\": write true or false"
)]
#[case("SPOT_MIGRATOR_SELECTION_NODES_AT_ONCE", "+1", "selection.nodesAtOnce: found \"+1\": write a whole number")]
#[case("SPOT_MIGRATOR_LOG_LEVEL", "INFO", "log.level: found \"INFO\": did you mean `info`?")]
#[case("SPOT_MIGRATOR_WINDOWS", "[]", "variable SPOT_MIGRATOR_WINDOWS: windows: this key can be set in the file only")]
#[case("SPOT_MIGRATOR_SCHEDULE", "", "variable SPOT_MIGRATOR_SCHEDULE: schedule: the schedule is empty")]
fn a_bad_variable_is_refused(#[case] name: &str, #[case] value: &str, #[case] message: &str) {
    let error = load_environment(&[(name, value)]).unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn a_bad_flag_is_named_with_its_dashes() {
    let flags = flags(&[("drain.timeout", "soon")]);
    let error = Config::load(None, pairs(&[NODE_OBJECT]), &flags).unwrap_err();
    assert_eq!(error.problems()[0].place, Place::Flag("--drain-timeout".to_owned()));
    assert!(error.to_string().contains("flag --drain-timeout: drain.timeout: found \"soon\""), "{error}");
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let body = "shedule: '@daily'\ntimeZone: Nowhere\ndrain: {timeout: 10, force: maybe, force: true}\n\
                windows:\n- {start: 1, duration: 1h}\n- {start: '25:00', duration: 48h}\nlog: {level: loud}\n";
    let environment = pairs(&[NODE_OBJECT, ("SPOT_MIGRATOR_SETTLE_TIMEOUT", "x")]);
    let file = format!("{HEADER}{body}");
    let error = Config::load(Some(("spot.yaml", &file)), environment, &flags(&[("dryRun", "no")])).unwrap_err();
    let keys: Vec<_> = error.problems().iter().map(|problem| problem.key.as_str()).collect();
    let expected = [
        "shedule",
        "timeZone",
        "drain.timeout",
        "drain.force",
        "drain.force",
        "windows[0].start",
        "windows[1].start",
        "windows[1].duration",
        "log.level",
        "settle.timeout",
        "dryRun",
    ];
    assert_eq!(keys, expected, "{error}");
    assert!(error.to_string().starts_with("the configuration is refused for 11 reasons\n  spot.yaml:3:1: shedule"));
}

#[test]
fn a_refused_value_makes_no_second_problem() {
    let error = load("leaderElection: {leaseDuration: 60, renewDeadline: 40s}").unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
}

#[cfg(not(feature = "aws"))]
#[test]
fn a_provider_that_is_not_built_is_refused_with_the_one_that_is() {
    let error = Config::load(None, [], &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("cloudProvider.name: `aws` is not part of this build: write `node-object`"));
    let body = "cloudProvider: {aws: {region: eu-west-1, clusterName: a, requireClusterTag: false, identity: address}}";
    assert!(load(body).is_ok(), "its keys are understood all the same");
}

#[cfg(feature = "aws")]
#[test]
fn the_name_of_the_cluster_is_required_with_aws() {
    let error = Config::load(None, [], &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("cloudProvider.aws.clusterName: required with provider `aws`"), "{error}");
    assert!(Config::load(None, [], &flags(&[("cloudProvider.aws.clusterName", "prod")])).is_ok());
}
