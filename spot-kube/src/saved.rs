//! A view of files that `kubectl get … -o yaml|json` wrote, for looking at a cluster that can't be reached.

mod item;
mod list;
mod plain;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::num::NonZeroUsize;
use std::{iter, thread};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use spot_core::view::{Change, Known, View};

use self::item::{Item, Reader, Seen, Wrong};
use self::list::List;

/// What helps against a file of which nothing can be made.
pub const SAVE: &str = "save the objects with `kubectl get nodes,pods,pdb,daemonsets,pvc,pv -A -o yaml`";

/// How many items are decoded before they are looked at: what is decoded takes more room than what is kept.
const AT_ONCE: usize = 4_096;

/// The most YAML nodes (maps, lists, texts) in a document that is no long list: those of some 50,000 pods.
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
            saved.document(Place { file: file.name, number, item: None }, &document)?;
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
    /// As many as the machine has cores.
    readers: Vec<Reader>,
}

impl Default for Saved {
    fn default() -> Self {
        let known = Known { pods: false, budgets: false, daemon_sets: false, claims: false, volumes: false };
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let readers = iter::repeat_with(Reader::default).take(cores).collect();
        Self { changes: Vec::new(), doubts: Vec::new(), has_nodes: false, known, readers }
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

    fn unreadable(self, source: impl Into<Wrong>) -> SavedError {
        SavedError::Unreadable { file: self.file.to_owned(), place: self.to_string(), source: source.into() }
    }
}

impl Saved {
    fn document(&mut self, place: Place<'_>, document: &Document<'_>) -> Result<(), SavedError> {
        let Document { kind, object } = document;
        let Some(kind) = kind else { return Err(place.not_an_object("it has no `kind`")) };
        let items = match object {
            Content::Object(object) => {
                let (_, seen) = Reader::default().decoded(object, kind);
                return self.object(place, kind, seen);
            }
            Content::List(items) => items,
            Content::NoItems => return Err(place.not_an_object("it is a list without `items`")),
        };
        let of = kind.strip_suffix("List").unwrap_or_default();
        self.know(of);
        for (begun, some) in (0..).step_by(AT_ONCE).zip(items.chunks(AT_ONCE)) {
            for (index, (kind, seen)) in item::decoded(some, of, &mut self.readers).into_iter().enumerate() {
                let place = Place { item: Some(begun + index + 1), ..place };
                let Some(kind) = kind else { return Err(place.not_an_object("it has no `kind`")) };
                self.object(place, &kind, seen)?;
            }
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

    fn object(&mut self, place: Place<'_>, kind: &str, seen: Result<Option<Seen>, Wrong>) -> Result<(), SavedError> {
        self.know(kind);
        if let Some(Seen { change, doubts }) = seen.map_err(|error| place.unreadable(error))? {
            self.changes.push(change);
            self.doubts.extend(doubts);
        }
        Ok(())
    }
}

/// A document, as far as it has been read.
struct Document<'f> {
    kind: Option<String>,
    object: Content<'f>,
}

enum Content<'f> {
    Object(Item<'f>),
    List(Vec<Item<'f>>),
    /// A list without items.
    NoItems,
}

/// Of a document in JSON, what tells how to go on.
#[derive(Deserialize)]
struct Head<'f> {
    #[serde(borrow)]
    kind: Option<Cow<'f, str>>,
    #[serde(borrow)]
    items: Option<&'f RawValue>,
}

impl<'f> Document<'f> {
    fn of_json(text: &'f RawValue) -> Result<Self, Wrong> {
        let Ok(Head { kind: Some(kind), items }) = serde_json::from_str(text.get()) else {
            return Ok(Self::of_tree(serde_json::from_str(text.get())?));
        };
        let kind = kind.into_owned();
        let object = match items.map(|items| serde_json::from_str::<Option<Vec<&RawValue>>>(items.get())) {
            _ if !kind.ends_with("List") => Content::Object(Item::Json(text)),
            Some(Ok(items)) => Content::List(items.unwrap_or_default().into_iter().map(Item::Json).collect()),
            Some(Err(_)) | None => Content::NoItems,
        };
        Ok(Self { kind: Some(kind), object })
    }

    fn of_tree(mut tree: Value) -> Self {
        let kind = tree.get("kind").and_then(Value::as_str).map(str::to_owned);
        if !kind.as_ref().is_some_and(|kind| kind.ends_with("List")) {
            return Self { kind, object: Content::Object(Item::Tree(tree)) };
        }
        let object = match tree.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Content::List(items.into_iter().map(Item::Tree).collect()),
            Some(Value::Null) => Content::List(Vec::new()),
            Some(_) | None => Content::NoItems,
        };
        Self { kind, object }
    }
}

/// The documents of a file.
fn documents<'f>(file: &SavedFile<'f>) -> Result<Vec<Document<'f>>, SavedError> {
    let wrong = |source| SavedError::Syntax { file: file.name.to_owned(), source };
    if file.text.trim_start().starts_with(['{', '[']) {
        let documents = serde_json::Deserializer::from_str(file.text).into_iter::<&RawValue>();
        let documents = documents.map(|text| Document::of_json(text?));
        return documents.collect::<Result<_, Wrong>>().map_err(wrong);
    }
    if let Some(List { frame, items }) = List::of(file.text)
        && let Ok(frame) = tree(&frame)
        && let Some(kind) = frame.get("kind").and_then(Value::as_str).filter(|kind| kind.ends_with("List"))
    {
        let object = Content::List(items.into_iter().map(Item::Yaml).collect());
        return Ok(vec![Document { kind: Some(kind.to_owned()), object }]);
    }
    let trees: Vec<Value> =
        serde_saphyr::from_multiple_with_options(file.text, options()).map_err(|error| wrong(error.into()))?;
    Ok(trees.into_iter().map(Document::of_tree).collect())
}

/// A document of YAML.
fn tree(text: &str) -> Result<Value, Wrong> {
    Ok(serde_saphyr::from_str_with_options(text, options())?)
}

/// kubectl writes no anchors, so an alias can only be there to make a small file large.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MOST_NODES,
            max_events: 2 * MOST_NODES,
            max_total_scalar_bytes: MOST_BYTES,
            max_aliases: 0,
        },
    }
}
