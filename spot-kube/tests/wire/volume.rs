//! What pods and volumes demand of nodes, and where volumes are attached.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spot_core::node::Effect;
use spot_core::placement::{Demand, Needs, Term, Terms, Toleration};
use spot_core::pod::PodSnapshot;
use spot_core::ports::{Live, Scope};
use spot_core::selector::{Operator, Requirement};
use spot_core::view::View;
use spot_core::volume::{PodClaim, Reach};
use spot_kube::saved::{self, SavedFile};

use crate::server::{ApiServer, list, node, pod, watch};

use spot_core::ports::Cluster;

fn view(items: &[Value]) -> View {
    saved::read(&[SavedFile { name: "f", text: &list("1", items).to_string() }]).unwrap().view
}

fn pods(specs: &[Value]) -> Vec<Arc<PodSnapshot>> {
    let items = specs.iter().enumerate().map(|(at, spec)| {
        let mut pod = pod(&format!("p{at}"), "a");
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    });
    let items: Vec<_> = std::iter::once(node("a", "1")).chain(items).collect();
    view(&items).pods().map(Arc::clone).collect()
}

fn needs(spec: &Value) -> Option<Needs> {
    pods(std::slice::from_ref(spec))[0].needs.as_deref().cloned()
}

fn affinity(terms: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

fn affine(terms: &[&[Demand]]) -> Option<Needs> {
    Needs::new([], Some(Terms::new(terms.iter().map(|term| Term::new(term.iter().cloned())))), [])
}

fn tolerating(key: Option<&str>, value: Option<&str>, effect: Option<Effect>) -> Option<Needs> {
    Needs::new([], None, [Toleration { key: key.map(str::to_owned), value: value.map(str::to_owned), effect }])
}

#[test]
fn what_a_pod_demands_of_its_node_is_read() {
    let label = |operator, values: &[&str]| Demand::Label(Requirement::new("zone", operator, values.iter().copied()));
    let expression = |operator: &str, values: Value| {
        affinity(json!([{"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}]))
    };
    let name = Demand::Name(Requirement::new("metadata.name", Operator::In, ["a"]));
    for (spec, expected) in [
        (json!({}), None),
        (json!({"nodeSelector": {}, "affinity": {}, "tolerations": []}), None),
        (json!({"nodeSelector": {"zone": "a"}}), Needs::new([Requirement::equals("zone", "a")], None, [])),
        (expression("In", json!(["a", "b"])), affine(&[&[label(Operator::In, &["a", "b"])]])),
        (expression("NotIn", json!(["a"])), affine(&[&[label(Operator::NotIn, &["a"])]])),
        (expression("Exists", json!(null)), affine(&[&[label(Operator::Exists, &[])]])),
        (expression("DoesNotExist", json!([])), affine(&[&[label(Operator::DoesNotExist, &[])]])),
        (expression("Gt", json!(["4"])), affine(&[&[Demand::Above("zone".to_owned(), 4)]])),
        (expression("Lt", json!(["-4"])), affine(&[&[Demand::Below("zone".to_owned(), -4)]])),
        (expression("Near", json!(["4"])), affine(&[&[Demand::Unknown]])),
        (affinity(json!([])), affine(&[])),
        (affinity(json!([{}])), affine(&[&[]])),
        (
            affinity(json!([
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
                {"matchFields": [{"key": "spec.slot", "operator": "In", "values": ["a"]}],
                 "matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            ])),
            affine(&[&[name], &[label(Operator::Exists, &[]), Demand::Unknown]]),
        ),
        (
            json!({"affinity": {"podAntiAffinity": {}, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]}}}),
            None,
        ),
        (json!({"tolerations": [{"operator": "Exists"}]}), tolerating(None, None, None)),
        (json!({"tolerations": [{"key": "k", "operator": "Exists"}]}), tolerating(Some("k"), None, None)),
        (json!({"tolerations": [{"key": "k", "value": "v"}]}), tolerating(Some("k"), Some("v"), None)),
        (json!({"tolerations": [{"key": "k", "operator": "Equal"}]}), tolerating(Some("k"), Some(""), None)),
        (
            json!({"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]}),
            tolerating(Some("k"), None, Some(Effect::NoSchedule)),
        ),
        (
            json!({"tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ]}),
            None,
        ),
    ] {
        assert_eq!(needs(&spec), expected, "{spec}");
    }
}

#[test]
fn equal_demands_of_many_pods_are_kept_once() {
    let spec = || json!({"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k", "operator": "Exists"}]});
    let pods = pods(&[spec(), json!({}), spec(), json!({"nodeSelector": {"zone": "b"}})]);
    let needs: Vec<_> = pods.iter().filter_map(|pod| pod.needs.as_ref()).collect();
    assert_eq!(needs.len(), 3);
    assert!(Arc::ptr_eq(needs[0], needs[1]));
    assert_ne!(needs[0], needs[2]);
}

#[test]
fn a_pods_claims_are_read_and_told_from_those_that_go_with_it() {
    let volumes = json!([
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-0", "readOnly": true}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ]);
    let pods = pods(&[json!({"volumes": volumes}), json!({"volumes": [{"name": "config", "configMap": {}}]})]);
    let expected = [
        PodClaim { name: "data-0".into(), ephemeral: false },
        PodClaim { name: "p0-scratch".into(), ephemeral: true },
    ];
    assert_eq!(pods[0].claims.as_deref(), Some(&expected[..]));
    assert_eq!(pods[1].claims, None);
}

fn claim(name: &str, volume: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "spec": {"volumeName": volume},
           "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "8"}})
}

fn volume(name: &str, spec: &Value) -> Value {
    json!({"kind": "PersistentVolume", "apiVersion": "v1", "spec": spec,
           "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "8"}})
}

fn with_claim(name: &str) -> Value {
    let mut pod = pod("db-0", "a");
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    pod
}

fn reach(view: &View) -> Vec<Reach> {
    let pod = view.pods().next().unwrap();
    view.volumes_of(pod).map(|volume| volume.reach.clone()).collect()
}

#[test]
fn where_a_volume_can_be_used_is_read() {
    let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["c"]}]});
    let affinity = |terms: Value| json!({"csi": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
    let zone = |key: &str| Term::new([Demand::Label(Requirement::new(key, Operator::In, ["c"]))]);
    let nodes = |terms: Vec<Term>| Reach::Nodes(Arc::new(Terms::new(terms)));
    for (spec, expected) in [
        (json!({"nfs": {}}), Reach::Anywhere),
        (json!({"hostPath": {"path": "/data"}}), Reach::Host),
        (json!({"local": {"path": "/data"}}), Reach::Host),
        (affinity(json!([term("zone")])), nodes(vec![zone("zone")])),
        (affinity(json!([term("kubernetes.io/hostname")])), Reach::Host),
        (affinity(json!([term("topology.topolvm.io/node")])), Reach::Host),
        (
            affinity(json!([term("kubernetes.io/hostname"), term("zone")])),
            nodes(vec![zone("kubernetes.io/hostname"), zone("zone")]),
        ),
    ] {
        let view = view(&[node("a", "1"), with_claim("data"), claim("data", "pv"), volume("pv", &spec)]);
        assert_eq!(reach(&view), [expected], "{spec}");
        assert!(view.known().claims && view.known().volumes);
    }
    let view = view(&[node("a", "1"), with_claim("data"), claim("data", "")]);
    assert_eq!(reach(&view), [], "it is not bound yet");
    assert!(view.known().claims && !view.known().volumes);
}

fn attachment(name: &str, node: &str, volume: &str) -> Value {
    json!({"kind": "VolumeAttachment", "apiVersion": "storage.k8s.io/v1", "status": {"attached": true},
           "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": {"persistentVolumeName": volume}},
           "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "8"}})
}

async fn until(live: &dyn Live, condition: impl Fn(&View) -> bool) {
    loop {
        let view = live.view();
        if condition(&view) {
            return;
        }
        let changed = tokio::time::timeout(Duration::from_mins(1), live.changed(view.revision())).await;
        changed.expect("the view does not become as expected").unwrap();
    }
}

fn detaching(view: &View) -> Vec<String> {
    view.detaching_from("a").map(|attachment| attachment.name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn rb_42_claims_volumes_and_attachments_are_followed() {
    let server = ApiServer::new();
    let [mut pods, _, _, _, mut claims, mut volumes, mut attachments] = server.nothing_but_nodes();
    server.on("GET /api/v1/nodes?limit=500").says(200, list("5", &[node("a", "3")]));
    let nodes = server.on_watch(&format!("/api/v1/nodes{}", watch("", "5")));
    let live = server.cluster.open(Scope::Cluster, server.within(5)).await.unwrap();
    for watched in [&nodes, &pods, &claims, &volumes, &attachments] {
        watched.opened().await;
    }

    pods.send("ADDED", &with_claim("data")).await;
    claims.send("ADDED", &claim("data", "")).await;
    volumes.send("ADDED", &volume("pv", &json!({"local": {"path": "/data"}}))).await;
    claims.send("MODIFIED", &claim("data", "pv")).await;
    until(&*live, |view| view.pods().next().is_some() && reach(view) == [Reach::Host]).await;
    attachments.send("ADDED", &attachment("one", "a", "pv")).await;
    attachments.send("ADDED", &attachment("other", "a", "unused")).await;
    until(&*live, |view| detaching(view) == ["other"]).await;
    pods.send("DELETED", &with_claim("data")).await;
    until(&*live, |view| detaching(view) == ["one", "other"]).await;
    attachments.send("DELETED", &attachment("one", "a", "pv")).await;
    until(&*live, |view| detaching(view) == ["other"]).await;

    pods.send("ADDED", &with_claim("data")).await;
    until(&*live, |view| view.pods().next().is_some()).await;
    volumes.send("DELETED", &volume("pv", &json!({}))).await;
    until(&*live, |view| reach(view).is_empty()).await;
    volumes.send("ADDED", &volume("pv", &json!({}))).await;
    until(&*live, |view| reach(view) == [Reach::Anywhere]).await;
    claims.send("DELETED", &claim("data", "pv")).await;
    until(&*live, |view| reach(view).is_empty()).await;
}
