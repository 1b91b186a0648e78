//! Values that nobody can read: they are told of once, count as absent, and keep nobody from working.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use spot_core::decision;
use spot_core::node::{ClaimAnnotation, NodeSnapshot, key};
use spot_core::pod::BudgetRef;
use spot_core::ports::{Cluster, Live, Scope};
use spot_core::view::View;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::server::{ApiServer, Watched, list, node, pod, status, watch};

const NODES: &str = "GET /api/v1/nodes?limit=500";

/// The fields of every warning, by name.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}
    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
}

impl Warnings {
    fn collected() -> (Self, DefaultGuard) {
        let warnings = Self::default();
        let guard = tracing::subscriber::set_default(warnings.clone());
        (warnings, guard)
    }

    /// Object and key of each, sorted.
    fn of_values(&self) -> Vec<String> {
        let warnings = self.0.lock().unwrap();
        let values = warnings.iter().filter(|fields| fields["message"].starts_with("a value can't be read"));
        let mut values: Vec<_> = values.map(|fields| format!("{} {}", fields["object"], fields["key"])).collect();
        values.sort();
        values
    }

    fn longest(&self) -> usize {
        self.0.lock().unwrap().iter().flat_map(BTreeMap::values).map(String::len).max().unwrap_or(0)
    }
}

fn annotated(mut object: Value, annotations: &[(&str, &str)]) -> Value {
    object["metadata"]["annotations"] =
        annotations.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
    object
}

fn labelled(mut object: Value, labels: &[(&str, &str)]) -> Value {
    object["metadata"]["labels"] = labels.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
    object
}

fn version(object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(version);
    object
}

fn snapshot(view: &View, name: &str) -> Arc<NodeSnapshot> {
    Arc::clone(view.node(&format!("uid-{name}")).unwrap())
}

/// Waits until the view shows this version of the node.
async fn shows(live: &dyn Live, name: &str, version: &str) {
    loop {
        let view = live.view();
        if view.node(&format!("uid-{name}")).is_some_and(|node| node.resource_version == version) {
            return;
        }
        let changed = tokio::time::timeout(Duration::from_mins(1), live.changed(view.revision())).await;
        changed.expect("the view does not become as expected").unwrap();
    }
}

async fn opened(server: &ApiServer, nodes: &[Value]) -> (Box<dyn Live>, Watched, [Watched; 7]) {
    let others = server.nothing_but_nodes();
    server.on(NODES).says(200, list("5", nodes));
    let watched = server.on_watch(&format!("/api/v1/nodes{}", watch("", "5")));
    let live = server.cluster.open(Scope::Cluster, server.within(5)).await.expect("bad input refuses no run");
    watched.opened().await;
    for other in &others {
        other.opened().await;
    }
    (live, watched, others)
}

