//! Answers notices, all side by side, for as long as the process leads.
//!
//! One task waits for each thing that can happen, and the driver takes their events in one by one: it alone decides,
//! and holds all state. Dropping it is a kill: what was begun is recorded on its node, and notices that are not settled
//! come back.

mod look;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, Either, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use look::AndAsk;

use super::answer::{Answer, Moment, answer, may_be_known_later, may_matter_later};
use super::cordons::Cordons;
use super::desk::{Desk, Taken, Waits};
use super::hold::Hold;
use super::index::Index;
use super::notice::{Delivery, Handled, Ignored, Notice, Told};
use super::settings::InterruptionSettings;
use super::tasks::{Emptying, Event, Origin, Sight};
use super::terms::{Limits, Terms};
use crate::claim::{Claim, Owner};
use crate::drain::plan::Force;
use crate::error::{RunError, chain};
use crate::node::{Node, NodeRef, NodeSnapshot, Readiness, Uid, key};
use crate::ports::{NoticeSource, Ports};
use crate::retire::record;
use crate::retire::rescue::Rescued;
use crate::settle::Awaited;
use crate::stop::Stop;
use crate::watched::Watched;

/// How often an open notice is kept for us: well within what a source grants each time.
const KEEP: Duration = Duration::from_secs(5);
/// How long nothing is looked at again after a change: in a large cluster something always changes.
const CALM: Duration = Duration::from_secs(1);
/// How often all nodes are looked at though nothing changed: some things are over with time alone.
const LOOK: Duration = Duration::from_secs(30);
/// How long notices are given back, and work under way is waited for, when the process is to end.
const PARTING: Duration = Duration::from_secs(5);

/// Answers what is announced of machines.
#[derive(Clone)]
pub struct Interruptions {
    pub(super) ports: Ports,
    pub(super) source: Arc<dyn NoticeSource>,
    pub(super) settings: InterruptionSettings,
    pub(super) hold: Hold,
}

impl fmt::Debug for Interruptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interruptions").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Interruptions {
    /// One that works through these ports, and holds planned work back by `hold`.
    #[must_use]
    pub const fn new(ports: Ports, source: Arc<dyn NoticeSource>, settings: InterruptionSettings, hold: Hold) -> Self {
        Self { ports, source, settings, hold }
    }

    /// Answers notices until asked to stop; those that are open then are given back. Whatever fails is reported, and
    /// ends nothing.
    ///
    /// # Errors
    /// When the leadership is lost: the process has to end.
    pub async fn run(&self, stop: &Stop) -> Result<(), RunError> {
        match future::select(self.ports.leadership.lost(), Driver::new(self, stop).run().boxed()).await {
            Either::Left(_) => Err(RunError::LostLeadership),
            Either::Right((ended, _)) => ended,
        }
    }
}

/// A node that is emptied, or is to be.
struct Case {
    emptying: Emptying,
    running: bool,
}

/// The loop and its state.
struct Driver<'a> {
    own: &'a Interruptions,
    stop: &'a Stop,
    tasks: FuturesUnordered<BoxFuture<'a, Event>>,
    sight: Sight,
    index: Index,
    desk: Desk,
    /// Messages that are to be kept for longer before long.
    due: BTreeSet<Arc<str>>,
    cases: BTreeMap<Uid, Case>,
    cordons: Cordons,
    /// Nodes to drain on a recommendation, in the order of their notices.
    recommended: VecDeque<Uid>,
    /// The one that is drained on a recommendation, or whose pods do not run again yet.
    draining: Option<Uid>,
    /// Nodes that are being written because what was announced of them is over.
    written: BTreeSet<Uid>,
    /// How many notices are being settled.
    settling: usize,
}

impl<'a> Driver<'a> {
    fn new(own: &'a Interruptions, stop: &'a Stop) -> Self {
        Self {
            own,
            stop,
            tasks: FuturesUnordered::new(),
            sight: Sight::default(),
            index: Index::default(),
            desk: Desk::default(),
            due: BTreeSet::new(),
            cases: BTreeMap::new(),
            cordons: Cordons::default(),
            recommended: VecDeque::new(),
            draining: None,
            written: BTreeSet::new(),
            settling: 0,
        }
    }

    async fn run(mut self) -> Result<(), RunError> {
        self.begin(self.own.open(Duration::ZERO));
        self.begin(self.own.tick(LOOK));
        for _ in 0..self.own.source.receivers().max(1) {
            self.begin(self.own.receive(Duration::ZERO));
        }
        while !self.stop.is_set() {
            let stopped = pin!(self.stop.wait());
            let event = match future::select(stopped, self.tasks.next()).await {
                Either::Left(_) => break,
                Either::Right((event, _)) => event,
            };
            if let Some(event) = event {
                self.take_in(event)?;
            }
        }
        self.part().await
    }

