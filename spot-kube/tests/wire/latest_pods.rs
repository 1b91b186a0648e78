//! The pods of a node, read anew right before its machine goes.

use serde_json::json;
use spot_core::error::ErrorClass;
use spot_core::node::{NodeRef, Uid};

use crate::server::{ApiServer, failed, list, node, page, pod, said, status};
use crate::view::{nodes, pod_names};

#[tokio::test(start_paused = true)]
async fn rb_73_the_pods_of_a_node_are_listed_by_its_name_to_the_last_page() {
    let server = ApiServer::new();
    let (live, _watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let pods = "GET /api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Da";
    server.on(pods).says(200, page("9", "two", &[pod("p", "a")]));
    server.on(&format!("{pods}&continue=two")).says(200, list("9", &[pod("q", "a")]));
    let a = live.view().node("uid-a").unwrap().reference();
    let latest = live.latest_pods(&a, server.within(5)).await.unwrap();
    assert_eq!(pod_names(latest.iter()), ["p", "q"]);
}

/// A single failure of the server is waited out; a missing right is loud, and never an empty list.
#[tokio::test(start_paused = true)]
async fn rb_06_pods_that_can_not_be_listed_for_a_moment_are_asked_for_again_and_a_missing_right_is_named() {
    let server = ApiServer::new();
    let (live, _watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let pods = "GET /api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Da";
    let a = live.view().node("uid-a").unwrap().reference();
    server.on(pods).says(500, status(500, "InternalError", "etcdserver: leader changed"));
    server.on(pods).says(200, list("9", &[pod("q", "a")]));
    let latest = live.latest_pods(&a, server.within(5)).await.unwrap();
    assert_eq!(pod_names(latest.iter()), ["q"]);
    server.on(pods).says(403, status(403, "Forbidden", "pods is forbidden"));
    let error = failed(live.latest_pods(&a, server.within(5)).await);
    assert_eq!(error.class, ErrorClass::Denied);
    assert!(said(&error).contains("`list pods`"), "{}", said(&error));
}

#[tokio::test(start_paused = true)]
async fn pods_that_can_not_be_read_are_an_error_and_never_none() {
    let server = ApiServer::new();
    let (live, _watched, _others) = nodes(&server, "5", &[]).await;
    let pods = "GET /api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Da";
    let a = NodeRef { name: "a".into(), uid: Uid::new("uid-a"), resource_version: None };
    let mut odd = pod("p", "a");
    odd["metadata"]["uid"] = json!(null);
    server.on(pods).says(200, list("9", &[odd]));
    let error = live.latest_pods(&a, server.within(5)).await.unwrap_err();
    assert_eq!(said(&error), "could not read the pods of node a: pod shop/p has no metadata.uid");
    server.on(pods).says(403, status(403, "Forbidden", "no"));
    assert_eq!(live.latest_pods(&a, server.within(5)).await.unwrap_err().class, ErrorClass::Denied);
    server.on(pods).hangs();
    assert_eq!(live.latest_pods(&a, server.within(5)).await.unwrap_err().class, ErrorClass::Timeout);
}
