//! The world's state, its clock and its calendar of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::claim::InstanceId;
use crate::error::PortError;
use crate::memory::Memory;
use crate::node::Uid;
use crate::ports::Instant;
use crate::view::{Change, View};

use super::admission::Budget;
use super::autoscaler::{Makes, Orders, Purchase};
use super::cloud::{Group, Instance, InstanceNo};
use super::controllers::Workload;
use super::executor::Halt;
use super::fleets::Fleets;
use super::live::Watches;
use super::nodes::NodeEntry;
use super::notices::Queue;
use super::pods::Pod;
use super::process::{Fate, ProcessId};
use super::random::{SplitMix64, mix};
use super::record::{Answer, Call, CallRecord, Fact, FactRecord};
use super::scheduler::OpenNodes;
use super::settings::Settings;
use super::volumes::Detaching;

/// Where a node stands in the world's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) usize);

/// Where a pod stands in the world's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodId(pub(super) usize);

/// Where a workload stands in the world's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkloadId(pub(super) usize);

/// Where a budget stands in the world's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BudgetId(pub(super) usize);

/// Something done to the world from outside of it.
pub(super) type Script = Box<dyn FnOnce(&mut World) + Send>;

/// Looks at the world after each call.
pub(super) type Hook = Box<dyn FnMut(&World, &CallRecord) + Send>;

/// Something that is going to happen.
pub(super) enum Event {
    /// Pods are placed.
    Schedule,
    /// A pod's containers start.
    PodRunning(PodId),
    /// A pod becomes ready.
    PodReady(PodId),
    /// A pod's containers have ended.
    PodStopped(PodId),
    /// A workload's controller looks.
    Reconcile(WorkloadId),
    /// The controller of budgets looks.
    Budget(BudgetId),
    /// A machine that was ordered joins.
    Join(Purchase),
    /// A node becomes ready.
    NodeReady(NodeId),
    /// A node's cordon is turned into a taint, or back.
    CordonTaint(NodeId),
    /// A kubelet writes its Node.
    Heartbeat(NodeId),
    /// A machine has ended.
    MachineGone(InstanceNo),
    /// A Node object goes.
    ObjectGone(NodeId),
    /// A kubelet without a Node object registers again.
    Reregister(InstanceNo),
    /// So many spot machines can be bought from now on.
    SpotLeft(u32),
    /// A change is seen.
    Show(u64, Change),
    /// A fleet looks at what it has.
    Launch(String),
    /// A machine of a fleet joins.
    Joined(InstanceNo),
    /// A volume is detached.
    Detach(Arc<str>, Detaching),
    /// Something from outside.
    Script(Script),
}

struct Scheduled {
    at: Instant,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Everything there is.
pub struct World {
    pub(super) settings: Settings,
    pub(super) random: SplitMix64,
    now: Instant,
    pub(super) skew: SignedDuration,
    sequence: u64,
    version: u64,
    identities: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    timers: BTreeMap<(Instant, u64), Waker>,
    pub(super) to_wake: Vec<Waker>,
    pub(super) truth: Arc<View>,
    pub(super) watches: Watches,
    pub(super) nodes: Vec<NodeEntry>,
    pub(super) node_names: BTreeMap<Arc<str>, NodeId>,
    pub(super) node_uids: BTreeMap<Uid, NodeId>,
    pub(super) free_names: BTreeSet<Arc<str>>,
    pub(super) instances: Vec<Instance>,
    pub(super) instance_ids: BTreeMap<InstanceId, InstanceNo>,
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) fleets: Fleets,
    pub(super) pods: Vec<Pod>,
    pub(super) pod_uids: BTreeMap<Uid, PodId>,
    pub(super) pending: BTreeSet<PodId>,
    pub(super) scheduling: bool,
    pub(super) open: OpenNodes,
    pub(super) workloads: Vec<Workload>,
    pub(super) budgets: Vec<Budget>,
    /// What machines can be bought.
    pub(super) makes: Makes,
    pub(super) orders: Orders,
    pub(super) queue: Queue,
    pub(super) memory: Memory,
    /// Where each volume is attached.
    pub(super) volumes: BTreeMap<Arc<str>, Option<NodeId>>,
    calls: Vec<CallRecord>,
    facts: Vec<FactRecord>,
    processes: u32,
    killed: BTreeSet<ProcessId>,
    fates: BTreeMap<u64, Fate>,
    pub(super) fate: Fate,
    pub(super) hooks: Vec<Hook>,
    /// The Node object that the last write replaced.
    #[cfg(feature = "test-util")]
    pub(super) replaced: Option<Arc<crate::node::NodeSnapshot>>,
    /// How many facts there were when the latest call's effect began.
    #[cfg(feature = "test-util")]
    pub(super) effect_began: usize,
    #[cfg(feature = "test-util")]
    pub(super) lease: super::lease::Lease,
    #[cfg(feature = "test-util")]
    pub(super) plan: super::fault::Plan,
    pub(super) change_hooks: Vec<super::changes::ChangeHook>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}

