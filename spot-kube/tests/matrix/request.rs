//! What is asked of the API server, read strictly: what the real one would refuse, or silently ignore, is an error.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, request};
use serde_json::{Map, Value, json};
use spot_core::node::{NodeRef, Uid};
use spot_core::pod::PodRef;
use spot_core::ports::NodeChange;

use crate::patch;
use crate::store::{Kind, Selector};

/// The namespace and the name of the ConfigMap.
pub(crate) const MEMORY: (&str, &str) = ("ours", "memory");

/// A request that makes sense.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    List { kind: Kind, selector: Option<Selector> },
    Watch(Watch),
    GetNode(String),
    PatchNode { node: NodeRef, change: Box<NodeChange> },
    DeleteNode(NodeRef),
    Evict { pod: PodRef, grace: Option<Duration> },
    GetMemory,
    CreateMemory(Map<String, Value>),
    PatchMemory { version: String, data: Map<String, Value> },
    MayWeEvict,
}

/// A watch that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) kind: Kind,
    pub(crate) selector: Option<Selector>,
    /// The version of the last event that is known.
    pub(crate) after: u64,
    pub(crate) lasting: Duration,
}

/// What `DeleteOptions` hold.
struct Options {
    uid: Uid,
    version: Option<String>,
    grace: Option<Duration>,
}

impl Asked {
    /// Reads a request.
    pub(crate) fn read(head: &request::Parts, body: &str) -> Result<Self, String> {
        let query = Query::of(head.uri.query().unwrap_or_default())?;
        let path: Vec<&str> = head.uri.path().trim_start_matches('/').split('/').collect();
        let content = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if body.is_empty() != content.is_none() {
            return Err("a body comes with its type, and no body with none".to_owned());
        }
        let json = || expect(content, "application/json").and_then(|()| object(body));
        let merge = || expect(content, "application/merge-patch+json").and_then(|()| object(body));
        let memory = |namespace: &str| expect(Some(namespace), MEMORY.0);
        match (&head.method, &path[..]) {
            (&Method::GET, ["api", "v1", "nodes", name]) => query.end().map(|()| Self::GetNode((*name).to_owned())),
            (&Method::PATCH, ["api", "v1", "nodes", name]) => {
                query.managed()?;
                let (node, change) = patch::node(name, merge()?)?;
                Ok(Self::PatchNode { node, change: Box::new(change) })
            }
            (&Method::DELETE, ["api", "v1", "nodes", name]) => {
                query.end()?;
                let Options { uid, version, grace: None } = options(json()?)? else {
                    return Err("a node has no grace period".to_owned());
                };
                Ok(Self::DeleteNode(NodeRef { name: (*name).into(), uid, resource_version: version }))
            }
            (&Method::POST, ["api", "v1", "namespaces", namespace, "pods", name, "eviction"]) => {
                query.end()?;
                eviction(namespace, name, json()?)
            }
            (&Method::GET, ["api", "v1", "namespaces", namespace, "configmaps", name]) => {
                memory(namespace)?;
                expect(Some(name), MEMORY.1)?;
                query.end().map(|()| Self::GetMemory)
            }
            (&Method::POST, ["api", "v1", "namespaces", namespace, "configmaps"]) => {
                memory(namespace)?;
                query.managed()?;
                let (version, data) = config_map(json()?)?;
                if version.is_some() {
                    Err("a new object has no version".to_owned())
                } else {
                    Ok(Self::CreateMemory(data))
                }
            }
            (&Method::PATCH, ["api", "v1", "namespaces", namespace, "configmaps", name]) => {
                memory(namespace)?;
                expect(Some(name), MEMORY.1)?;
                query.managed()?;
                let (version, data) = config_map(merge()?)?;
                Ok(Self::PatchMemory { version: version.ok_or("the memory is written on a version")?, data })
            }
            (&Method::POST, ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]) => {
                query.end()?;
                review(&json()?)
            }
            (&Method::GET, path) => collection(path, query, head),
            (method, path) => Err(format!("{method} of {path:?} is nothing that a planned migration needs")),
        }
    }
}

/// A list or a watch.
fn collection(path: &[&str], mut query: Query, head: &request::Parts) -> Result<Asked, String> {
    let kind = match path {
        ["api", "v1", "nodes"] => Kind::Nodes,
        ["api", "v1", "pods"] => Kind::Pods,
        ["apis", "policy", "v1", "poddisruptionbudgets"] => Kind::Budgets,
        ["apis", "apps", "v1", "daemonsets"] => Kind::DaemonSets,
        ["api", "v1", "namespaces", namespace, "configmaps"] if *namespace == MEMORY.0 => Kind::ConfigMaps,
        ["api", "v1", "persistentvolumeclaims"] => Kind::VolumeClaims,
        ["api", "v1", "persistentvolumes"] => Kind::Volumes,
        ["apis", "storage.k8s.io", "v1", "volumeattachments"] => Kind::Attachments,
        path => return Err(format!("no such path: {path:?}")),
    };
    let watch = query.take("watch");
    let of_list = if watch.is_some() { "" } else { "List" };
    let accept = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let metadata = format!("application/json;as=PartialObjectMetadata{of_list};g=meta.k8s.io;v=v1");
    match kind {
        Kind::DaemonSets => expect(accept, &metadata)?,
        _ if accept.is_some() => return Err(format!("{kind:?} are asked for as {accept:?}")),
        _ => {}
    }
    let selector = query.take("fieldSelector").map(|text| selector(kind, &text)).transpose()?;
    if kind == Kind::ConfigMaps && selector.is_none() {
        return Err("the right is for one ConfigMap alone".to_owned());
    }
    let Some(watch) = watch else {
        // Without a resourceVersion: a quorum read.
        expect(query.take("limit").as_deref(), "500")?;
        return query.end().map(|()| Asked::List { kind, selector });
    };
    expect(Some(&watch), "true")?;
    expect(query.take("allowWatchBookmarks").as_deref(), "true")?;
    let number = |text: Option<String>| text.and_then(|text| text.parse().ok());
    let after = number(query.take("resourceVersion")).ok_or("a watch goes on from a version")?;
    let lasting = number(query.take("timeoutSeconds")).ok_or("a watch says how long it lasts")?;
    query.end().map(|()| Asked::Watch(Watch { kind, selector, after, lasting: Duration::from_secs(lasting) }))
}

