//! The one view that all watches and our own writes go into.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spot_core::error::{ErrorClass, PortError};
use spot_core::node::{NodeSnapshot, Uid};
use spot_core::view::{Change, Known, Revision, View};
use tokio::sync::watch;

/// The view, and who waits for it to change.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<State>,
    told: watch::Sender<Told>,
}

#[derive(Debug, Default)]
struct State {
    view: Arc<View>,
    /// Our own writes whose versions can't be compared and were not seen yet.
    unseen: BTreeMap<Uid, OwnWrite>,
    /// Counts writes and beginnings of lists, to tell which came first.
    moment: u64,
}

#[derive(Debug)]
struct OwnWrite {
    version: String,
    moment: u64,
}

#[derive(Clone, Debug, Default)]
struct Told {
    revision: Revision,
    /// Why there will be no more changes.
    ended: Option<Ended>,
}

#[derive(Clone, Debug)]
struct Ended {
    class: ErrorClass,
    why: String,
}

/// When a list began, or that a change is not from a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// A list that began at this moment.
    List(u64),
    /// A watch.
    Watch,
}

impl Board {
    /// An empty one, which will be told of these kinds.
    pub(crate) fn new(known: Known) -> Self {
        let state = State { view: Arc::new(View::knowing(known)), ..State::default() };
        Self { state: Mutex::new(state), told: watch::Sender::default() }
    }

    /// The view as it is now. While somebody holds it, the next change copies what it touches.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.lock().view)
    }

    /// A list begins now.
    pub(crate) fn list_begins(&self) -> u64 {
        let mut state = self.lock();
        state.moment += 1;
        state.moment
    }

    /// Takes in what was listed or watched, but no node that is older than the one shown.
    pub(crate) fn apply(&self, changes: impl IntoIterator<Item = Change>, origin: Origin) {
        let mut state = self.lock();
        for change in changes {
            let outdated = match &change {
                Change::Node(node) => state.is_stale(node, origin),
                Change::NodeGone(uid) => {
                    state.unseen.remove(uid);
                    false
                }
                Change::Pod(_)
                | Change::PodGone(_)
                | Change::Budget(_)
                | Change::BudgetGone(_)
                | Change::DaemonSet(_)
                | Change::DaemonSetGone(_)
                | Change::Volume(_)
                | Change::Paused(_) => false,
            };
            if !outdated {
                Arc::make_mut(&mut state.view).apply(change);
            }
        }
        self.tell(&state);
    }

    /// Takes in the answer to our own read or write of a node. A node that is not shown is not put back: it may be gone
    /// by now.
    pub(crate) fn answered(&self, node: &Arc<NodeSnapshot>) {
        let mut state = self.lock();
        let Some(shown) = state.view.node(node.uid.as_str()) else { return };
        match order(node, shown) {
            Some(Ordering::Less | Ordering::Equal) => return,
            Some(Ordering::Greater) => {}
            None => {
                state.moment += 1;
                let write = OwnWrite { version: node.resource_version.clone(), moment: state.moment };
                state.unseen.insert(node.uid.clone(), write);
            }
        }
        Arc::make_mut(&mut state.view).apply(Change::Node(Arc::clone(node)));
        self.tell(&state);
    }

    /// There will be no more changes. The first reason counts.
    pub(crate) fn end(&self, class: ErrorClass, why: impl Into<String>) {
        self.told.send_if_modified(|told| {
            let first = told.ended.is_none();
            if first {
                told.ended = Some(Ended { class, why: why.into() });
            }
            first
        });
    }

    /// Whether there will be no more changes.
    pub(crate) fn has_ended(&self) -> bool {
        self.told.borrow().ended.is_some()
    }

    /// Returns when there is a later revision than `seen`.
    pub(crate) async fn changed(&self, seen: Revision) -> Result<(), PortError> {
        let mut told = self.told.subscribe();
        let now = told.wait_for(|told| told.ended.is_some() || told.revision > seen).await;
        match now.map(|told| told.ended.clone()) {
            Ok(None) => Ok(()),
            Ok(Some(ended)) => Err(PortError::new(ended.class, ended.why)),
            Err(closed) => Err(PortError::new(ErrorClass::Transient, "the view is closed").caused_by(closed)),
        }
    }

    fn tell(&self, state: &State) {
        let revision = state.view.revision();
        self.told.send_if_modified(|told| std::mem::replace(&mut told.revision, revision) != revision);
    }

    /// A panic elsewhere can't leave the view half changed in a way that matters: each change is one call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the node shown is newer than this one.
    fn is_stale(&mut self, node: &NodeSnapshot, origin: Origin) -> bool {
        let Some(shown) = self.view.node(node.uid.as_str()) else { return false };
        match order(node, shown) {
            Some(Ordering::Less | Ordering::Equal) => return true,
            Some(Ordering::Greater) => return false,
            None => {}
        }
        let Some(own) = self.unseen.get(&node.uid) else { return false };
        let seen = own.version == node.resource_version;
        let listed_later = matches!(origin, Origin::List(moment) if moment > own.moment);
        if seen || listed_later {
            self.unseen.remove(&node.uid);
        }
        !seen && !listed_later
    }
}

/// Which version of a node is the later one, where that can be told: Kubernetes promises numbers since 1.35, and etcd
/// has always given them.
fn order(node: &NodeSnapshot, other: &NodeSnapshot) -> Option<Ordering> {
    let number = |node: &NodeSnapshot| node.resource_version.parse::<u128>();
    match (number(node), number(other)) {
        (Ok(one), Ok(other)) => Some(one.cmp(&other)),
        (Err(_), _) | (_, Err(_)) => None,
    }
}
