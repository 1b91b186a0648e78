//! What is another than before, and whether it may be while the process runs.

use anyhow::anyhow;
use serde_json::Value;

use crate::config::Config;

/// Keys whose change needs another process, sections with all that is in them.
///
/// The provider is made of some at the start, and so are lease, queue, server and shape of the lines. A dry run holds no
/// lease, has fewer rights and answers no interruption. The pod's own grace period goes by that of the process.
const FIXED: [&str; 11] = [
    "cloudProvider",
    "dryRun",
    "interruption",
    "leaderElection",
    "loadBalancer",
    "log.format",
    "selection.capacityLabels",
    "selection.unlabelledNodes",
    "server",
    "shutdown",
    "state",
];

/// What answers to interruptions go by, too, and keep until they begin anew.
pub(super) const KEPT_BY_ANSWERS: [&str; 4] = ["backOff", "drain", "nodeGone", "settle"];

/// The full paths of the keys whose values are others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) keys: Vec<String>,
}

impl Change {
    /// From one to the other.
    ///
    /// # Errors
    /// When there is a key among them whose change needs another process. All such keys are named.
    pub(super) fn between(old: &Config, new: &Config) -> anyhow::Result<Self> {
        let mut keys = Vec::new();
        let (old, new) = (serde_json::from_str(&old.to_json())?, serde_json::from_str(&new.to_json())?);
        collect("", &old, &new, &mut keys);
        let fixed: Vec<_> = keys.iter().filter(|key| FIXED.iter().any(|fixed| is_in(key, fixed))).cloned().collect();
        if fixed.is_empty() {
            return Ok(Self { keys });
        }
        Err(anyhow!("not while the process runs: {}: restart it, or take the change back", fixed.join(", ")))
    }

    /// These are others, too.
    pub(super) fn add(&mut self, keys: Vec<String>) {
        self.keys.extend(keys);
        self.keys.sort();
        self.keys.dedup();
    }

    /// Whether it is one of this key, or in this section.
    pub(super) fn touches(&self, section: &str) -> bool {
        self.keys.iter().any(|key| is_in(key, section))
    }
}

fn is_in(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The paths of the values that differ; what has no counterpart is one itself.
fn collect(path: &str, old: &Value, new: &Value, into: &mut Vec<String>) {
    let (Value::Object(old_keys), Value::Object(new_keys)) = (old, new) else {
        if old != new {
            into.push(path.to_owned());
        }
        return;
    };
    let all: std::collections::BTreeSet<_> = old_keys.keys().chain(new_keys.keys()).collect();
    for key in all {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let (old, new) = (old_keys.get(key), new_keys.get(key));
        collect(&path, old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null), into);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;

    fn load(body: &str) -> Config {
        let header = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n";
        let provider = "cloudProvider: {name: node-object}\n";
        let provider = if body.starts_with("cloudProvider") { "" } else { provider };
        Config::load(Some(("spot.yaml", &format!("{header}{provider}{body}"))), [], &std::collections::BTreeMap::new())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn what_may_change_is_named_by_its_full_path() {
        let body = "schedule: 0 3 * * *\ndrain: {timeout: 7m, force: true}\nlog: {level: debug}\n\
                    windows: [{start: \"22:00\", duration: 6h}]\nselection: {nodeSelector: pool=a}\n";
        let change = Change::between(&load(""), &load(body)).expect("all of it may change");
        let keys = ["drain.force", "drain.timeout", "log.level", "schedule", "selection.nodeSelector", "windows"];
        assert_eq!(change.keys, keys);
        assert!(change.touches("drain") && change.touches("windows") && !change.touches("dra"));
        assert_eq!(Change::between(&load(body), &load(body)).expect("nothing changed").keys, [""; 0]);
    }

    #[rstest]
    #[case("cloudProvider: {name: node-object, aws: {region: eu-west-1}}", "cloudProvider.aws.region")]
    #[case("dryRun: true", "dryRun")]
    #[case("interruption: {pauseMigrationFor: 1m}", "interruption.pauseMigrationFor")]
    #[case("leaderElection: {enabled: false}", "leaderElection.enabled")]
    #[case("loadBalancer: {drain: 1s}", "loadBalancer.drain")]
    #[case("log: {format: json, level: debug}", "log.format")]
    #[case("selection: {capacityLabels: {\"a.b/c=d\": spot}}", "selection.capacityLabels.a.b/c=d")]
    #[case("selection: {unlabelledNodes: on-demand, nodesAtOnce: 2}", "selection.unlabelledNodes")]
    #[case("server: {address: \"127.0.0.1:1\"}", "server.address")]
    #[case("shutdown: {gracePeriod: 1s}", "shutdown.gracePeriod")]
    #[case("state: {configMap: b, namespace: a}", "state.configMap, state.namespace")]
    fn what_may_not_is_refused_and_named(#[case] body: &str, #[case] keys: &str) {
        let safe = "schedule: 0 3 * * *\n";
        let refused = Change::between(&load(""), &load(&format!("{body}\n{safe}"))).expect_err("it is refused");
        let refused = refused.to_string();
        assert!(refused.contains(&format!(": {keys}: restart")), "{refused}");
    }

    #[test]
    fn every_fixed_key_is_one_of_the_configuration() {
        let effective: Value = serde_json::from_str(&load("").to_json()).expect("it is JSON");
        for key in FIXED {
            let pointer = format!("/{}", key.replace('.', "/"));
            assert!(effective.pointer(&pointer).is_some(), "{key}");
        }
    }

    /// A pod restarts when one of them changes: the chart has a checksum of exactly these in its template.
    #[test]
    fn the_chart_restarts_pods_for_the_same_keys() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart/templates/_helpers.tpl");
        let text = std::fs::read_to_string(path).expect("the chart is there");
        let (_, rest) = text.split_once("define \"spot-migrator.fixed\"").expect("it is defined");
        let (of_chart, _) = rest.split_once("{{- end -}}\n\n").expect("it ends");
        let (_, list) = of_chart.split_once("tuple ").expect("it is a list");
        let (list, _) = list.split_once("-}}").expect("it ends");
        let keys: BTreeSet<_> = list.split_whitespace().map(|key| key.trim_matches('"')).collect();
        assert_eq!(keys, BTreeSet::from(FIXED));
    }
}
