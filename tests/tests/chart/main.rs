//! The chart: what it renders, what it refuses, and what is installed by it on a real control plane.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

mod documents;
mod files;
mod getting_started;
mod install;
mod refusals;
mod rights;
mod templates;
mod workflows;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use spot_tests::{Helm, migrator::merge, programs};

/// The name and the namespace of the release.
const RELEASE: &str = "spot-migrator";

/// Values that are enough for Karpenter, KWOK and kind.
fn node_object() -> Value {
    json!({"image": {"repository": "registry.example.com/spot"}, "config": {"cloudProvider": {"name": "node-object"}}})
}

/// Values that are enough for EC2.
fn aws() -> Value {
    json!({
        "image": {"repository": "registry.example.com/spot"},
        "config": {"cloudProvider": {"aws": {"clusterName": "shop", "region": "eu-west-1"}}},
    })
}

fn with(mut values: Value, changes: Value) -> Value {
    merge(&mut values, changes);
    values
}

/// What `helm template` prints for these values.
fn rendered(values: &Value) -> Result<String, String> {
    Helm::offline().with_chart(&["template", "--namespace", RELEASE, RELEASE], values)
}

/// The objects of it.
fn objects(values: &Value) -> Vec<Value> {
    let text = rendered(values).expect("the values are enough");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

/// The one object of this kind and name.
fn object(objects: &[Value], kind: &str, name: &str) -> Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let only = found.next().unwrap_or(&Value::Null).clone();
    assert!(!only.is_null() && found.next().is_none(), "one {kind} {name}");
    only
}

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    programs::repository().join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(file(path)).expect("the file is there")
}

fn yaml(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(path)).expect("it is YAML")
}

/// Compares a file of the repository with what it is made of, or writes it anew where `UPDATE` is set.
fn assert_up_to_date(path: &Path, made: &str) {
    #[expect(clippy::disallowed_methods, reason = "the person who runs the test says so, not the code under test")]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        std::fs::write(path, made).expect("the checkout is writable");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == made, "{} is out of date: UPDATE=1 tests/run -p spot-tests --test chart", path.display());
}
