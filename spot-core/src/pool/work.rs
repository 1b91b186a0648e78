//! The work on a pool under way: what all of it is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};

use super::look::Look;
use super::{Count, Fleet, Outcome, Pools, Report, Told};
use crate::claim::InstanceId;
use crate::error::{ErrorClass, PortError, RunError, chain};
use crate::judge::{Candidates, Others, Policy, PoolCandidates, Verdict};
use crate::node::{NodeRef, Uid};
use crate::ports::{Instant, Lane, Live, Write};
use crate::progress::{self, Progress};
use crate::reason::Reason;
use crate::retire::Purpose;
use crate::run::{Run, Task, Turn, run_error};
use crate::stop::Stop;
use crate::wait::within;

/// How long the fleets may take to be told.
const ASKING: Duration = Duration::from_mins(2);
/// How long a change of a fleet may take, until it can be changed again: EC2 takes a minute or so.
const CHANGING: Duration = Duration::from_mins(5);
/// How often the fleets are asked for: each look is a handful of calls.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// How often a call is made whose answer is lost, or which may pass.
const TRIES: u32 = 3;

/// The end of the work, wherever it comes.
#[derive(Debug)]
pub(super) enum Ended {
    /// Orderly.
    With(Outcome),
    /// It can't go on.
    Failed(RunError),
}

impl From<RunError> for Ended {
    fn from(error: RunError) -> Self {
        Self::Failed(error)
    }
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        Self::With(outcome)
    }
}

/// Who is to go.
#[derive(Clone, Debug)]
pub(super) struct Going {
    /// The machines of which some are to go, each with how much of the room it takes.
    pub(super) machines: BTreeMap<InstanceId, u32>,
    /// How much of them may go.
    pub(super) room: u32,
    /// What becomes of the others.
    pub(super) others: Others,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// Nodes went, or were waited for: look again.
    Again,
    /// None of those who are to go is left.
    NoneLeft,
    /// Some are left, and none of them may go.
    Nobody,
}

/// The work on a pool under way.
pub(super) struct Work<'a> {
    pub(super) pools: &'a Pools,
    run: Run<'a>,
    live: &'a dyn Live,
    stop: &'a Stop,
    /// What is known of what each fleet wants, if nobody but us changes it.
    wanted: BTreeMap<String, RangeInclusive<u32>>,
    /// The machines of nodes that were seen.
    machines: BTreeMap<Uid, InstanceId>,
    /// Machines that we had terminated: they count no more, whatever lists say that are late.
    gone: BTreeSet<InstanceId>,
    /// How often the cloud would not terminate a machine that is no node.
    refused: u32,
    told: Option<Count>,
}

impl<'a> Work<'a> {
    pub(super) async fn begin(
        pools: &'a Pools,
        live: &'a dyn Live,
        purpose: Purpose,
        stop: &'a Stop,
    ) -> Result<Self, RunError> {
        let settings = &pools.settings;
        let mut policy = settings.policy.clone();
        if matches!(purpose, Purpose::PoolRemoval { .. }) {
            policy.budgets.min_remaining = 0;
        }
        let task = Task {
            purpose,
            policy,
            retire: &settings.retire,
            settle_timeout: settings.settle_timeout,
            exhaustion: (Duration::ZERO, Duration::ZERO),
            dry_run: false,
        };
        let run = Run::begin(&pools.ports, task, live, &pools.hold, stop).await?;
        let (wanted, machines, gone) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let mut work = Self { pools, run, live, stop, wanted, machines, gone, refused: 0, told: None };
        // Nobody is to go before it is said who.
        work.choose(&Going { machines: BTreeMap::new(), room: 0, others: Others::Stay });
        Ok(work)
    }

