//! Who may be retired now, who may not and why, and who goes next.
//!
//! A pure function of nodes, facts, policy and the time. Verdicts are made when they are asked for: a run asks until
//! its batch is full, a plan asks for all.

mod candidates;
mod placement;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::iter;
use std::time::Duration;

pub use candidates::{Candidates, Others, PoolCandidates};
use candidates::{Room, is_candidate};
use jiff::Timestamp;
use placement::{Placed, is_place};

use crate::budget::Budgets;
use crate::capacity::Class;
use crate::claim::Claim;
use crate::cloud::{CloudFact, CloudFacts};
use crate::decision::{self, Rank, is_control_plane, rank};
use crate::drain::plan::{self, DrainRules, Force, PodVerdict};
use crate::memory::{Exhaustion, Memory};
use crate::node::{Node, NodeRef, Readiness, Uid, key};
use crate::pod::PodSnapshot;
use crate::reason::{Reason, ReasonKind, Span};
use crate::selector::LabelSelector;
use crate::view::View;

/// A kubelet that has been silent for less than this may come back: the time after which Kubernetes itself begins to
/// evict pods from a node that is not ready (default toleration of `not-ready`).
pub const NOT_READY_FOR: Duration = Duration::from_mins(5);

/// What to do with nodes that another provisioner owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProvisionedNodes {
    /// Leave them to it.
    #[default]
    Skip,
    /// Retire them too; it removes their machines.
    Migrate,
}

/// The rules of a judgement.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Which nodes are looked for.
    pub candidates: Candidates,
    /// Which of them are selected; empty: all.
    pub node_selector: LabelSelector,
    /// What to do with nodes of another provisioner.
    pub provisioned_nodes: ProvisionedNodes,
    /// How many may go, and when.
    pub budgets: Budgets,
    /// Which pods may be moved.
    pub drain: DrainRules,
    /// The name of the node that the migrator runs on.
    pub own_node: Option<String>,
    /// How long a drain may take; none: any grace period fits into it.
    pub drain_timeout: Option<Duration>,
    /// The migrator's own pod. It goes last, and its own budget does not hold its node.
    pub own_pod: Option<Uid>,
}

/// What a run has done so far.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// Nodes that it has begun.
    pub begun: usize,
    /// Nodes that it has retired and that the memory does not count yet.
    pub retired: u32,
    /// Nodes that failed in it, by UID.
    pub failed: BTreeSet<String>,
    /// A node was let go because a person paused us.
    pub paused: bool,
}

/// What a judgement is made of, beside the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Pods and budgets.
    pub view: &'a View,
    /// The cloud's word.
    pub cloud: &'a CloudFacts,
    /// What outlived other processes.
    pub memory: &'a Memory,
    /// What this run has done so far.
    pub run: &'a RunFacts,
}

/// What becomes of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is none of the nodes that are looked for: another class, or not selected.
    NotACandidate,
    /// It may go now.
    Eligible,
    /// It may not go now; at least one reason.
    Refused(Vec<Reason>),
}

/// Who goes next.
#[derive(Clone, Debug)]
pub enum Batch<'n, N> {
    /// These, side by side.
    Nodes(Vec<&'n N>),
    /// Nobody now, but that may pass by itself; the nodes that it is about, each with its first reason.
    Wait(Vec<(&'n N, Reason)>),
    /// No candidate is left.
    AllSpot,
    /// Candidates are left, but none may go; by the kind of their first reason.
    Nobody(BTreeMap<ReasonKind, usize>),
}

/// The judgement of all nodes at one moment.
#[derive(Debug)]
pub struct Judgement<'a, N> {
    nodes: &'a [N],
    facts: Facts<'a>,
    policy: &'a Policy,
    now: Timestamp,
    /// Why no node at all may go.
    overall: Vec<Reason>,
    tally: Tally<'a>,
    placed: Placed,
}

/// What is told of all nodes in one pass: where there are many, reading them is what takes the time.
#[derive(Debug, Default)]
struct Tally<'a> {
    /// Those that are looked for, each by its rank and its position.
    candidates: Vec<(Rank<'a>, usize)>,
    /// Nodes that could take pods: ready, schedulable, not of the control plane.
    usable: usize,
    /// Nodes that are claimed for what is judged, and that do not depart.
    claimed: usize,
    /// Positions of the nodes that pods may move to: spot nodes, or what stays of a pool's cluster.
    places: Vec<usize>,
}

/// Judges all nodes.
///
/// # Example
/// ```
/// use spot_core::cloud::CloudFacts;
/// use spot_core::judge::{Batch, Facts, Policy, RunFacts, judge};
/// use spot_core::memory::Memory;
/// use spot_core::view::View;
///
/// let view = View::default();
/// let (cloud, memory, run) = (CloudFacts::default(), Memory::default(), RunFacts::default());
/// let facts = Facts { view: &view, cloud: &cloud, memory: &memory, run: &run };
/// let policy = Policy::default();
/// assert!(matches!(judge(view.nodes(), &facts, &policy, "2026-03-01T00:00Z".parse()?).batch(), Batch::AllSpot));
/// # Ok::<(), jiff::Error>(())
/// ```
#[must_use]
pub fn judge<'a, N: Node>(nodes: &'a [N], facts: &Facts<'a>, policy: &'a Policy, now: Timestamp) -> Judgement<'a, N> {
    let overall = overall(nodes, facts, policy, now);
    let tally = Tally::of(nodes, facts, policy);
    Judgement { nodes, facts: *facts, policy, now, overall, tally, placed: Placed::default() }
}

