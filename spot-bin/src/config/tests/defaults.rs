//! What is in force where nothing is said, and what is said as typed values.

use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::Value;

use super::{at, load, load_environment, load_text};
use crate::config::key::keys;
use crate::config::{LogLevel, RebalanceRecommendation};

/// Every key with its default.
const DEFAULTS: &str = include_str!("../defaults.yaml");

#[test]
fn the_documented_defaults_are_the_defaults() {
    let documented = load_text(DEFAULTS).unwrap();
    assert_eq!(documented, load_environment(&[]).unwrap());
    assert_eq!(documented, load("").unwrap());
}

#[test]
fn the_documented_defaults_name_every_key() {
    let documented: Value = serde_saphyr::from_str(DEFAULTS).unwrap();
    for key in keys() {
        let value = at(&documented, &key.path);
        assert_eq!(value.to_string(), key.default, "{}", key.path);
    }
}

#[test]
fn defaults_are_typed() {
    let config = load("").unwrap();
    assert_eq!(config.schedule.to_string(), "@hourly");
    assert_eq!(config.drain.timeout, Duration::from_hours(1));
    assert_eq!(config.drain.pod_grace_period, None);
    assert_eq!(config.exhaustion_back_off.max, Duration::from_hours(6));
    assert_eq!(config.back_off.max, Duration::from_hours(24));
    assert_eq!(config.selection.nodes_at_once, NonZeroU32::MIN);
    assert_eq!(config.selection.max_nodes_per_run, None);
    assert!(config.selection.node_selector.is_empty());
    assert_eq!(config.state.namespace, None);
    assert_eq!(config.server_address.to_string(), "0.0.0.0:8080");
}

#[test]
fn the_effective_configuration_loads_again_as_itself() {
    let body = "windows: [{days: [mon], start: '22:00', duration: 6h}]\nselection: {capacityLabels: {a=b: reserved}}\n\
                drain: {timeout: 90m, podGracePeriod: 30s}";
    let config = load(body).unwrap();
    assert_eq!(load_text(&config.to_yaml()).unwrap(), config);
    assert_eq!(load_text(&config.to_json()).unwrap(), config, "JSON is YAML");
    assert_eq!(config.to_json().lines().count(), 1);
}

#[test]
fn values_arrive_as_types() {
    let config = load(
        "timeZone: Europe/Berlin\nwindows: [{days: [tue, mon], start: '22:00', duration: 6h}, {start: '01:30', duration: 1h, \
         timeZone: UTC}]\nselection: {nodeSelector: 'pool in (a,b)', maxNodesPerRun: 5, unlabelledNodes: on-demand}\n\
         drain: {podGracePeriod: 45s}\ninterruption: {rebalanceRecommendation: drain}\nlog: {level: trace}\n\
         notifications: {webhookUrlFile: /run/hook}",
    )
    .unwrap();
    let [berlin, utc] = &config.windows[..] else { panic!("{:?}", config.windows) };
    assert_eq!(berlin.days.iter().map(|day| day.weekday().to_monday_zero_offset()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(berlin.time_zone.iana_name(), Some("Europe/Berlin"));
    assert_eq!((berlin.start.hour(), berlin.duration), (22, Duration::from_hours(6)));
    assert_eq!((utc.days.len(), utc.time_zone.iana_name()), (7, Some("UTC")));
    assert!(config.selection.node_selector.matches(|key| (key == "pool").then_some("a")));
    assert_eq!(config.selection.max_nodes_per_run, NonZeroU32::new(5));
    assert_eq!(config.drain.pod_grace_period, Some(Duration::from_secs(45)));
    assert_eq!(config.interruption.rebalance_recommendation, RebalanceRecommendation::Drain);
    assert_eq!(config.log.level, LogLevel::Trace);
    assert_eq!(config.notifications.webhook_url_file.unwrap().to_str(), Some("/run/hook"));
}
