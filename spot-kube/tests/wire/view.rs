//! Lists and watches, and the view that they make.

use std::time::Duration;

use serde_json::{Value, json};
use spot_core::error::ErrorClass;
use spot_core::node::{Node, NodeRef, Uid};
use spot_core::pod::PodSnapshot;
use spot_core::ports::{Cluster, Live, NodeChange, Scope, Written};
use spot_core::view::View;

use crate::server::{ApiServer, Watched, failed, list, node, page, pod, said, status, watch};

pub(crate) const NODES: &str = "GET /api/v1/nodes?limit=500";

/// A view of these nodes and nothing else, and the watch of nodes; the others must be kept open.
pub(crate) async fn nodes(
    server: &ApiServer,
    version: &str,
    nodes: &[Value],
) -> (Box<dyn Live>, Watched, [Watched; 7]) {
    let others = server.nothing_but_nodes();
    server.on(NODES).says(200, list(version, nodes));
    let watched = server.on_watch(&format!("/api/v1/nodes{}", watch("", version)));
    let live = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    watched.opened().await;
    for other in &others {
        other.opened().await;
    }
    (live, watched, others)
}

/// The view as soon as it meets a condition.
pub(crate) async fn until(live: &dyn Live, condition: impl Fn(&View) -> bool) {
    loop {
        let view = live.view();
        if condition(&view) {
            return;
        }
        let changed = tokio::time::timeout(Duration::from_mins(1), live.changed(view.revision())).await;
        changed.expect("the view does not become as expected").unwrap();
    }
}

pub(crate) fn names(view: &View) -> Vec<String> {
    view.nodes().iter().map(|node| node.name.to_string()).collect()
}

fn version(view: &View, name: &str) -> String {
    view.node(&format!("uid-{name}")).unwrap().resource_version.clone()
}

fn active_pods_of(view: &View, controller: &str) -> usize {
    view.tally(&Uid::new(controller)).map_or(0, spot_core::view::Tally::active)
}

pub(crate) fn pod_names<'p>(pods: impl Iterator<Item = &'p std::sync::Arc<PodSnapshot>>) -> Vec<String> {
    pods.map(|pod| pod.name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_view_is_every_kind_listed_once_and_then_follows() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3"), node("b", "4")]).await;
    assert_eq!(names(&live.view()), ["a", "b"]);

    watched.send("ADDED", &node("c", "6")).await;
    until(&*live, |view| view.nodes().len() == 3).await;
    watched.send("DELETED", &node("a", "7")).await;
    until(&*live, |view| names(view) == ["b", "c"]).await;
    let mut cordoned = node("b", "8");
    cordoned["spec"]["unschedulable"] = json!(true);
    watched.send("MODIFIED", &cordoned).await;
    until(&*live, |view| view.node("uid-b").unwrap().is_unschedulable()).await;
}

/// The fourth page of six expired: the list begins anew, and nothing of the first half remains.
#[tokio::test(start_paused = true)]
async fn rb_73_a_list_whose_pages_expire_begins_anew() {
    let server = ApiServer::new();
    let _others = server.nothing_but_nodes();
    let next = |token: &str| format!("{NODES}&continue={token}");
    server.on(NODES).says(200, page("5", "p/2", &[node("old", "1"), node("kept", "2")]));
    server.on(&next("p%2F2")).says(200, page("5", "p/3", &[node("older", "3")]));
    server.on(&next("p%2F3")).says(410, status(410, "Expired", "the provided continue parameter is too old"));
    server.on(NODES).says(200, page("9", "q/2", &[node("kept", "7")]));
    server.on(&next("q%2F2")).says(200, list("9", &[node("new", "8")]));
    let watched = server.on_watch(&format!("/api/v1/nodes{}", watch("", "9")));

    let live = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    assert_eq!(names(&live.view()), ["kept", "new"]);
    watched.opened().await;
}

/// It is the last look before a deletion: that one answer is lost must not cost the whole drain.
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_node_are_listed_again_when_no_answer_comes() {
    let server = ApiServer::new();
    let (live, _watched, _others) = nodes(&server, "5", &[]).await;
    let pods = "GET /api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Da";
    let a = NodeRef { name: "a".into(), uid: Uid::new("uid-a"), resource_version: None };
    server.on(pods).hangs();
    server.on(pods).says(200, list("9", &[pod("p", "a")]));
    let latest = live.latest_pods(&a, server.within(30)).await.unwrap();
    assert_eq!(pod_names(latest.iter()), ["p"]);
}

#[tokio::test(start_paused = true)]
async fn an_own_write_is_visible_at_once_and_an_older_event_does_not_undo_it() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let body = r#"{"metadata":{"uid":"uid-a","resourceVersion":"3"},"spec":{"unschedulable":true}}"#;
    let patch = "PATCH /api/v1/nodes/a?fieldManager=spot-migrator";
    let mut after = node("a", "10");
    after["spec"]["unschedulable"] = json!(true);
    server.on_body(patch, "application/merge-patch+json", body).says(200, &after);

    let change = NodeChange { unschedulable: Some(true), ..NodeChange::default() };
    let a = live.view().node("uid-a").unwrap().at_version();
    let seen = live.view().revision();
    let written = server.cluster.write_node(&a, &change, &server.permit(5)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)));
    live.changed(seen).await.unwrap();
    assert!(live.view().node("uid-a").unwrap().is_unschedulable());

    // 9 is below 10, though not as text.
    watched.send("MODIFIED", &node("a", "9")).await;
    watched.send("ADDED", &node("b", "11")).await;
    until(&*live, |view| view.nodes().len() == 2).await;
    assert_eq!(version(&live.view(), "a"), "10");
    watched.send("MODIFIED", &node("a", "12")).await;
    until(&*live, |view| version(view, "a") == "12").await;
}