impl<'a> Tally<'a> {
    fn of<N: Node>(nodes: &'a [N], facts: &Facts<'_>, policy: &Policy) -> Self {
        let mut tally = Self::default();
        for (at, node) in nodes.iter().enumerate() {
            let fact = facts.cloud.of(node.uid());
            tally.usable += usize::from(is_usable(node));
            tally.claimed += usize::from(open_claim(node, policy).is_some());
            let is_candidate = is_candidate(node, fact, policy);
            if is_place(node, is_candidate, fact, policy) {
                tally.places.push(at);
            }
            if is_candidate {
                tally.candidates.push((rank(node, policy.own_node.as_deref()), at));
            }
        }
        tally
    }
}

/// Whether a node takes pods.
pub(crate) fn is_usable(node: &impl Node) -> bool {
    !node.is_unschedulable()
        && node.readiness() == Readiness::Ready
        && node.deleting_since().is_none()
        && !is_control_plane(node)
}

/// Why no node may go, whatever it is.
fn overall<N: Node>(nodes: &[N], facts: &Facts<'_>, policy: &Policy, now: Timestamp) -> Vec<Reason> {
    let budgets = &policy.budgets;
    let retired = facts.memory.retired_on(budgets.day(now)).saturating_add(facts.run.retired);
    let mut reasons = Vec::new();
    if facts.memory.paused || facts.view.paused() || facts.run.paused {
        reasons.push(Reason::Plain(ReasonKind::Paused));
    }
    if !budgets.is_open(now) {
        reasons.push(Reason::Plain(ReasonKind::OutsideWindow));
    }
    // A pool's nodes go though spot is short: the pool is asked to want less.
    if policy.candidates == Candidates::OnDemand
        && let Some(until) = exhausted_until(nodes, facts, now)
    {
        reasons.push(Reason::Exhausted(until));
    }
    if budgets.per_run.is_some_and(|limit| facts.run.begun >= limit) {
        reasons.push(Reason::Plain(ReasonKind::RunLimit));
    }
    if budgets.per_day.is_some_and(|limit| retired >= limit) {
        reasons.push(Reason::Plain(ReasonKind::DayLimit));
    }
    reasons
}

/// Until when spot counts as exhausted, unless the shortage is over.
fn exhausted_until<N: Node>(nodes: &[N], facts: &Facts<'_>, now: Timestamp) -> Option<Timestamp> {
    let until = facts.memory.exhausted_until(now)?;
    let relieved = facts.memory.exhausted.is_some_and(|shortage| is_relieved(nodes, facts.cloud, &shortage));
    (!relieved).then_some(until)
}

/// Whether a spot node has come since the shortage was found, which ends it.
pub(crate) fn is_relieved<N: Node>(nodes: &[N], cloud: &CloudFacts, shortage: &Exhaustion) -> bool {
    nodes.iter().any(|node| node.created_at() > shortage.since && cloud.class(node.uid()) == Class::Spot)
}

impl<'a, N: Node> Judgement<'a, N> {
    /// The verdict on one node.
    #[must_use]
    pub fn verdict(&self, node: &N) -> Verdict {
        if !is_candidate(node, self.fact(node), self.policy) {
            return Verdict::NotACandidate;
        }
        let reasons: Vec<_> = self.reasons(node).collect();
        if reasons.is_empty() { Verdict::Eligible } else { Verdict::Refused(reasons) }
    }

    /// All nodes in the order in which they would go, each with its verdict. Candidates come first.
    #[must_use]
    pub fn verdicts(&self) -> Vec<(&'a N, Verdict)> {
        let own_node = self.policy.own_node.as_deref();
        let mut all: Vec<_> = self.nodes.iter().map(|node| (node, self.verdict(node))).collect();
        all.sort_by_key(|(node, verdict)| (order(verdict), rank(*node, own_node)));
        all
    }

