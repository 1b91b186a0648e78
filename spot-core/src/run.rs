//! One piece of planned work on nodes, whatever it is for: look, judge, retire, settle, again.
//!
//! Dropping its future is a kill: nothing is cleaned up, the claims stay on the nodes, and recovery owns them.

mod given_back;
mod recovery;
mod remember;
mod settling;
mod soft_taint;
mod telling;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, Either, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use settling::Disturbed;

use crate::cloud::{CloudFacts, Freshness};
use crate::decision::KnownNodes;
use crate::error::{ErrorClass, PortError, RunError, chain};
use crate::interruption::Hold;
use crate::judge::{Batch, Facts, Judgement, Policy, RunFacts, judge};
use crate::memory::Memory;
use crate::node::{NodeRef, NodeSnapshot, Uid};
use crate::ports::{Instant, Live, Ports, Scope};
use crate::progress::{Outcome, Progress, Report};
use crate::reason::Reason;
use crate::retire::{End, Purpose, RetireSettings, Retirement, Retirer, Target};
use crate::stop::Stop;
use crate::view::{Revision, View};
use crate::wait::{self, REQUEST, within};

/// How long opening a view may take: every node and pod of a large cluster is listed.
const OPENING: Duration = Duration::from_mins(2);
/// How long the cloud may take to say what it knows of all nodes.
const SURVEY: Duration = Duration::from_mins(2);
/// How often transient reasons are judged again though nothing changed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

type Node = Arc<NodeSnapshot>;

/// What is to be done, and by which rules.
pub(crate) struct Task<'a> {
    /// What nodes are retired for.
    pub(crate) purpose: Purpose,
    /// Which nodes, and who of them may go.
    pub(crate) policy: Policy,
    /// How a node is retired.
    pub(crate) retire: &'a RetireSettings,
    /// How long evicted pods may take to run elsewhere, and transient reasons to pass.
    pub(crate) settle_timeout: Duration,
    /// How long migrations wait after a shortage of spot that this work has found: at first, and at most.
    pub(crate) exhaustion: (Duration, Duration),
    /// Judge and report, and write nothing.
    pub(crate) dry_run: bool,
}

impl Task<'_> {
    /// Whether it moves workloads from on-demand to spot nodes: its end is an on-demand node that comes back.
    const fn is_migration(&self) -> bool {
        matches!(self.purpose, Purpose::Migration)
    }
}

/// What a turn came to.
#[derive(Debug)]
#[must_use]
pub(crate) enum Turn {
    /// Nodes were begun, and what was disturbed has settled.
    Begun,
    /// Nobody may go now, which may pass; a change was waited for.
    Waited,
    /// It is the end.
    Ended(Outcome),
}

/// A run under way.
pub(crate) struct Run<'a> {
    ports: &'a Ports,
    pub(crate) task: Task<'a>,
    live: &'a dyn Live,
    hold: &'a Hold,
    stop: &'a Stop,
    memory: Memory,
    pub(crate) cloud: CloudFacts,
    /// Something failed, or is waited for, that the cloud's answers may tell of: the next ones are to be new.
    doubtful: bool,
    /// The machines that the cloud was asked about.
    surveyed: Option<Revision>,
    /// The machines that were last compared with the known ones, and the one among them that has no class yet.
    compared: Option<(Revision, Option<NodeRef>)>,
    facts: RunFacts,
    known: KnownNodes,
    /// Until when transient reasons are waited for, since no node could go.
    patience: Option<Instant>,
    /// Until when planned work is held back at most, since it was.
    held: Option<Instant>,
    /// Workloads that were told of.
    exposed: BTreeSet<Uid>,
    /// Nodes whose refusal was told.
    refused: BTreeSet<Uid>,
    pub(crate) report: Report,
    leftovers: usize,
}

