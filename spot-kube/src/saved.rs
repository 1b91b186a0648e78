//! A view of files that `kubectl get … -o yaml|json` wrote, for looking at a cluster that can't be reached.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use spot_core::view::{Change, Known, View};
use spot_core::volume::VolumeChange;

use crate::snapshot::doubt::{self, Doubt};
use crate::snapshot::{self, Interner, Object};

/// What helps against a file of which nothing can be made.
pub const SAVE: &str = "save the objects with `kubectl get nodes,pods,pdb,daemonsets,pvc,pv -A -o yaml`";

/// The most YAML nodes (maps, lists, texts) in a file: those of some 50,000 pods.
const MOST_NODES: usize = 20_000_000;

/// The most bytes of YAML text in a file.
const MOST_BYTES: usize = 512 * 1024 * 1024;

/// A file's name, for errors, and its text.
#[derive(Clone, Copy, Debug)]
pub struct SavedFile<'f> {
    /// What errors call it.
    pub name: &'f str,
    /// All of it.
    pub text: &'f str,
}

/// What files hold.
#[derive(Debug)]
pub struct Read {
    /// The view that they make together.
    pub view: View,
    /// What can't be read in it, though the rest can: on what, and what comes of it.
    pub doubts: Vec<String>,
}

/// Why files are no view.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// A file is neither JSON nor YAML.
    #[error("{file}: neither JSON nor YAML; {SAVE}")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong, and where.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A document or an item is no Kubernetes object.
    #[error("{file}: {place} is no Kubernetes object: {fault}; {SAVE}")]
    NotAnObject {
        /// The file.
        file: String,
        /// Which document or item, counted from 1.
        place: String,
        /// What it lacks.
        fault: &'static str,
    },
    /// An object can't be used.
    #[error("{file}: {place} can't be used; {SAVE}")]
    Unreadable {
        /// The file.
        file: String,
        /// Which document or item, counted from 1.
        place: String,
        /// What is wrong with it.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// No file holds a node.
    #[error("{files}: not a list of nodes; {SAVE}")]
    NoNodes {
        /// The files.
        files: String,
    },
}

/// The view that these files make together. A kind that none of them holds is unknown to it; other kinds are ignored.
///
/// # Errors
/// The first thing that can't be read, with the file and its place in it; no nodes at all.
pub fn read(files: &[SavedFile<'_>]) -> Result<Read, SavedError> {
    let mut saved = Saved::default();
    for file in files {
        let documents = documents(file)?;
        let several = documents.len() > 1;
        for (index, document) in documents.into_iter().enumerate() {
            let number = several.then_some(index + 1);
            saved.document(Place { file: file.name, number, item: None }, document)?;
        }
    }
    if !saved.has_nodes {
        let files = files.iter().map(|file| file.name).collect::<Vec<_>>().join(", ");
        return Err(SavedError::NoNodes { files });
    }
    let mut view = View::knowing(saved.known);
    for change in saved.changes {
        view.apply(change);
    }
    Ok(Read { view, doubts: saved.doubts })
}

/// What was read so far.
struct Saved {
    changes: Vec<Change>,
    doubts: Vec<String>,
    has_nodes: bool,
    known: Known,
    texts: Interner,
}

impl Default for Saved {
    fn default() -> Self {
        let known = Known { pods: false, budgets: false, daemon_sets: false, claims: false, volumes: false };
        Self { changes: Vec::new(), doubts: Vec::new(), has_nodes: false, known, texts: Interner::default() }
    }
}

/// Where something stands.
#[derive(Clone, Copy)]
struct Place<'f> {
    file: &'f str,
    /// Of the document, where there are several.
    number: Option<usize>,
    /// Its number in the document, where that is a list.
    item: Option<usize>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number, self.item) {
            (None, None) => write!(f, "the document"),
            (Some(number), None) => write!(f, "document {number}"),
            (None, Some(item)) => write!(f, "item {item}"),
            (Some(number), Some(item)) => write!(f, "document {number}, item {item}"),
        }
    }
}

impl Place<'_> {
    fn not_an_object(self, fault: &'static str) -> SavedError {
        SavedError::NotAnObject { file: self.file.to_owned(), place: self.to_string(), fault }
    }

    fn unreadable(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> SavedError {
        SavedError::Unreadable { file: self.file.to_owned(), place: self.to_string(), source: source.into() }
    }

    /// The object as the type that reads it.
    fn typed<T: DeserializeOwned>(self, object: Value) -> Result<(Self, T), SavedError> {
        match serde_json::from_value(object) {
            Ok(typed) => Ok((self, typed)),
            Err(error) => Err(self.unreadable(error)),
        }
    }
}

