//! What happens to the nodes and pods of a model, change by change, for whoever draws it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spot_core::capacity::Class;
use spot_core::decision::is_control_plane;
use spot_core::model::{Model, World};
use spot_core::node::{NodeSnapshot, Uid};
use spot_core::pod::PodSnapshot;
use spot_core::view::Change;

use crate::cost::PriceBook;

/// A camera that is pointed at a model.
pub(super) struct Film {
    taken: Arc<Mutex<Taken>>,
}

/// All that was seen.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The nodes, in the order in which they came.
    pub(super) lanes: Vec<Lane>,
    /// What there was of everything, whenever it changed.
    pub(super) frames: Vec<Frame>,
    by_uid: BTreeMap<Uid, usize>,
    by_name: BTreeMap<Arc<str>, usize>,
    pods: BTreeMap<Uid, Place>,
    now: Frame,
}

/// A node from its first moment to its last.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) name: Arc<str>,
    pub(super) kind: Kind,
    pub(super) joined: Duration,
    pub(super) gone: Option<Duration>,
    /// How many pods were on it from each of these moments on.
    pub(super) pods: Vec<(Duration, usize)>,
    dollars: f64,
}

/// As what a node counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// One to be retired.
    OnDemand,
    Spot,
    /// One that stays what it is: of the control plane, reserved, or of a class that nobody knows.
    Other,
}

/// What there is at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Frame {
    /// Since the film began.
    pub(super) at: Duration,
    pub(super) on_demand: usize,
    pub(super) spot: usize,
    /// Pods that serve.
    pub(super) ready: usize,
    /// Pods that don't yet.
    pub(super) waiting: usize,
    /// What an hour of the nodes costs whose price is known.
    pub(super) dollars: f64,
}

/// Where a pod is, and how it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    lane: Option<usize>,
    ready: bool,
    waiting: bool,
}

impl Film {
    /// One that runs from now on.
    pub(super) fn of(model: &Model, prices: &PriceBook) -> Self {
        let taken = Arc::new(Mutex::new(Taken::default()));
        model.with(|world| {
            let mut first = lock(&taken);
            let view = Arc::clone(world.view());
            for node in view.nodes() {
                first.node(world, node, prices, Duration::ZERO);
            }
            view.pods().for_each(|pod| first.pod(pod, Duration::ZERO));
            first.cut(Duration::ZERO);
            drop(first);
            let (began, prices, reel) = (world.now().0, prices.clone(), Arc::clone(&taken));
            world.on_each_change(move |world, change, _version| {
                let at = world.now().0.saturating_sub(began);
                lock(&reel).take(world, change, &prices, at);
            });
        });
        Self { taken }
    }

    /// What it saw.
    pub(super) fn develop(&self) -> Taken {
        std::mem::take(&mut *lock(&self.taken))
    }
}

impl Taken {
    fn take(&mut self, world: &World, change: &Change, prices: &PriceBook, at: Duration) {
        match change {
            Change::Node(node) => self.node(world, node, prices, at),
            Change::NodeGone(uid) => self.node_gone(uid, at),
            Change::Pod(pod) => self.pod(pod, at),
            Change::PodGone(pod) => self.pod_gone(pod, at),
            Change::Budget(_)
            | Change::BudgetGone(_)
            | Change::DaemonSet(_)
            | Change::DaemonSetGone(_)
            | Change::Volume(_)
            | Change::Paused(_) => return,
        }
        self.cut(at);
    }

    fn node(&mut self, world: &World, node: &NodeSnapshot, prices: &PriceBook, at: Duration) {
        if self.by_uid.contains_key(&node.uid) {
            return;
        }
        let class = world.class_of_uid(node.uid.as_str()).unwrap_or(Class::Unknown);
        let kind = Kind::of(node, class);
        let dollars = prices.of(node).now(class).unwrap_or_default();
        let lane = self.lanes.len();
        self.by_uid.insert(node.uid.clone(), lane);
        self.by_name.insert(Arc::clone(&node.name), lane);
        let name = Arc::clone(&node.name);
        self.lanes.push(Lane { name, kind, joined: at, gone: None, pods: vec![(at, 0)], dollars });
        self.now.dollars += dollars;
        if let Some(nodes) = self.now.nodes_of(kind) {
            *nodes += 1;
        }
    }

    fn node_gone(&mut self, uid: &Uid, at: Duration) {
        let Some(lane) = self.by_uid.get(uid).and_then(|lane| self.lanes.get_mut(*lane)) else { return };
        if lane.gone.replace(at).is_none() {
            self.now.dollars -= lane.dollars;
            if let Some(nodes) = self.now.nodes_of(lane.kind) {
                *nodes -= 1;
            }
        }
    }