    /// The pool as it is now.
    ///
    /// # Errors
    /// When it could not be read, or somebody else has a fleet want something else than it did.
    pub(super) async fn look(&mut self) -> Result<Look, Ended> {
        let by = self.now() + ASKING;
        let fleets =
            within(&self.pools.ports, by, "asking for the pool's fleets", self.pools.capacity.fleets(by)).await;
        let mut fleets = fleets.map_err(|error| run_error(error, RunError::Cloud))?;
        let progress::Report { retired, departing, .. } = &self.run.report;
        let went = retired.iter().chain(departing).filter_map(|node| self.machines.get(&node.uid));
        self.gone.extend(went.cloned());
        for fleet in &mut fleets {
            fleet.members.retain(|instance, _| !self.gone.contains(instance));
        }
        for fleet in &fleets {
            let Fleet { id, target, .. } = fleet;
            let known = self.wanted.insert(id.clone(), *target..=*target);
            if let Some(known) = known.filter(|known| !known.contains(target)) {
                return Err(changed(id, &known, *target).into());
            }
        }
        let view = self.live.view();
        self.run.follows(&view)?;
        self.run.survey(&view).await?;
        let look = Look::of(fleets, &view, &self.run.cloud);
        self.machines.extend(look.machines());
        Ok(look)
    }

    /// The pool as it is when every fleet of it can be changed.
    ///
    /// # Errors
    /// Those of [`Self::look`], and when a change of a fleet does not come to its end.
    pub(super) async fn settled(&mut self) -> Result<Look, Ended> {
        let until = self.now() + CHANGING;
        loop {
            let look = self.look().await?;
            let Some(fleet) = look.fleets.iter().find(|fleet| !fleet.is_settled && !fleet.has_ended) else {
                return Ok(look);
            };
            if self.now() >= until {
                let Fleet { id, target, .. } = fleet;
                let what = format!("fleet {id} wants {target}, and a change of it does not come to its end");
                return Err(Outcome::Changed(what).into());
            }
            self.pause().await?;
        }
    }

    /// Takes up what an earlier process left, as far as these are to go, and releases the rest of it.
    pub(super) async fn recover(&mut self, going: &Going) -> Result<(), Ended> {
        self.choose(going);
        let ended = self.run.recover().await?;
        // What earlier processes had a fleet want is not known: it is looked at anew.
        self.wanted.clear();
        ended.map_or(Ok(()), |outcome| Err(ended_by(outcome)))
    }

    /// Retires those of these who go next, and waits until their pods run elsewhere.
    pub(super) async fn step(&mut self, look: &Look, going: &Going) -> Result<Step, Ended> {
        self.choose(going);
        let until = self.now() + LOOK_AGAIN;
        let before = self.run.report.clone();
        loop {
            let turn = self.run.turn().await;
            self.allow_for(look, &before);
            match turn? {
                Turn::Waited if self.now() < until && self.is_as_ready_as(look) => {}
                Turn::Begun | Turn::Waited => return Ok(Step::Again),
                Turn::Ended(progress::Outcome::AllSpot) => return Ok(Step::NoneLeft),
                Turn::Ended(progress::Outcome::NothingEligible(_)) if self.run.is_paused() => {
                    return Err(Outcome::Paused.into());
                }
                Turn::Ended(progress::Outcome::NothingEligible(_)) => return Ok(Step::Nobody),
                Turn::Ended(outcome) => return Err(ended_by(outcome)),
            }
        }
    }

    /// Whether the same machines take pods as did then.
    fn is_as_ready_as(&self, look: &Look) -> bool {
        let now = Look::of(look.fleets.clone(), &self.live.view(), &self.run.cloud);
        look.weights().keys().all(|instance| now.is_ready(instance) == look.is_ready(instance))
    }

    /// Each of those who are to go with its verdict, in the order in which they would.
    pub(super) fn judged(&mut self, going: &Going) -> Vec<(NodeRef, Verdict)> {
        self.choose(going);
        let view = self.live.view();
        let verdicts = self.run.judgement(&view).verdicts();
        let candidates = verdicts.into_iter().filter(|(_, verdict)| *verdict != Verdict::NotACandidate);
        candidates.map(|(node, verdict)| (node.reference(), verdict)).collect()
    }

    /// Those of these who would fit, and may not go: each with its first reason.
    pub(super) fn blocked(&mut self, look: &Look, going: &Going) -> Vec<(NodeRef, Reason)> {
        let weight = |node: &NodeRef| look.weight(node, &going.machines);
        let judged = self.judged(going).into_iter().filter_map(|(node, verdict)| match verdict {
            Verdict::Refused(reasons) => Some((node, reasons.into_iter().next()?)),
            Verdict::NotACandidate | Verdict::Eligible => None,
        });
        judged.filter(|(node, _)| weight(node) <= going.room).collect()
    }

