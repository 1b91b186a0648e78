//! The server itself: it takes exactly what is ours, and refuses what the real one refuses, or would ignore in silence.

use http::Request;
use serde_json::{Value, json};
use spot_core::model::Process;

use crate::cluster::two_nodes;
use crate::process::in_its_time;
use crate::server::{ApiServer, Connection};

/// A request by hand.
#[derive(Clone)]
struct Sent {
    method: &'static str,
    uri: String,
    /// Its content type, or, where it has no body, what it accepts.
    of: Option<&'static str>,
    body: Option<Value>,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

impl Sent {
    fn get(uri: &str) -> Self {
        Self { method: "GET", uri: uri.to_owned(), of: None, body: None }
    }

    fn with(method: &'static str, uri: &str, of: &'static str, body: Value) -> Self {
        Self { method, uri: uri.to_owned(), of: Some(of), body: Some(body) }
    }

    fn at(&self, uri: &str) -> Self {
        Self { uri: uri.to_owned(), ..self.clone() }
    }

    fn of(&self, of: &'static str) -> Self {
        Self { of: Some(of), ..self.clone() }
    }

    /// With another value at this place of its body.
    fn but(&self, pointer: &str, value: Value) -> Self {
        let mut other = self.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        other.body.as_mut().unwrap().pointer_mut(parent).unwrap()[field] = value;
        other
    }

    /// Without what is at this place of its body.
    fn without(&self, pointer: &str) -> Self {
        let mut other = self.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = other.body.as_mut().unwrap().pointer_mut(parent).unwrap();
        parent.as_object_mut().unwrap().remove(field).unwrap();
        other
    }

    /// The code of the answer of a server of its own.
    fn answered_by(&self, server: &ApiServer) -> u16 {
        let answer = async {
            let process: Process = server.model.process();
            let client = Connection::of(server, &process).await.client();
            let mut request = Request::builder().method(self.method).uri(&self.uri);
            if let Some(of) = self.of {
                request = request.header(if self.body.is_some() { "content-type" } else { "accept" }, of);
            }
            let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
            let request = request.body(kube::client::Body::from(body.into_bytes())).unwrap();
            client.send(request).await.unwrap().status().as_u16()
        };
        in_its_time(&server.model, answer).unwrap()
    }
}

/// A request of each kind that the adapter makes, for the nodes and pods of the cluster.
struct Ours {
    patch: Sent,
    delete: Sent,
    evict: Sent,
    create: Sent,
    list: Sent,
    watch: Sent,
    daemons: Sent,
}

impl Ours {
    fn of(server: &ApiServer) -> Self {
        let (node, pod) = server.model.with(|world| {
            let pod = world.view().pods_on("od-2").find(|pod| pod.name.starts_with("web")).unwrap().reference();
            (world.node("od-2").unwrap().at_version(), pod)
        });
        let (uid, version) = (node.uid.as_str(), node.resource_version.unwrap());
        let taint = json!({"key": "spot-migrator.io/leaving", "value": "1", "effect": "PreferNoSchedule"});
        let patch = json!({
            "metadata": {
                "uid": uid, "resourceVersion": version, "labels": {"spot-migrator.io/selected-for-deletion": "true"},
            },
            "spec": {"unschedulable": true, "taints": [taint]},
        });
        let evict = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": &*pod.name, "namespace": &*pod.namespace},
            "deleteOptions": {"gracePeriodSeconds": 5, "preconditions": {"uid": pod.uid.as_str()}},
        });
        let create = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory", "namespace": "ours"},
            "data": {"paused": "true"},
        });
        let delete = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
        let pod_uri = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        Self {
            patch: Sent::with("PATCH", "/api/v1/nodes/od-2?fieldManager=spot-migrator", MERGE, patch),
            delete: Sent::with("DELETE", "/api/v1/nodes/od-2", JSON, delete),
            evict: Sent::with("POST", &format!("{pod_uri}/eviction"), JSON, evict),
            create: Sent::with("POST", "/api/v1/namespaces/ours/configmaps?fieldManager=spot-migrator", JSON, create),
            list: Sent::get("/api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Dod-2"),
            watch: Sent::get("/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=1"),
            daemons: Sent::get("/apis/apps/v1/daemonsets?limit=500")
                .of("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
        }
    }
}

#[test]
fn what_the_adapter_sends_is_taken() {
    let ours = Ours::of(&two_nodes());
    let sent = [
        (&ours.patch, 200),
        (&ours.delete, 200),
        (&ours.evict, 201),
        (&ours.create, 201),
        (&ours.list, 200),
        (&ours.watch, 200),
        (&ours.daemons, 200),
    ];
    for (sent, code) in sent {
        let server = two_nodes();
        assert_eq!(sent.answered_by(&server), code, "{}", sent.uri);
        assert_eq!(server.wrong(), Vec::<String>::new(), "{}", sent.uri);
    }
}