impl<'a> Run<'a> {
    pub(crate) async fn begin(
        ports: &'a Ports,
        task: Task<'a>,
        live: &'a dyn Live,
        hold: &'a Hold,
        stop: &'a Stop,
    ) -> Result<Self, RunError> {
        let by = ports.clock.instant() + REQUEST;
        let memory = within(ports, by, "reading the memory", ports.cluster.recall(by)).await;
        let memory = memory.map_err(|error| run_error(error, RunError::Memory))?;
        let mut run = Self {
            ports,
            task,
            live,
            hold,
            stop,
            memory,
            cloud: CloudFacts::default(),
            doubtful: false,
            surveyed: None,
            compared: None,
            facts: RunFacts::default(),
            known: KnownNodes::default(),
            patience: None,
            held: None,
            exposed: BTreeSet::new(),
            refused: BTreeSet::new(),
            report: Report {
                outcome: Outcome::Recovered,
                retired: Vec::new(),
                failed: Vec::new(),
                undone: Vec::new(),
                departing: Vec::new(),
                evictions: 0,
            },
            leftovers: 0,
        };
        let view = run.live.view();
        run.survey(&view).await?;
        run.known = KnownNodes::of(view.nodes());
        Ok(run)
    }

    /// Does what is next: retires those who go next and waits until their pods run elsewhere, or waits for a while
    /// because nobody may go now.
    pub(crate) async fn turn(&mut self) -> Result<Turn, RunError> {
        if self.stop.is_set() {
            return Ok(Turn::Ended(Outcome::Stopped));
        }
        let view = self.live.view();
        self.follows(&view)?;
        self.survey(&view).await?;
        if let Some(outcome) = self.compare(&view) {
            return Ok(Turn::Ended(outcome));
        }
        let now = self.ports.clock.instant();
        if let Some(end) = self.hold.until(now) {
            let until = *self.held.get_or_insert(now + self.task.settle_timeout);
            if now >= until {
                return Ok(Turn::Ended(Outcome::NotSettled("spot capacity is being taken back".to_owned())));
            }
            drop(view);
            let over = self.ports.clock.sleep_until(end.min(until));
            future::select(pin!(over), pin!(self.stop.wait())).await;
            return Ok(Turn::Waited);
        }
        self.ask_about_the_next(&view).await?;
        let targets: Vec<_> = match self.judgement(&view).batch() {
            Batch::AllSpot => return Ok(Turn::Ended(Outcome::AllSpot)),
            Batch::Nobody(kinds) => {
                self.announce(&view);
                return Ok(Turn::Ended(Outcome::NothingEligible(kinds)));
            }
            Batch::Nodes(nodes) => nodes.into_iter().filter_map(|node| self.target(node)).collect(),
            Batch::Wait(blocked) => {
                let blocked = blocked.into_iter().map(|(node, why)| (node.reference(), why)).collect();
                return self.be_patient(view, blocked).await;
            }
        };
        if self.task.dry_run {
            return Ok(Turn::Ended(self.would_retire(&targets)));
        }
        self.patience = None;
        self.warn(&view, &targets);
        self.soften(&view, &targets).await;
        drop(view);
        self.facts.begun += targets.len();
        let retired = self.report.retired.len();
        let disturbed = self.retire_all(targets).await?;
        if self.report.retired.len() > retired {
            self.held = None;
        }
        if self.task.policy.budgets.per_day.is_some() {
            // A limit of the day must outlive this process, however it ends.
            self.remember(None).await?;
        }
        Ok(self.settle(&disturbed).await?.map_or(Turn::Begun, Turn::Ended))
    }

    /// Asks the cloud about those who go next, as long as what it refuses makes room for others.
    async fn ask_about_the_next(&mut self, view: &View) -> Result<(), RunError> {
        let mut asked: Vec<NodeRef> = Vec::new();
        loop {
            let judgement = self.judgement(view);
            let more: Vec<_> =
                judgement.unasked(&judgement.batch(), &asked).into_iter().map(|node| node.reference()).collect();
            drop(judgement);
            if more.is_empty() {
                return Ok(());
            }
            asked.extend(more);
            self.ask_cloud(view, &asked).await?;
            let refused =
                |node: &NodeRef| self.cloud.of(node.uid.as_str()).is_some_and(|fact| !fact.refusals.is_empty());
            if asked.iter().any(|node| refused(node) && !self.refused.contains(&node.uid)) {
                self.announce(view);
            }
        }
    }