    fn begin(&self, task: impl Future<Output = Event> + Send + 'a) {
        self.tasks.push(task.boxed());
    }

    fn take_in(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Polled(answer, pause) => {
                self.begin(self.own.receive(pause));
                match answer {
                    Ok(deliveries) => self.polled(deliveries),
                    Err(error) => self.own.note(None, Err(error)),
                }
            }
            Event::Due(message) => {
                if let Some(delivery) = self.desk.delivery(&message).cloned() {
                    self.begin(self.own.extend(delivery, KEEP));
                    self.begin(self.own.due(message, KEEP));
                } else {
                    self.due.remove(&message);
                }
            }
            Event::Settled => self.settling = self.settling.saturating_sub(1),
            Event::Opened(Ok(live), _) => {
                let live = Arc::from(live);
                self.sight.set(Some(Arc::clone(&live)));
                self.begin(self.own.follow(Arc::clone(&live), live.view().revision(), Duration::ZERO));
                self.hold_on(self.now());
                self.look(AndAsk::Cloud);
                for delivery in self.desk.close_all(&Waits::View) {
                    self.consider(delivery);
                }
            }
            Event::Opened(Err(error), pause) => {
                self.own.note(None, Err(error));
                self.begin(self.own.open(pause));
            }
            Event::Changed(Ok(())) => {
                self.look(AndAsk::Nobody);
                if let Some(live) = self.sight.get() {
                    let seen = live.view().revision();
                    self.begin(self.own.follow(live, seen, CALM));
                }
            }
            Event::Changed(Err(error)) => {
                self.own.note(None, Err(error));
                self.sight.set(None);
                self.index.forget();
                self.begin(self.own.open(CALM));
            }
            Event::Tick => {
                self.look(AndAsk::Cloud);
                self.next_recommended();
                self.begin(self.own.tick(LOOK));
            }
            Event::Rescued { node, end, cordoned, awaited } => self.rescued(&node, end, cordoned, awaited)?,
            Event::RunAgain => {
                self.draining = None;
                self.next_recommended();
            }
            Event::Answered(message, handled) => {
                if let Some(delivery) = self.desk.close(&message) {
                    self.settle(delivery, handled);
                }
            }
            Event::Free(node) => self.free(&node),
            Event::Returned(node) => {
                self.free(&node.uid);
                // Beside whatever comes next: who answers slowly must not hold a notice up.
                if !self.cases.contains_key(&node.uid) {
                    self.begin(self.own.attach(self.stop, self.sight.clone(), node));
                }
            }
            Event::Nothing => {}
            Event::NotLeader => return Err(RunError::LostLeadership),
        }
        Ok(())
    }

    fn polled(&mut self, deliveries: Vec<Delivery>) {
        let source = self.own.source.kind();
        let oldest = deliveries.iter().map(|delivery| self.own.since(delivery.notice.sent)).max();
        self.own.tell(Told::Polled { source, oldest });
        for delivery in deliveries {
            let Notice { instance, announcement, .. } = &delivery.notice;
            self.own.tell(Told::Received { source, kind: announcement.kind(), instance: instance.clone() });
            match self.desk.take(&delivery) {
                Taken::New if self.sight.get().is_none() => self.keep(delivery, Waits::View),
                Taken::New => self.consider(delivery),
                Taken::Open => self.ignore(&delivery.notice, Ignored::Duplicate),
                Taken::Answered => {
                    self.ignore(&delivery.notice, Ignored::Duplicate);
                    self.settle(delivery, Handled::Done);
                }
            }
        }
    }

    /// Decides what is to be done about a notice, and begins it.
    fn consider(&mut self, delivery: Delivery) {
        let Some(live) = self.sight.get() else { return self.keep(delivery, Waits::View) };
        let notice = delivery.notice.clone();
        let now = self.now();
        let Some(node) = self.index.node(&live.view(), &*self.own.source, &notice.instance) else {
            if may_be_known_later(&notice, now.wall) {
                return self.settle(delivery, Handled::Later);
            }
            self.ignore(&notice, Ignored::UnknownInstance);
            return self.settle(delivery, Handled::Ignored);
        };
        if node.claim().of(node.uid.as_str()).is_some_and(Claim::is_departing) {
            return self.our_own(delivery);
        }
        let (message, reference) = (Arc::clone(&delivery.ticket.message), node.reference());
        let claimed = record::ours(&node, &Owner::Interruption).is_some() || self.cases.contains_key(&node.uid);
        let (own, stop, sight) = (self.own, self.stop, self.sight.clone());
        match answer(&notice, &node, &own.settings, now) {
            Answer::Later => self.settle(delivery, Handled::Later),
            Answer::Soften | Answer::Cordon if claimed => self.needless(delivery),
            Answer::AwaitReady { .. } if node.readiness == Readiness::Ready => self.settle(delivery, Handled::Done),
            Answer::Nothing => self.needless(delivery),
            Answer::Soften => {
                self.keep(delivery, Waits::Answer);
                self.begin(own.soften(stop, sight, reference, message));
            }
            Answer::Cordon => {
                let until = now.instant + own.settings.retire.grace_period;
                let limits = Limits { until, delete_blocked: None, force: Force::Forced };
                self.keep(delivery, Waits::Answer);
                self.begin(own.cordon(stop, sight, emptying(&notice, &node, limits), message));
            }
            Answer::AwaitReady { until } => {
                self.keep(delivery, Waits::Answer);
                self.begin(own.await_ready(stop, sight, reference, until, message));
            }
            // What takes it over would, in the end, give back a node whose machine goes.
            Answer::Empty(Limits { force: Force::Planned, .. })
                if surely_goes(&node) && !self.cases.contains_key(&node.uid) =>
            {
                self.needless(delivery);
            }
            Answer::Empty(limits) => {
                self.keep(delivery, Waits::Node(node.uid.clone()));
                self.press(&notice, &node, limits);
            }
        }
    }

    /// Has a node emptied; where that is under way, the notice can only make it hastier.
    fn press(&mut self, notice: &Notice, node: &NodeSnapshot, limits: Limits) {
        // A planned retirement of this very node goes on until it is taken over: held back, it would let go of the node
        // for a moment.
        if node.claim().of(node.uid.as_str()).is_none_or(|claim| claim.owner == Owner::Interruption) {
            self.own.hold_for(origin(notice));
        }
        let Limits { until, delete_blocked, force } = limits;
        match self.cases.get(&node.uid) {
            Some(case) if !case.emptying.terms.tighten(until, delete_blocked, force) => {
                self.ignore(notice, Ignored::Duplicate);
            }
            Some(case) => {
                case.emptying.origin.change(|_| origin(notice));
            }
            None => {
                let case = Case { emptying: emptying(notice, node, limits), running: false };
                self.cases.insert(node.uid.clone(), case);
            }
        }
        match force {
            Force::Forced => self.empty(&node.uid),
            Force::Planned => {
                self.recommended.push_back(node.uid.clone());
                self.next_recommended();
            }
        }
    }

    /// Begins to empty a node, unless that is under way, or has to wait.
    fn empty(&mut self, node: &Uid) {
        let Some(case) = self.cases.get_mut(node).filter(|case| !case.running) else { return };
        let forced = case.emptying.terms.limits().force == Force::Forced;
        if self.written.contains(node) || !(forced || self.draining.as_ref() == Some(node)) {
            return;
        }
        case.running = true;
        let (cordons, outstanding) = (self.cordons.clone(), self.cordons.expect());
        let emptying = case.emptying.clone();
        self.begin(self.own.empty(self.stop, self.sight.clone(), emptying, cordons, outstanding));
    }

    /// Goes on with a node that is not written any more.
    fn free(&mut self, node: &Uid) {
        self.written.remove(node);
        self.empty(node);
    }

    /// Drains the next node on a recommendation, one at a time.
    fn next_recommended(&mut self) {
        let now = self.own.ports.clock.instant();
        let paused = self.sight.get().is_some_and(|live| live.view().paused());
        if paused || self.draining.is_some() || self.own.hold.until(now).is_some() {
            return;
        }
        // Those that are gone, or were taken back meanwhile, need no more.
        while let Some(node) = self.recommended.front().cloned() {
            self.recommended.pop_front();
            let waits = |case: &&mut Case| !case.running && case.emptying.terms.limits().force == Force::Planned;
            if let Some(case) = self.cases.get_mut(&node).filter(waits) {
                let until = now + self.own.settings.retire.drain_timeout;
                case.emptying.terms = Terms::new(until, None, Force::Planned);
                self.draining = Some(node.clone());
                return self.empty(&node);
            }
        }
    }

    fn rescued(
        &mut self,
        node: &NodeRef,
        end: Rescued,
        cordoned: bool,
        awaited: Option<Awaited>,
    ) -> Result<(), RunError> {
        let Some(Case { emptying, .. }) = self.cases.remove(&node.uid) else { return Ok(()) };
        let origin = emptying.origin.get();
        let kind = origin.kind;
        if !cordoned {
            self.own.hold_for(origin);
        }
        let handled = match end {
            // What was begun goes on in the next process.
            Rescued::Stopped => return Ok(()),
            Rescued::NotLeader => return Err(RunError::LostLeadership),
            Rescued::NotEmptied(failure) => {
                self.own.tell(Told::NotEmptied { node: node.clone(), kind, why: chain(&failure) });
                // A notice that had no effect comes again for as long as its node is there.
                if cordoned { Handled::Done } else { Handled::Later }
            }
            Rescued::OurOwn => {
                for delivery in self.desk.close_all(&Waits::Node(node.uid.clone())) {
                    self.our_own(delivery);
                }
                Handled::Done
            }
            Rescued::Emptied | Rescued::Undone | Rescued::Refused | Rescued::Vanished => Handled::Done,
        };
        for delivery in self.desk.close_all(&Waits::Node(node.uid.clone())) {
            self.settle(delivery, handled);
        }
        if self.draining.as_ref() == Some(&node.uid) {
            self.begin(self.own.run_again(self.stop, self.sight.clone(), awaited.unwrap_or_default()));
        }
        Ok(())
    }

    /// The node departs by our own doing, and may be released all the same.
    fn our_own(&mut self, delivery: Delivery) {
        if may_matter_later(&delivery.notice, self.now().wall) {
            return self.settle(delivery, Handled::Later);
        }
        self.ignore(&delivery.notice, Ignored::OurOwn);
        self.settle(delivery, Handled::Done);
    }

    fn needless(&mut self, delivery: Delivery) {
        self.ignore(&delivery.notice, Ignored::NoAction);
        self.settle(delivery, Handled::Done);
    }

    fn ignore(&self, notice: &Notice, why: Ignored) {
        let what = format!("{} of {}", notice.announcement.kind(), notice.instance);
        self.own.tell(Told::Ignored { source: self.own.source.kind(), why, what });
    }

    fn keep(&mut self, delivery: Delivery, waits: Waits) {
        let message = &delivery.ticket.message;
        if self.due.insert(Arc::clone(message)) {
            self.begin(self.own.due(Arc::clone(message), KEEP));
        }
        self.desk.keep(delivery, waits);
    }

    fn settle(&mut self, delivery: Delivery, handled: Handled) {
        if handled == Handled::Done {
            self.desk.answered(delivery.notice.clone(), self.own.ports.clock.instant());
        }
        self.settling += 1;
        self.begin(self.own.settle(delivery, handled));
    }

    fn now(&self) -> Moment {
        let clock = &self.own.ports.clock;
        Moment { wall: clock.now(), instant: clock.instant() }
    }

    /// Gives every open notice back, and waits a little for what is under way.
    async fn part(mut self) -> Result<(), RunError> {
        for delivery in self.desk.clear() {
            self.settle(delivery, Handled::Returned);
        }
        let clock = &self.own.ports.clock;
        let mut over = pin!(clock.sleep_until(clock.instant() + PARTING));
        while self.settling > 0 || self.cases.values().any(|case| case.running) {
            match future::select(&mut over, self.tasks.next()).await {
                Either::Left(_) | Either::Right((None, _)) => break,
                Either::Right((Some(Event::Settled), _)) => self.settling = self.settling.saturating_sub(1),
                Either::Right((Some(Event::Rescued { node, .. }), _)) => {
                    self.cases.remove(&node.uid);
                }
                Either::Right((Some(Event::Polled(Ok(deliveries), _)), _)) => {
                    for delivery in deliveries {
                        self.settle(delivery, Handled::Returned);
                    }
                }
                Either::Right((Some(_), _)) => {}
            }
        }
        Ok(())
    }
}

/// Whether a node is claimed, and not on a recommendation alone.
fn surely_goes(node: &NodeSnapshot) -> bool {
    record::ours(node, &Owner::Interruption).is_some_and(|claim| {
        claim.until.is_none()
            || claim.taint.is_some()
            || node.taints.iter().any(|taint| taint.key == key::TO_BE_DELETED)
    })
}

fn origin(notice: &Notice) -> Origin {
    Origin { kind: notice.announcement.kind(), sent: notice.sent }
}

fn emptying(notice: &Notice, node: &NodeSnapshot, limits: Limits) -> Emptying {
    let Limits { until, delete_blocked, force } = limits;
    Emptying {
        node: node.reference(),
        instance: notice.instance.clone(),
        terms: Terms::new(until, delete_blocked, force),
        origin: Watched::new(origin(notice)),
    }
}
