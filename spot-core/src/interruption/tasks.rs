//! What is done side by side, each with its own deadline: asking the source, keeping and settling notices, following
//! the cluster, and the answers themselves. Each ends with what the driver is to know of it.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future;
use jiff::Timestamp;

use super::answer::{Moment, elapsed};
use super::cordons::{Cordons, Outstanding};
use super::driver::Interruptions;
use super::notice::{Delivery, Handled, NoticeKind, Told};
use super::returning;
use super::terms::Terms;
use crate::claim::{InstanceId, Machine, Owner};
use crate::cloud::InstanceState;
use crate::drain::plan::Force;
use crate::error::{ErrorClass, PortError, chain};
use crate::node::{NodeRef, NodeSnapshot, Readiness, Uid};
use crate::ports::{Instant, Lane, Live};
use crate::progress::{Halted, Progress};
use crate::retire::release::{BackingOff, Freed};
use crate::retire::rescue::Rescued;
use crate::retire::{RetireSettings, Retirer, Target};
use crate::settle::Awaited;
use crate::stop::Stop;
use crate::view::Revision;
use crate::wait::{self, within};
use crate::watched::Watched;

/// How long opening a view may take: a large cluster is listed in a few seconds, and a notice leaves two minutes.
const OPENING: Duration = Duration::from_secs(30);
/// How long a source may take to answer: longer than any waits by itself for a notice to come.
const ANSWER: Duration = Duration::from_secs(40);
/// The pause after a call that failed, doubling up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two tries: a notice leaves two minutes.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// How long after its own cordon a node's evictions begin at the latest, whatever other nodes' cordons do.
const OTHERS_CORDONS: Duration = Duration::from_secs(1);
/// How long a node is written, or asked about, that is to be released: another notice of it waits meanwhile.
const BRIEFLY: Duration = Duration::from_secs(5);
/// How long telling the source may take.
const SETTLING: Duration = Duration::from_secs(10);

/// What the driver is told.
pub(super) enum Event {
    /// The source answered, or did not; so long was paused before.
    Polled(Result<Vec<Delivery>, PortError>, Duration),
    /// A notice is to be kept for longer, if it is still open.
    Due(Arc<str>),
    /// A notice was settled.
    Settled,
    /// The cluster can be seen, or not; so long was paused before.
    Opened(Result<Box<dyn Live>, PortError>, Duration),
    /// The cluster has changed, or can't be followed any more.
    Changed(Result<(), PortError>),
    /// It is time to look at all nodes.
    Tick,
    /// A node's drain has ended.
    Rescued {
        node: NodeRef,
        end: Rescued,
        /// Whether the node was cordoned.
        cordoned: bool,
        awaited: Option<Awaited>,
    },
    /// The pods of a node that was drained on a recommendation run again, or had long enough to.
    RunAgain,
    /// A notice has its answer.
    Answered(Arc<str>, Handled),
    /// A node is not written any more.
    Free(Uid),
    /// The same, and nothing of ours is on it.
    Returned(Arc<NodeSnapshot>),
    /// Nothing that matters to it.
    Nothing,
    /// Somebody else leads.
    NotLeader,
}

/// The cluster, as far as it can be seen now. All clones are one.
#[derive(Clone, Default)]
pub(super) struct Sight(Arc<Mutex<Option<Arc<dyn Live>>>>);

impl Sight {
    pub(super) fn set(&self, live: Option<Arc<dyn Live>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = live;
    }

    pub(super) fn get(&self) -> Option<Arc<dyn Live>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Because of what a node is emptied, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) kind: NoticeKind,
    pub(super) sent: Timestamp,
}

/// A node that is to be emptied.
#[derive(Clone)]
pub(super) struct Emptying {
    pub(super) node: NodeRef,
    pub(super) instance: InstanceId,
    pub(super) terms: Terms,
    pub(super) origin: Watched<Origin>,
}

/// The pause after this one.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

impl Interruptions {
    /// Asks the source once, after a pause.
    pub(super) async fn receive(&self, pause: Duration) -> Event {
        self.sleep(pause).await;
        let by = self.ports.clock.instant() + ANSWER;
        let answer = within(&self.ports, by, "waiting for notices", self.source.next()).await;
        let next = if answer.is_ok() { Duration::ZERO } else { longer(pause) };
        Event::Polled(answer, next)
    }