    fn pod(&mut self, pod: &PodSnapshot, at: Duration) {
        if !pod.is_movable() {
            self.pod_gone(pod, at);
            return;
        }
        let lane = pod.node.as_ref().and_then(|node| self.by_name.get(node)).copied();
        let place = Place { lane, ready: pod.ready, waiting: !pod.ready && pod.deletion.is_none() };
        let before = self.pods.insert(pod.uid.clone(), place.clone());
        if before.as_ref() != Some(&place) {
            if let Some(before) = before {
                self.count(&before, at, false);
            }
            self.count(&place, at, true);
        }
    }

    fn pod_gone(&mut self, pod: &PodSnapshot, at: Duration) {
        if let Some(before) = self.pods.remove(&pod.uid) {
            self.count(&before, at, false);
        }
    }

    /// Counts a pod there, or no longer.
    fn count(&mut self, place: &Place, at: Duration, comes: bool) {
        let step = |count: usize, by: usize| if comes { count + by } else { count.saturating_sub(by) };
        self.now.ready = step(self.now.ready, usize::from(place.ready));
        self.now.waiting = step(self.now.waiting, usize::from(place.waiting));
        if let Some(lane) = place.lane.and_then(|lane| self.lanes.get_mut(lane)) {
            let pods = step(lane.pods.last().map_or(0, |(_, pods)| *pods), 1);
            match lane.pods.last_mut() {
                Some((last, count)) if *last == at => *count = pods,
                _ => lane.pods.push((at, pods)),
            }
        }
    }

    /// Keeps what there is now, once for each moment.
    fn cut(&mut self, at: Duration) {
        self.now.at = at;
        match self.frames.last_mut() {
            Some(last) if last.at == at => *last = self.now,
            _ => self.frames.push(self.now),
        }
    }
}

impl Frame {
    const fn nodes_of(&mut self, kind: Kind) -> Option<&mut usize> {
        match kind {
            Kind::OnDemand => Some(&mut self.on_demand),
            Kind::Spot => Some(&mut self.spot),
            Kind::Other => None,
        }
    }
}

impl Kind {
    fn of(node: &NodeSnapshot, class: Class) -> Self {
        match class {
            _ if is_control_plane(node) => Self::Other,
            Class::OnDemand => Self::OnDemand,
            Class::Spot => Self::Spot,
            Class::Reserved | Class::Unknown => Self::Other,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::Other => "other",
        }
    }
}

/// A panic elsewhere leaves whole values in it.
fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use spot_core::model::Scenario;
    use spot_core::ports::Instant;

    use super::*;

    #[test]
    fn it_begins_with_what_there_is_and_follows_what_changes() {
        let model = Scenario::SpotAvailable.build(0, 3, 30);
        let film = Film::of(&model, &PriceBook::default());
        let (node, spot) = model.with(|world| {
            let is = |node: &NodeSnapshot, kind| {
                world.class_of(&node.name).is_some_and(|class| Kind::of(node, class) == kind)
            };
            let of = |kind| world.view().nodes().iter().find(|node| is(node, kind)).cloned();
            (of(Kind::OnDemand).expect("there are three"), of(Kind::Spot).expect("there is one"))
        });
        model.run_until(Instant(Duration::from_mins(1))).expect("nothing keeps it");
        model.with(|world| world.terminate_machine(&node.name));
        model.run_until(Instant(Duration::from_hours(1))).expect("nothing keeps it");
        let taken = film.develop();
        let first = taken.frames[0];
        assert_eq!((first.on_demand, first.spot, first.ready, first.waiting), (3, 1, 30, 0));
        let last = taken.frames.last().expect("something happened");
        assert_eq!((last.on_demand, last.ready, last.waiting), (2, 30, 0), "its pods came back");
        assert!(taken.frames.iter().any(|frame| frame.waiting > 0), "they were away meanwhile");
        assert!(taken.frames.is_sorted_by_key(|frame| frame.at));
        let lane = |name: &Arc<str>| taken.lanes.iter().find(|lane| lane.name == *name).expect("each node has one");
        let ended = lane(&node.name);
        assert!(ended.gone.is_some_and(|gone| gone >= Duration::from_mins(1)) && ended.pods[0].1 > 0);
        assert_eq!(ended.pods.last().map(|(_, pods)| *pods), Some(0));
        assert_eq!((lane(&spot.name).gone, lane(&spot.name).joined), (None, Duration::ZERO));
    }
}
