//! The work on one node, step by step.

mod departure;
mod rescue;

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, Either, FutureExt};
pub(super) use rescue::Seizing;

use super::permit::{DeletableNode, RetiredNode};
use super::{CONFLICTS, Halt, Purpose, Retirer, Target, detachment, record};
use crate::claim::{Claim, ClaimStep, FleetBefore, Machine, Owner};
use crate::cloud::{Deletion, Freshness, Group};
use crate::drain::driver::Evictions;
use crate::drain::plan::{self, Force, PodVerdict};
use crate::error::{Cause, ErrorClass, PortError, chain};
use crate::interruption::Terms;
use crate::node::{NodeRef, NodeSnapshot};
use crate::ports::{Erased, Instant, Lane, NodeChange, Write, Written};
use crate::progress::{Halted, Progress, Step, Undo};
use crate::settle::Awaited;
use crate::wait::{self, REQUEST, within};

/// How often pods may land on a node after it was empty.
const PASSES: u32 = 10;
/// How long a view may take to show a pod that a list has shown.
const CATCHING_UP: Duration = Duration::from_secs(5);
/// How often a deletion is asked for when its answer is lost.
const DELETIONS: u32 = 3;
/// How long a write may take before a machine goes by itself: one that hangs must leave time for another.
const HASTY: Duration = Duration::from_secs(5);
/// The pause between two of them.
const DELETION_PAUSE: Duration = Duration::from_secs(1);

/// The work on one node.
pub(super) struct Job<'a> {
    retirer: Retirer<'a>,
    purpose: &'a Purpose,
    /// The node as it was last read or written.
    node: Arc<NodeSnapshot>,
    machine: Machine,
    /// The group that keeps it.
    group: Option<Group>,
    /// What an earlier process recorded that the fleet wanted before.
    fleet_before: Option<FleetBefore>,
    /// What we know to have done to it, even if the record of it is taken off.
    claim: Option<Claim>,
    /// Whether taint and cordon were put back since the taint was put on.
    restored: bool,
    /// Until when volumes are waited for, since they were first.
    volumes_until: Option<Instant>,
    /// Whether load balancers were asked to let go of it.
    detached: bool,
    /// Whether its deletion was asked for.
    deleting: bool,
    evictions: Evictions,
    awaited: Awaited,
}

/// A step of the work on one node.
struct Stage<'a> {
    retirer: Retirer<'a>,
    node: NodeRef,
    step: Step,
}

impl<'a> Stage<'a> {
    /// Works on it, and reports its beginning and its end.
    fn ends<'w>(self, work: impl Future<Output = Result<(), Halt>> + Send + 'w) -> BoxFuture<'w, Result<(), Halt>>
    where
        'a: 'w,
    {
        let work = work.boxed();
        let halted = |done: &Result<(), Halt>| done.as_ref().err().map(Halted::from);
        async move { self.retirer.timed(&self.node, self.step, work, halted).await }.boxed()
    }
}

/// What became of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The machine goes.
    Going,
    /// Nothing happened: somebody changed the node since it was found empty.
    TooLate,
}

impl<'a> Job<'a> {
    pub(super) fn new(retirer: Retirer<'a>, target: Target, purpose: &'a Purpose) -> Self {
        let Target { node, machine, group } = target;
        let claim = record::ours(&node, &purpose.owner()).cloned();
        let awaited = retirer.awaited(&node, claim.as_ref(), purpose.force());
        Self {
            retirer,
            purpose,
            awaited,
            // An earlier process may have evicted pods that nobody sees here any more.
            evictions: Evictions { accepted: 0, possible: claim.is_some() },
            fleet_before: claim.as_ref().and_then(|claim| claim.fleet_before.clone()),
            claim,
            node,
            machine,
            group,
            restored: false,
            volumes_until: None,
            detached: false,
            deleting: false,
        }
    }

