//! How changes reach those who watch: at once, or late.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;

use crate::error::PortError;
use crate::node::{NodeRef, NodeSnapshot};
use crate::pod::PodSnapshot;
use crate::ports::{Instant, Live, Scope};
use crate::view::{Change, Revision, View};

use super::process::{Process, ProcessId};
use super::record::{Answer, Call};
use super::world::{Event, World};

/// Who watches.
#[derive(Default)]
pub(super) struct Watches {
    emitted: u64,
    /// Those who see all of the truth at once.
    shared: Vec<Waker>,
    private: BTreeMap<u64, Watch>,
}

#[cfg(feature = "test-util")]
impl Watches {
    /// How many watches there are, and waits for a change.
    pub(super) fn waiting(&self) -> usize {
        let private = self.private.values().map(|watch| 1 + watch.wakers.len()).sum::<usize>();
        self.shared.len() + private
    }
}

/// One who sees less than all, or later.
struct Watch {
    process: ProcessId,
    scope: Scope,
    since: u64,
    view: Arc<View>,
    wakers: Vec<Waker>,
}

impl Watch {
    fn take(&mut self, change: Change, to_wake: &mut Vec<Waker>) {
        if self.concerns(&change) && !self.is_stale(&change) {
            Arc::make_mut(&mut self.view).apply(change);
            to_wake.append(&mut self.wakers);
        }
    }

    fn concerns(&self, change: &Change) -> bool {
        let Scope::Node(name) = &self.scope else { return true };
        match change {
            Change::Node(node) => *node.name == **name,
            Change::Pod(pod) | Change::PodGone(pod) => pod.node.as_deref() == Some(name),
            Change::NodeGone(_)
            | Change::Budget(_)
            | Change::BudgetGone(_)
            | Change::DaemonSet(_)
            | Change::DaemonSetGone(_)
            | Change::Volume(_)
            | Change::Paused(_) => true,
        }
    }

    /// Whether an own write showed a later version already.
    fn is_stale(&self, change: &Change) -> bool {
        let Change::Node(node) = change else { return false };
        self.view.node(node.uid.as_str()).is_some_and(|seen| version(seen) > version(node))
    }
}

fn version(node: &NodeSnapshot) -> u64 {
    // the world's own versions are all numbers
    node.resource_version.parse().unwrap_or(0)
}

impl World {
    /// Makes a change known.
    pub(super) fn emit(&mut self, change: Change) {
        Arc::make_mut(&mut self.truth).apply(change.clone());
        self.show_to_hooks(&change);
        self.to_wake.append(&mut self.watches.shared);
        if self.watches.private.is_empty() {
            return;
        }
        self.watches.emitted += 1;
        let emitted = self.watches.emitted;
        match self.settings.view_lag {
            Duration::ZERO => self.show(emitted, &change),
            lag => self.after(lag, Event::Show(emitted, change)),
        }
    }

    /// Lets those see a change who watched when it happened.
    pub(super) fn show(&mut self, emitted: u64, change: &Change) {
        for watch in self.watches.private.values_mut().filter(|watch| watch.since < emitted) {
            watch.take(change.clone(), &mut self.to_wake);
        }
    }

    /// Lets a process see what it wrote itself.
    pub(super) fn show_own(&mut self, process: ProcessId, node: &Arc<NodeSnapshot>) {
        for watch in self.watches.private.values_mut().filter(|watch| watch.process == process) {
            watch.take(Change::Node(Arc::clone(node)), &mut self.to_wake);
        }
    }

    fn watch(&mut self, process: ProcessId, scope: Scope) -> Option<u64> {
        if scope == Scope::Cluster && self.settings.view_lag.is_zero() {
            return None;
        }
        let id = self.watches.private.keys().next_back().map_or(0, |last| last + 1);
        let view = match &scope {
            Scope::Cluster => Arc::clone(&self.truth),
            Scope::Node(name) => Arc::new(self.part(name)),
        };
        let since = self.watches.emitted;
        self.watches.private.insert(id, Watch { process, scope, since, view, wakers: Vec::new() });
        Some(id)
    }

    /// The view of one node.
    fn part(&self, name: &str) -> View {
        let mut view = View::default();
        let nodes = self.truth.nodes().iter().filter(|node| *node.name == *name);
        let changes = nodes
            .map(|node| Change::Node(Arc::clone(node)))
            .chain(self.truth.pods_on(name).map(|pod| Change::Pod(Arc::clone(pod))))
            .chain(self.budgets.iter().map(|budget| Change::Budget(Arc::clone(&budget.snapshot))))
            .chain(self.daemon_sets().into_iter().map(Change::DaemonSet))
            .chain([Change::Paused(self.memory.paused)]);
        changes.for_each(|change| view.apply(change));
        view
    }

    fn seen(&self, watch: Option<u64>) -> &Arc<View> {
        watch.and_then(|id| self.watches.private.get(&id)).map_or(&self.truth, |watch| &watch.view)
    }

    fn poll_changed(&mut self, watch: Option<u64>, seen: Revision, waker: &Waker) -> Poll<()> {
        if self.seen(watch).revision() > seen {
            return Poll::Ready(());
        }
        let wakers = match watch.and_then(|id| self.watches.private.get_mut(&id)) {
            Some(watch) => &mut watch.wakers,
            None => &mut self.watches.shared,
        };
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        Poll::Pending
    }
}

/// A view that follows the world.
pub(super) struct ModelLive {
    process: Process,
    watch: Option<u64>,
}

impl ModelLive {
    pub(super) fn open(process: &Process, world: &mut World, scope: Scope) -> Self {
        Self { process: process.clone(), watch: world.watch(process.id(), scope) }
    }
}

impl Drop for ModelLive {
    fn drop(&mut self) {
        if let Some(id) = self.watch {
            self.process.model.with(|world| world.watches.private.remove(&id));
        }
    }
}

#[async_trait]
impl Live for ModelLive {
    fn view(&self) -> Arc<View> {
        self.process.model.with(|world| Arc::clone(world.seen(self.watch)))
    }

    async fn latest_pods(&self, node: &NodeRef, by: Instant) -> Result<Vec<Arc<PodSnapshot>>, PortError> {
        let name = Arc::clone(&node.name);
        let effect = move |world: &mut World| {
            let pods: Vec<_> = world.truth.pods_on(&name).map(Arc::clone).collect();
            let movable = pods.iter().filter(|pod| world.is_movable(pod)).map(|pod| pod.reference()).collect();
            Ok((pods, Answer::Pods(movable)))
        };
        self.process.call(Call::LatestPods(node.clone()), by, effect).await
    }

    async fn paused(&self, _by: Instant) -> Result<bool, PortError> {
        Ok(self.process.model.with(|world| world.memory().paused))
    }

    async fn changed(&self, seen: Revision) -> Result<(), PortError> {
        let model = &self.process.model;
        poll_fn(|context| model.with(|world| world.poll_changed(self.watch, seen, context.waker()))).await;
        Ok(())
    }
}
