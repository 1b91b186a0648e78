//! One object of a file, whichever way it is written, and the type that reads it.

use std::error::Error as StdError;
use std::num::NonZeroUsize;
use std::thread;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{list, plain};
use crate::snapshot::{Budget, Named, Node, Pod, Volume, VolumeClaim};

/// The text, or the tree, of one object.
#[derive(Debug)]
pub(super) enum Item<'f> {
    /// JSON.
    Json(&'f RawValue),
    /// An item of a list in YAML.
    Yaml(&'f str),
    /// A tree: what is no long list.
    Tree(Value),
}

/// An object as the type that reads it.
pub(super) enum Object {
    Node(Box<Node>),
    Pod(Box<Pod>),
    Budget(Box<Budget>),
    DaemonSet(Box<Named>),
    Claim(Box<VolumeClaim>),
    Volume(Box<Volume>),
    /// It is of no interest.
    Other,
}

/// What is wrong with an item.
pub(super) type Wrong = Box<dyn StdError + Send + Sync>;

/// An object with its kind, or what is wrong with it; no kind, if it does not say.
pub(super) type Decoded = (Option<String>, Result<Object, Wrong>);

/// Room for what is made of an item on the way: to ask for it anew for each takes longer than to fill it.
#[derive(Debug, Default)]
pub(super) struct Room {
    document: String,
    json: String,
}

/// Of an object, what it is.
#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Item<'_> {
    /// As the type that reads it. One that does not say its kind is of this one, unless that is empty.
    pub(super) fn decoded(&self, of: &str, room: &mut Room) -> Decoded {
        let said = match self {
            Self::Json(text) => match serde_json::from_str::<Kind>(text.get()) {
                Ok(Kind { kind }) => kind,
                // Another type of kind, or no object.
                Err(_) => None,
            },
            Self::Yaml(text) => list::kind(text).map(str::to_owned),
            Self::Tree(tree) => tree.get("kind").and_then(Value::as_str).map(str::to_owned),
        };
        let kind = said.unwrap_or_else(|| of.to_owned());
        if kind.is_empty() {
            return (None, Ok(Object::Other));
        }
        let object = match &*kind {
            "Node" => self.typed(room).map(Object::Node),
            "Pod" => self.typed(room).map(Object::Pod),
            "PodDisruptionBudget" => self.typed(room).map(Object::Budget),
            "DaemonSet" => self.typed(room).map(Object::DaemonSet),
            "PersistentVolumeClaim" => self.typed(room).map(Object::Claim),
            "PersistentVolume" => self.typed(room).map(Object::Volume),
            _ => Ok(Object::Other),
        };
        (Some(kind), object)
    }

    fn typed<T: DeserializeOwned>(&self, room: &mut Room) -> Result<Box<T>, Wrong> {
        Ok(Box::new(match self {
            Self::Json(text) => serde_json::from_str(text.get())?,
            Self::Yaml(text) => room.yaml(text)?,
            Self::Tree(tree) => T::deserialize(tree)?,
        }))
    }
}

impl Room {
    /// An item of YAML. What is not plain the parser reads, and says what is wrong with it.
    fn yaml<T: DeserializeOwned>(&mut self, text: &str) -> Result<T, Wrong> {
        let Self { document, json } = self;
        list::document(text, document);
        let plain = plain::json(document, json).and_then(|()| serde_json::from_str(json).ok());
        Ok(match plain {
            Some(object) => object,
            None => serde_saphyr::from_str_with_options(document, super::options())?,
        })
    }
}

/// All of these, in their order, by as many threads as the machine has cores.
pub(super) fn decoded(items: &[Item<'_>], of: &str) -> Vec<Decoded> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = items.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let decode = |items: &[Item<'_>]| {
            let mut room = Room::default();
            items.iter().map(|item| item.decoded(of, &mut room)).collect::<Vec<_>>()
        };
        let shares: Vec<_> = items.chunks(share).map(|items| scope.spawn(move || decode(items))).collect();
        let joined =
            shares.into_iter().map(|share| share.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    })
}