    pub(super) async fn due(&self, message: Arc<str>, after: Duration) -> Event {
        self.sleep(after).await;
        Event::Due(message)
    }

    /// Keeps a notice for us.
    pub(super) async fn extend(&self, delivery: Delivery, every: Duration) -> Event {
        let by = self.ports.clock.instant() + every;
        let extended = within(&self.ports, by, "keeping a notice", self.source.extend(&delivery, by)).await;
        self.note(None, extended);
        Event::Nothing
    }

    /// Settles a notice. One for which that fails comes again, and is known then.
    pub(super) async fn settle(&self, delivery: Delivery, handled: Handled) -> Event {
        let by = self.ports.clock.instant() + SETTLING;
        let settled = within(&self.ports, by, "settling a notice", self.source.settle(&delivery, handled, by)).await;
        self.note(None, settled);
        Event::Settled
    }

    /// Opens a view, after a pause.
    pub(super) async fn open(&self, pause: Duration) -> Event {
        self.sleep(pause).await;
        let by = self.ports.clock.instant() + OPENING;
        let request = self.ports.cluster.open(self.settings.scope.clone(), by);
        let live = within(&self.ports, by, "listing the cluster", request).await;
        Event::Opened(live, longer(pause))
    }

    /// Waits for a change of the view, but a while at least: in a large cluster something always changes.
    pub(super) async fn follow(&self, live: Arc<dyn Live>, seen: Revision, after: Duration) -> Event {
        self.sleep(after).await;
        Event::Changed(live.changed(seen).await)
    }

    pub(super) async fn tick(&self, after: Duration) -> Event {
        self.sleep(after).await;
        Event::Tick
    }

    /// Empties a node. What fails is tried again for as long as there is time.
    pub(super) async fn empty(
        &self,
        stop: &Stop,
        sight: Sight,
        emptying: Emptying,
        cordons: Cordons,
        outstanding: Outstanding,
    ) -> Event {
        let Emptying { node, instance, terms, origin } = emptying;
        let clock = &self.ports.clock;
        let (mut outstanding, mut cordoned, mut pause) = (Some(outstanding), false, FIRST_PAUSE);
        loop {
            let Some(live) = sight.get() else {
                self.sleep(FIRST_PAUSE).await;
                continue;
            };
            let Some(snapshot) = live.view().node(node.uid.as_str()).map(Arc::clone) else {
                return Event::Rescued { node, end: Rescued::Vanished, cordoned, awaited: None };
            };
            let target = Target { node: snapshot, machine: Machine::Instance(instance.clone()), group: None };
            let gate = async {
                if !cordoned {
                    let origin = origin.get();
                    let Origin { kind, sent } = origin;
                    self.tell(Told::Cordoned { node: node.clone(), kind, after: self.since(sent) });
                    self.hold_for(origin);
                }
                cordoned = true;
                outstanding = None;
                if terms.limits().force == Force::Forced {
                    let latest = clock.sleep_until(clock.instant() + OTHERS_CORDONS);
                    future::select(pin!(cordons.none()), pin!(latest)).await;
                }
            };
            let began = terms.limits().force;
            let mut emptied_by = None;
            let emptied = || {
                emptied_by = Some(terms.limits().force);
                let Origin { kind, sent } = origin.get();
                self.tell(Told::Emptied { node: node.clone(), kind, after: self.since(sent) });
            };
            let rescue = self.retirer(&*live, stop).rescue(target, &terms, gate, emptied).await;
            let limits = terms.limits();
            match rescue.end {
                // That its machine surely goes was announced while this ended, and is still to be answered.
                Rescued::Emptied | Rescued::Refused if began != limits.force && emptied_by != Some(Force::Forced) => {
                    continue;
                }
                Rescued::NotEmptied(failure)
                    if limits.force == Force::Forced && clock.instant() + pause < limits.until =>
                {
                    let class = ErrorClass::Transient;
                    self.report(&Progress::Problem { node: Some(node.clone()), class, what: chain(&failure) });
                }
                end => return Event::Rescued { node, end, cordoned, awaited: rescue.awaited },
            }
            self.sleep(pause).await;
            pause = longer(pause);
        }
    }

