//! What the API server keeps: every object as it is, and every event in the order of one version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use spot_core::model::World;
use spot_core::ports::Instant;
use spot_core::view::Change;
use spot_core::volume::VolumeChange;
use tokio::sync::watch;

use crate::object;

/// How much later than an answer the news of a change come: watches are fed from a cache.
pub(crate) const LAG: Duration = Duration::from_millis(20);

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Nodes,
    Pods,
    Budgets,
    DaemonSets,
    ConfigMaps,
    VolumeClaims,
    Volumes,
    Attachments,
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) at: Instant,
    kind: Kind,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) what: &'static str,
    pub(crate) object: Value,
}

/// Only objects whose field has this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) field: String,
    pub(crate) value: String,
}

impl Selector {
    fn selects(&self, object: &Value) -> bool {
        let pointer = format!("/{}", self.field.replace('.', "/"));
        object.pointer(&pointer).and_then(Value::as_str) == Some(&self.value)
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<(Kind, String), Value>,
    events: Vec<Event>,
    /// Events up to this version can't be told any more, by kind.
    compacted: BTreeMap<Kind, u64>,
}

/// The store. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    state: Arc<Mutex<State>>,
    told: Arc<watch::Sender<u64>>,
}

impl Store {
    /// Has an empty world put all that it makes into this store.
    pub(crate) fn follow(&self, world: &mut World) {
        let store = self.clone();
        world.on_each_change(move |world, change, version| store.take(world, change, version));
    }

    fn take(&self, world: &World, change: &Change, version: u64) {
        let now = world.now();
        let put = |kind, key: String, object| self.put(kind, &key, object, version, now);
        let remove = |kind, key: String| self.remove(kind, &key, version, now);
        match change {
            Change::Node(node) => put(Kind::Nodes, node.uid.to_string(), object::node(node)),
            Change::NodeGone(uid) => remove(Kind::Nodes, uid.to_string()),
            Change::Pod(pod) => put(Kind::Pods, pod.uid.to_string(), object::pod(pod, version)),
            Change::PodGone(pod) => remove(Kind::Pods, pod.uid.to_string()),
            Change::Budget(budget) => put(Kind::Budgets, budget.reference().to_string(), object::budget(budget)),
            Change::BudgetGone(budget) => remove(Kind::Budgets, budget.to_string()),
            Change::DaemonSet(uid) => {
                put(Kind::DaemonSets, uid.to_string(), object::daemon_set(uid.as_str(), version));
            }
            Change::DaemonSetGone(uid) => remove(Kind::DaemonSets, uid.to_string()),
            Change::Volume(VolumeChange::Claim(claim)) => {
                put(Kind::VolumeClaims, claim.claim.to_string(), object::volume_claim(claim, version));
            }
            Change::Volume(VolumeChange::ClaimGone(claim)) => remove(Kind::VolumeClaims, claim.to_string()),
            Change::Volume(VolumeChange::Volume(volume)) => {
                put(Kind::Volumes, volume.name.to_string(), object::volume(volume, version));
            }
            Change::Volume(VolumeChange::VolumeGone(name)) => remove(Kind::Volumes, name.to_string()),
            Change::Volume(VolumeChange::Attached(attachment)) => {
                put(Kind::Attachments, attachment.name.to_string(), object::attachment(attachment, version));
            }
            Change::Volume(VolumeChange::Detached(name)) => remove(Kind::Attachments, name.to_string()),
            // Whoever writes the ConfigMap puts it here as a whole.
            Change::Paused(_) => {}
        }
    }

    /// An object as it is now.
    pub(crate) fn put(&self, kind: Kind, key: &str, object: Value, version: u64, at: Instant) {
        let mut state = self.state.lock().unwrap();
        let before = state.objects.insert((kind, key.to_owned()), object.clone());
        let what = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.tell(&mut state, Event { version, at, kind, what, object });
    }

    fn remove(&self, kind: Kind, key: &str, version: u64, at: Instant) {
        let mut state = self.state.lock().unwrap();
        let mut object = state.objects.remove(&(kind, key.to_owned())).expect("what goes was there");
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.tell(&mut state, Event { version, at, kind, what: "DELETED", object });
    }

    fn tell(&self, state: &mut State, event: Event) {
        assert!(state.events.last().is_none_or(|last| last.version < event.version), "versions rise: {event:?}");
        self.told.send_replace(event.version);
        state.events.push(event);
    }

    /// The objects of a kind as they are.
    pub(crate) fn list(&self, kind: Kind, selector: Option<&Selector>) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let objects = state.objects.iter().filter(|((of, _), _)| *of == kind).map(|(_, object)| object);
        objects.filter(|object| selector.is_none_or(|selector| selector.selects(object))).cloned().collect()
    }

    /// The object of this name.
    pub(crate) fn named(&self, kind: Kind, namespace: Option<&str>, name: &str) -> Option<Value> {
        let is_meant = |object: &Value| {
            object["metadata"]["name"] == name && namespace.is_none_or(|at| object["metadata"]["namespace"] == at)
        };
        self.list(kind, None).into_iter().find(is_meant)
    }

    /// The first event after that version.
    pub(crate) fn event_after(&self, kind: Kind, selector: Option<&Selector>, version: u64) -> Option<Event> {
        let state = self.state.lock().unwrap();
        let later = state.events.partition_point(|event| event.version <= version);
        let mut events = state.events.iter().skip(later).filter(|event| event.kind == kind);
        events.find(|event| selector.is_none_or(|selector| selector.selects(&event.object))).cloned()
    }

    /// Forgets what happened to a kind before that version.
    pub(crate) fn compact(&self, kind: Kind, version: u64) {
        self.state.lock().unwrap().compacted.insert(kind, version);
    }

    /// Whether it is forgotten what happened after that version.
    pub(crate) fn is_compacted(&self, kind: Kind, version: u64) -> bool {
        self.state.lock().unwrap().compacted.get(&kind).is_some_and(|compacted| version < *compacted)
    }

    /// Tells of each event.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }
}