fn selector(kind: Kind, text: &str) -> Result<Selector, String> {
    let known = match kind {
        Kind::Pods => "spec.nodeName",
        _ => "metadata.name",
    };
    match text.split_once('=') {
        Some((field, value)) if field == known => Ok(Selector { field: field.to_owned(), value: value.to_owned() }),
        _ => Err(format!("field label not supported: {text}")),
    }
}

fn eviction(namespace: &str, name: &str, mut body: Map<String, Value>) -> Result<Asked, String> {
    equal(body.remove("apiVersion"), &json!("policy/v1"))?;
    equal(body.remove("kind"), &json!("Eviction"))?;
    equal(body.remove("metadata"), &json!({"name": name, "namespace": namespace}))?;
    let Some(Value::Object(how)) = body.remove("deleteOptions") else {
        return Err("an eviction without deleteOptions".to_owned());
    };
    nothing_in(&body)?;
    let Options { uid, version: None, grace } = options(how)? else {
        return Err("a pod changes all the time: its version is no condition".to_owned());
    };
    Ok(Asked::Evict { pod: PodRef { namespace: namespace.into(), name: name.into(), uid }, grace })
}

/// What deletes an object on conditions.
fn options(mut options: Map<String, Value>) -> Result<Options, String> {
    let Some(Value::Object(mut conditions)) = options.remove("preconditions") else {
        return Err("nothing is deleted without a precondition".to_owned());
    };
    let mut text = |field: &str| match conditions.remove(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("`{field}` is {other}")),
    };
    let uid = text("uid")?.ok_or("nothing is deleted without its UID")?;
    let version = text("resourceVersion")?;
    nothing_in(&conditions)?;
    let grace = options.remove("gracePeriodSeconds");
    let grace =
        grace.map(|grace| grace.as_u64().ok_or_else(|| format!("a grace period is not {grace}"))).transpose()?;
    nothing_in(&options)?;
    Ok(Options { uid: Uid::new(uid), version, grace: grace.map(Duration::from_secs) })
}

/// The version, where there is one, and the data of our ConfigMap.
fn config_map(mut body: Map<String, Value>) -> Result<(Option<String>, Map<String, Value>), String> {
    equal(body.remove("apiVersion"), &json!("v1"))?;
    equal(body.remove("kind"), &json!("ConfigMap"))?;
    let Some(Value::Object(mut metadata)) = body.remove("metadata") else { return Err("no metadata".to_owned()) };
    equal(metadata.remove("name"), &json!(MEMORY.1))?;
    equal(metadata.remove("namespace"), &json!(MEMORY.0))?;
    let version = metadata.remove("resourceVersion").and_then(|version| version.as_str().map(str::to_owned));
    nothing_in(&metadata)?;
    let Some(Value::Object(data)) = body.remove("data") else { return Err("no data".to_owned()) };
    nothing_in(&body)?;
    match data.values().find(|value| !value.is_string() && !value.is_null()) {
        Some(value) => Err(format!("the value of a ConfigMap is not {value}")),
        None => Ok((version, data)),
    }
}

/// The one review that the drain asks for: whether we may evict in a namespace.
fn review(body: &Map<String, Value>) -> Result<Asked, String> {
    let attributes = body.get("spec").and_then(|spec| spec.get("resourceAttributes"));
    let namespace = attributes.and_then(|attributes| attributes.get("namespace")).and_then(Value::as_str);
    let attributes = json!({
        "namespace": namespace.ok_or("a review without a namespace")?, "group": "", "resource": "pods",
        "subresource": "eviction", "verb": "create",
    });
    let expected = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    equal(Some(Value::Object(body.clone())), &expected).map(|()| Asked::MayWeEvict)
}

/// The parameters of a request, all of which must be taken.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Result<Self, String> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("no value: {pair}"))?;
            Ok((name.to_owned(), unescaped(value)?))
        });
        pairs.collect::<Result<_, String>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// A write that says whose fields they are, and nothing else.
    fn managed(mut self) -> Result<(), String> {
        expect(self.take("fieldManager").as_deref(), "spot-migrator")?;
        self.end()
    }

    fn end(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("unknown parameters: {:?}", self.0)) }
    }
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex: String = rest.by_ref().take(2).map(char::from).collect();
            bytes.push(u8::from_str_radix(&hex, 16).map_err(|error| format!("{text}: {error}"))?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

fn object(body: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(body).map_err(|error| format!("not an object: {error}"))
}

fn expect(found: Option<&str>, expected: &str) -> Result<(), String> {
    if found == Some(expected) { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
}

fn equal(found: Option<Value>, expected: &Value) -> Result<(), String> {
    match found {
        Some(found) if found == *expected => Ok(()),
        found => Err(format!("{found:?} instead of {expected}")),
    }
}

pub(crate) fn nothing_in(fields: &Map<String, Value>) -> Result<(), String> {
    if fields.is_empty() { Ok(()) } else { Err(format!("unknown fields: {fields:?}")) }
}