    /// The nodes to retire next, best first.
    #[must_use]
    pub fn batch(&self) -> Batch<'a, N> {
        if self.tally.candidates.is_empty() {
            return Batch::AllSpot;
        }
        let chosen = if self.overall.is_empty() { self.choose() } else { Vec::new() };
        if chosen.is_empty() { self.nobody() } else { Batch::Nodes(chosen) }
    }

    /// The eligible nodes in order, as many as budgets and groups leave room for.
    fn choose(&self) -> Vec<&'a N> {
        // Where it is unknown whether spot has room, one node shows it.
        let unknown = self.policy.candidates == Candidates::OnDemand
            && self.tally.places.is_empty()
            && self.facts.cloud.pending_spot() == 0;
        let at_once = if unknown { 1 } else { self.policy.budgets.at_once };
        let budgets = &self.policy.budgets;
        let begun = self.facts.run.begun;
        let mut room = budgets.per_run.map_or(at_once, |limit| at_once.min(limit.saturating_sub(begun)));
        if let Some(limit) = budgets.per_day {
            let retired = self.facts.memory.retired_on(budgets.day(self.now)).saturating_add(self.facts.run.retired);
            room = room.min(usize::try_from(limit.saturating_sub(retired)).unwrap_or(usize::MAX));
        }
        // A node that is claimed holds its place, whether it can be taken up again or not.
        let mut free = at_once.saturating_sub(self.tally.claimed);
        let mut usable = self.tally.usable;
        let mut groups = BTreeMap::new();
        let mut chosen: Vec<&'a N> = Vec::new();
        for node in self.ranked() {
            let resumed = open_claim(node, self.policy).is_some();
            if chosen.len() >= room {
                break;
            }
            if !resumed && free == 0 {
                continue;
            }
            let left = usable.saturating_sub(usize::from(is_usable(node)));
            if left < budgets.min_remaining || self.reasons(node).next().is_some() || !self.fits(node, &mut groups) {
                continue;
            }
            usable = left;
            free -= usize::from(!resumed);
            chosen.push(node);
        }
        chosen
    }

    /// Whom the cloud is to be asked about before this batch is touched, beside those that it was: who goes next. One
    /// that it refuses makes room for others; as many again as before are asked about each time, so that a few questions
    /// do where it refuses many.
    #[must_use]
    pub fn unasked(&self, batch: &Batch<'a, N>, asked: &[NodeRef]) -> Vec<&'a N> {
        let Batch::Nodes(next) = batch else { return Vec::new() };
        let is_new = |node: &&'a N| asked.iter().all(|known| known.uid.as_str() != node.uid());
        let mut new: Vec<_> = next.iter().copied().filter(is_new).collect();
        if !new.is_empty() {
            let others = self.eligible().filter(is_new).filter(|node| next.iter().all(|next| next.uid() != node.uid()));
            new.extend(others.take(asked.len().saturating_sub(new.len())));
        }
        new
    }

    /// The nodes that may go, each by itself, best first.
    fn eligible(&self) -> impl Iterator<Item = &'a N> {
        self.ranked().filter(|node| self.reasons(node).next().is_none())
    }

    /// The candidates, best first.
    fn ranked(&self) -> impl Iterator<Item = &'a N> {
        // A heap orders no more of them than are looked at.
        let mut ranked: BinaryHeap<_> = self.tally.candidates.iter().copied().map(Reverse).collect();
        let nodes = self.nodes;
        iter::from_fn(move || ranked.pop()).filter_map(|Reverse((_, at))| nodes.get(at))
    }

    /// Whether what keeps the node has room for one less of it, after those that were chosen before.
    fn fits(&self, node: &N, left: &mut BTreeMap<&'a str, u32>) -> bool {
        let Some(Room { name, left: room, weight }) = self.policy.candidates.room(self.fact(node)) else { return true };
        let room = left.entry(name).or_insert(room);
        let Some(rest) = room.checked_sub(weight) else { return false };
        *room = rest;
        true
    }

    fn nobody(&self) -> Batch<'a, N> {
        let mut ranked = self.tally.candidates.clone();
        ranked.sort_unstable();
        let mut waiting = Vec::new();
        let mut kinds: BTreeMap<ReasonKind, usize> = BTreeMap::new();
        for node in ranked.into_iter().filter_map(|(_, at)| self.nodes.get(at)) {
            let reasons: Vec<_> = self.reasons(node).collect();
            let Some(first) = reasons.first() else { continue };
            *kinds.entry(first.kind()).or_default() += 1;
            if reasons.iter().all(|reason| reason.span() == Span::Transient) {
                waiting.push((node, first.clone()));
            }
        }
        if waiting.is_empty() { Batch::Nobody(kinds) } else { Batch::Wait(waiting) }
    }

    /// The class of a node, as far as it is known.
    #[must_use]
    pub fn class(&self, node: &N) -> Class {
        self.facts.cloud.class(node.uid())
    }

    fn fact(&self, node: &N) -> Option<&'a CloudFact> {
        self.facts.cloud.of(node.uid())
    }

    /// Why a candidate may not go, cheapest to find out first.
    fn reasons(&self, node: &'a N) -> impl Iterator<Item = Reason> {
        let plain = |applies: bool, kind| applies.then_some(Reason::Plain(kind));
        let fact = self.fact(node);
        let candidates = &self.policy.candidates;
        let nameless = candidates.need_a_class() && self.class(node) == Class::Unknown;
        let left = self.tally.usable.saturating_sub(usize::from(is_usable(node)));
        let others = node.label(key::NODE_POOL).is_some() && self.policy.provisioned_nodes == ProvisionedNodes::Skip;
        [
            plain(nameless, ReasonKind::UnknownCapacity),
            plain(is_departing(node, self.policy), ReasonKind::Departing),
            decision::opt_out(node).map(Reason::OptedOut),
            plain(others, ReasonKind::ProvisionedByOther),
            self.not_ready(node),
            self.backing_off(node),
            plain(left < self.policy.budgets.min_remaining, ReasonKind::TooFewNodes),
            candidates.too_much(fact),
        ]
        .into_iter()
        .flatten()
        .chain(fact.into_iter().flat_map(|fact| fact.refusals.iter().cloned()))
        .chain(self.overall.iter().cloned())
        .chain(self.facts.view.pods_on(node.name()).filter_map(|pod| self.pod_reason(node, pod)))
    }

    fn not_ready(&self, node: &N) -> Option<Reason> {
        if self.policy.candidates.force() == Force::Forced {
            return None;
        }
        match node.readiness() {
            Readiness::Ready => None,
            Readiness::NotReady { since } | Readiness::Unreachable { since } => {
                let ready_again = since.checked_add(NOT_READY_FOR).unwrap_or(Timestamp::MAX);
                (self.now < ready_again).then_some(Reason::Plain(ReasonKind::NotReady))
            }
        }
    }

    fn backing_off(&self, node: &N) -> Option<Reason> {
        // A person asks for a pool's work, and asks again when it failed.
        let obeyed = node.back_off().filter(|_| self.policy.candidates == Candidates::OnDemand);
        let until = obeyed.map(|back_off| back_off.until).filter(|until| *until > self.now);
        (until.is_some() || self.facts.run.failed.contains(node.uid())).then_some(Reason::BackingOff(until))
    }

    fn pod_reason(&self, node: &N, pod: &PodSnapshot) -> Option<Reason> {
        if self.policy.candidates.force() == Force::Forced {
            return None;
        }
        match plan::verdict(pod, &self.policy.drain, Force::Planned, self.facts.view) {
            PodVerdict::Leave(_) | PodVerdict::Going => None,
            PodVerdict::Refuse(reason) => Some(reason),
            // Lasting reasons first: it is no use to wait for a budget if the pod can't go anyway.
            PodVerdict::Evict => self.grace(pod).or_else(|| self.placement(node, pod)).or_else(|| self.budget(pod)),
        }
    }

    fn grace(&self, pod: &PodSnapshot) -> Option<Reason> {
        let grace = self.policy.drain.pod_grace.unwrap_or(pod.grace);
        let exceeds = self.policy.drain_timeout.is_some_and(|timeout| grace > timeout);
        exceeds.then(|| Reason::GraceExceedsTimeout(pod.reference(), grace))
    }

    fn budget(&self, pod: &PodSnapshot) -> Option<Reason> {
        let own = self.policy.own_pod.as_ref() == Some(&pod.uid);
        if own { None } else { plan::budget_refusal(pod, self.facts.view) }
    }
}

/// The claim on a node that is to go by this policy, and not departing.
fn open_claim<'n>(node: &'n impl Node, policy: &Policy) -> Option<&'n Claim> {
    let claim = node.claim().of(node.uid());
    claim.filter(|claim| policy.candidates.is_owner(&claim.owner) && !claim.is_departing())
}

/// Whether the node goes without us: being deleted, departing, or claimed for another purpose.
fn is_departing(node: &impl Node, policy: &Policy) -> bool {
    let others = |claim: &Claim| claim.is_departing() || !policy.candidates.is_owner(&claim.owner);
    node.claim().of(node.uid()).is_some_and(others) || node.deleting_since().is_some()
}

const fn order(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Eligible => 0,
        Verdict::Refused(_) => 1,
        Verdict::NotACandidate => 2,
    }
}
