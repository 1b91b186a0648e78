//! One run: judge, retire, settle, compare, again.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};

use super::{Settings, run_error};
use crate::capacity::Class;
use crate::cloud::{CloudFacts, Freshness};
use crate::decision::KnownNodes;
use crate::error::{RunError, chain};
use crate::exposure;
use crate::interruption::Hold;
use crate::judge::{Batch, Facts, Judgement, RunFacts, Verdict, judge};
use crate::memory::Memory;
use crate::node::{NodeRef, NodeSnapshot, Uid};
use crate::ports::{Instant, Live, Ports};
use crate::progress::{Halted, Outcome, Progress, Report, Step};
use crate::reason::ReasonKind;
use crate::retire::{End, Purpose, Retirement, Retirer, Target};
use crate::settle::{Awaited, REPLACEMENT};
use crate::stop::Stop;
use crate::view::{Revision, View};
use crate::wait::{self, REQUEST, within};

/// How long the cloud may take to say what it knows of all nodes.
const SURVEY: Duration = Duration::from_mins(2);
/// How often transient reasons are judged again though nothing changed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

pub(super) type Node = Arc<NodeSnapshot>;

/// What retirements disturbed.
#[derive(Default)]
pub(super) struct Disturbed {
    /// The nodes that pods were moved off, or may have been.
    pub(super) nodes: Vec<NodeRef>,
    /// What has to be as it was before.
    awaited: Awaited,
}

impl Disturbed {
    fn extend(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.awaited.extend(other.awaited);
    }
}

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) ports: &'a Ports,
    pub(super) settings: &'a Settings,
    pub(super) live: &'a dyn Live,
    pub(super) hold: &'a Hold,
    pub(super) stop: &'a Stop,
    pub(super) memory: Memory,
    pub(super) cloud: CloudFacts,
    /// Something failed, or is waited for, that the cloud's answers may tell of: the next ones are to be new.
    doubtful: bool,
    /// The machines that the cloud was asked about.
    surveyed: Option<Revision>,
    /// The machines that were last compared with the known ones, and the one among them that has no class yet.
    compared: Option<(Revision, Option<NodeRef>)>,
    pub(super) facts: RunFacts,
    pub(super) known: KnownNodes,
    /// Workloads that were told of.
    exposed: BTreeSet<Uid>,
    /// Nodes whose refusal was told.
    refused: BTreeSet<Uid>,
    pub(super) report: Report,
    leftovers: usize,
}

