//! The only place where fields of Kubernetes objects are read.
//!
//! Objects are decoded into structs that hold the fields that are read and no others, so that container
//! specifications, images and managed fields are never kept. Watches, single answers and saved files all come
//! through here.

mod budget;
pub(crate) mod doubt;
mod node;
mod placement;
mod pod;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use spot_core::error::plain;
use spot_core::node::Uid;
use spot_core::placement::{Needs, Terms};

pub(crate) use budget::{Budget, budget};
pub(crate) use node::{Node, node};
pub(crate) use pod::{Pod, pod};
pub(crate) use volume::{Attachment, Volume, VolumeClaim, attachment, volume, volume_claim};

/// Why an object can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name} {fault}")]
pub(crate) struct Unreadable {
    kind: &'static str,
    name: String,
    fault: String,
}

/// The metadata that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    api_version: Option<String>,
    kind: Option<String>,
    uid: Option<String>,
    controller: Option<bool>,
}

/// A condition of a status.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: Option<String>,
    status: Option<String>,
    last_transition_time: Option<String>,
}

/// An object of which only the metadata are read: a DaemonSet.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Named {
    metadata: Option<Metadata>,
}

/// The ConfigMap.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConfigMap {
    metadata: Option<Metadata>,
    /// Its texts by key.
    pub(crate) data: Option<BTreeMap<String, String>>,
}

/// An object with metadata.
pub(crate) trait Object {
    /// Its metadata; an object without is no Kubernetes object.
    fn metadata(&self) -> Option<&Metadata>;

    /// The version of the object that this is.
    fn resource_version(&self) -> Option<&str> {
        self.metadata()?.resource_version.as_deref()
    }
}

impl Object for Node {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

impl Object for Pod {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

impl Object for Budget {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

impl Object for Named {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

impl Object for ConfigMap {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

impl Metadata {
    /// The identity, if there is one.
    pub(crate) fn uid(&self) -> Option<Uid> {
        self.uid.as_deref().map(Uid::new)
    }

    /// The name, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// What a log calls the object.
    pub(crate) fn title(&self) -> String {
        let name = plain(self.name.as_deref().unwrap_or("without a name"));
        let namespace = self.namespace.as_deref().map(plain);
        namespace.map_or_else(|| name.to_string(), |namespace| format!("{namespace}/{name}"))
    }

    /// Namespace and name, if there are both.
    pub(crate) fn address(&self) -> Option<(&str, &str)> {
        Some((self.namespace.as_deref()?, self.name.as_deref()?))
    }
}

/// Makes one of the many equal texts and demands that pods and volumes hold.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    texts: BTreeSet<Arc<str>>,
    needs: BTreeSet<Arc<Needs>>,
    terms: BTreeSet<Arc<Terms>>,
}

impl Interner {
    /// Beyond this many of a kind it begins anew: names of nodes come and go.
    const MOST: usize = 16_384;

    fn text(&mut self, text: &str) -> Arc<str> {
        match self.texts.get(text) {
            Some(known) => Arc::clone(known),
            None => kept(&mut self.texts, Arc::from(text)),
        }
    }

    fn needs(&mut self, needs: Needs) -> Arc<Needs> {
        match self.needs.get(&needs) {
            Some(known) => Arc::clone(known),
            None => kept(&mut self.needs, Arc::new(needs)),
        }
    }

    fn terms(&mut self, terms: Terms) -> Arc<Terms> {
        match self.terms.get(&terms) {
            Some(known) => Arc::clone(known),
            None => kept(&mut self.terms, Arc::new(terms)),
        }
    }
}

fn kept<T: Ord + ?Sized>(known: &mut BTreeSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    if known.len() >= Interner::MOST {
        known.clear();
    }
    known.insert(Arc::clone(&new));
    new
}

/// The identity of a DaemonSet.
pub(crate) fn daemon_set(object: &Named) -> Result<Uid, Unreadable> {
    let metadata = object.metadata.clone().unwrap_or_default();
    Subject::of("daemonset", &metadata).uid(&metadata)
}

/// Which object is being read, for errors.
struct Subject {
    kind: &'static str,
    name: String,
}

impl Subject {
    fn of(kind: &'static str, metadata: &Metadata) -> Self {
        Self { kind, name: metadata.title() }
    }

    fn unreadable(&self, fault: impl Into<String>) -> Unreadable {
        Unreadable { kind: self.kind, name: self.name.clone(), fault: fault.into() }
    }

    fn required<'m>(&self, field: &str, value: Option<&'m String>) -> Result<&'m str, Unreadable> {
        match value {
            Some(value) if !value.is_empty() => Ok(value),
            Some(_) | None => Err(self.unreadable(format!("has no metadata.{field}"))),
        }
    }

    fn uid(&self, metadata: &Metadata) -> Result<Uid, Unreadable> {
        self.required("uid", metadata.uid.as_ref()).map(Uid::new)
    }

    fn created_at(&self, metadata: &Metadata) -> Result<Timestamp, Unreadable> {
        let text = self.required("creationTimestamp", metadata.creation_timestamp.as_ref())?;
        self.time("metadata.creationTimestamp", text)
    }

    fn deleted_at(&self, metadata: &Metadata) -> Result<Option<Timestamp>, Unreadable> {
        let text = metadata.deletion_timestamp.as_deref();
        text.map(|text| self.time("metadata.deletionTimestamp", text)).transpose()
    }

    fn time(&self, field: &str, text: &str) -> Result<Timestamp, Unreadable> {
        text.parse().map_err(|_| self.unreadable(format!("has a {field} that is not a time: {text:?}")))
    }
}

fn ready(conditions: Option<&[Condition]>) -> Option<&Condition> {
    conditions?.iter().find(|condition| condition.kind.as_deref() == Some("Ready"))
}

fn is_true(condition: &Condition) -> bool {
    condition.status.as_deref() == Some("True")
}