impl Saved {
    fn document(&mut self, place: Place<'_>, mut document: Value) -> Result<(), SavedError> {
        let Some(kind) = document.get("kind").and_then(Value::as_str).map(str::to_owned) else {
            return Err(place.not_an_object("it has no `kind`"));
        };
        let Some(of) = kind.strip_suffix("List") else { return self.object(place, &kind, document) };
        self.know(of);
        let items = match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            Some(Value::Null) => Vec::new(),
            Some(_) | None => return Err(place.not_an_object("it is a list without `items`")),
        };
        for (index, item) in items.into_iter().enumerate() {
            let place = Place { item: Some(index + 1), ..place };
            // The items of a typed list may leave out what they are.
            let kind = item.get("kind").and_then(Value::as_str).unwrap_or(of).to_owned();
            if kind.is_empty() {
                return Err(place.not_an_object("it has no `kind`"));
            }
            self.object(place, &kind, item)?;
        }
        Ok(())
    }

    fn know(&mut self, kind: &str) {
        match kind {
            "Node" => self.has_nodes = true,
            "Pod" => self.known.pods = true,
            "PodDisruptionBudget" => self.known.budgets = true,
            "DaemonSet" => self.known.daemon_sets = true,
            "PersistentVolumeClaim" => self.known.claims = true,
            "PersistentVolume" => self.known.volumes = true,
            _ => {}
        }
    }

    fn object(&mut self, place: Place<'_>, kind: &str, object: Value) -> Result<(), SavedError> {
        self.know(kind);
        let change = match kind {
            "Node" => {
                let (place, object) = place.typed(object)?;
                self.doubt(kind, &object, doubt::of_node(&object));
                Change::Node(Arc::new(snapshot::node(object).map_err(|error| place.unreadable(error))?))
            }
            "Pod" => {
                let (place, object) = place.typed(object)?;
                self.doubt(kind, &object, doubt::of_pod(&object));
                let pod = snapshot::pod(object, &mut self.texts).map_err(|error| place.unreadable(error))?;
                Change::Pod(Arc::new(pod))
            }
            "PodDisruptionBudget" => {
                let (place, object) = place.typed(object)?;
                self.doubt(kind, &object, doubt::of_budget(&object));
                Change::Budget(Arc::new(snapshot::budget(object).map_err(|error| place.unreadable(error))?))
            }
            "DaemonSet" => {
                let (place, object) = place.typed(object)?;
                Change::DaemonSet(snapshot::daemon_set(&object).map_err(|error| place.unreadable(error))?)
            }
            "PersistentVolumeClaim" => {
                let (place, object) = place.typed(object)?;
                let claim = snapshot::volume_claim(object, &mut self.texts).map_err(|error| place.unreadable(error))?;
                Change::Volume(VolumeChange::Claim(Arc::new(claim)))
            }
            "PersistentVolume" => {
                let (place, object) = place.typed(object)?;
                let volume = snapshot::volume(object, &mut self.texts).map_err(|error| place.unreadable(error))?;
                Change::Volume(VolumeChange::Volume(Arc::new(volume)))
            }
            _ => return Ok(()),
        };
        self.changes.push(change);
        Ok(())
    }

    fn doubt(&mut self, kind: &str, object: &impl Object, doubts: Vec<Doubt>) {
        let Some(metadata) = object.metadata() else { return };
        let title = metadata.title();
        let say =
            |Doubt { key, fault, counts_as }| format!("{kind} {title}: `{key}` can't be read: {fault}; {counts_as}");
        self.doubts.extend(doubts.into_iter().map(say));
    }
}

/// The documents of a file.
fn documents(file: &SavedFile<'_>) -> Result<Vec<Value>, SavedError> {
    let wrong = |source| SavedError::Syntax { file: file.name.to_owned(), source };
    if file.text.trim_start().starts_with(['{', '[']) {
        let documents = serde_json::Deserializer::from_str(file.text).into_iter::<Value>();
        return documents.collect::<Result<_, _>>().map_err(|error| wrong(error.into()));
    }
    // kubectl writes no anchors, so an alias can only be there to make a small file large.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MOST_NODES,
            max_events: 2 * MOST_NODES,
            max_total_scalar_bytes: MOST_BYTES,
            max_aliases: 0,
        },
    };
    serde_saphyr::from_multiple_with_options(file.text, options).map_err(|error| wrong(error.into()))
}