#[test]
fn what_the_real_server_would_refuse_or_ignore_is_refused_and_noted() {
    let Ours { patch, delete, evict, create, list, watch, daemons } = Ours::of(&two_nodes());
    let uri = |sent: &Sent, from: &str, to: &str| {
        assert!(sent.uri.contains(from));
        sent.at(&sent.uri.replace(from, to))
    };
    let options = evict.body.as_ref().unwrap()["deleteOptions"].clone();
    let claim = "/metadata/annotations";
    let altered = [
        uri(&patch, "?fieldManager=spot-migrator", ""),
        patch.of("application/strategic-merge-patch+json"),
        patch.without("/metadata/uid"),
        patch.without("/metadata/resourceVersion"),
        patch.but("/metadata/labels/other", json!("true")),
        patch.but("/metadata/labels/spot-migrator.io~1selected-for-deletion", json!("false")),
        patch.but("/spec/unschedulable", json!("true")),
        patch.but("/spec/podCIDR", json!("10.0.0.0/24")),
        patch.but("/spec/taints/0/effect", json!("NoSchedules")),
        patch.but(claim, json!({"spot-migrator.io/claim": "{\"owner\":\"migrator\"}"})),
        patch.but(claim, json!({"other": "x"})),
        delete.without("/preconditions"),
        delete.without("/preconditions/uid"),
        delete.but("/precondition", json!({})),
        // As `kube::Api::evict` writes it.
        evict.without("/deleteOptions").but("/delete_options", options),
        evict.without("/deleteOptions/preconditions"),
        evict.but("/deleteOptions/preconditions/resourceVersion", json!("1")),
        evict.but("/metadata/name", json!("other")),
        evict.but("/apiVersion", json!("policy/v1beta1")),
        Sent { method: "DELETE", ..evict.at(evict.uri.trim_end_matches("/eviction")) },
        uri(&create, "?fieldManager=spot-migrator", ""),
        uri(&create, "/ours/", "/default/"),
        create.but("/data/nodes", json!(2)),
        create.but("/metadata/resourceVersion", json!("1")),
        uri(&list, "limit=500", "limit=500&resourceVersion=0"),
        uri(&list, "limit=500&", ""),
        uri(&list, "spec.nodeName", "spec.node"),
        uri(&watch, "allowWatchBookmarks=true&", ""),
        uri(&watch, "&resourceVersion=1", ""),
        uri(&watch, "timeoutSeconds=290&", ""),
        Sent { of: None, ..daemons },
        Sent::get("/api/v1/namespaces/ours/configmaps?limit=500"),
        Sent::get("/api/v1/secrets?limit=500"),
    ];
    for sent in altered {
        let server = two_nodes();
        let before = server.model.with(|world| world.version());
        let told = format!("{} {} {:?} {:?}", sent.method, sent.uri, sent.of, sent.body);
        assert_eq!(sent.answered_by(&server), 400, "{told}");
        assert_eq!(server.wrong().len(), 1, "{told}");
        assert_eq!(server.model.with(|world| world.version()), before, "{told}");
    }
}

#[test]
fn what_is_asked_of_another_version_or_object_is_refused_without_effect() {
    let Ours { patch, delete, evict, create, .. } = Ours::of(&two_nodes());
    let elsewhere = |sent: &Sent| sent.at(&sent.uri.replace("od-2", "od-9"));
    let loose = patch.without("/spec/taints").without("/metadata/resourceVersion");
    let refused = [
        (patch.but("/metadata/resourceVersion", json!("1")), 409),
        (patch.but("/metadata/uid", json!("other")), 409),
        (loose.but("/metadata/uid", json!("other")), 422),
        (elsewhere(&patch), 404),
        (delete.but("/preconditions/resourceVersion", json!("1")), 409),
        (delete.but("/preconditions/uid", json!("other")), 409),
        (elsewhere(&delete), 404),
        (evict.but("/deleteOptions/preconditions/uid", json!("other")), 409),
        (
            Sent {
                method: "PATCH",
                ..create
                    .at("/api/v1/namespaces/ours/configmaps/memory?fieldManager=spot-migrator")
                    .of(MERGE)
                    .but("/metadata/resourceVersion", json!("1"))
            },
            404,
        ),
    ];
    for (sent, code) in refused {
        let server = two_nodes();
        let before = server.model.with(|world| world.version());
        let told = format!("{} {} {:?}", sent.method, sent.uri, sent.body);
        assert_eq!(sent.answered_by(&server), code, "{told}");
        assert_eq!(server.wrong(), Vec::<String>::new(), "{told}");
        assert_eq!(server.model.with(|world| world.version()), before, "{told}");
    }
    let server = two_nodes();
    assert_eq!(create.answered_by(&server), 201);
    assert_eq!(create.answered_by(&server), 409, "it exists already");
}
