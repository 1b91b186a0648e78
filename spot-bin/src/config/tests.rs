//! The configuration through its public face: text, variables and flags in, typed values or a list of problems out.

mod defaults;
mod key;
mod problem;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Config, ConfigError};

const HEADER: &str = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n";

/// The provider that every build has.
const NODE_OBJECT: (&str, &str) = ("SPOT_MIGRATOR_CLOUD_PROVIDER_NAME", "node-object");

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn flags(given: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs(given).into_iter().collect()
}

/// Loads what follows the header.
fn load(body: &str) -> Result<Config, ConfigError> {
    load_text(&format!("{HEADER}{body}"))
}

fn load_text(text: &str) -> Result<Config, ConfigError> {
    Config::load(Some(("spot.yaml", text)), pairs(&[NODE_OBJECT]), &BTreeMap::new())
}

fn load_environment(environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(None, pairs(&[NODE_OBJECT]).into_iter().chain(pairs(environment)), &BTreeMap::new())
}

fn effective(config: &Config) -> Value {
    serde_json::from_str(&config.to_json()).unwrap()
}

/// A value by its path in the effective configuration.
fn at<'v>(effective: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(effective, |value, key| &value[key])
}
