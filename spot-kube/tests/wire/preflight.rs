//! The rights that a run needs.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spot_kube::Right;
use spot_kube::preflight::{Features, rights};

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

#[test]
fn the_manifest_grants_what_is_needed_and_nothing_else() {
    let manifest = include_str!("../../../deploy/rbac.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
    let mut granted = BTreeSet::<Row>::new();
    for document in &documents {
        let kind = document["kind"].as_str().unwrap();
        let namespace = document["metadata"]["namespace"].as_str().map(str::to_owned);
        assert_eq!(namespace.is_none(), kind.starts_with("Cluster") || kind == "Namespace", "{kind}");
        if !["Role", "ClusterRole"].contains(&kind) {
            continue;
        }
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
    let needed = rights(&all_but_deleting_pods(), "spot-migrator", "spot-migrator");
    assert_eq!(granted, needed.iter().map(row).collect());
}

#[test]
fn every_account_in_the_manifest_is_the_one_of_the_migrator() {
    let manifest = include_str!("../../../deploy/rbac.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
    let bindings: Vec<_> = documents.iter().filter(|document| document.get("subjects").is_some()).collect();
    assert_eq!(bindings.len(), 2);
    for binding in bindings {
        let subject = json!([{"kind": "ServiceAccount", "name": "spot-migrator", "namespace": "spot-migrator"}]);
        assert_eq!(binding["subjects"], subject);
        assert_eq!(binding["roleRef"]["name"], "spot-migrator");
    }
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