/// Versions that are no numbers can't be compared: events are dropped until the own write was seen.
#[tokio::test(start_paused = true)]
async fn an_older_event_does_not_undo_an_own_write_where_versions_are_opaque() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "x")]).await;
    let body = r#"{"metadata":{"uid":"uid-a"},"spec":{"unschedulable":true}}"#;
    let patch = "PATCH /api/v1/nodes/a?fieldManager=spot-migrator";
    server.on_body(patch, "application/merge-patch+json", body).says(200, node("a", "mine"));
    let change = NodeChange { unschedulable: Some(true), ..NodeChange::default() };
    let a = live.view().node("uid-a").unwrap().reference();
    let written = server.cluster.write_node(&a, &change, &server.permit(5)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)));

    watched.send("MODIFIED", &node("a", "older")).await;
    watched.send("ADDED", &node("b", "1")).await;
    until(&*live, |view| view.nodes().len() == 2).await;
    assert_eq!(version(&live.view(), "a"), "mine");
    watched.send("MODIFIED", &node("a", "mine")).await;
    watched.send("MODIFIED", &node("a", "later")).await;
    until(&*live, |view| version(view, "a") == "later").await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_began_after_an_own_write_is_later_than_it_where_versions_are_opaque() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "x")]).await;
    let body = r#"{"metadata":{"uid":"uid-a"},"spec":{"unschedulable":true}}"#;
    let patch = "PATCH /api/v1/nodes/a?fieldManager=spot-migrator";
    server.on_body(patch, "application/merge-patch+json", body).says(200, node("a", "mine"));
    let change = NodeChange { unschedulable: Some(true), ..NodeChange::default() };
    let a = live.view().node("uid-a").unwrap().reference();
    let written = server.cluster.write_node(&a, &change, &server.permit(5)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)));

    server.on(NODES).says(200, list("20", &[node("a", "later")]));
    let again = server.on_watch(&format!("/api/v1/nodes{}", watch("", "20")));
    watched.send("ERROR", &status(410, "Expired", "too old resource version")).await;
    until(&*live, |view| version(view, "a") == "later").await;
    again.opened().await;
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_write_does_not_bring_back_a_node_that_went_meanwhile() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let a = live.view().node("uid-a").unwrap().reference();
    watched.send("DELETED", &node("a", "11")).await;
    until(&*live, |view| view.nodes().is_empty()).await;
    let body = r#"{"metadata":{"uid":"uid-a"},"spec":{"unschedulable":true}}"#;
    let patch = "PATCH /api/v1/nodes/a?fieldManager=spot-migrator";
    server.on_body(patch, "application/merge-patch+json", body).says(200, node("a", "10"));
    let change = NodeChange { unschedulable: Some(true), ..NodeChange::default() };
    let written = server.cluster.write_node(&a, &change, &server.permit(5)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)));
    assert!(live.view().nodes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_expired_lists_again_and_what_is_no_longer_there_goes() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3"), node("b", "4")]).await;
    server.on(NODES).says(200, list("20", &[node("b", "4"), node("c", "18")]));
    let again = server.on_watch(&format!("/api/v1/nodes{}", watch("", "20")));
    watched.send("ERROR", &status(410, "Expired", "too old resource version")).await;
    until(&*live, |view| names(view) == ["b", "c"]).await;
    again.opened().await;
}