impl<'a> Run<'a> {
    pub(super) async fn begin(
        ports: &'a Ports,
        settings: &'a Settings,
        live: &'a dyn Live,
        hold: &'a Hold,
        stop: &'a Stop,
    ) -> Result<Self, RunError> {
        let by = ports.clock.instant() + REQUEST;
        let memory = within(ports, by, "reading the memory", ports.cluster.recall(by)).await;
        let memory = memory.map_err(|error| run_error(error, RunError::Memory))?;
        let mut run = Self {
            ports,
            settings,
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
        run.tell(&Progress::RunStarted { nodes: run.count(&view) });
        Ok(run)
    }

    /// Retires nodes until none is left that may go, or an on-demand node comes back.
    pub(super) async fn migrate(&mut self) -> Result<Outcome, RunError> {
        let mut patience: Option<Instant> = None;
        let mut held: Option<Instant> = None;
        self.announce(&self.live.view());
        loop {
            if self.stop.is_set() {
                return Ok(Outcome::Stopped);
            }
            let view = self.live.view();
            self.follows(&view)?;
            self.survey(&view).await?;
            if let Some(outcome) = self.compare(&view) {
                return Ok(outcome);
            }
            let now = self.ports.clock.instant();
            if let Some(end) = self.hold.until(now) {
                let until = *held.get_or_insert(now + self.settings.settle_timeout);
                if now >= until {
                    return Ok(Outcome::NotSettled("spot capacity is being taken back".to_owned()));
                }
                drop(view);
                let over = self.ports.clock.sleep_until(end.min(until));
                future::select(pin!(over), pin!(self.stop.wait())).await;
                continue;
            }
            let mut asked: Vec<NodeRef> = Vec::new();
            let batch = loop {
                let judgement = self.judgement(&view);
                let batch = judgement.batch();
                let more = judgement.unasked(&batch, &asked);
                if more.is_empty() {
                    break batch;
                }
                asked.extend(more.into_iter().map(|node| node.reference()));
                self.ask_cloud(&view, &asked).await?;
                let refused =
                    |node: &NodeRef| self.cloud.of(node.uid.as_str()).is_some_and(|fact| !fact.refusals.is_empty());
                if asked.iter().any(|node| refused(node) && !self.refused.contains(&node.uid)) {
                    self.announce(&view);
                }
            };
            let targets = match batch {
                Batch::AllSpot => return Ok(Outcome::AllSpot),
                Batch::Nobody(kinds) => {
                    self.announce(&view);
                    return Ok(Outcome::NothingEligible(kinds));
                }
                Batch::Nodes(nodes) => nodes.into_iter().filter_map(|node| self.target(node)).collect::<Vec<_>>(),
                Batch::Wait(blocked) => {
                    let now = self.ports.clock.instant();
                    let until = *patience.get_or_insert_with(|| {
                        let reasons = blocked.iter().map(|(node, why)| (node.reference(), why.clone())).collect();
                        self.tell(&Progress::Waiting { reasons });
                        now + self.settings.settle_timeout
                    });
                    if now >= until {
                        return Ok(Outcome::NothingEligible(self.verdicts(&view).1));
                    }
                    drop(blocked);
                    // Some reasons pass with time alone, so that no change tells of it.
                    let until = until.min(now + LOOK_AGAIN);
                    let revision = view.revision();
                    drop(view);
                    self.changed(revision, until).await?;
                    self.doubtful = self.ports.clock.instant() >= until;
                    continue;
                }
            };
            if self.settings.dry_run {
                return Ok(self.would_retire(&targets));
            }
            patience = None;
            self.warn(&view, &targets);
            self.soften(&view, &targets).await;
            drop(view);
            self.facts.begun += targets.len();
            let retired = self.report.retired.len();
            let disturbed = self.retire_all(targets).await?;
            if self.report.retired.len() > retired {
                held = None;
            }
            if self.settings.policy.budgets.per_day.is_some() {
                // A limit of the day must outlive this process, however it ends.
                self.remember(None).await?;
            }
            if let Some(outcome) = self.settle(&disturbed).await? {
                return Ok(outcome);
            }
        }
    }

    /// Retires these side by side. What they disturbed has to settle afterwards.
    async fn retire_all(&mut self, targets: Vec<Target>) -> Result<Disturbed, RunError> {
        let retirer = self.retirer();
        let retire = |target| retirer.retire(target, &Purpose::Migration).boxed();
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
    pub(super) fn record(&mut self, retirement: Retirement) -> Disturbed {
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

    /// Waits until what was disturbed runs elsewhere, and compares: an outcome if that ends the run. It is a step of
    /// each node that pods were moved off.
    pub(super) async fn settle(&mut self, disturbed: &Disturbed) -> Result<Option<Outcome>, RunError> {
        let step = Step::Settle;
        let began = self.ports.clock.instant();
        for node in &disturbed.nodes {
            self.tell(&Progress::StepStarted { node: node.clone(), step });
        }
        let settled = self.settled(&disturbed.awaited).await;
        let took = self.ports.clock.instant().since(began);
        for node in disturbed.nodes.iter().cloned() {
            self.tell(&match halted(&settled) {
                None => Progress::StepDone { node, step, took },
                Some(halted) => Progress::StepHalted { node, step, halted, took },
            });
        }
        settled
    }

    async fn settled(&mut self, awaited: &Awaited) -> Result<Option<Outcome>, RunError> {
        let clock = Arc::clone(&self.ports.clock);
        let began = clock.instant();
        let until = began + self.settings.settle_timeout;
        loop {
            let view = self.live.view();
            self.survey(&view).await?;
            if let Some(outcome) = self.compare(&view) {
                return Ok(Some(outcome));
            }
            let drained_for = clock.instant().since(began);
            let pending = awaited.pending(&view, drained_for).or_else(|| self.unclassified());
            let Some(pending) = pending else { return Ok(None) };
            if self.stop.is_set() {
                return Ok(Some(Outcome::Stopped));
            }
            if clock.instant() >= until {
                return Ok(Some(Outcome::NotSettled(pending)));
            }
            let look = if drained_for < REPLACEMENT { began + REPLACEMENT } else { clock.instant() + LOOK_AGAIN };
            let look = until.min(look);
            let revision = view.revision();
            drop(view);
            self.changed(revision, look).await?;
            self.doubtful = self.unclassified().is_some() && clock.instant() >= look;
        }
    }

    /// Whether an on-demand node came that the run does not know. The next "before" is this "after".
    fn compare(&mut self, view: &View) -> Option<Outcome> {
        if self.compared.as_ref().is_some_and(|(machines, _)| *machines == view.machines()) {
            return None;
        }
        let cloud = &self.cloud;
        let class = |node: &Node| cloud.class(node.uid.as_str());
        // Almost always none, so that the rest costs nothing.
        let strangers: Vec<&Node> = self.known.strangers(view.nodes()).collect();
        if let Some(node) = self.known.created(&strangers, |node| class(node)) {
            let node = node.reference();
            self.tell(&Progress::Created { node: node.clone() });
            return Some(Outcome::SpotExhausted(node));
        }
        let unclassified = self.known.unclassified(&strangers, |node| class(node)).map(|node| node.reference());
        self.known.learn(&strangers, |node| class(node));
        self.compared = Some((view.machines(), unclassified));
        None
    }

    fn unclassified(&self) -> Option<String> {
        let (_, unclassified) = self.compared.as_ref()?;
        unclassified.as_ref().map(|node| format!("node {node} is new, and its class is unknown"))
    }

    /// Writes down what outlives the run, takes the soft taints off, and closes the report.
    pub(super) async fn finish(mut self, outcome: Result<Outcome, RunError>) -> Result<Report, RunError> {
        if matches!(outcome, Err(RunError::LostLeadership)) {
            return Err(RunError::LostLeadership);
        }
        if !self.settings.dry_run {
            self.remember(outcome.as_ref().ok()).await?;
            self.harden().await;
        }
        self.report.outcome = outcome?;
        Ok(self.report)
    }

    pub(super) fn retirer(&self) -> Retirer<'a> {
        self.settings.retirer(self.ports, self.live, self.hold, self.stop)
    }

    pub(super) fn judgement<'v>(&'v self, view: &'v View) -> Judgement<'v, Node> {
        let facts = Facts { view, cloud: &self.cloud, memory: &self.memory, run: &self.facts };
        judge(view.nodes(), &facts, &self.settings.policy, self.ports.clock.now())
    }

    /// The node with its machine; none where the cloud can't name it, for which the judgement has a reason.
    pub(super) fn target(&self, node: &Node) -> Option<Target> {
        let fact = self.cloud.of(node.uid.as_str())?;
        Some(Target { node: Arc::clone(node), machine: fact.machine.clone()?, group: fact.group.clone() })
    }

    /// Asks the cloud, unless it was asked since the machines last changed and nothing was in doubt.
    pub(super) async fn survey(&mut self, view: &View) -> Result<(), RunError> {
        if self.surveyed == Some(view.machines()) && !self.doubtful {
            return Ok(());
        }
        self.ask_cloud(view, &[]).await
    }

    /// Asks the cloud; everything that is to be known of `chosen`, even what costs a call for each.
    pub(super) async fn ask_cloud(&mut self, view: &View, chosen: &[NodeRef]) -> Result<(), RunError> {
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

    /// Fails when the view follows the cluster no more: what it shows may be long past, and each drain would fail.
    pub(super) fn follows(&self, view: &View) -> Result<(), RunError> {
        match self.live.changed(view.revision()).now_or_never() {
            Some(Err(error)) => Err(run_error(error, RunError::Cluster)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Waits for a change, until a deadline, or until asked to stop.
    pub(super) async fn changed(&self, seen: Revision, until: Instant) -> Result<(), RunError> {
        let changed = wait::change(self.ports, self.live, self.stop, seen, until).await;
        changed.map_err(|error| run_error(error, RunError::Cluster))
    }

    pub(super) fn tell(&self, event: &Progress) {
        self.ports.observer.observe(self.ports.clock.now(), event);
    }

    pub(super) const fn recovered_any(&self) -> bool {
        self.leftovers > 0
    }

    pub(super) const fn count_leftover(&mut self) {
        self.leftovers += 1;
    }

    fn would_retire(&self, targets: &[Target]) -> Outcome {
        let nodes: Vec<NodeRef> = targets.iter().map(|target| target.node.reference()).collect();
        for node in &nodes {
            self.tell(&Progress::WouldRetire { node: node.clone() });
        }
        Outcome::DryRun(nodes)
    }

    fn count(&self, view: &View) -> BTreeMap<Class, usize> {
        let mut nodes: BTreeMap<_, _> = Class::ALL.into_iter().map(|class| (class, 0)).collect();
        for node in view.nodes() {
            *nodes.entry(self.cloud.class(node.uid.as_str())).or_default() += 1;
        }
        nodes
    }

    /// How many nodes may go, and how many may not, by the kind of their first reason.
    fn verdicts(&self, view: &View) -> (usize, BTreeMap<ReasonKind, usize>) {
        let mut eligible = 0;
        let mut refused: BTreeMap<ReasonKind, usize> = BTreeMap::new();
        for (_, verdict) in self.judgement(view).verdicts() {
            match verdict {
                Verdict::NotACandidate => {}
                Verdict::Eligible => eligible += 1,
                Verdict::Refused(reasons) => {
                    for reason in reasons.iter().take(1) {
                        *refused.entry(reason.kind()).or_default() += 1;
                    }
                }
            }
        }
        (eligible, refused)
    }

    /// Tells how the nodes are judged, and of each that is refused once.
    fn announce(&mut self, view: &View) {
        let mut told = mem::take(&mut self.refused);
        for (node, verdict) in self.judgement(view).verdicts() {
            if let Verdict::Refused(reasons) = verdict
                && told.insert(node.uid.clone())
            {
                self.tell(&Progress::Refused { node: node.reference(), reasons });
            }
        }
        self.refused = told;
        let (eligible, refused) = self.verdicts(view);
        self.tell(&Progress::Judged { eligible, refused });
    }

    /// Tells of workloads that these drains take all ready pods from, each once.
    fn warn(&mut self, view: &View, targets: &[Target]) {
        let nodes = targets.iter().map(|target| &*target.node);
        for exposed in exposure::exposed(view, &self.settings.policy.drain, nodes) {
            if self.exposed.insert(exposed.controller.clone()) {
                self.tell(&Progress::Exposed { exposed });
            }
        }
    }
}

/// Why settling did not end well, if so.
fn halted(settled: &Result<Option<Outcome>, RunError>) -> Option<Halted> {
    match settled {
        Ok(None) => None,
        Ok(Some(Outcome::SpotExhausted(_))) => Some(Halted::SpotExhausted),
        Ok(Some(Outcome::Stopped)) => Some(Halted::Stopped),
        Err(RunError::LostLeadership) => Some(Halted::NotLeader),
        Ok(Some(_)) | Err(_) => Some(Halted::Failed),
    }
}
