//! The cluster's memory, in one ConfigMap whose keys and values a person can read and edit.

use std::collections::BTreeMap;

use http::Method;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use spot_core::claim::BackOff;
use spot_core::error::PortError;
use spot_core::memory::{Exhaustion, Memory, Retired};
use spot_core::node::Effect;
use spot_core::placement::{MOST_SHAPES, Shape};
use spot_core::ports::Instant;

use crate::patch::MANAGER;
use crate::requests::{Call, Needs, Requests, escaped};
use crate::snapshot::{ConfigMap, Object};
use crate::watch::PauseAt;

/// `true` pauses.
const PAUSED: &str = "paused";

/// Since and until when spot counts as exhausted.
const EXHAUSTED: &str = "exhausted";

/// The nodes that a day has seen retired.
const RETIRED: &str = "retired";

/// Shapes of spot nodes, oldest first.
const SHAPES: &str = "shapes";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExhaustedText {
    since: String,
    until: String,
    count: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetiredText {
    day: String,
    nodes: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeText {
    labels: BTreeMap<String, String>,
    taints: Vec<(String, String, String)>,
}

/// The ConfigMap, or the merge patch of it: other keys, labels and annotations stay as they are.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigMapText<'m> {
    api_version: &'static str,
    kind: &'static str,
    metadata: MetadataText<'m>,
    data: BTreeMap<&'static str, Option<String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataText<'m> {
    name: &'m str,
    namespace: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'m str>,
}

/// What a ConfigMap remembers. What can't be read of it is forgotten, with a warning.
pub(crate) fn memory(object: &ConfigMap) -> Memory {
    let text = |key| object.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
    Memory {
        exhausted: text(EXHAUSTED).and_then(|text| understood(EXHAUSTED, text, exhaustion(text))),
        retired: text(RETIRED).and_then(|text| understood(RETIRED, text, retired(text))),
        paused: paused(object),
        shapes: text(SHAPES).and_then(|text| understood(SHAPES, text, shapes(text))).unwrap_or_default(),
        version: object.resource_version().map(str::to_owned),
    }
}

/// Whether a ConfigMap pauses us.
pub(crate) fn paused(object: &ConfigMap) -> bool {
    let Some(text) = object.data.as_ref().and_then(|data| data.get(PAUSED)) else { return false };
    let paused = match text.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" | "" => Some(false),
        _ => None,
    };
    understood(PAUSED, text, paused).unwrap_or_default()
}

/// What the ConfigMap remembers; nothing, where there is none.
pub(crate) async fn recall(requests: &Requests, at: &PauseAt, by: Instant) -> Result<Memory, PortError> {
    let call = Call::get(Needs { verb: "get", resource: "configmaps" }, object(at), uri(at));
    let reply = requests.read(&call, by).await?;
    if reply.status().is_not_found() {
        return Ok(Memory::default());
    }
    if !reply.is_success() {
        return Err(reply.error(&call));
    }
    Ok(memory(&reply.object(&call)?))
}

/// The request that writes it, if it is as it was read.
pub(crate) fn write(at: &PauseAt, memory: &Memory) -> Call {
    let mut data = BTreeMap::from([
        (PAUSED, memory.paused.then(|| "true".to_owned())),
        (EXHAUSTED, memory.exhausted.as_ref().map(exhaustion_text)),
        (RETIRED, memory.retired.map(retired_text)),
        (SHAPES, (!memory.shapes.is_empty()).then(|| shapes_text(&memory.shapes))),
    ]);
    if memory.version.is_none() {
        data.retain(|_, text| text.is_some());
    }
    let text = ConfigMapText {
        api_version: "v1",
        kind: "ConfigMap",
        metadata: MetadataText {
            name: &at.config_map,
            namespace: &at.namespace,
            resource_version: memory.version.as_deref(),
        },
        data,
    };
    let body = json(&text);
    if memory.version.is_some() {
        let needs = Needs { verb: "patch", resource: "configmaps" };
        let uri = format!("{}?fieldManager={MANAGER}", uri(at));
        let mut call = Call::new(Method::PATCH, needs, object(at), uri, body.into_bytes());
        call.content_type = "application/merge-patch+json";
        return call;
    }
    let needs = Needs { verb: "create", resource: "configmaps" };
    let uri = format!("{}?fieldManager={MANAGER}", path(at));
    Call::new(Method::POST, needs, object(at), uri, body.into_bytes())
}

fn exhaustion(text: &str) -> Option<Exhaustion> {
    let text: ExhaustedText = serde_json::from_str(text).ok()?;
    let back_off = BackOff { until: text.until.parse().ok()?, count: text.count };
    Some(Exhaustion { since: text.since.parse::<Timestamp>().ok()?, back_off })
}

fn exhaustion_text(exhaustion: &Exhaustion) -> String {
    let Exhaustion { since, back_off: BackOff { until, count } } = exhaustion;
    json(&ExhaustedText { since: since.to_string(), until: until.to_string(), count: *count })
}

fn retired(text: &str) -> Option<Retired> {
    let text: RetiredText = serde_json::from_str(text).ok()?;
    Some(Retired { day: text.day.parse::<Date>().ok()?, nodes: text.nodes })
}

fn retired_text(retired: Retired) -> String {
    json(&RetiredText { day: retired.day.to_string(), nodes: retired.nodes })
}

fn shapes(text: &str) -> Option<Vec<Shape>> {
    let texts: Vec<ShapeText> = serde_json::from_str(text).ok()?;
    let shape = |ShapeText { labels, taints }| {
        let taints = taints.into_iter().map(|(key, value, effect)| Some((key, value, Effect::parse(&effect)?)));
        Some(Shape::new(labels, taints.collect::<Option<Vec<_>>>()?))
    };
    // A person may have written more.
    texts.into_iter().take(MOST_SHAPES).map(shape).collect()
}

fn shapes_text(shapes: &[Shape]) -> String {
    let text = |shape: &Shape| {
        let taints = shape.taints().iter();
        let taints = taints.map(|(key, value, effect)| (key.clone(), value.clone(), effect.as_str().to_owned()));
        ShapeText { labels: shape.labels().clone(), taints: taints.collect() }
    };
    json(&shapes.iter().map(text).collect::<Vec<_>>())
}

fn understood<T>(key: &str, text: &str, value: Option<T>) -> Option<T> {
    if value.is_none() {
        tracing::warn!(key, text, "the ConfigMap holds what can't be read; it counts as absent");
    }
    value
}

/// Writing plain structs of strings and numbers to JSON can't fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn path(at: &PauseAt) -> String {
    format!("/api/v1/namespaces/{}/configmaps", escaped(&at.namespace))
}

fn uri(at: &PauseAt) -> String {
    format!("{}/{}", path(at), escaped(&at.config_map))
}

fn object(at: &PauseAt) -> String {
    format!("{}/{}", at.namespace, at.config_map)
}