    /// Waits until what a drain disturbed runs again, or has had long enough to.
    pub(super) async fn run_again(&self, stop: &Stop, sight: Sight, awaited: Awaited) -> Event {
        let clock = &self.ports.clock;
        let began = clock.instant();
        let until = began + self.settings.settle_timeout;
        while clock.instant() < until && !stop.is_set() {
            if let Some(live) = sight.get() {
                let view = live.view();
                if awaited.pending(&view, clock.instant().since(began)).is_none() {
                    break;
                }
                let look = until.min(clock.instant() + crate::settle::REPLACEMENT);
                let changed = wait::change(&self.ports, &*live, stop, view.revision(), look).await;
                if changed.is_ok() {
                    continue;
                }
            }
            self.sleep(LONGEST_PAUSE).await;
        }
        Event::RunAgain
    }

    /// Cordons a node, and does nothing else to it.
    pub(super) async fn cordon(&self, stop: &Stop, sight: Sight, emptying: Emptying, message: Arc<str>) -> Event {
        let Emptying { node, instance, terms, origin } = emptying;
        let Some(live) = sight.get() else { return Event::Answered(message, Handled::Later) };
        let Some(snapshot) = live.view().node(node.uid.as_str()).map(Arc::clone) else {
            return Event::Answered(message, Handled::Done);
        };
        let target = Target { node: snapshot, machine: Machine::Instance(instance), group: None };
        match self.retirer(&*live, stop).cordon(target, &terms).await {
            Ok(()) => {
                let Origin { kind, sent } = origin.get();
                self.tell(Told::Cordoned { node, kind, after: self.since(sent) });
                Event::Answered(message, Handled::Done)
            }
            Err(Rescued::NotLeader) => Event::NotLeader,
            Err(Rescued::NotEmptied(_) | Rescued::Stopped) => Event::Answered(message, Handled::Later),
            Err(Rescued::Emptied | Rescued::Undone | Rescued::Refused | Rescued::OurOwn | Rescued::Vanished) => {
                Event::Answered(message, Handled::Done)
            }
        }
    }

    /// Keeps new pods off a node, softly.
    pub(super) async fn soften(&self, stop: &Stop, sight: Sight, node: NodeRef, message: Arc<str>) -> Event {
        let now = self.ports.clock.now();
        match self.rewrite(stop, sight, &node, |node| returning::softening(node, now)).await {
            Ok(there) => {
                if there {
                    self.tell(Told::Softened { node });
                }
                Event::Answered(message, Handled::Done)
            }
            Err(Halted::NotLeader) => Event::NotLeader,
            Err(_) => Event::Answered(message, Handled::Later),
        }
    }

    /// Lets pods come to a node again: nothing followed.
    pub(super) async fn harden(&self, stop: &Stop, sight: Sight, node: NodeRef) -> Event {
        let now = self.ports.clock.now();
        match self.rewrite(stop, sight, &node, |node| returning::hardening(node, now)).await {
            Ok(true) => self.tell(Told::Hardened { node: node.clone() }),
            Err(Halted::NotLeader) => return Event::NotLeader,
            // It is gone, or what went wrong was reported, and it is tried again.
            Ok(false) | Err(_) => {}
        }
        Event::Free(node.uid)
    }

    /// Writes a node. Returns whether it is there.
    async fn rewrite(
        &self,
        stop: &Stop,
        sight: Sight,
        node: &NodeRef,
        change: impl Fn(&NodeSnapshot) -> crate::ports::NodeChange,
    ) -> Result<bool, Halted> {
        let Some(live) = sight.get() else { return Err(Halted::Failed) };
        let (until, brief) = (self.ports.clock.instant() + BRIEFLY, self.brief());
        let retirer = Retirer { settings: &brief, ..self.retirer(&*live, stop) };
        retirer.rewrite(node, Lane::Forced, until, change).await.map(|node| node.is_some())
    }

    /// Waits until a node is ready.
    pub(super) async fn await_ready(
        &self,
        stop: &Stop,
        sight: Sight,
        node: NodeRef,
        until: Instant,
        message: Arc<str>,
    ) -> Event {
        let clock = &self.ports.clock;
        while !stop.is_set() {
            if let Some(live) = sight.get() {
                let view = live.view();
                match view.node(node.uid.as_str()) {
                    None => return Event::Answered(message, Handled::Done),
                    Some(node) if node.readiness == Readiness::Ready => {
                        return Event::Answered(message, Handled::Done);
                    }
                    Some(_) if clock.instant() >= until => return Event::Answered(message, Handled::Later),
                    Some(_) => {}
                }
                if wait::change(&self.ports, &*live, stop, view.revision(), until).await.is_ok() {
                    continue;
                }
            }
            self.sleep(FIRST_PAUSE).await;
        }
        Event::Nothing
    }

