//! The work on a pool under way: what all of it is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::look::Look;
use super::{Count, Fleet, Member, Outcome, Pools, Report, Told};
use crate::claim::InstanceId;
use crate::error::RunError;
use crate::judge::{Candidates, Others, Policy, PoolCandidates, Verdict};
use crate::node::{NodeRef, Uid};
use crate::ports::{Instant, Live};
use crate::progress::{self, Progress};
use crate::reason::Reason;
use crate::retire::Purpose;
use crate::run::{Run, Task, Turn, run_error};
use crate::stop::Stop;
use crate::wait::within;

/// How long the fleets may take to be told.
const ASKING: Duration = Duration::from_mins(2);
/// How long a change of a fleet may take, until it can be changed again: EC2 takes a minute or so.
pub(super) const CHANGING: Duration = Duration::from_mins(5);
/// How often the fleets are asked for: each look is a handful of calls.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// How often a call is made whose answer is lost, or which may pass.
pub(super) const TRIES: u32 = 3;

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
    pub(super) run: Run<'a>,
    pub(super) live: &'a dyn Live,
    pub(super) stop: &'a Stop,
    /// What is known of what each fleet wants, if nobody but us changes it.
    pub(super) wanted: BTreeMap<String, RangeInclusive<u32>>,
    /// What the cloud told of the fleets, unless something was done since.
    pub(super) asked: Option<Asked>,
    /// The machines of nodes that were seen.
    machines: BTreeMap<Uid, InstanceId>,
    /// Machines that went by our doing: they count no more, whatever lists say that are late.
    pub(super) gone: BTreeSet<InstanceId>,
    /// How often the cloud would not terminate a machine that is no node.
    pub(super) refused: BTreeMap<InstanceId, u32>,
    /// Whether a fleet was changed.
    pub(super) has_changed: bool,
    told: Option<Count>,
    /// What was last said to be waited for.
    awaited: Option<&'static str>,
}