#[tokio::test(start_paused = true)]
async fn values_of_nodes_that_can_not_be_read_count_as_absent_and_are_told_of_once() {
    let (warnings, _guard) = Warnings::collected();
    let enormous = "x".repeat(200 * 1024);
    let times = annotated(
        node("times", "1"),
        &[(key::CLAIM, "yesterday"), (key::BACK_OFF, r#"{"until":"2026-02-30T25:00:00Z","count":1}"#)],
    );
    let booleans = labelled(
        annotated(
            node("booleans", "1"),
            &[(key::DO_NOT_MIGRATE, "True"), (key::SCALE_DOWN_DISABLED, "TRUE"), (key::DO_NOT_DISRUPT, "yes")],
        ),
        &[(key::SELECTED, "True"), (key::COST_MANAGER_SELECTED, "1"), (key::DO_NOT_MIGRATE, "")],
    );
    let long = annotated(
        node("long", "1"),
        &[(key::CLAIM, &enormous), (key::BACK_OFF, &enormous), (key::DO_NOT_MIGRATE, &enormous), ("other", &enormous)],
    );
    let all = [times, booleans.clone(), long];
    let server = ApiServer::new();
    let (live, mut watched, _others) = opened(&server, &all).await;

    let view = live.view();
    assert_eq!(snapshot(&view, "times").back_off, None);
    for name in ["times", "long"] {
        assert!(matches!(snapshot(&view, name).claim, ClaimAnnotation::Unreadable(_)), "it is no claim of anybody");
    }
    for name in ["times", "booleans", "long"] {
        let node = snapshot(&view, name);
        assert_eq!((decision::opt_out(&node), decision::is_marked(&node)), (None, false), "{name}");
    }
    let told = [
        ("booleans", key::SCALE_DOWN_DISABLED),
        ("booleans", "cost-manager.io/selected-for-deletion"),
        ("booleans", key::DO_NOT_DISRUPT),
        ("booleans", key::DO_NOT_MIGRATE),
        ("booleans", key::SELECTED),
        ("long", key::BACK_OFF),
        ("long", key::CLAIM),
        ("long", key::DO_NOT_MIGRATE),
        ("times", key::BACK_OFF),
        ("times", key::CLAIM),
    ]
    .map(|(object, key)| format!("{object} {key}"));
    assert_eq!(warnings.of_values(), told);
    assert!(warnings.longest() < 300, "a line of {} bytes", warnings.longest());

    // Kubelets write their Nodes all the time, and lists are begun anew.
    for beat in ["11", "12", "13"] {
        watched.send("MODIFIED", &version(&booleans, beat)).await;
    }
    shows(&*live, "booleans", "13").await;
    server.on(NODES).says(200, list("20", &all.each_ref().map(|node| version(node, "19"))));
    let mut again = server.on_watch(&format!("/api/v1/nodes{}", watch("", "20")));
    watched.send("ERROR", &status(410, "Expired", "too old resource version")).await;
    again.opened().await;
    shows(&*live, "booleans", "19").await;
    assert_eq!(warnings.of_values(), told, "nothing is told of twice");

    // What is put right counts, and a node of the same name that comes later is another object.
    let right = annotated(labelled(node("booleans", "21"), &[]), &[(key::DO_NOT_MIGRATE, "true")]);
    again.send("MODIFIED", &right).await;
    shows(&*live, "booleans", "21").await;
    assert_eq!(decision::opt_out(&snapshot(&live.view(), "booleans")), Some(key::DO_NOT_MIGRATE));
    let mut heir = annotated(node("booleans", "23"), &[(key::DO_NOT_MIGRATE, "True")]);
    heir["metadata"]["uid"] = json!("uid-heir");
    again.send("DELETED", &version(&right, "22")).await;
    again.send("ADDED", &heir).await;
    shows(&*live, "heir", "23").await;
    assert_eq!(warnings.of_values().len(), told.len() + 1);
}

#[tokio::test(start_paused = true)]
async fn opt_outs_of_pods_that_can_not_be_read_are_told_of_once_and_opt_nobody_out() {
    let (warnings, _guard) = Warnings::collected();
    let server = ApiServer::new();
    let (live, _watched, [mut pods, ..]) = opened(&server, &[node("a", "1")]).await;
    let odd = labelled(
        annotated(pod("odd", "a"), &[(key::SAFE_TO_EVICT, "False"), (key::DO_NOT_DISRUPT, "TRUE")]),
        &[(key::DO_NOT_EVICT, "True")],
    );
    let plain = annotated(pod("plain", "a"), &[(key::SAFE_TO_EVICT, "true"), (key::DO_NOT_DISRUPT, "false")]);
    let kept = annotated(pod("kept", "a"), &[(key::SAFE_TO_EVICT, "false")]);
    for (kind, object) in [("ADDED", &odd), ("MODIFIED", &odd), ("ADDED", &plain), ("MODIFIED", &odd), ("ADDED", &kept)]
    {
        pods.send(kind, object).await;
    }
    while live.view().pods().count() < 3 {
        let changed = tokio::time::timeout(Duration::from_mins(1), live.changed(live.view().revision())).await;
        changed.expect("the pods are not shown").unwrap();
    }
    let view = live.view();
    let opted_out: Vec<_> = view.pods().map(|pod| (pod.name.to_string(), pod.opted_out)).collect();
    let expected = [("kept", Some(key::SAFE_TO_EVICT)), ("odd", None), ("plain", None)];
    assert_eq!(opted_out, expected.map(|(name, key)| (name.to_owned(), key)));
    let told = [key::SAFE_TO_EVICT, key::DO_NOT_DISRUPT, key::DO_NOT_EVICT].map(|key| format!("shop/odd {key}"));
    assert_eq!(warnings.of_values(), told);
}

#[tokio::test(start_paused = true)]
async fn a_budget_whose_selector_can_not_be_read_lets_no_pod_of_its_namespace_go() {
    let broken = [
        json!({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["db"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "in", "values": ["db"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "In"}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": []}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["db"]}]}),
        json!({"matchExpressions": [{"operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "app"}]}),
        json!({"matchLabels": {"app": "not a value"}}),
        json!({"matchLabels": {"a/b/c": "db"}}),
        json!({"matchLabels": {"app": "x".repeat(64)}}),
    ];
    for selector in broken {
        let (warnings, _guard) = Warnings::collected();
        let server = ApiServer::new();
        let (live, _watched, [mut pods, mut budgets, ..]) = opened(&server, &[node("a", "1")]).await;
        let mut web = labelled(pod("web", "a"), &[("app", "web")]);
        web["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        pods.send("ADDED", &web).await;
        // By its status it lets five go.
        let budget = json!({
            "metadata": {"name": "odd", "namespace": "shop", "resourceVersion": "2", "generation": 1},
            "spec": {"selector": selector, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 5, "currentHealthy": 9, "desiredHealthy": 1,
                       "expectedPods": 9},
        });
        budgets.send("ADDED", &budget).await;
        budgets.send("MODIFIED", &version(&budget, "3")).await;
        let odd = BudgetRef { namespace: "shop".into(), name: "odd".into() };
        let shown = |view: &View| view.budget(&odd).is_some_and(|budget| budget.resource_version == "3");
        while !shown(&live.view()) || live.view().pods().count() == 0 {
            let changed = tokio::time::timeout(Duration::from_mins(1), live.changed(live.view().revision())).await;
            changed.expect("the budget is not shown").unwrap();
        }
        let view = live.view();
        let pod = view.pods().next().unwrap();
        let protecting: Vec<_> = view.budgets_of(pod).map(|budget| budget.reference()).collect();
        assert_eq!(protecting, [odd], "{selector}");
        let refusal = spot_core::drain::plan::budget_refusal(pod, &view).expect("it is refused");
        assert_eq!(refusal.span(), spot_core::reason::Span::Lasting, "nobody waits for it: {selector}");
        let unready = spot_core::pod::PodSnapshot { ready: false, ..spot_core::pod::PodSnapshot::clone(pod) };
        assert!(view.budgets_of(pod).all(|budget| budget.refuses(&unready)), "{selector}");
        assert_eq!(warnings.of_values(), ["shop/odd spec.selector"], "{selector}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_be_read_is_told_of_to_nobody() {
    let (warnings, _guard) = Warnings::collected();
    let back_off = r#"{"until":"2026-01-01T01:00:00Z","count":2}"#;
    let fine = labelled(
        annotated(
            node("fine", "1"),
            &[(key::BACK_OFF, back_off), (key::DO_NOT_MIGRATE, "false"), (key::SCALE_DOWN_DISABLED, "true")],
        ),
        &[(key::SELECTED, "false"), ("team", "True"), (key::CONTROL_PLANE, "")],
    );
    let server = ApiServer::new();
    let (live, _watched, [_pods, mut budgets, ..]) = opened(&server, &[fine, node("plain", "1")]).await;
    let selectors = [
        json!({}),
        json!({"matchLabels": {"app": "", "a.example/b": "c_d.e-f"}}),
        json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["b", "a"]}, {"key": "x", "operator": "NotIn", "values": ["y"]},
            {"key": "y", "operator": "Exists"}, {"key": "z", "operator": "DoesNotExist", "values": []},
        ]}),
        Value::Null,
    ];
    for (number, selector) in selectors.iter().enumerate() {
        let name = format!("budget-{number}");
        let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": "2"});
        budgets.send("ADDED", &json!({"metadata": metadata, "spec": {"selector": selector}})).await;
        let sent = BudgetRef { namespace: "shop".into(), name: name.into() };
        while live.view().budget(&sent).is_none() {
            let changed = tokio::time::timeout(Duration::from_mins(1), live.changed(live.view().revision())).await;
            changed.expect("the budget is not shown").unwrap();
        }
    }
    assert_eq!(warnings.of_values(), [""; 0]);
}
