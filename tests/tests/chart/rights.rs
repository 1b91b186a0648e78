//! The rights that are rendered are those of the manifests, and of what is switched on.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{node_object, objects, with, yaml};

/// Kind of role, namespace, group, resource, name, verb.
type Right = (String, String, String, String, String, String);

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// What roles of these names grant.
fn granted(objects: &[Value], names: &[&str]) -> BTreeSet<Right> {
    let mut granted = BTreeSet::new();
    for role in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&role["kind"]), text(&role["metadata"]["name"]));
        if !["Role", "ClusterRole"].contains(&kind.as_str()) || !names.contains(&name.as_str()) {
            continue;
        }
        for rule in role["rules"].as_array().into_iter().flatten() {
            let mut subjects = texts(&rule["resourceNames"]);
            if subjects.is_empty() {
                subjects.push(String::new());
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        for subject in &subjects {
                            granted.insert((
                                kind.clone(),
                                text(&role["metadata"]["namespace"]),
                                group.clone(),
                                resource.clone(),
                                subject.clone(),
                                verb.clone(),
                            ));
                        }
                    }
                }
            }
        }
    }
    granted
}

fn of_the_chart(config: &Value) -> BTreeSet<Right> {
    granted(&objects(&with(node_object(), json!({"config": config}))), &["spot-migrator"])
}

fn of_the_manifest(manifest: &str) -> BTreeSet<Right> {
    granted(&yaml(manifest), &["spot-migrator", "spot-migrator-interruption"])
}

fn queue() -> Value {
    json!({
        "cloudProvider": {"aws": {"region": "eu-west-1"}},
        "interruption": {"queueUrl": "https://sqs.eu-west-1.amazonaws.com/1/q"},
    })
}

#[test]
fn a_migration_is_granted_what_the_manifest_grants() {
    assert_eq!(of_the_chart(&json!({})), of_the_manifest("deploy/rbac.yaml"));
}

#[test]
fn who_answers_interruptions_may_delete_pods_besides() {
    let both = &of_the_manifest("deploy/rbac.yaml") | &of_the_manifest("deploy/rbac-interruption.yaml");
    assert_eq!(of_the_chart(&queue()), both);
}

#[test]
fn a_dry_run_may_look_and_may_change_nothing_but_its_lease() {
    let mut config = queue();
    config["dryRun"] = json!(true);
    let granted = of_the_chart(&config);
    let writes: Vec<_> = granted
        .iter()
        .filter(|(.., verb)| !["get", "list", "watch"].contains(&verb.as_str()))
        .map(|(_, _, _, resource, _, verb)| (resource.as_str(), verb.as_str()))
        .collect();
    assert_eq!(writes, [("events", "create"), ("leases", "create"), ("leases", "update")]);
    let reads = |rights: BTreeSet<Right>| {
        let reads = rights.into_iter().filter(|(.., verb)| ["list", "watch"].contains(&verb.as_str()));
        reads.collect::<BTreeSet<_>>()
    };
    assert_eq!(reads(granted), reads(of_the_manifest("deploy/rbac.yaml")));
}

#[test]
fn lease_and_memory_are_granted_under_their_names_where_they_are() {
    let renamed = of_the_chart(&json!({
        "state": {"namespace": "kube-system", "configMap": "memory"},
        "leaderElection": {"leaseName": "turn"},
    }));
    let named: BTreeSet<_> = renamed
        .iter()
        .filter(|(kind, ..)| kind == "Role")
        .map(|(_, namespace, _, resource, name, _)| (namespace.as_str(), resource.as_str(), name.as_str()))
        .collect();
    let expected = [("configmaps", ""), ("configmaps", "memory"), ("leases", ""), ("leases", "turn")];
    assert_eq!(named, expected.map(|(resource, name)| ("kube-system", resource, name)).into());
    let alone = json!({"replicas": 1, "config": {"leaderElection": {"enabled": false}}});
    let alone = granted(&objects(&with(node_object(), alone)), &["spot-migrator"]);
    assert!(alone.iter().all(|(_, _, _, resource, ..)| resource != "leases"), "{alone:?}");
}

#[test]
fn nothing_that_is_granted_is_a_wildcard_or_a_secret() {
    let mut values = with(node_object(), json!({"config": queue(), "agent": {"enabled": true}}));
    values["webhookSecret"] = json!({"name": "webhook"});
    let granted = granted(&objects(&values), &["spot-migrator", "spot-agent"]);
    assert!(granted.iter().any(|(.., resource, _, verb)| (&**resource, &**verb) == ("pods", "delete")), "{granted:?}");
    for (.., group, resource, _, verb) in granted {
        assert!(![&group, &resource, &verb].contains(&&"*".to_owned()), "{group}/{resource} {verb}");
        assert_ne!(resource, "secrets");
    }
}
