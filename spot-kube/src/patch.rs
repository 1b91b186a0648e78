//! One patch for everything that changes on a node.

use std::collections::BTreeMap;

use http::Method;
use serde::{Serialize, Serializer};
use spot_core::node::{NodeRef, Taint, key};
use spot_core::ports::{Edit, NodeChange};

use crate::claim;
use crate::requests::{Call, Needs, escaped};

/// Who owns the fields that we write.
pub(crate) const MANAGER: &str = "spot-migrator";

/// A JSON merge patch: null takes off, and what is absent stays. UID and resourceVersion in it are conditions.
#[derive(Serialize)]
struct Patch<'p> {
    metadata: MetadataPatch<'p>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<SpecPatch<'p>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataPatch<'p> {
    uid: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'p str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'static str, Option<&'static str>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, Option<String>>,
}

#[derive(Serialize)]
struct SpecPatch<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    unschedulable: Option<Cordon>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taints: Option<TaintsPatch<'p>>,
}

/// `true`, or nothing at all: `false` is not what an untouched node has.
struct Cordon(bool);

impl Serialize for Cordon {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 { serializer.serialize_bool(true) } else { serializer.serialize_none() }
    }
}

/// The list is one value: it is replaced as a whole.
struct TaintsPatch<'p>(&'p [Taint]);

impl Serialize for TaintsPatch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() {
            serializer.serialize_none()
        } else {
            serializer.collect_seq(self.0.iter().map(TaintPatch::of))
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaintPatch<'p> {
    key: &'p str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'p str,
    effect: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_added: Option<String>,
}

impl<'p> TaintPatch<'p> {
    fn of(taint: &'p Taint) -> Self {
        let time_added = taint.time_added.map(|time| time.to_string());
        Self { key: &taint.key, value: &taint.value, effect: taint.effect.as_str(), time_added }
    }
}

/// The request that changes a node.
pub(crate) fn call(node: &NodeRef, change: &NodeChange) -> Call {
    let uri = format!("/api/v1/nodes/{}?fieldManager={MANAGER}", escaped(&node.name));
    let needs = Needs { verb: "patch", resource: "nodes" };
    let mut call = Call::new(Method::PATCH, needs, &*node.name, uri, body(node, change));
    call.content_type = "application/merge-patch+json";
    call
}

fn body(node: &NodeRef, change: &NodeChange) -> Vec<u8> {
    let mut labels = BTreeMap::new();
    match change.mark {
        Edit::Keep => {}
        Edit::Set(()) => {
            labels.insert(key::SELECTED, Some("true"));
        }
        Edit::Remove => {
            labels.insert(key::SELECTED, None);
        }
    }
    if change.remove_old_mark {
        labels.insert(key::COST_MANAGER_SELECTED, None);
    }
    let mut annotations = BTreeMap::new();
    put(&mut annotations, key::CLAIM, &change.claim, claim::encode);
    put(&mut annotations, key::BACK_OFF, &change.back_off, |back_off| claim::encode_back_off(*back_off));
    let unschedulable = change.unschedulable.map(Cordon);
    let taints = change.taints.as_deref().map(TaintsPatch);
    let has_spec = unschedulable.is_some() || taints.is_some();
    let patch = Patch {
        metadata: MetadataPatch {
            uid: node.uid.as_str(),
            resource_version: node.resource_version.as_deref(),
            labels,
            annotations,
        },
        spec: has_spec.then_some(SpecPatch { unschedulable, taints }),
    };
    // Writing plain structs of strings to JSON can't fail.
    serde_json::to_vec(&patch).unwrap_or_default()
}

/// Puts an edited value into the patch.
fn put<T>(
    annotations: &mut BTreeMap<&'static str, Option<String>>,
    key: &'static str,
    edit: &Edit<T>,
    text: impl FnOnce(&T) -> String,
) {
    let value = match edit {
        Edit::Keep => return,
        Edit::Set(value) => Some(text(value)),
        Edit::Remove => None,
    };
    annotations.insert(key, value);
}