    /// Waits for a change that may let a node go, unless that was waited for for too long.
    async fn be_patient(&mut self, view: Arc<View>, blocked: Vec<(NodeRef, Reason)>) -> Result<Turn, RunError> {
        let now = self.ports.clock.instant();
        let until = self.patience.unwrap_or_else(|| {
            self.tell(&Progress::Waiting { reasons: blocked });
            now + self.task.settle_timeout
        });
        self.patience = Some(until);
        if now >= until {
            return Ok(Turn::Ended(Outcome::NothingEligible(self.verdicts(&view).1)));
        }
        // Some reasons pass with time alone, so that no change tells of it.
        let until = until.min(now + LOOK_AGAIN);
        let revision = view.revision();
        drop(view);
        self.changed(revision, until).await?;
        self.doubtful = self.ports.clock.instant() >= until;
        Ok(Turn::Waited)
    }

    /// Retires these side by side. What they disturbed has to settle afterwards.
    async fn retire_all(&mut self, targets: Vec<Target>) -> Result<Disturbed, RunError> {
        let retirer = self.retirer();
        let retire = |target| retirer.retire(target, &self.task.purpose).boxed();
        let work: FuturesUnordered<_> = targets.into_iter().map(retire).collect();
        let mut ended: Vec<Retirement> = work.collect().await;
        ended.sort_by(|a, b| a.node.cmp(&b.node));
        let mut disturbed = Disturbed::default();
        let mut leading = Ok(());
        for retirement in ended {
            if matches!(retirement.end, End::NotLeader) {
                leading = Err(RunError::LostLeadership);
            }
            disturbed.extend(self.record(retirement));
        }
        leading.map(|()| disturbed)
    }

    /// Takes the end of a retirement into the report.
    fn record(&mut self, retirement: Retirement) -> Disturbed {
        let Retirement { node, end, deleted, evictions, awaited } = retirement;
        let moved = awaited.is_some() || matches!(end, End::Retired);
        let nodes = if moved { vec![node.clone()] } else { Vec::new() };
        self.report.evictions += evictions;
        // The day's limit is one of deletions that were accepted, whenever the node goes.
        self.facts.retired += u32::from(deleted);
        match end {
            End::Retired => self.report.retired.push(node),
            End::Released(failure) => {
                self.doubtful = true;
                self.facts.failed.insert(node.uid.to_string());
                self.report.failed.push((node, chain(&failure)));
            }
            End::Undone => {
                self.facts.failed.insert(node.uid.to_string());
                self.report.undone.push(node);
            }
            End::Departing => {
                self.doubtful = true;
                self.report.departing.push(node);
            }
            // Not again in this run: the judgement does not see what stands in the way.
            End::Refused => {
                self.facts.failed.insert(node.uid.to_string());
            }
            End::Paused => self.facts.paused = true,
            End::Postponed | End::Vanished | End::Overtaken | End::Stopped | End::NotLeader => {}
        }
        Disturbed { nodes, awaited: awaited.unwrap_or_default() }
    }

    /// Writes down what outlives the run, takes the soft taints off, and closes the report.
    pub(crate) async fn finish(mut self, outcome: Result<Outcome, RunError>) -> Result<Report, RunError> {
        if matches!(outcome, Err(RunError::LostLeadership)) {
            return Err(RunError::LostLeadership);
        }
        if !self.task.dry_run {
            self.remember(outcome.as_ref().ok()).await?;
            self.harden().await;
        }
        self.report.outcome = outcome?;
        Ok(self.report)
    }

