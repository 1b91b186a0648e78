//! The rights that a run needs.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spot_kube::Right;
use spot_kube::preflight::{Features, rights, rights_on_one_node};

use crate::server::ApiServer;

const REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn all_but_deleting_pods() -> Features {
    Features { retire: true, delete_pods: false, events: true, lease: Some("spot-migrator".to_owned()) }
}

/// `namespace group resource verb name`, as a manifest or the list of rights has it.
type Row = (Option<String>, String, String, String, Option<String>);

fn row(right: &Right) -> Row {
    let resource = match right.subresource {
        Some(subresource) => format!("{}/{subresource}", right.resource),
        None => right.resource.to_owned(),
    };
    (right.namespace.clone(), right.group.to_owned(), resource, right.verb.to_owned(), right.name.clone())
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// What the roles of a manifest grant.
fn granted(documents: &[Value]) -> BTreeSet<Row> {
    let mut granted = BTreeSet::new();
    for document in documents {
        let kind = document["kind"].as_str().unwrap();
        let namespace = document["metadata"]["namespace"].as_str().map(str::to_owned);
        if !["Role", "ClusterRole"].contains(&kind) {
            continue;
        }
        assert_eq!(namespace.is_none(), kind == "ClusterRole");
        for rule in document["rules"].as_array().unwrap() {
            let names = rule
                .get("resourceNames")
                .map_or_else(|| vec![None], |names| texts(names).into_iter().map(Some).collect());
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        for name in &names {
                            let row = (namespace.clone(), group.clone(), resource.clone(), verb.clone(), name.clone());
                            assert!(granted.insert(row.clone()), "granted twice: {row:?}");
                        }
                    }
                }
            }
        }
    }
    granted
}

/// Whom the bindings of a manifest give which role.
fn bound(documents: &[Value]) -> Vec<(Value, Value)> {
    let bindings = documents.iter().filter(|document| document.get("subjects").is_some());
    bindings.map(|binding| (binding["subjects"].clone(), binding["roleRef"]["name"].clone())).collect()
}

fn documents(manifest: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(manifest).unwrap()
}

fn account(name: &str) -> Value {
    json!([{"kind": "ServiceAccount", "name": name, "namespace": name}])
}

#[test]
fn the_manifest_grants_what_is_needed_and_nothing_else() {
    let documents = documents(include_str!("../../../deploy/rbac.yaml"));
    let needed = rights(&all_but_deleting_pods(), "spot-migrator", "spot-migrator");
    assert_eq!(granted(&documents), needed.iter().map(row).collect());
    let binding = (account("spot-migrator"), json!("spot-migrator"));
    assert_eq!(bound(&documents), [binding.clone(), binding]);
}

#[test]
fn only_who_answers_interruptions_is_granted_the_deletion_of_pods() {
    let documents = documents(include_str!("../../../deploy/rbac-interruption.yaml"));
    let without = rights(&all_but_deleting_pods(), "spot-migrator", "spot-migrator");
    let all = rights(&Features { delete_pods: true, ..all_but_deleting_pods() }, "spot-migrator", "spot-migrator");
    let more = all.iter().filter(|right| !without.contains(right));
    assert_eq!(granted(&documents), more.map(row).collect());
    assert_eq!(bound(&documents), [(account("spot-migrator"), json!("spot-migrator-interruption"))]);
}

#[test]
fn whoever_works_on_pools_is_granted_what_that_needs_and_nothing_else() {
    let documents = documents(include_str!("../../../deploy/rbac-fleet.yaml"));
    let features = Features { lease: Some("spot-migrator-fleet-workers".to_owned()), ..all_but_deleting_pods() };
    let needed = rights(&features, "kube-system", "spot-migrator");
    assert_eq!(granted(&documents), needed.iter().map(row).collect());
    let account = json!([{"kind": "ServiceAccount", "name": "spot-fleet", "namespace": "kube-system"}]);
    let binding = (account, json!("spot-fleet"));
    assert_eq!(bound(&documents), [binding.clone(), binding]);
}

#[test]
fn an_agent_is_granted_what_it_needs_and_nothing_else() {
    let documents = documents(include_str!("../../../deploy/agent/rbac.yaml"));
    assert_eq!(granted(&documents), rights_on_one_node().iter().map(row).collect());
    assert_eq!(bound(&documents), [(account("spot-agent"), json!("spot-agent"))]);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named() {
    let server = ApiServer::new();
    let features = all_but_deleting_pods();
    for right in rights(&features, "ours", "memory") {
        let attributes = serde_json::to_string(&right).unwrap();
        let body = format!(
            r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{{"resourceAttributes":{attributes}}}}}"#
        );
        let allowed = !["patch", "update"].contains(&right.verb);
        server.on_body(REVIEW, "application/json", &body).says(201, json!({"status": {"allowed": allowed}}));
    }
    let missing = server.cluster.missing_rights(&features, server.within(5)).await.unwrap();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(
        missing,
        [
            "patch nodes",
            "patch configmaps memory in namespace ours",
            "update leases.coordination.k8s.io spot-migrator in namespace ours",
        ]
    );
}

/// One right lacks at a time, whichever it is.
#[tokio::test(start_paused = true)]
async fn rb_49_every_right_is_asked_for_and_the_one_that_is_missing_is_named() {
    let features = all_but_deleting_pods();
    let needed = rights(&features, "ours", "memory");
    for lacking in &needed {
        let server = ApiServer::new();
        for right in &needed {
            let attributes = serde_json::to_string(right).unwrap();
            let body = format!(
                r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{{"resourceAttributes":{attributes}}}}}"#
            );
            let answer = json!({"status": {"allowed": right != lacking}});
            server.on_body(REVIEW, "application/json", &body).says(201, answer);
        }
        let missing = server.cluster.missing_rights(&features, server.within(5)).await.unwrap();
        assert_eq!(missing.iter().map(ToString::to_string).collect::<Vec<_>>(), [lacking.to_string()]);
    }
    let named: Vec<_> = needed.iter().map(ToString::to_string).collect();
    for right in ["create pods/eviction", "list pods", "list daemonsets.apps", "patch nodes"] {
        assert!(named.contains(&right.to_owned()), "{right} is not among {named:#?}");
    }
}

#[test]
fn looking_needs_no_right_to_write() {
    let looking = rights(&Features::default(), "ours", "memory");
    assert!(looking.iter().all(|right| ["get", "list", "watch"].contains(&right.verb)));
    assert!(!looking.iter().any(|right| right.to_string() == "get nodes"), "nobody who only looks reads one alone");
    let deleting = Features { delete_pods: true, ..Features::default() };
    assert!(rights(&deleting, "ours", "memory").iter().any(|right| right.to_string() == "delete pods"));
}
