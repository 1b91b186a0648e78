//! One object of a file, whichever way it is written, and who reads it.

use std::error::Error as StdError;
use std::sync::Arc;
use std::thread;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use spot_core::view::Change;
use spot_core::volume::VolumeChange;

use super::{list, plain};
use crate::snapshot::doubt::{self, Doubt};
use crate::snapshot::{self, Budget, Interner, Node, Object, Pod};

/// The text, or the tree, of one object.
#[derive(Debug)]
pub(super) enum Item<'f> {
    /// JSON.
    Json(&'f RawValue),
    /// An item of a list in YAML, and how many lines of its file are before it.
    Yaml(usize, &'f str),
    /// A tree: what is no long list.
    Tree(Value),
}

/// What an object says.
pub(super) struct Seen {
    pub(super) change: Change,
    /// What can't be read in it, though the rest can.
    pub(super) doubts: Vec<String>,
}

/// What is wrong with an item.
pub(super) type Wrong = Box<dyn StdError + Send + Sync>;

/// Of an object its kind, if it has one, and what it says, if that is of interest, or what is wrong with it.
pub(super) type Decoded = (Option<String>, Result<Option<Seen>, Wrong>);

/// Who reads one object after the other.
#[derive(Debug, Default)]
pub(super) struct Reader {
    texts: Interner,
    // Room for what is made on the way: to ask for it anew each time takes longer than to fill it.
    document: String,
    json: String,
}

/// Of an object, what it is.
#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Item<'_> {
    fn kind(&self) -> Option<String> {
        match self {
            // Another type of kind, or no object, is none.
            Self::Json(text) => serde_json::from_str::<Kind>(text.get()).map_or(None, |Kind { kind }| kind),
            Self::Yaml(_, text) => {
                let parsed = || serde_saphyr::from_str_with_options::<Kind>(&whole(0, text), super::options());
                list::kind(text).map(str::to_owned).or_else(|| parsed().map_or(None, |Kind { kind }| kind))
            }
            Self::Tree(tree) => tree.get("kind").and_then(Value::as_str).map(str::to_owned),
        }
    }
}

impl Reader {
    /// What an item says. One that does not say its kind is of this one, unless that is empty.
    pub(super) fn decoded(&mut self, item: &Item<'_>, of: &str) -> Decoded {
        let kind = item.kind().unwrap_or_else(|| of.to_owned());
        if kind.is_empty() {
            return (None, Ok(None));
        }
        let seen = self.seen(item, &kind);
        (Some(kind), seen)
    }

    fn seen(&mut self, item: &Item<'_>, kind: &str) -> Result<Option<Seen>, Wrong> {
        let sure = |change| Seen { change, doubts: Vec::new() };
        Ok(Some(match kind {
            "Node" => {
                let object: Node = self.typed(item)?;
                let doubts = told(kind, &object, doubt::of_node(&object));
                Seen { change: Change::Node(Arc::new(snapshot::node(object)?)), doubts }
            }
            "Pod" => {
                let object: Pod = self.typed(item)?;
                let doubts = told(kind, &object, doubt::of_pod(&object));
                Seen { change: Change::Pod(Arc::new(snapshot::pod(object, &mut self.texts)?)), doubts }
            }
            "PodDisruptionBudget" => {
                let object: Budget = self.typed(item)?;
                let doubts = told(kind, &object, doubt::of_budget(&object));
                Seen { change: Change::Budget(Arc::new(snapshot::budget(object)?)), doubts }
            }
            "DaemonSet" => sure(Change::DaemonSet(snapshot::daemon_set(&self.typed(item)?)?)),
            "PersistentVolumeClaim" => {
                let claim = snapshot::volume_claim(self.typed(item)?, &mut self.texts)?;
                sure(Change::Volume(VolumeChange::Claim(Arc::new(claim))))
            }
            "PersistentVolume" => {
                let volume = snapshot::volume(self.typed(item)?, &mut self.texts)?;
                sure(Change::Volume(VolumeChange::Volume(Arc::new(volume))))
            }
            _ => return Ok(None),
        }))
    }

    fn typed<T: DeserializeOwned>(&mut self, item: &Item<'_>) -> Result<T, Wrong> {
        Ok(match item {
            // The item is named: its lines are none of the file.
            Item::Json(text) => serde_json::from_str(text.get()).map_err(|error| without_place(&error))?,
            Item::Yaml(before, text) => self.yaml(*before, text)?,
            Item::Tree(tree) => T::deserialize(tree)?,
        })
    }

    /// An item of YAML. What is not plain the parser reads, and says what is wrong with it, and where in the file.
    fn yaml<T: DeserializeOwned>(&mut self, before: usize, text: &str) -> Result<T, Wrong> {
        let Self { document, json, .. } = self;
        list::document(text, document);
        if let Some(object) = plain::json(document, json).and_then(|()| serde_json::from_str(json).ok()) {
            return Ok(object);
        }
        match serde_saphyr::from_str_with_options(document, super::options()) {
            Ok(object) => Ok(object),
            Err(_of_a_part) => Ok(serde_saphyr::from_str_with_options(&whole(before, text), super::options())?),
        }
    }
}

/// All of an item, on the lines on which it stands in its file.
fn whole(before: usize, item: &str) -> String {
    format!("{}  {}", "\n".repeat(before), item.strip_prefix("- ").unwrap_or(item))
}

fn without_place(error: &serde_json::Error) -> Wrong {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).into()
}

/// What all of these say, in their order; each reader reads a part of them.
pub(super) fn decoded(items: &[Item<'_>], of: &str, readers: &mut [Reader]) -> Vec<Decoded> {
    let share = items.len().div_ceil(readers.len().max(1)).max(1);
    thread::scope(|scope| {
        let read = |reader: &mut Reader, items: &[Item<'_>]| {
            items.iter().map(|item| reader.decoded(item, of)).collect::<Vec<_>>()
        };
        let shares = readers.iter_mut().zip(items.chunks(share));
        let shares: Vec<_> = shares.map(|(reader, items)| scope.spawn(move || read(reader, items))).collect();
        let joined =
            shares.into_iter().map(|share| share.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    })
}

/// What can't be read of an object, and what comes of it.
fn told(kind: &str, object: &impl Object, doubts: Vec<Doubt>) -> Vec<String> {
    let Some(metadata) = object.metadata() else { return Vec::new() };
    let tell = |Doubt { key, fault, counts_as }| {
        format!("{kind} {}: `{key}` can't be read: {fault}; {counts_as}", metadata.title())
    };
    doubts.into_iter().map(tell).collect()
}