/// What the cloud told of the fleets.
pub(super) struct Asked {
    at: Instant,
    fleets: Vec<Fleet>,
    /// How much of them was on its way out, and is none of their members here.
    leaving: u32,
    /// How much of them was there by the view.
    count: Count,
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
        let mut work = Self {
            pools,
            run,
            live,
            stop,
            wanted: BTreeMap::new(),
            asked: None,
            machines: BTreeMap::new(),
            gone: BTreeSet::new(),
            refused: BTreeMap::new(),
            has_changed: false,
            told: None,
            awaited: None,
        };
        // Nobody is to go before it is said who.
        work.choose(&Going { machines: BTreeMap::new(), room: 0, others: Others::Stay });
        Ok(work)
    }

    /// The pool as it is now. The cloud is asked for its fleets at most every [`LOOK_AGAIN`], unless something was done.
    ///
    /// # Errors
    /// When it could not be read, or somebody else has a fleet want something else than it did.
    pub(super) async fn look(&mut self) -> Result<Look, Ended> {
        let now = self.now();
        let fresh = self.asked.take().filter(|asked| now < asked.at + LOOK_AGAIN);
        let (at, mut fleets, known) = if let Some(Asked { at, fleets, leaving, .. }) = fresh {
            (at, fleets, leaving)
        } else {
            let by = now + ASKING;
            let fleets = self.pools.capacity.fleets(by);
            let fleets = within(&self.pools.ports, by, "asking for the pool's fleets", fleets).await;
            (now, fleets.map_err(|error| run_error(error, RunError::Cloud))?, 0)
        };
        let progress::Report { retired, departing, .. } = &self.run.report;
        let machine = |node: &NodeRef| self.machines.get(&node.uid).cloned();
        self.gone.extend(retired.iter().filter_map(machine));
        let departing: BTreeSet<_> = departing.iter().filter_map(machine).collect();
        let is_leaving = |instance: &InstanceId| departing.contains(instance) && !self.gone.contains(instance);
        let members = fleets.iter().flat_map(|fleet| &fleet.members);
        let leaving = members.filter(|(instance, _)| is_leaving(instance)).map(|(_, member)| member.weight);
        let leaving = leaving.fold(known, u32::saturating_add);
        for fleet in &mut fleets {
            fleet.members.retain(|instance, _| !self.gone.contains(instance) && !departing.contains(instance));
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
        let mut look = Look::of(fleets, &view, &self.run.cloud, &self.pools.pool);
        look.leaving = leaving;
        self.machines.extend(look.machines());
        self.asked = Some(Asked { at, fleets: look.fleets.clone(), leaving, count: look.count(&look.fleets, 0) });
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
            self.wait("its fleets can be changed again").await?;
        }
    }

    /// Takes up what an earlier process left, as far as these are to go, and releases the rest of it.
    pub(super) async fn recover(&mut self, going: &Going) -> Result<(), Ended> {
        self.choose(going);
        self.asked = None;
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
                Turn::Begun | Turn::Waited => {
                    self.asked = None;
                    return Ok(Step::Again);
                }
                Turn::Ended(progress::Outcome::AllSpot) => {
                    // The cloud may name machines by and by that it can't name yet.
                    self.run.doubt();
                    return Ok(Step::NoneLeft);
                }
                Turn::Ended(progress::Outcome::NothingEligible(_)) if self.run.is_paused() => {
                    return Err(Outcome::Paused.into());
                }
                Turn::Ended(progress::Outcome::NothingEligible(_)) => return Ok(Step::Nobody),
                Turn::Ended(outcome) => return Err(ended_by(outcome)),
            }
        }
    }

    /// Whether the same machines take pods, and run them, as did then.
    fn is_as_ready_as(&self, look: &Look) -> bool {
        let now = Look::of(look.fleets.clone(), &self.live.view(), &self.run.cloud, &self.pools.pool);
        let state = |look: &Look, instance: &_| (look.is_ready(instance), look.runs(instance));
        look.weights().keys().all(|instance| state(&now, instance) == state(look, instance))
    }

    /// Each of those who are to go with its verdict, in the order in which they would.
    pub(super) fn judged(&mut self, going: &Going) -> Vec<(NodeRef, Verdict)> {
        self.choose(going);
        let view = self.live.view();
        let verdicts = self.run.judgement(&view).verdicts();
        let candidates = verdicts.into_iter().filter(|(_, verdict)| *verdict != Verdict::NotACandidate);
        candidates.map(|(node, verdict)| (node.reference(), verdict)).collect()
    }

    /// Those of these who would fit, and may not go, and those whose machine nobody can name: each with its first reason.
    pub(super) fn blocked(&mut self, look: &Look, going: &Going) -> Vec<(NodeRef, Reason)> {
        let weight = |node: &NodeRef| look.weight(node, &going.machines);
        let judged = self.judged(going).into_iter().filter_map(|(node, verdict)| match verdict {
            Verdict::Refused(reasons) => Some((node, reasons.into_iter().next()?)),
            Verdict::NotACandidate | Verdict::Eligible => None,
        });
        judged.filter(|(node, _)| weight(node) <= going.room).chain(look.unnamed()).collect()
    }

    /// How it ends when none of these may go.
    pub(super) fn stuck(&mut self, look: &Look, going: &Going, otherwise: Outcome) -> Outcome {
        let progress::Report { failed, undone, departing, .. } = &self.run.report;
        let stay = self.refused.keys().any(|instance| self.stays(instance));
        if stay || !(failed.is_empty() && undone.is_empty() && departing.is_empty()) {
            return Outcome::Failed;
        }
        let blocked = self.blocked(look, going);
        if blocked.is_empty() { otherwise } else { Outcome::Blocked(blocked) }
    }

    /// Whether the cloud will not terminate this machine, which is no node.
    pub(super) fn stays(&self, instance: &InstanceId) -> bool {
        self.refused.get(instance).is_some_and(|times| *times >= TRIES)
    }

    /// The first machine of these fleets that is no node, and fits. One that was launched not long ago is about to become
    /// one: it counts only where it has no time. None does while the pool has a node whose machine nobody can name.
    pub(super) fn stray<'l>(
        &self,
        look: &'l Look,
        fleets: &[&'l Fleet],
        room: u32,
        has_time: bool,
    ) -> Option<(&'l Fleet, &'l InstanceId, Member)> {
        let now = self.pools.ports.clock.now();
        let is_late = |member: &Member| {
            let age = Duration::try_from(now.duration_since(member.launched)).unwrap_or_default();
            !has_time || age >= self.pools.settings.ready_timeout
        };
        let strays = fleets.iter().flat_map(|&fleet| {
            look.nodeless(fleet).into_iter().map(move |(instance, member)| (fleet, instance, member))
        });
        strays
            .into_iter()
            .filter(|_| look.unnamed().next().is_none())
            .find(|(_, instance, member)| member.weight <= room && is_late(member) && !self.stays(instance))
    }

    /// Waits for a while before the next look, and says for what, if that is news.
    ///
    /// # Errors
    /// When asked to stop.
    pub(super) async fn wait(&mut self, what: &'static str) -> Result<(), Ended> {
        if self.awaited.replace(what) != Some(what) {
            self.tell(Told::Waiting { what: what.to_owned() });
        }
        self.pause().await
    }

    /// Waits until more or less of the pool is there than at the last look, or for so long that the cloud is to be asked.
    ///
    /// # Errors
    /// When asked to stop, or the view follows the cluster no more.
    pub(super) async fn pause(&mut self) -> Result<(), Ended> {
        let until = self.asked.as_ref().map_or_else(|| self.now(), |asked| asked.at) + LOOK_AGAIN;
        loop {
            let view = self.live.view();
            let has_news = self.asked.as_ref().is_some_and(|Asked { fleets, count, .. }| {
                let look = Look::of(fleets.clone(), &view, &self.run.cloud, &self.pools.pool);
                look.count(&look.fleets, 0) != *count
            });
            if self.stop.is_set() {
                return Err(Outcome::Stopped.into());
            }
            if has_news || self.now() >= until {
                return Ok(());
            }
            let revision = view.revision();
            drop(view);
            self.run.changed(revision, until).await?;
        }
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
        let has_touched = self.has_changed || self.run.has_touched();
        let outcome = match ended {
            // That nothing was touched is what it promises.
            Ok(Outcome::Refused(why)) | Err(Ended::With(Outcome::Refused(why))) if has_touched => Outcome::Changed(why),
            Ok(outcome) | Err(Ended::With(outcome)) => outcome,
            Err(Ended::Failed(error)) => return Err(error),
        };
        Ok(self.run.report.ended(outcome))
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