    /// Takes everything of ours off a node whose machine is back.
    pub(super) async fn release(&self, stop: &Stop, sight: Sight, node: NodeRef, why: &'static str) -> Event {
        let Some(live) = sight.get() else { return Event::Free(node.uid) };
        let Some(claimed) = live.view().node(node.uid.as_str()).map(Arc::clone) else { return Event::Free(node.uid) };
        let brief = self.brief();
        let retirer = Retirer { settings: &brief, ..self.retirer(&*live, stop) };
        if retirer.release(&node, &Owner::Interruption, None, BackingOff::No).await == Freed::Done {
            self.tell(Told::Returned { node, why });
            return Event::Returned(claimed);
        }
        Event::Free(node.uid)
    }

    /// Has the cloud take back what was done for the deletion of a machine that stays, as the node's claim recorded it.
    pub(super) async fn attach(&self, stop: &Stop, sight: Sight, claimed: Arc<NodeSnapshot>) -> Event {
        if let Some(live) = sight.get() {
            self.retirer(&*live, stop).attach(&claimed, Lane::Forced).await;
        }
        Event::Nothing
    }

    /// Releases a node whose machine ought to be gone for long, if the cloud says that it runs.
    pub(super) async fn ask_cloud(&self, stop: &Stop, sight: Sight, node: NodeRef, machine: Machine) -> Event {
        let Machine::Instance(instance) = machine else { return Event::Free(node.uid) };
        match wait::instance_state(&self.ports, &instance, BRIEFLY).await {
            Ok(InstanceState::Running) => return self.release(stop, sight, node, "its machine was not taken").await,
            Ok(InstanceState::ShuttingDown | InstanceState::Held(_) | InstanceState::Gone) => {}
            Err(error) => self.note(Some(&node), Err(error)),
        }
        Event::Free(node.uid)
    }

    /// How nodes are written that another notice may have to be answered for meanwhile: what fails is tried again.
    fn brief(&self) -> RetireSettings {
        RetireSettings { grace_period: BRIEFLY, ..self.settings.retire.clone() }
    }

    fn retirer<'r>(&'r self, live: &'r dyn Live, stop: &'r Stop) -> Retirer<'r> {
        let settings = &self.settings;
        Retirer {
            ports: &self.ports,
            live,
            settings: &settings.retire,
            rules: &settings.drain,
            own_pod: settings.own_pod.as_ref(),
            hold: &self.hold,
            stop,
        }
    }

    /// Holds planned work back for a while, if spot capacity is being taken back.
    pub(super) fn hold_for(&self, origin: Origin) {
        let Origin { kind, sent } = origin;
        if kind == NoticeKind::Interruption {
            let clock = &self.ports.clock;
            self.hold(sent, Moment { wall: clock.now(), instant: clock.instant() });
        }
    }

    /// Holds planned work back for a while since then.
    pub(super) fn hold(&self, since: Timestamp, now: Moment) {
        let left = self.settings.pause_migration_for.saturating_sub(elapsed(since, now.wall));
        if left == Duration::ZERO {
            return;
        }
        let held = self.hold.until(now.instant).is_some();
        self.hold.hold(now.instant + left);
        if !held {
            self.tell(Told::Held { until: now.wall.saturating_add(left).unwrap_or(now.wall) });
        }
    }

    /// Reports what went wrong and ends nothing.
    pub(super) fn note(&self, node: Option<&NodeRef>, result: Result<(), PortError>) {
        if let Err(error) = result {
            self.report(&Progress::Problem { node: node.cloned(), class: error.class, what: chain(&error) });
        }
    }

    pub(super) fn tell(&self, told: Told) {
        self.report(&Progress::Interruption(told));
    }

    fn report(&self, event: &Progress) {
        self.ports.observer.observe(self.ports.clock.now(), event);
    }

    pub(super) fn since(&self, sent: Timestamp) -> Duration {
        elapsed(sent, self.ports.clock.now())
    }

    async fn sleep(&self, pause: Duration) {
        self.ports.clock.sleep_until(self.ports.clock.instant() + pause).await;
    }
}