    pub(super) const fn node(&self) -> &Arc<NodeSnapshot> {
        &self.node
    }

    pub(super) fn owner(&self) -> Owner {
        self.purpose.owner()
    }

    pub(super) const fn claimed(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    pub(super) const fn asked_for_deletion(&self) -> bool {
        self.deleting
    }

    pub(super) const fn was_detached(&self) -> bool {
        self.detached
    }

    /// How many evictions were accepted, and what has to settle: none if certainly none was.
    pub(super) fn into_disturbed(self) -> (usize, Option<Awaited>) {
        let Evictions { accepted, possible } = self.evictions;
        (accepted, possible.then_some(self.awaited))
    }

    pub(super) async fn work(&mut self) -> Result<(), Halt> {
        self.stage(Step::Claim).ends(self.claim()).await?;
        let terms = self.terms();
        let mut pass = 0;
        loop {
            self.stage(Step::Drain).ends(self.drain(&terms, pass)).await?;
            self.stage(Step::Taint).ends(self.taint()).await?;
            self.restored = false;
            self.stage(Step::Detach).ends(self.detach()).await?;
            if self.delete().await? == Asked::Going {
                let until = self.retirer.ports.clock.instant() + self.retirer.settings.node_gone_timeout;
                return self.stage(Step::AwaitGone).ends(self.await_gone(until)).await;
            }
            pass += 1;
        }
    }

    /// Goes back to draining, and gives the watches time to show what a list has shown: the drain sees only what they
    /// have.
    async fn step_back(&mut self, pass: u32) -> Result<(), Halt> {
        let before = self.fleet_before.clone();
        self.reach(Step::Drain, ClaimStep::Tainted, before.as_ref()).await?;
        if pass >= PASSES {
            let why = Cause::Mismatch("pods land on it again and again, though it is cordoned");
            return Err(Halt::Failed(Step::Drain, why));
        }
        let Retirer { ports, live, stop, .. } = self.retirer;
        let revision = live.view().revision();
        let until = ports.clock.instant() + CATCHING_UP;
        let changed = wait::change(ports, live, stop, revision, until).await;
        changed.map_err(|error| Halt::call(Step::Drain, error))
    }

    fn stage(&self, step: Step) -> Stage<'a> {
        Stage { retirer: self.retirer, node: self.node.reference(), step }
    }

    /// Marks, cordons and records, in one patch; a claim of ours that is there already is taken up.
    async fn claim(&mut self) -> Result<(), Halt> {
        self.unless_paused(Step::Claim, self.retirer.ports.clock.instant() + REQUEST).await?;
        self.unless_held_back()?;
        let now = self.retirer.ports.clock.now();
        let (owner, machine, judged) = (self.purpose.owner(), self.machine.clone(), Arc::clone(&self.node));
        self.write(Step::Claim, |node| {
            if let Some(claim) = record::ours(node, &owner) {
                if let Some(halt) = record::taken_back(node, &owner) {
                    return Err(halt);
                }
                if let Some(mismatch) = record::mismatch(node, claim, &machine) {
                    return Err(Halt::Failed(Step::Claim, Cause::Mismatch(mismatch)));
                }
            } else if record::is_untouchable(node, &judged) {
                return Err(Halt::Refused);
            }
            Ok(record::claiming(node, &owner, &machine, now))
        })
        .await
    }

    /// The terms of its drain.
    fn terms(&self) -> Terms {
        match self.purpose {
            Purpose::Interruption { terms } => terms.clone(),
            Purpose::PoolRemoval { force: Some(delete_blocked), .. } => {
                let from = self.retirer.ports.clock.instant().max(*delete_blocked);
                Terms::new(from + self.retirer.settings.drain_timeout, Some(*delete_blocked), Force::Forced)
            }
            Purpose::Migration
            | Purpose::ScaleDown { .. }
            | Purpose::Roll { .. }
            | Purpose::PoolRemoval { force: None, .. } => {
                let until = self.retirer.ports.clock.instant() + self.retirer.settings.drain_timeout;
                Terms::new(until, None, Force::Planned)
            }
        }
    }