/// Whatever a watch says went wrong: nobody promises that the next one misses nothing.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_or_sends_nonsense_lists_again_and_not_in_a_hurry() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let began = tokio::time::Instant::now();
    for version in ["20", "21", "22"] {
        server.on(NODES).says(200, list(version, &[node("b", version)]));
        let again = server.on_watch(&format!("/api/v1/nodes{}", watch("", version)));
        let error = status(500, "InternalError", "etcd event received with PrevKv=nil");
        watched.send(if version == "21" { "NONSENSE" } else { "ERROR" }, &error).await;
        again.opened().await;
        watched = again;
    }
    assert_eq!(names(&live.view()), ["b"]);
    // At once the first time, then after 0.4 s and 0.8 s at least.
    assert!(began.elapsed() >= Duration::from_millis(1200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_from_where_it_was() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let bookmark = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "30"}});
    watched.send("BOOKMARK", &bookmark).await;
    tokio::time::advance(Duration::from_mins(1)).await;
    let mut again = server.on_watch(&format!("/api/v1/nodes{}", watch("", "30")));
    drop(watched);
    again.opened().await;
    again.send("ADDED", &node("b", "31")).await;
    until(&*live, |view| names(view) == ["a", "b"]).await;
}

/// As behind a load balancer that forgot the connection, and tells neither side.
#[tokio::test(start_paused = true)]
async fn a_watch_without_a_bookmark_for_90_seconds_goes_on_over_another_connection() {
    let server = ApiServer::new();
    let (live, mut watched, mut others) = nodes(&server, "5", &[node("a", "3")]).await;
    let bookmark = |version| json!({"kind": "Any", "apiVersion": "v1", "metadata": {"resourceVersion": version}});
    let began = tokio::time::Instant::now();
    let mut again = server.on_watch(&format!("/api/v1/nodes{}", watch("", "30")));
    for minute in 1..=2 {
        tokio::time::sleep_until(began + Duration::from_mins(minute)).await;
        for other in &mut others {
            other.send("BOOKMARK", &bookmark("1")).await;
        }
        if minute == 1 {
            watched.send("BOOKMARK", &bookmark("30")).await;
        }
    }
    again.opened().await;
    assert!(began.elapsed() >= Duration::from_secs(150), "{:?}", began.elapsed());
    again.send("ADDED", &node("b", "31")).await;
    until(&*live, |view| names(view) == ["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_for_a_while_is_asked_for_again() {
    let server = ApiServer::new();
    let (live, watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let address = format!("GET /api/v1/nodes{}", watch("", "5"));
    server.on(&address).says(503, "down");
    server.on(&address).says(403, status(403, "Forbidden", "the authorizer is not ready"));
    let mut again = server.on_watch(address.trim_start_matches("GET "));
    drop(watched);
    again.opened().await;
    again.send("ADDED", &node("b", "31")).await;
    until(&*live, |view| names(view) == ["a", "b"]).await;
}

/// The token is replaced while the view is open and while one is opened.
#[tokio::test(start_paused = true)]
async fn rb_48_lists_and_watches_go_on_with_the_new_token() {
    let server = ApiServer::new();
    for _ in 0..3 {
        server.on(NODES).says(401, status(401, "Unauthorized", "expired"));
    }
    let (live, watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let address = format!("GET /api/v1/nodes{}", watch("", "5"));
    for _ in 0..3 {
        server.on(&address).says(401, status(401, "Unauthorized", "expired"));
    }
    let mut again = server.on_watch(address.trim_start_matches("GET "));
    drop(watched);
    again.opened().await;
    again.send("ADDED", &node("b", "31")).await;
    until(&*live, |view| names(view) == ["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_denied_names_the_right() {
    let server = ApiServer::new();
    let _others = server.nothing_but_nodes();
    server.on(NODES).says(403, status(403, "Forbidden", "nodes is forbidden"));
    let error = failed(server.cluster.open(Scope::Cluster, server.within(5)).await);
    assert_eq!(error.class, ErrorClass::Denied);
    assert!(said(&error).contains("`list nodes`"), "{}", said(&error));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_denied_from_the_start_ends_the_view() {
    let server = ApiServer::new();
    let _others = server.nothing_but_nodes();
    server.on(NODES).says(200, list("5", &[]));
    server.on(&format!("GET /api/v1/nodes{}", watch("", "5"))).says(403, status(403, "Forbidden", "no"));
    let live = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_mins(1), live.changed(live.view().revision())).await;
    let error = ended.expect("the view goes on").unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
    assert!(said(&error).contains("`watch nodes`"), "{}", said(&error));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_ends_the_opening_at_its_deadline() {
    let server = ApiServer::new();
    let _others = server.nothing_but_nodes();
    server.on(NODES).hangs();
    let began = tokio::time::Instant::now();
    let error = failed(server.cluster.open(Scope::Cluster, server.within(3)).await);
    assert_eq!(error.class, ErrorClass::Timeout);
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_identity_or_birth_fails_the_opening_by_name() {
    for field in ["uid", "creationTimestamp"] {
        let server = ApiServer::new();
        let _others = server.nothing_but_nodes();
        let mut odd = node("odd", "3");
        odd["metadata"][field] = json!(null);
        server.on(NODES).says(200, list("5", &[odd]));
        let error = failed(server.cluster.open(Scope::Cluster, server.within(5)).await);
        assert_eq!(error.class, ErrorClass::Permanent);
        assert_eq!(said(&error), format!("could not read the list of nodes: node odd has no metadata.{field}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_unreadable_stays_as_it_was_seen() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3"), node("b", "4")]).await;
    let mut odd = node("a", "6");
    odd["spec"]["taints"] = json!([{"key": "k", "effect": "Sometimes"}]);
    server.on(NODES).says(200, list("20", &[odd.clone(), node("c", "7")]));
    let again = server.on_watch(&format!("/api/v1/nodes{}", watch("", "20")));
    watched.send("MODIFIED", &odd).await;
    watched.send("ERROR", &status(410, "Expired", "too old resource version")).await;
    until(&*live, |view| names(view) == ["a", "c"]).await;
    assert_eq!(version(&live.view(), "a"), "3");
    again.opened().await;
}

#[tokio::test(start_paused = true)]
async fn pods_budgets_daemonsets_and_the_pause_are_followed() {
    let server = ApiServer::new();
    let (live, _watched, others) = nodes(&server, "1", &[]).await;
    let [mut pods, mut budgets, mut daemon_sets, mut pause, _volumes @ ..] = others;

    let mut pending = pod("p", "");
    pending["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "first", "controller": true}]);
    pods.send("ADDED", &pending).await;
    until(&*live, |view| view.unbound_pods().count() == 1).await;
    let mut bound = pending.clone();
    bound["spec"]["nodeName"] = json!("a");
    pods.send("MODIFIED", &bound).await;
    until(&*live, |view| pod_names(view.pods_on("a")) == ["p"] && view.unbound_pods().count() == 0).await;
    let mut adopted = bound.clone();
    adopted["metadata"]["ownerReferences"][0]["uid"] = json!("second");
    pods.send("MODIFIED", &adopted).await;
    until(&*live, |view| active_pods_of(view, "second") == 1).await;
    assert_eq!(active_pods_of(&live.view(), "first"), 0);
    assert_eq!(pod_names(live.view().pods_on("a")), ["p"]);
    pods.send("DELETED", &adopted).await;
    until(&*live, |view| view.pods().count() == 0).await;
    assert_eq!(active_pods_of(&live.view(), "second"), 0);

    let budget = json!({"metadata": {"name": "db", "namespace": "shop", "resourceVersion": "2", "generation": 2},
                        "spec": {"selector": {"matchLabels": {"app": "db"}}},
                        "status": {"observedGeneration": 2, "disruptionsAllowed": 1}});
    budgets.send("ADDED", &budget).await;
    let db = spot_core::pod::BudgetRef { namespace: "shop".into(), name: "db".into() };
    until(&*live, |view| view.budget(&db).is_some_and(|budget| budget.current)).await;
    budgets.send("DELETED", &budget).await;
    until(&*live, |view| view.budget(&db).is_none()).await;

    let daemon_set = json!({"metadata": {"name": "logs", "namespace": "shop", "uid": "ds", "resourceVersion": "3"}});
    daemon_sets.send("ADDED", &daemon_set).await;
    until(&*live, |view| view.daemon_set_exists(&Uid::new("ds"))).await;
    daemon_sets.send("DELETED", &daemon_set).await;
    until(&*live, |view| !view.daemon_set_exists(&Uid::new("ds"))).await;

    let config_map = json!({"metadata": {"name": "memory", "resourceVersion": "4"}, "data": {"paused": "true"}});
    pause.send("ADDED", &config_map).await;
    until(&*live, View::paused).await;
    pause.send("DELETED", &config_map).await;
    until(&*live, |view| !view.paused()).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_nobody_reads_wakes_nobody() {
    let server = ApiServer::new();
    let (live, mut watched, [mut pods, ..]) = nodes(&server, "1", &[]).await;
    pods.send("ADDED", &pod("p", "a")).await;
    until(&*live, |view| view.pods().count() == 1).await;
    let seen = live.view().revision();
    let mut beat = pod("p", "a");
    beat["metadata"]["resourceVersion"] = json!("8");
    beat["metadata"]["managedFields"] = json!([{"manager": "kubelet"}]);
    beat["status"]["hostIP"] = json!("10.0.0.1");
    pods.send("MODIFIED", &beat).await;
    pods.send("ADDED", &pod("q", "a")).await;
    until(&*live, |view| view.pods().count() == 2).await;
    assert_eq!(live.view().revision().0, seen.0 + 1);
    watched.send("ADDED", &node("a", "3")).await;
    live.changed(live.view().revision()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_held_does_not_change_under_its_holder() {
    let server = ApiServer::new();
    let (live, mut watched, _others) = nodes(&server, "5", &[node("a", "3")]).await;
    let held = live.view();
    watched.send("ADDED", &node("b", "6")).await;
    live.changed(held.revision()).await.unwrap();
    assert_eq!(names(&held), ["a"]);
    assert_eq!(names(&live.view()), ["a", "b"]);
    // A revision of the past returns at once, as often as it is asked for.
    live.changed(held.revision()).await.unwrap();
    live.changed(held.revision()).await.unwrap();
}