impl World {
    pub(super) fn new(settings: Settings) -> Self {
        let mut world = Self {
            random: SplitMix64::new(settings.seed),
            now: Instant::default(),
            skew: SignedDuration::ZERO,
            sequence: 0,
            version: 0,
            identities: 0,
            events: BinaryHeap::new(),
            timers: BTreeMap::new(),
            to_wake: Vec::new(),
            truth: Arc::default(),
            watches: Watches::default(),
            nodes: Vec::new(),
            node_names: BTreeMap::new(),
            node_uids: BTreeMap::new(),
            free_names: BTreeSet::new(),
            instances: Vec::new(),
            instance_ids: BTreeMap::new(),
            groups: BTreeMap::new(),
            fleets: Fleets::default(),
            pods: Vec::new(),
            pod_uids: BTreeMap::new(),
            pending: BTreeSet::new(),
            scheduling: false,
            open: OpenNodes::default(),
            workloads: Vec::new(),
            budgets: Vec::new(),
            makes: Makes::plain(&settings.autoscaler),
            orders: Orders::default(),
            queue: Queue::default(),
            memory: Memory::default(),
            volumes: BTreeMap::new(),
            calls: Vec::new(),
            facts: Vec::new(),
            processes: 0,
            killed: BTreeSet::new(),
            fates: BTreeMap::new(),
            fate: Fate::Normal,
            hooks: Vec::new(),
            #[cfg(feature = "test-util")]
            replaced: None,
            #[cfg(feature = "test-util")]
            effect_began: 0,
            #[cfg(feature = "test-util")]
            lease: super::lease::Lease::default(),
            #[cfg(feature = "test-util")]
            plan: super::fault::Plan::default(),
            change_hooks: Vec::new(),
            settings,
        };
        for (at, left) in world.settings.autoscaler.spot_schedule.clone() {
            world.after(at, Event::SpotLeft(left));
        }
        world
    }