    async fn drain(&mut self, terms: &Terms, pass: u32) -> Result<(), Halt> {
        if pass > 0 {
            self.step_back(pass).await?;
        }
        let look = self.retirer.look(self.purpose);
        let own_pod_left =
            self.retirer.empty(self.node.reference(), self.purpose, terms, &mut self.evictions, &look).await?;
        if own_pod_left {
            let owner = self.purpose.owner();
            self.write(Step::Drain, |node| Ok(record::own_pod_left(node, &owner))).await?;
        }
        let now = self.retirer.ports.clock.instant();
        let volumes_until =
            *self.volumes_until.get_or_insert_with(|| terms.limits().until.min(now + detachment::LONGEST));
        let node = self.node.reference();
        self.retirer.unless_held(self.purpose, self.retirer.await_detached(&node, volumes_until, look)).await
    }

    /// Puts the taint on that fails load balancers' health checks; one that is there already is left alone.
    async fn taint(&mut self) -> Result<(), Halt> {
        let owner = self.purpose.owner();
        let now = self.retirer.ports.clock.now();
        self.write(Step::Taint, |node| Ok(record::tainting(node, &owner, now))).await
    }

    async fn detach(&mut self) -> Result<(), Halt> {
        self.detached = true;
        let (drain, drain_max) = self.retirer.settings.load_balancer;
        let ports = self.retirer.ports;
        let by = ports.clock.instant() + drain + drain_max + REQUEST;
        let write = Write::new(by, self.purpose.lane(), Arc::clone(&ports.leadership));
        let tainted_at = record::tainted_at(&self.node);
        let detach = within(ports, by, "draining load balancers", ports.cloud.detach(&self.node, tainted_at, &write));
        let unless_stopped = async {
            match future::select(pin!(detach), pin!(self.retirer.stop.wait())).await {
                Either::Left((detached, _)) => detached.map_err(|error| Halt::call(Step::Detach, error)),
                Either::Right(_) => Err(Halt::Stopped),
            }
        };
        self.retirer.unless_held(self.purpose, unless_stopped).await
    }

    /// Records how far the work has come, provided nobody took the node back.
    async fn reach(&mut self, step: Step, reached: ClaimStep, before: Option<&FleetBefore>) -> Result<(), Halt> {
        let owner = self.purpose.owner();
        self.write(step, |node| Ok(record::reaching(node, &owner, reached, before))).await
    }

    /// A pause holds back what is planned, and nothing else.
    async fn unless_paused(&self, step: Step, by: Instant) -> Result<(), Halt> {
        let Retirer { ports, live, .. } = self.retirer;
        let paused = match self.purpose.lane() {
            Lane::Planned => within(ports, by, "reading the pause", live.paused(by)).await,
            Lane::Forced => Ok(false),
        };
        if paused.map_err(|error| Halt::call(step, error))? { Err(Halt::Paused) } else { Ok(()) }
    }

    /// So does the hold, until the node is recorded as departing: from then on notices of it are not answered.
    fn unless_held_back(&self) -> Result<(), Halt> {
        let now = self.retirer.ports.clock.instant();
        let hold = self.retirer.holding(self.purpose).and_then(|hold| hold.until(now));
        if hold.is_some() { Err(Halt::Held) } else { Ok(()) }
    }