    /// How it ends when none of these may go.
    pub(super) fn stuck(&mut self, look: &Look, going: &Going, otherwise: Outcome) -> Outcome {
        let progress::Report { failed, undone, departing, .. } = &self.run.report;
        if !(failed.is_empty() && undone.is_empty() && departing.is_empty()) {
            return Outcome::Failed;
        }
        let blocked = self.blocked(look, going);
        if blocked.is_empty() {
            return otherwise;
        }
        Outcome::Blocked(blocked.into_iter().map(|(node, reason)| (node, reason.to_string())).collect())
    }

    /// Has a fleet want so much, unless it does, or somebody else has it want something else meanwhile.
    pub(super) async fn resize(&mut self, fleet: &Fleet, to: u32) -> Result<(), Ended> {
        let Fleet { id, target: from, .. } = fleet;
        if *from == to {
            return Ok(());
        }
        let pools = self.pools;
        let resize = |write| async move { pools.capacity.resize(id, *from, to, &write).await }.boxed();
        let resized = self.insist("changing what a fleet wants", resize).await;
        self.run.doubt();
        if let Err(error) = resized {
            // It may have been changed before us.
            self.wanted.insert(id.clone(), (*from).min(to)..=(*from).max(to));
            self.look().await?;
            return Err(self.failed(error));
        }
        self.wanted.insert(id.clone(), to..=to);
        self.tell(Told::Resized { fleet: id.clone(), from: *from, to });
        Ok(())
    }

