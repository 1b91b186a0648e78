//! A view of files that `kubectl get … -o yaml|json` wrote, for looking at a cluster that can't be reached.

mod item;
mod list;
mod plain;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::{iter, thread};

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use spot_core::node::Uid;
use spot_core::view::{Change, Known, View};

use self::item::{Item, Reader, Seen, Wrong};
use self::list::List;

/// What helps against a file of which nothing can be made.
pub const SAVE: &str = "save the objects with `kubectl get nodes,pods,pdb,daemonsets,pvc,pv -A -o yaml`";

/// The kinds that are read.
const KINDS: [&str; 6] =
    ["Node", "Pod", "PodDisruptionBudget", "DaemonSet", "PersistentVolumeClaim", "PersistentVolume"];

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
        // As an editor on Windows writes them.
        let text = if file.text.contains("\r\n") {
            Cow::Owned(file.text.replace("\r\n", "\n"))
        } else {
            Cow::Borrowed(file.text)
        };
        let documents = documents(file.name, &text)?;
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
    /// Which node has each name.
    names: BTreeMap<Arc<str>, Uid>,
    /// As many as the machine has cores.
    readers: Vec<Reader>,
}

impl Default for Saved {
    fn default() -> Self {
        let known = Known { pods: false, budgets: false, daemon_sets: false, claims: false, volumes: false };
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let readers = iter::repeat_with(Reader::default).take(cores).collect();
        let (changes, doubts, names) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { changes, doubts, has_nodes: false, known, names, readers }
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
        if kind.strip_suffix("List").is_some_and(|of| of.is_empty() || KINDS.contains(&of)) {
            return Err(place.not_an_object("it is a list in another list"));
        }
        if let Some(Seen { change, doubts }) = seen.map_err(|error| place.unreadable(error))? {
            if let Change::Node(node) = &change
                && let Some(before) = self.names.insert(Arc::clone(&node.name), node.uid.clone())
                && before != node.uid
            {
                let name = &node.name;
                self.doubts.push(format!("Node {name} is there twice, with two UIDs: it counts as two nodes"));
            }
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
#[derive(Default, Deserialize)]
struct Head<'f> {
    #[serde(borrow)]
    kind: Option<Cow<'f, str>>,
    /// None: there are none, not even `null`.
    #[serde(borrow, default, deserialize_with = "some")]
    items: Option<&'f RawValue>,
}

fn some<'de: 'f, 'f, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'f RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'f> Document<'f> {
    fn of_json(text: &'f RawValue) -> Result<Self, Wrong> {
        // What is no object has none of its keys twice.
        let head = if text.get().starts_with('{') { serde_json::from_str(text.get())? } else { Head::default() };
        let Head { kind: Some(kind), items } = head else {
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

    /// One with so many lines of its file before it.
    fn of_yaml(before: usize, text: &'f str) -> Result<Self, Wrong> {
        if let Some(List { frame, items }) = List::of(text)
            && let Ok(frame) = tree(&frame)
            && let Some(kind) = frame.get("kind").and_then(Value::as_str).filter(|kind| kind.ends_with("List"))
        {
            let items = items.into_iter().map(|(lines, item)| Item::Yaml(before + lines, item));
            return Ok(Self { kind: Some(kind.to_owned()), object: Content::List(items.collect()) });
        }
        match tree(text) {
            Ok(tree) => Ok(Self::of_tree(tree)),
            // On the lines on which it stands.
            Err(_) => Ok(Self::of_tree(tree(&format!("{}{text}", "\n".repeat(before)))?)),
        }
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
fn documents<'f>(file: &str, text: &'f str) -> Result<Vec<Document<'f>>, SavedError> {
    let wrong = |source| SavedError::Syntax { file: file.to_owned(), source };
    if text.trim_start().starts_with(['{', '[']) {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        let documents = documents.map(|text| Document::of_json(text?));
        return documents.collect::<Result<_, Wrong>>().map_err(wrong);
    }
    let documents = list::documents(text).into_iter();
    documents.map(|(before, document)| Document::of_yaml(before, document)).collect::<Result<_, Wrong>>().map_err(wrong)
}

/// A document of YAML.
fn tree(text: &str) -> Result<Value, Wrong> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        // The library says which of its options would have it ignored.
        let text = error.to_string();
        match text.split_once(", set DuplicateKeyPolicy") {
            Some((twice, _)) => format!("{twice}: write `---` between two lists that are put together").into(),
            None => error.into(),
        }
    })
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
