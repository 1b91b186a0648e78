//! Which views there are side by side, and what each asks of the API server.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use spot_core::error::ErrorClass;
use spot_core::node::Node as _;
use spot_core::ports::{Cluster as _, NodeChange, Scope, Written};

use crate::server::{ApiServer, failed, list, node, pod, status, watch};
use crate::view::{NODES, names, nodes, pod_names, until};

#[tokio::test(start_paused = true)]
async fn a_second_view_of_the_cluster_asks_for_nothing_and_keeps_no_second_copy() {
    let server = ApiServer::new();
    let (first, mut watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let second = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    assert!(Arc::ptr_eq(&first.view(), &second.view()));
    watched.send("ADDED", &node("b", "6")).await;
    until(&*second, |view| names(view) == ["a", "b"]).await;
    assert!(Arc::ptr_eq(&first.view(), &second.view()));
}

#[tokio::test(start_paused = true)]
async fn two_that_open_at_the_same_time_share_one_list_of_each_kind() {
    let server = ApiServer::new();
    let _others = server.nothing_but_nodes();
    server.on(NODES).says(200, list("5", &[node("a", "3")]));
    let _watched = server.on_watch(&format!("/api/v1/nodes{}", watch("", "5")));
    let open = || server.cluster.open(Scope::Cluster, server.within(5));
    let (first, second) = futures::join!(open(), open());
    assert!(Arc::ptr_eq(&first.unwrap().view(), &second.unwrap().view()));
}

/// The first may have the longer deadline, and its opening may be dropped.
#[tokio::test(start_paused = true)]
async fn who_waits_for_an_opening_gives_up_at_its_own_deadline_and_takes_over_what_was_dropped() {
    let server = ApiServer::new();
    let _others = server.nothing_but_nodes();
    let came = server.on(NODES).hangs();
    let mut first = server.cluster.open(Scope::Cluster, server.within(60));
    assert!((&mut first).now_or_never().is_none());
    came.acquire().await.unwrap().forget();
    let began = tokio::time::Instant::now();
    let late = failed(server.cluster.open(Scope::Cluster, server.within(3)).await);
    assert_eq!((late.class, began.elapsed().as_secs()), (ErrorClass::Timeout, 3));

    let mut patient = server.cluster.open(Scope::Cluster, server.within(20));
    assert!((&mut patient).now_or_never().is_none());
    drop(first);
    let _again = server.nothing_but_nodes();
    server.on(NODES).says(200, list("5", &[node("a", "3")]));
    let _watched = server.on_watch(&format!("/api/v1/nodes{}", watch("", "5")));
    assert_eq!(names(&patient.await.unwrap().view()), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_own_write_is_visible_at_once_to_all_who_share() {
    let server = ApiServer::new();
    let (first, _watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let second = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    let mut after = node("a", "10");
    after["spec"]["unschedulable"] = json!(true);
    let body = r#"{"metadata":{"uid":"uid-a"},"spec":{"unschedulable":true}}"#;
    let patch = "PATCH /api/v1/nodes/a?fieldManager=spot-migrator";
    server.on_body(patch, "application/merge-patch+json", body).says(200, after);
    let a = first.view().node("uid-a").unwrap().reference();
    let seen = second.view().revision();
    let change = NodeChange { unschedulable: Some(true), ..NodeChange::default() };
    let written = server.cluster.write_node(&a, &change, &server.permit(5)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)));
    for live in [first, second] {
        live.changed(seen).await.unwrap();
        assert!(live.view().node("uid-a").unwrap().is_unschedulable());
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_last_view_to_be_dropped_ends_the_watches() {
    let server = ApiServer::new();
    let (first, mut watched, others) = nodes(&server, "5", &[]).await;
    let second = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    drop(first);
    watched.send("ADDED", &node("a", "6")).await;
    until(&*second, |view| names(view) == ["a"]).await;
    drop(second);
    watched.closed().await;
    for other in others {
        other.closed().await;
    }
    // The next one begins anew.
    let (third, _watched, _others) = nodes(&server, "9", &[node("b", "8")]).await;
    assert_eq!(names(&third.view()), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_view_that_has_failed_is_not_shared() {
    let server = ApiServer::new();
    let _others = server.nothing_but_nodes();
    server.on(NODES).says(200, list("5", &[node("old", "3")]));
    server.on(&format!("GET /api/v1/nodes{}", watch("", "5"))).says(403, status(403, "Forbidden", "no"));
    let failing = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_mins(1), failing.changed(failing.view().revision())).await;
    assert_eq!(ended.expect("the view goes on").unwrap_err().class, ErrorClass::Denied);

    let (anew, _watched, _others) = nodes(&server, "9", &[node("new", "8")]).await;
    assert_eq!(names(&anew.view()), ["new"]);
    assert_eq!(names(&failing.view()), ["old"]);
}

#[tokio::test(start_paused = true)]
async fn the_view_of_one_node_asks_for_that_node_and_its_pods_alone_and_says_so() {
    let server = ApiServer::new();
    let kinds = [
        ("/api/v1/nodes", "&fieldSelector=metadata.name%3Da", vec![node("a", "1")]),
        ("/api/v1/pods", "&fieldSelector=spec.nodeName%3Da", vec![pod("p", "a")]),
    ];
    let mut watches = Vec::new();
    for (path, selector, items) in kinds {
        server.on(&format!("GET {path}?limit=500{selector}")).says(200, list("5", &items));
        watches.push(server.on_watch(&format!("{path}{}", watch(selector, "5"))));
    }
    // The one that asks for a pause where there is a ConfigMap to say so.
    let pause = "&fieldSelector=metadata.name%3Dmemory";
    let config_maps = "/api/v1/namespaces/ours/configmaps";
    server.on(&format!("GET {config_maps}?limit=500{pause}")).says(200, list("5", &[]));
    watches.push(server.on_watch(&format!("{config_maps}{}", watch(pause, "5"))));
    let live = server.cluster.open(Scope::Node("a".to_owned()), server.within(5)).await.unwrap();
    assert_eq!(pod_names(live.view().pods_on("a")), ["p"]);
    let known = live.view().known();
    assert!(known.pods && !known.budgets && !known.daemon_sets && !known.claims && !known.volumes);
    for watched in &watches {
        watched.opened().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_memory_the_view_of_one_node_is_two_watches() {
    let server = ApiServer::new();
    let cluster = spot_kube::KubeCluster::without_memory(server.client(), Arc::clone(&server.clock) as _);
    let mut watches = Vec::new();
    for (path, selector) in
        [("/api/v1/nodes", "&fieldSelector=metadata.name%3Da"), ("/api/v1/pods", "&fieldSelector=spec.nodeName%3Da")]
    {
        server.on(&format!("GET {path}?limit=500{selector}")).says(200, list("5", &[]));
        watches.push(server.on_watch(&format!("{path}{}", watch(selector, "5"))));
    }
    let live = cluster.open(Scope::Node("a".to_owned()), server.within(5)).await.unwrap();
    let [mut of_node, mut of_pods]: [_; 2] = watches.try_into().ok().unwrap();
    of_node.send("ADDED", &node("a", "6")).await;
    of_pods.send("ADDED", &pod("p", "a")).await;
    until(&*live, |view| names(view) == ["a"] && pod_names(view.pods_on("a")) == ["p"]).await;
    assert!(!live.paused(server.within(5)).await.unwrap());
}