    /// How it behaves.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The monotonic clock.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The wall clock.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        later(self.settings.start, self.now.0).checked_add(self.skew).unwrap_or(Timestamp::MAX)
    }

    /// Nodes, pods and budgets as they are.
    #[must_use]
    pub const fn view(&self) -> &Arc<View> {
        &self.truth
    }

    /// All calls, by number.
    #[must_use]
    pub fn calls(&self) -> &[CallRecord] {
        &self.calls
    }

    /// Everything that happened, in order.
    #[must_use]
    pub fn facts(&self) -> &[FactRecord] {
        &self.facts
    }

    /// The cluster's memory as it is.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn note(&mut self, fact: Fact) {
        self.facts.push(FactRecord { at: self.now, fact });
    }

    /// Lets something happen that much later.
    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse(Scheduled { at: self.now + delay, sequence: self.sequence, event }));
    }

    /// Up to `settings.jitter_seconds`, by chance.
    pub(super) fn jitter(&mut self) -> Duration {
        match self.settings.jitter_seconds {
            0 => Duration::ZERO,
            most => Duration::from_secs(self.random.below(most + 1)),
        }
    }

    /// The next version of any object.
    pub(super) fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// The latest version of any object.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// A new identity, whose order says nothing about age.
    pub(super) fn identity(&mut self, kind: &str) -> Uid {
        self.identities += 1;
        let scattered = mix(self.settings.seed ^ self.identities.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32;
        Uid::new(format!("{scattered:08x}-{kind}-{}", self.identities))
    }

    pub(super) fn advance(&mut self, limit: Option<Instant>) -> Result<(), Halt> {
        let event = self.events.peek().map(|Reverse(scheduled)| scheduled.at);
        let timer = self.timers.keys().next().map(|(at, _)| *at);
        let Some(next) = [event, timer, limit].into_iter().flatten().min() else { return Err(Halt::Deadlocked) };
        if next > Instant(self.settings.horizon) {
            return Err(Halt::OutOfTime);
        }
        self.now = self.now.max(next);
        while let Some(Reverse(first)) = self.events.peek()
            && first.at <= self.now
            && let Some(Reverse(scheduled)) = self.events.pop()
        {
            self.handle(scheduled.event);
        }
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= self.now
        {
            self.to_wake.push(entry.remove());
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Schedule => self.schedule(),
            Event::PodRunning(pod) => self.pod_running(pod),
            Event::PodReady(pod) => self.pod_ready(pod),
            Event::PodStopped(pod) => self.pod_stopped(pod),
            Event::Reconcile(workload) => self.reconcile(workload),
            Event::Budget(budget) => self.recompute(budget),
            Event::Join(purchase) => self.join(purchase),
            Event::NodeReady(node) => self.node_ready(node),
            Event::CordonTaint(node) => self.cordon_taint(node),
            Event::Heartbeat(node) => self.heartbeat(node),
            Event::MachineGone(instance) => self.machine_gone(instance),
            Event::ObjectGone(node) => self.object_gone(node),
            Event::Reregister(instance) => self.reregister(instance),
            Event::SpotLeft(left) => self.set_spot_left(left),
            Event::Show(emitted, change) => self.show(emitted, &change),
            Event::Launch(fleet) => self.launch_members(&fleet),
            Event::Joined(member) => self.member_joins(member),
            Event::Detach(volume, how) => self.detach_volume(&volume, how),
            Event::Script(script) => script(self),
        }
    }

    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.to_wake)
    }

    pub(super) fn poll_timer(&mut self, at: Instant, timer: Option<u64>, waker: &Waker) -> (bool, Option<u64>) {
        if self.now >= at {
            if let Some(timer) = timer {
                self.timers.remove(&(at, timer));
            }
            return (true, None);
        }
        let timer = timer.unwrap_or_else(|| {
            self.sequence += 1;
            self.sequence
        });
        self.timers.insert((at, timer), waker.clone());
        (false, Some(timer))
    }

    pub(super) fn drop_timer(&mut self, at: Instant, timer: u64) {
        // it may have fired already
        self.timers.remove(&(at, timer));
    }

    #[cfg(feature = "test-util")]
    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }

    pub(super) fn new_process(&mut self) -> ProcessId {
        self.processes += 1;
        ProcessId(self.processes)
    }

    pub(super) fn is_killed(&self, process: ProcessId) -> bool {
        self.killed.contains(&process)
    }

    pub(super) fn kill(&mut self, process: ProcessId) {
        self.killed.insert(process);
    }

    pub(super) fn deaths(&self) -> usize {
        self.killed.len()
    }

    /// Takes in a call: its number, how long it takes, and what is to become of it.
    pub(super) fn begin(&mut self, process: ProcessId, call: Call) -> (u64, Duration, Fate) {
        let number = self.calls.len() as u64;
        #[cfg(feature = "test-util")]
        let fate = self.plan.fate(number, &call);
        #[cfg(not(feature = "test-util"))]
        let fate = Fate::Normal;
        if !matches!(fate, Fate::Normal) {
            self.fates.insert(number, fate.clone());
        }
        self.calls.push(CallRecord { number, process, call, sent: self.now, answered: None, answer: Answer::Underway });
        (number, self.settings.latency, fate)
    }

    /// Lets a call have its effect.
    pub(super) fn effect<R>(
        &mut self,
        number: u64,
        effect: impl FnOnce(&mut Self) -> Result<(R, Answer), PortError>,
    ) -> (Result<R, PortError>, Fate) {
        #[cfg(feature = "test-util")]
        {
            for script in self.plan.before(number) {
                script(self);
            }
            self.effect_began = self.facts.len();
        }
        self.fate = self.fates.remove(&number).unwrap_or_default();
        let result = match effect(self) {
            Ok((result, answer)) => {
                self.answer(number, answer);
                Ok(result)
            }
            Err(error) => {
                self.answer(number, Answer::Failed(error.class, error.to_string()));
                Err(error)
            }
        };
        let fate = std::mem::take(&mut self.fate);
        if matches!(fate, Fate::KillAfter)
            && let Some(record) = self.record(number)
        {
            let process = record.process;
            self.kill(process);
        }
        (result, fate)
    }

    /// Notes what became of a call, and lets the hook look.
    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        let now = self.now;
        let Some(record) = usize::try_from(number).ok().and_then(|at| self.calls.get_mut(at)) else { return };
        record.answered = Some(now);
        record.answer = answer;
        let mut hooks = std::mem::take(&mut self.hooks);
        if let Some(record) = self.record(number) {
            for hook in &mut hooks {
                hook(self, record);
            }
        }
        self.hooks = hooks;
    }

    fn record(&self, number: u64) -> Option<&CallRecord> {
        usize::try_from(number).ok().and_then(|at| self.calls.get(at))
    }
}

/// A moment that much later.
pub(super) fn later(moment: Timestamp, by: Duration) -> Timestamp {
    moment.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// A moment that much earlier.
pub(super) fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    moment.saturating_sub(by).unwrap_or(Timestamp::MIN)
}
