//! What the chart has from elsewhere in the repository is the same there.

use serde_json::{Value, json};
use spot_tests::Helm;

use crate::{assert_up_to_date, file, read, yaml};

/// Helm reads no file outside of a chart, so these are copies.
#[test]
fn the_charts_files_are_those_of_the_repository() {
    for (copy, original) in [
        ("defaults.yaml", "spot-bin/src/config/defaults.yaml"),
        ("agent-policy.yaml", "deploy/agent/policy.yaml"),
        ("alerts.yaml", "deploy/monitoring/alerts.yaml"),
        ("dashboard.json", "deploy/monitoring/dashboard.json"),
    ] {
        assert_up_to_date(&file("deploy/chart/files").join(copy), &read(original));
    }
    let kept = std::fs::read_dir(file("deploy/chart/files")).expect("the folder is there").count();
    assert_eq!(kept, 4, "each file there is one of these");
}

#[test]
fn the_values_schema_holds_that_of_the_configuration() {
    let mut schema: Value = serde_json::from_str(&read("deploy/chart/values.schema.json")).expect("it is JSON");
    let mut config: Value = serde_json::from_str(&read("deploy/config.schema.json")).expect("it is JSON");
    let object = config.as_object_mut().expect("a schema is an object");
    object.remove("$schema");
    object.remove("title");
    schema["properties"]["config"] = config;
    assert_up_to_date(&file("deploy/chart/values.schema.json"), &format!("{schema:#}\n"));
}

/// What the configuration's schema is not about.
#[test]
fn every_object_of_the_values_is_closed_or_free_on_purpose() {
    let schema: Value = serde_json::from_str(&read("deploy/chart/values.schema.json")).expect("it is JSON");
    let mut open = Vec::new();
    find_open(&schema, "", &mut open);
    // Parts of the Kubernetes API, which the API server checks, and what is not read.
    let free = [
        "affinity",
        "agent.resources.limits",
        "agent.resources.requests",
        "agent.tolerations[]",
        "extraEnv[].valueFrom",
        "global",
        "networkPolicy.from[]",
        "podSecurityContext",
        "resources.limits",
        "resources.requests",
        "securityContext",
        "tolerations[]",
        "topologySpreadConstraints[]",
    ];
    open.sort();
    assert_eq!(open, free);
}

fn find_open(schema: &Value, path: &str, open: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if schema["type"] == "object" && schema.get("additionalProperties").is_none() {
        open.push(path.to_owned());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        find_open(property, &below(name), open);
    }
    if let Some(items) = schema.get("items") {
        find_open(items, &format!("{path}[]"), open);
    }
}

#[test]
fn the_chart_has_the_version_of_the_programs() {
    let chart = &yaml("deploy/chart/Chart.yaml")[0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!([&chart["version"], &chart["appVersion"]], [&json!(version), &json!(version)]);
}

#[test]
fn helm_finds_nothing_to_complain_of() {
    for values in [crate::aws(), crate::node_object()] {
        let said = Helm::offline().with_chart(&["lint", "--strict"], &values).expect("it is in order");
        assert!(!said.contains("[WARNING]"), "{said}");
    }
}