    fn retirer(&self) -> Retirer<'_> {
        let Policy { drain: rules, own_pod, .. } = &self.task.policy;
        Retirer {
            ports: self.ports,
            live: self.live,
            settings: self.task.retire,
            rules,
            own_pod: own_pod.as_ref(),
            hold: self.hold,
            stop: self.stop,
        }
    }

    pub(crate) fn judgement<'v>(&'v self, view: &'v View) -> Judgement<'v, Node> {
        let facts = Facts { view, cloud: &self.cloud, memory: &self.memory, run: &self.facts };
        judge(view.nodes(), &facts, &self.task.policy, self.ports.clock.now())
    }

    /// The node with its machine; none where the cloud can't name it, for which the judgement has a reason.
    fn target(&self, node: &Node) -> Option<Target> {
        let fact = self.cloud.of(node.uid.as_str())?;
        Some(Target { node: Arc::clone(node), machine: fact.machine.clone()?, group: fact.group.clone() })
    }

    /// Asks the cloud, unless it was asked since the machines last changed and nothing was in doubt.
    pub(crate) async fn survey(&mut self, view: &View) -> Result<(), RunError> {
        if self.surveyed == Some(view.machines()) && !self.doubtful {
            return Ok(());
        }
        self.ask_cloud(view, &[]).await
    }

    /// Asks the cloud; everything that is to be known of `chosen`, even what costs a call for each.
    async fn ask_cloud(&mut self, view: &View, chosen: &[NodeRef]) -> Result<(), RunError> {
        let by = self.ports.clock.instant() + SURVEY;
        let freshness = if self.doubtful { Freshness::Now } else { Freshness::Cached };
        let request = self.ports.cloud.survey(view.nodes(), chosen, freshness, by);
        let cloud = within(self.ports, by, "asking the cloud about the nodes", request).await;
        self.cloud = cloud.map_err(|error| run_error(error, RunError::Cloud))?;
        if self.doubtful {
            // Nodes that had no class may have one now.
            self.compared = None;
        }
        self.doubtful = false;
        self.surveyed = Some(view.machines());
        Ok(())
    }

    /// Has the cloud's next answers be new ones.
    pub(crate) const fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Has those that failed tried again: what stood in their way may be gone.
    pub(crate) fn forgive(&mut self) {
        for (node, _) in self.report.failed.drain(..) {
            self.facts.failed.remove(node.uid.as_str());
        }
    }

    /// Whether a person paused us.
    pub(crate) fn is_paused(&self) -> bool {
        self.memory.paused || self.live.view().paused() || self.facts.paused
    }

    /// Fails when the view follows the cluster no more: what it shows may be long past, and each drain would fail.
    pub(crate) fn follows(&self, view: &View) -> Result<(), RunError> {
        match self.live.changed(view.revision()).now_or_never() {
            Some(Err(error)) => Err(run_error(error, RunError::Cluster)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Waits for a change, until a deadline, or until asked to stop.
    pub(crate) async fn changed(&self, seen: Revision, until: Instant) -> Result<(), RunError> {
        let changed = wait::change(self.ports, self.live, self.stop, seen, until).await;
        changed.map_err(|error| run_error(error, RunError::Cluster))
    }

    pub(crate) fn tell(&self, event: &Progress) {
        self.ports.observer.observe(self.ports.clock.now(), event);
    }

    pub(crate) const fn recovered_any(&self) -> bool {
        self.leftovers > 0
    }

    /// Whether anything was done to a node.
    pub(crate) const fn has_touched(&self) -> bool {
        self.leftovers > 0 || self.facts.begun > 0
    }
}

/// A view of the whole cluster.
pub(crate) async fn open(ports: &Ports) -> Result<Box<dyn Live>, RunError> {
    let by = ports.clock.instant() + OPENING;
    let open = ports.cluster.open(Scope::Cluster, by);
    within(ports, by, "listing the cluster", open).await.map_err(RunError::Cluster)
}

/// Drops the work when the leadership is lost, which is looked at before each step of the work: a process that was
/// frozen for longer than its lease does nothing more on waking.
pub(crate) async fn while_leading<T>(ports: &Ports, work: impl Future<Output = T>) -> Result<T, RunError> {
    match future::select(pin!(ports.leadership.lost()), pin!(work)).await {
        Either::Left(_) => Err(RunError::LostLeadership),
        Either::Right((done, _)) => Ok(done),
    }
}

/// Whether a failed call means that somebody else leads.
pub(crate) fn run_error(error: PortError, otherwise: impl FnOnce(PortError) -> RunError) -> RunError {
    if error.class == ErrorClass::NotLeader { RunError::LostLeadership } else { otherwise(error) }
}