    /// The last look: whether a quorum list shows no pod that ought to have gone, and taint and cordon are on, provided
    /// nobody paused us or took the node back. Unreadable is not empty.
    async fn may_go(&self) -> Result<bool, Halt> {
        if self.retirer.stop.is_set() {
            return Err(Halt::Stopped);
        }
        let ports = self.retirer.ports;
        let by = ports.clock.instant() + REQUEST;
        self.unless_paused(Step::Delete, by).await?;
        let node = self.node.reference();
        let request = self.retirer.live.latest_pods(&node, by);
        let pods = within(ports, by, "listing the node's pods", request).await;
        let pods = pods.map_err(|error| Halt::call(Step::Delete, error))?;
        let view = self.retirer.live.view();
        let owner = self.owner();
        if let Some(node) = view.node(node.uid.as_str()) {
            if record::lost_its_taint(node, &owner) {
                return Ok(false);
            }
            if let Some(halt) = record::taken_back(node, &owner) {
                return Err(halt);
            }
        }
        let own_pod = self.retirer.own_pod.filter(|_| self.claim.as_ref().is_some_and(|claim| claim.own_pod_left));
        Ok(pods.iter().all(|pod| match plan::verdict(pod, self.retirer.rules, self.purpose.force(), &view) {
            PodVerdict::Leave(_) => true,
            PodVerdict::Going => crate::drain::lost::is_lost(pod, &self.node, ports.clock.now()),
            PodVerdict::Evict | PodVerdict::Refuse(_) => own_pod == Some(&pod.uid),
        }))
    }

    async fn delete(&mut self) -> Result<Asked, Halt> {
        let (retirer, node) = (self.retirer, self.node.reference());
        let halted = |asked: &Result<Asked, Halt>| match asked {
            Ok(Asked::Going) => None,
            Ok(Asked::TooLate) => Some(Halted::Outdated),
            Err(halt) => Some(halt.into()),
        };
        retirer.timed(&node, Step::Delete, self.delete_unless_changed(), halted).await
    }

    /// Records that the deletion is about to be asked for, looks once more, and asks.
    async fn delete_unless_changed(&mut self) -> Result<Asked, Halt> {
        // What an earlier process recorded stays: it may have lowered the fleet's target.
        let before = match self.fleet_before.clone() {
            Some(before) => Some(before),
            None => self.fleet_now().await?,
        };
        self.unless_held_back()?;
        self.reach(Step::Delete, ClaimStep::Deleting, before.as_ref()).await?;
        // Where the taint had to be put on again, load balancers have to see it again.
        if !self.restored && self.may_go().await? { self.ask_until_answered().await } else { Ok(Asked::TooLate) }
    }

    /// What the fleet that keeps the machine wants now, if one does: since the node was chosen, that may have changed.
    async fn fleet_now(&self) -> Result<Option<FleetBefore>, Halt> {
        if self.group.as_ref().and_then(FleetBefore::of).is_none() {
            return Ok(None);
        }
        let Retirer { ports, live, .. } = self.retirer;
        let by = ports.clock.instant() + REQUEST;
        let (view, node) = (live.view(), self.node.reference());
        let survey = ports.cloud.survey(view.nodes(), slice::from_ref(&node), Freshness::Cached, by);
        let facts = within(ports, by, "asking the cloud about the machine's fleet", survey).await;
        let facts = facts.map_err(|error| Halt::call(Step::Delete, error))?;
        Ok(facts.of(node.uid.as_str()).and_then(|fact| FleetBefore::of(fact.group.as_ref()?)))
    }