    /// Terminates a machine that is no node, unless the cloud knows better: it may have become one.
    pub(super) async fn terminate(&mut self, fleet: &Fleet, instance: &InstanceId, weight: u32) -> Result<(), Ended> {
        let (pools, id) = (self.pools, fleet.id.as_str());
        let terminate = |write| async move { pools.capacity.terminate(id, instance, &write).await }.boxed();
        let terminated = self.insist("terminating a machine", terminate).await;
        self.run.doubt();
        match terminated {
            Ok(()) => {
                self.gone.insert(instance.clone());
                self.wanted.insert(fleet.id.clone(), fleet.target.saturating_sub(weight)..=fleet.target);
                self.tell(Told::Terminated { fleet: fleet.id.clone(), instance: instance.clone() });
                Ok(())
            }
            Err(error) if error.class == ErrorClass::Permanent && self.refused < TRIES => {
                self.refused += 1;
                self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
                self.pause().await
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Ends a fleet. Returns whether it has ended: it has not where it has or wants something that was not seen.
    pub(super) async fn cancel(&mut self, fleet: &Fleet) -> Result<bool, Ended> {
        let (pools, id) = (self.pools, fleet.id.as_str());
        let cancel = |write| async move { pools.capacity.cancel(id, &write).await }.boxed();
        match self.insist("ending a fleet", cancel).await {
            Ok(()) => {
                self.tell(Told::Cancelled { fleet: fleet.id.clone() });
                Ok(true)
            }
            Err(error) if error.class == ErrorClass::Permanent => {
                self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
                Ok(false)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// How it ends by a call that failed for good, or was given up.
    fn failed(&self, error: PortError) -> Ended {
        match run_error(error, RunError::Cloud) {
            RunError::Cloud(_) if self.stop.is_set() => Outcome::Stopped.into(),
            error => error.into(),
        }
    }

    /// Makes a call that may be made again, again, as long as that may help.
    async fn insist<'f>(
        &self,
        what: &'static str,
        call: impl Fn(Write) -> BoxFuture<'f, Result<(), PortError>>,
    ) -> Result<(), PortError> {
        let ports = &self.pools.ports;
        let mut tries = 1;
        loop {
            let by = self.now() + CHANGING;
            let write = Write::new(by, Lane::Planned, Arc::clone(&ports.leadership));
            let Err(error) = within(ports, by, what, call(write)).await else { return Ok(()) };
            let may_pass = matches!(error.class, ErrorClass::Transient | ErrorClass::Timeout);
            if !may_pass || tries == TRIES || self.stop.is_set() {
                return Err(error);
            }
            tries += 1;
            self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
            self.rest(self.now() + LOOK_AGAIN).await;
        }
    }

    /// Waits until then, or until asked to stop.
    async fn rest(&self, until: Instant) {
        future::select(pin!(self.pools.ports.clock.sleep_until(until)), pin!(self.stop.wait())).await;
    }

    /// Waits for a while before the next look.
    ///
    /// # Errors
    /// When asked to stop.
    pub(super) async fn pause(&self) -> Result<(), Ended> {
        self.rest(self.now() + LOOK_AGAIN).await;
        if self.stop.is_set() { Err(Outcome::Stopped.into()) } else { Ok(()) }
    }

    /// Tells how much of the pool is there, if that is news.
    pub(super) fn counted(&mut self, count: Count) {
        if self.told.replace(count) != Some(count) {
            self.tell(Told::Counted(count));
        }
    }

    /// Takes the soft taints off, and closes the report.
    pub(super) async fn finish(self, ended: Result<Outcome, Ended>) -> Result<Report, RunError> {
        if matches!(ended, Err(Ended::Failed(RunError::LostLeadership))) {
            return Err(RunError::LostLeadership);
        }
        self.run.harden().await;
        let outcome = match ended {
            Ok(outcome) | Err(Ended::With(outcome)) => outcome,
            Err(Ended::Failed(error)) => return Err(error),
        };
        let progress::Report { retired, failed, undone, departing, evictions, .. } = self.run.report;
        Ok(Report { outcome, retired, failed, undone, departing, evictions })
    }

    /// How many nodes went.
    pub(super) fn retired(&self) -> usize {
        self.run.report.retired.len()
    }

    pub(super) fn now(&self) -> Instant {
        self.pools.ports.clock.instant()
    }

    pub(super) fn tell(&self, told: Told) {
        self.report(&Progress::Pool(told));
    }

    pub(super) fn report(&self, event: &Progress) {
        self.pools.ports.observer.observe(self.pools.ports.clock.now(), event);
    }

    fn choose(&mut self, going: &Going) {
        let Going { machines, room, others } = going.clone();
        let (pool, force) = (self.pools.pool.clone(), self.run.task.purpose.force());
        let candidates = Candidates::Pool(PoolCandidates { pool, machines, room, others, force });
        self.run.task.policy = Policy { candidates, ..self.run.task.policy.clone() };
    }

    /// Allows for fleets to want less by as much as went since, or may have.
    fn allow_for(&mut self, look: &Look, before: &progress::Report) {
        let progress::Report { retired, failed, undone, departing, .. } = &self.run.report;
        let failed = failed.iter().skip(before.failed.len()).map(|(node, _)| node);
        let went = retired.iter().skip(before.retired.len()).chain(failed);
        let went = went.chain(undone.iter().skip(before.undone.len()));
        let went: Vec<&Uid> = went.chain(departing.iter().skip(before.departing.len())).map(|node| &node.uid).collect();
        for fleet in &look.fleets {
            let of_it = fleet
                .members
                .iter()
                .filter(|(instance, _)| look.node(instance).is_some_and(|node| went.contains(&&node.uid)));
            let weight = of_it.map(|(_, member)| member.weight).fold(0, u32::saturating_add);
            self.wanted.insert(fleet.id.clone(), fleet.target.saturating_sub(weight)..=fleet.target);
        }
    }
}

/// How the work ends when a run ends like this.
fn ended_by(outcome: progress::Outcome) -> Ended {
    match outcome {
        progress::Outcome::Stopped => Outcome::Stopped.into(),
        progress::Outcome::NotSettled(what) => Outcome::NotSettled(what).into(),
        progress::Outcome::AllSpot
        | progress::Outcome::NothingEligible(_)
        | progress::Outcome::SpotExhausted(_)
        | progress::Outcome::Recovered
        | progress::Outcome::DryRun(_) => Outcome::Done.into(),
    }
}

fn changed(fleet: &str, known: &RangeInclusive<u32>, target: u32) -> Outcome {
    let was = if known.start() == known.end() {
        known.end().to_string()
    } else {
        format!("{} to {}", known.start(), known.end())
    };
    Outcome::Changed(format!(
        "fleet {fleet} ought to want {was}, and wants {target} by somebody else's doing: it is left as it is"
    ))
}