    /// Has the machine deleted. An answer that is lost is asked for again; lost for good, the node is departing.
    async fn ask_until_answered(&mut self) -> Result<Asked, Halt> {
        let ports = self.retirer.ports;
        let Some(claim) = self.claim.clone() else {
            return Err(Halt::Undone(Undo::ClaimRemoved));
        };
        let retired = RetiredNode::new(Arc::clone(&self.node), claim);
        self.deleting = true;
        let mut tries = 1;
        loop {
            let error = match self.ask_for_deletion(&retired).await {
                Ok(Erased::Gone) => return Ok(Asked::Going),
                // An earlier try has worked.
                Ok(Erased::Changed(now)) if now.deleting_since.is_some() => return Ok(Asked::Going),
                Ok(Erased::Changed(now)) => {
                    self.node = now;
                    return Ok(Asked::TooLate);
                }
                Err(error) => error,
            };
            if error.class == ErrorClass::NotLeader {
                return Err(Halt::NotLeader);
            }
            if error.class.had_no_effect() && tries == 1 {
                return Err(Halt::call(Step::Delete, error));
            }
            // An earlier try may have worked: whatever this one says, nothing may be taken back.
            let why = format!("its deletion was asked for, and not answered: {}", chain(&error));
            if error.class.had_no_effect() || tries == DELETIONS {
                return Err(Halt::Departing(why));
            }
            let node = Some(self.node.reference());
            self.retirer.report(&Progress::Problem { node, class: error.class, what: chain(&error) });
            tries += 1;
            ports.clock.sleep_until(ports.clock.instant() + DELETION_PAUSE).await;
            // All that allowed the first try has to hold still.
            if !matches!(self.may_go().await, Ok(true)) {
                return Err(Halt::Departing(why));
            }
        }
    }

    async fn ask_for_deletion(&self, retired: &RetiredNode) -> Result<Erased, PortError> {
        let ports = self.retirer.ports;
        let (by, write) = self.retirer.write(self.purpose.lane());
        match within(ports, by, "deleting the instance", ports.cloud.delete_instance(retired, &write)).await? {
            Deletion::Accepted => Ok(Erased::Gone),
            Deletion::WithNode => {
                let node = DeletableNode::with_its_machine(retired);
                within(ports, by, "deleting the Node object", ports.cluster.delete_node(&node, &write)).await
            }
        }
    }

    /// Takes the node as the view shows it, unless the view has yet to hear of our own last write: the node controller
    /// writes every node that is cordoned, so that a write on what we wrote last would always meet another version.
    fn catch_up(&mut self, owner: &Owner) {
        let view = self.retirer.live.view();
        if let Some(seen) =
            view.node(self.node.uid.as_str()).filter(|seen| record::ours(seen, owner) == self.claim.as_ref())
        {
            self.node = Arc::clone(seen);
        }
    }

    /// Writes the node conditionally; where somebody else wrote it in between, looks again and decides anew.
    async fn write(
        &mut self,
        step: Step,
        change: impl Fn(&NodeSnapshot) -> Result<NodeChange, Halt>,
    ) -> Result<(), Halt> {
        let ports = self.retirer.ports;
        let owner = self.purpose.owner();
        self.catch_up(&owner);
        for _conflict in 0..CONFLICTS {
            let restoring = step != Step::Claim && record::lost_its_taint(&self.node, &owner);
            let change = if restoring {
                record::restoring(&self.node, &owner, ports.clock.now())
            } else {
                if step != Step::Claim
                    && let Some(halt) = record::taken_back(&self.node, &owner)
                {
                    return Err(halt);
                }
                change(&self.node)?
            };
            if change == NodeChange::default() {
                return Ok(());
            }
            let most = match self.purpose.lane() {
                Lane::Planned => REQUEST,
                Lane::Forced => HASTY,
            };
            let by = ports.clock.instant() + most;
            let write = Write::new(by, self.purpose.lane(), Arc::clone(&ports.leadership));
            let at = self.node.at_version();
            let request = ports.cluster.write_node(&at, &change, &write);
            match within(ports, by, "writing the node", request).await {
                Ok(Written::Applied(node)) => {
                    self.claim = record::ours(&node, &owner).cloned();
                    self.node = node;
                    if !restoring {
                        return Ok(());
                    }
                    self.restored = true;
                }
                Ok(Written::Conflict(node)) => self.node = node,
                Ok(Written::Gone) => return Err(Halt::Vanished),
                Err(error) => return Err(Halt::call(step, error)),
            }
        }
        Err(Halt::Failed(step, Cause::Contended(CONFLICTS)))
    }
}
