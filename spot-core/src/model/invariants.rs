//! What must hold after every single call, whatever fails: the promises of a planned migration.
//!
//! The checker looks at each call when it has had its effect, and at the world right before and after it. It shares
//! nothing with the code that it judges but the ports.

mod foreign;
mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::capacity::Class;
use crate::claim::{Claim, ClaimRecord, Machine, Owner};
use crate::cloud::Deletion;
use crate::node::{Effect, Node, NodeRef, NodeSnapshot, Taint, Uid, key};
use crate::ports::{Edit, Instant, NodeChange};

use super::Model;
use super::process::ProcessId;
use super::record::{Answer, Call, CallRecord, Fact, Removal};
use super::world::World;

pub use pool::PoolLimits;

use foreign::{kept_away, taken_off};

/// What the promises are held against.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many nodes may be on their way at once.
    pub nodes_at_once: usize,
    /// The migrator's own pod, which may be left on its node.
    pub own_pod: Option<Uid>,
    /// How long after it was announced that a machine is taken back a process that claimed its node begins nothing.
    pub pause: Duration,
    /// What is to stay of a pool.
    pub pool: PoolLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self { nodes_at_once: 1, own_pod: None, pause: Duration::from_mins(15), pool: PoolLimits::default() }
    }
}

/// One of the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// A node is claimed before it is touched, on its very version, and never more than allowed at once.
    ClaimFirst,
    /// Only on-demand nodes that nobody opted out are claimed, and never the control plane.
    Eligible,
    /// A machine goes only when its node was found empty after the taint, and load balancers had their time.
    EmptyFirst,
    /// Only machines that a claim names go.
    Claimed,
    /// Pods go by eviction alone, but for those of a node whose spot machine is being taken back.
    EvictedOnly,
    /// Nothing planned is begun while spot machines are being taken back.
    Held,
    /// No budget is overrun.
    Budgets,
    /// Nothing of ours stays when the work has ended.
    Released,
    /// Nothing of others is taken off.
    Foreign,
    /// Groups keep exactly what is left of their machines.
    Capacity,
    /// A pool's fleets want less by exactly what goes, and never is less there, ready, or more there than allowed.
    Pool,
    /// Only the leader writes.
    Leader,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The call that broke it; none: found at the end.
    pub call: Option<u64>,
    /// Which promise.
    pub invariant: Invariant,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.call {
            Some(call) => write!(f, "call {call}: {:?}: {}", self.invariant, self.what),
            None => write!(f, "at the end: {:?}: {}", self.invariant, self.what),
        }
    }
}

/// Checks a world after each call.
#[derive(Clone, Debug)]
pub struct Invariants(Arc<Mutex<Checker>>);

impl Invariants {
    /// Begins to check.
    #[must_use]
    pub fn watch(model: &Model, limits: Limits) -> Self {
        let held = model.with(|world| {
            let claimed = world.view().nodes().iter().filter(|node| claim_of(node).is_some());
            claimed.map(|node| Arc::clone(&node.name)).collect()
        });
        let checker = Arc::new(Mutex::new(Checker { limits, held, ..Checker::default() }));
        let hooked = Arc::clone(&checker);
        model.with(|world| {
            world.after_each_call(move |world, record| {
                hooked.lock().unwrap_or_else(PoisonError::into_inner).check(world, record);
            });
        });
        Self(checker)
    }

    /// What was found until now.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).found.clone()
    }

    /// What was found, and what of ours is still on nodes that are not departing, now that the work has ended.
    #[must_use]
    pub fn at_the_end(&self, model: &Model) -> Vec<Violation> {
        let mut checker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        model.with(|world| checker.look_for_leftovers(world));
        checker.found.clone()
    }
}

#[derive(Debug, Default)]
struct Checker {
    limits: Limits,
    found: Vec<Violation>,
    /// Which facts were looked at.
    facts: usize,
    /// Nodes whose cordon is ours.
    cordoned: BTreeSet<Uid>,
    /// Nodes that were claimed.
    selected: BTreeSet<Uid>,
    /// Names of nodes that a process has claimed and not released. That others took a claim off is seen later.
    held: BTreeSet<Arc<str>>,
    /// Nodes whose machine's deletion was accepted.
    deleted: BTreeSet<Uid>,
    /// The latest list of a node's pods by each process that found nothing, and when.
    empty: BTreeMap<(ProcessId, Uid), Instant>,
    /// When a node was written with the taint on it.
    tainted: BTreeMap<Uid, Instant>,
    /// Pods that were deleted.
    given_up: BTreeSet<Uid>,
    /// When a process claimed such a node last, and until when it begins nothing.
    pressed: BTreeMap<ProcessId, (Instant, Instant)>,
    /// Which changes of fleets were looked at.
    changes: usize,
}

impl Checker {
    fn report(&mut self, call: u64, invariant: Invariant, what: String) {
        self.found.push(Violation { call: Some(call), invariant, what });
    }

    fn check(&mut self, world: &World, record: &CallRecord) {
        let number = record.number;
        if let Some(leader) = world.leader()
            && is_write(&record.call)
            && !leader.led_at(record.process, record.sent)
        {
            self.report(number, Invariant::Leader, format!("process {} writes and does not lead", record.process.0));
        }
        match (&record.call, &record.answer) {
            (Call::WriteNode { node, change }, Answer::Written(_)) => self.written(world, record, node, change),
            (Call::Evict { pod, .. }, _) => {
                let node = world.view().pods().find(|other| other.uid == pod.uid).and_then(|pod| pod.node.clone());
                if node.is_some_and(|node| !self.held.contains(&node)) {
                    self.report(number, Invariant::ClaimFirst, format!("{pod} is evicted from a node without a claim"));
                }
            }
            (Call::DeletePod { pod, .. }, _) => {
                let node = world.view().pods().find(|other| other.uid == pod.uid).and_then(|pod| pod.node.clone());
                if node.is_some_and(|node| !is_doomed(world, &node)) {
                    self.report(number, Invariant::EvictedOnly, format!("{pod} is deleted"));
                }
                self.given_up.insert(pod.uid.clone());
            }
            (Call::LatestPods(node), Answer::Pods(pods)) => {
                let own = self.limits.own_pod.as_ref();
                let left =
                    pods.iter().filter(|pod| Some(&pod.uid) != own && !is_overdue(world, node, &pod.uid)).count();
                let seen = (record.process, node.uid.clone());
                if left == 0 {
                    self.empty.insert(seen, record.answered.unwrap_or(record.sent));
                } else {
                    self.empty.remove(&seen);
                }
            }
            (Call::DeleteInstance { node, .. }, Answer::Deletion(deletion)) => {
                self.deleting(world, record, node, *deletion);
            }
            (Call::DeleteNode(node), Answer::Done) => self.deleting_object(world, record, node),
            (
                Call::Open(_)
                | Call::WriteNode { .. }
                | Call::DeleteNode(_)
                | Call::Recall
                | Call::Remember(_)
                | Call::LatestPods(_)
                | Call::Survey { .. }
                | Call::Detach { .. }
                | Call::Attach { .. }
                | Call::DeleteInstance { .. }
                | Call::InstanceState(_)
                | Call::Receive
                | Call::Extend(_)
                | Call::Settle { .. }
                | Call::Fleets
                | Call::Resize { .. }
                | Call::Terminate { .. }
                | Call::Cancel(_),
                _,
            ) => {}
        }
        let before = world.facts().len() - world.facts_of_the_latest_call().len();
        for at in self.facts..world.facts().len() {
            // that a machine is taken back right before a call is nobody's fault
            let happened = world.facts().get(at).map(|record| &record.fact);
            let happened = happened.filter(|fact| at >= before || !matches!(fact, Fact::MachineDeleted { .. }));
            if let Some(fact) = happened {
                self.happened(world, number, fact);
            }
        }
        self.facts = world.facts().len();
        self.check_pool(world, record);
        for (group, running) in world.machines_by_group() {
            let desired = world.groups().find(|(id, _)| *id == group).map_or(0, |(_, group)| group.desired);
            if desired != running && !pool::is_fleet(world, &group) {
                let what = format!("group {group} wants {desired} machines and has {running}");
                self.report(number, Invariant::Capacity, what);
            }
        }
    }

    fn written(&mut self, world: &World, record: &CallRecord, node: &NodeRef, change: &NodeChange) {
        let number = record.number;
        let Some(after) = world.last_seen(node.uid.as_str()) else { return };
        let before = world.replaced().filter(|before| before.uid == node.uid).unwrap_or(after);
        let (had, has) = (claim_of(before), claim_of(after));
        match (had, has) {
            (_, Some(claim)) if claim.owner == Owner::Interruption => {
                if let Edit::Set(_) = change.claim {
                    self.seized(world, record, node, claim);
                }
            }
            (None, Some(claim)) => {
                self.claimed(world, number, node, before, claim);
                let pressed = self.pressed.get(&record.process);
                if pressed.is_some_and(|(at, until)| *at < record.sent && record.sent < *until) {
                    self.report(number, Invariant::Held, format!("{node} is claimed by {}", claim.owner));
                }
            }
            (Some(_) | None, _) => {}
        }
        match change.claim {
            Edit::Set(_) => {
                self.held.insert(Arc::clone(&node.name));
            }
            Edit::Remove => {
                self.held.remove(&node.name);
            }
            Edit::Keep => {}
        }
        let touches = matches!(change.mark, Edit::Set(())) || change.unschedulable == Some(true);
        if touches && has.is_none() {
            self.report(number, Invariant::ClaimFirst, format!("{node} is touched without a claim"));
        }
        for foreign in taken_off(before, after, had) {
            self.report(number, Invariant::Foreign, format!("{node} loses {foreign}"));
        }
        match (before.unschedulable, after.unschedulable) {
            (false, true) => {
                self.cordoned.insert(node.uid.clone());
            }
            (true, false) => {
                self.cordoned.remove(&node.uid);
            }
            (true, true) | (false, false) => {}
        }
        if after.taints.iter().any(is_to_be_deleted) {
            if !before.taints.iter().any(is_to_be_deleted) {
                self.tainted.insert(node.uid.clone(), record.answered.unwrap_or(record.sent));
            }
        } else {
            self.tainted.remove(&node.uid);
        }
    }

    fn claimed(&mut self, world: &World, number: u64, node: &NodeRef, before: &NodeSnapshot, claim: &Claim) {
        self.selected.insert(node.uid.clone());
        if node.resource_version.is_none() {
            self.report(number, Invariant::ClaimFirst, format!("{node} is claimed in whatever version"));
        }
        let open = world.view().nodes().iter().filter_map(|node| claim_of(node));
        let open = open.filter(|other| other.owner == claim.owner && !other.is_departing()).count();
        if open > self.limits.nodes_at_once {
            self.report(number, Invariant::ClaimFirst, format!("{node} is claimed, and {open} nodes are on their way"));
        }
        if let Machine::Instance(instance) = &claim.machine
            && world.instance_of_uid(node.uid.as_str()) != Some(instance)
        {
            self.report(number, Invariant::Claimed, format!("{node} is claimed with the machine {instance}"));
        }
        let class = world.class_of_uid(node.uid.as_str()).unwrap_or(Class::Unknown);
        let of_pool = world.group_of_uid(node.uid.as_str()).is_some_and(|group| pool::is_fleet(world, group));
        if claim.owner == Owner::Migrator && class != Class::OnDemand
            || matches!(claim.owner, Owner::Fleet(_)) && !of_pool
        {
            self.report(number, Invariant::Eligible, format!("{node} is claimed and {class}"));
        }
        for reason in kept_away(before) {
            self.report(number, Invariant::Eligible, format!("{node} is claimed in spite of {reason}"));
        }
    }

    /// A node is claimed, or claimed once more, because of what was announced of its machine.
    fn seized(&mut self, world: &World, record: &CallRecord, node: &NodeRef, claim: &Claim) {
        let number = record.number;
        let Some(instance) = world.instance_of_uid(node.uid.as_str()) else { return };
        if claim.machine != Machine::Instance(instance.clone()) {
            self.report(number, Invariant::Claimed, format!("{node} is claimed with the machine {:?}", claim.machine));
        }
        if claim.is_departing() {
            self.report(number, Invariant::Claimed, format!("the machine of {node} is to be deleted"));
        }
        if world.announced(instance).next().is_none() {
            self.report(number, Invariant::Eligible, format!("{node} is claimed, and nothing was announced of it"));
        }
        if let Some(sent) = world.taken_back_since(instance) {
            let at = record.answered.unwrap_or(record.sent);
            let ago = Duration::try_from(world.wall().duration_since(sent)).unwrap_or_default();
            self.pressed.insert(record.process, (at, Instant((at.0 + self.limits.pause).saturating_sub(ago))));
        }
    }

    fn deleting(&mut self, world: &World, record: &CallRecord, node: &NodeRef, deletion: Deletion) {
        let number = record.number;
        let Some(after) = world.last_seen(node.uid.as_str()) else { return };
        let Some(claim) = claim_of(after) else {
            self.report(number, Invariant::Claimed, format!("the machine of {node} goes without a claim"));
            return;
        };
        let named = match &record.call {
            Call::DeleteInstance { instance: Some(instance), .. } => Machine::Instance(instance.clone()),
            _ => Machine::WithNode,
        };
        if claim.machine != named {
            self.report(number, Invariant::Claimed, format!("{node} has another claim than {named:?}"));
        }
        if deletion == Deletion::Accepted && self.deleted.insert(node.uid.clone()) {
            self.check_emptiness(record, node);
        }
    }

    fn deleting_object(&mut self, world: &World, record: &CallRecord, node: &NodeRef) {
        let new = world.facts_of_the_latest_call();
        let object_went = new.iter().any(|fact| matches!(&fact.fact, Fact::NodeGone(gone) if gone.uid == node.uid));
        let machine_goes =
            |fact: &Fact| matches!(fact, Fact::MachineDeleted { node: gone, .. } if gone.uid == node.uid);
        let machine_goes = new.iter().any(|fact| machine_goes(&fact.fact));
        let claim = world.last_seen(node.uid.as_str()).and_then(|node| claim_of(node));
        if object_went && world.machine_runs(node.uid.as_str()) {
            self.report(record.number, Invariant::Claimed, format!("{node} is deleted, and its machine runs on"));
        }
        if machine_goes && self.deleted.insert(node.uid.clone()) {
            self.check_emptiness(record, node);
            if claim.is_none() {
                self.report(record.number, Invariant::Claimed, format!("{node} is deleted without a claim"));
            }
        }
    }

    fn check_emptiness(&mut self, record: &CallRecord, node: &NodeRef) {
        let found = self.empty.get(&(record.process, node.uid.clone())).copied();
        // a taint that we did not put on was there all the time
        let tainted = self.tainted.get(&node.uid).copied().unwrap_or_default();
        if found.is_none_or(|found| found < tainted) {
            let what = format!("the machine of {node} goes, and no list after the taint found the node empty");
            self.report(record.number, Invariant::EmptyFirst, what);
        }
    }

    fn happened(&mut self, world: &World, number: u64, fact: &Fact) {
        match fact {
            Fact::BudgetOverrun { budget, healthy, desired } => {
                let what = format!("budget {budget} demands {desired} healthy pods and has {healthy}");
                self.report(number, Invariant::Budgets, what);
            }
            Fact::PodGone { pod, removal: Removal::Deleted, .. } if !self.given_up.contains(&pod.uid) => {
                self.report(number, Invariant::EvictedOnly, format!("{pod} went by a deletion"));
            }
            Fact::MachineDeleted { node, tainted_for, .. } => {
                let Some(after) = world.last_seen(node.uid.as_str()) else { return };
                let ours = |claim: &Claim| claim.taint.is_some() && claim.owner != Owner::Interruption;
                let ours = claim_of(after).is_some_and(ours);
                let drain = world.settings().load_balancer_drain;
                if ours && tainted_for.is_none_or(|time| time < drain) {
                    let what = format!("the machine of {node} goes {tainted_for:?} after the taint");
                    self.report(number, Invariant::EmptyFirst, what);
                }
            }
            Fact::PodGone { .. } | Fact::NodeJoined { .. } | Fact::NodeGone(_) | Fact::MachineGone(_) => {}
        }
    }

    fn look_for_leftovers(&mut self, world: &World) {
        for node in world.view().nodes() {
            if claim_of(node).is_some_and(|claim| claim.is_departing() || may_go_yet(world, node, claim)) {
                continue;
            }
            let mut left: Vec<&str> = Vec::new();
            if !matches!(node.claim(), ClaimRecord::None) {
                left.push("the claim");
            }
            if node.labels.contains_key(key::SELECTED) {
                left.push("the mark");
            }
            if node.taints.iter().any(|taint| taint.key == key::LEAVING) {
                left.push("the soft taint");
            }
            if self.tainted.contains_key(&node.uid) && node.taints.iter().any(is_to_be_deleted) {
                left.push("the taint");
            }
            if self.cordoned.contains(&node.uid) && node.unschedulable {
                left.push("the cordon");
            }
            if !left.is_empty() {
                let what = format!("{} still has {}", node.name, left.join(", "));
                self.found.push(Violation { call: None, invariant: Invariant::Released, what });
            }
        }
    }
}

fn claim_of(node: &NodeSnapshot) -> Option<&Claim> {
    node.claim().of(node.uid.as_str())
}

/// Whether a node is claimed while its spot machine is taken back.
fn is_doomed(world: &World, node: &str) -> bool {
    let Some(node) = world.node(node) else { return false };
    claim_of(node).is_some_and(|claim| claim.owner == Owner::Interruption)
        && world.instance_of_uid(node.uid.as_str()).is_some_and(|instance| world.is_taken_back(instance))
}

/// Whether a machine of which something was announced is not back yet, or may go yet.
fn may_go_yet(world: &World, node: &NodeSnapshot, claim: &Claim) -> bool {
    let until = claim.until.unwrap_or(claim.since);
    let waited = world.wall().duration_since(until) > jiff::SignedDuration::from_mins(15);
    claim.owner == Owner::Interruption && !(node.readiness == crate::node::Readiness::Ready && waited)
}

fn is_to_be_deleted(taint: &Taint) -> bool {
    taint.is(key::TO_BE_DELETED, Effect::NoSchedule)
}

const fn is_write(call: &Call) -> bool {
    match call {
        Call::WriteNode { .. }
        | Call::Evict { .. }
        | Call::DeletePod { .. }
        | Call::DeleteNode(_)
        | Call::Remember(_)
        | Call::Detach { .. }
        | Call::Attach { .. }
        | Call::DeleteInstance { .. }
        | Call::Resize { .. }
        | Call::Terminate { .. }
        | Call::Cancel(_) => true,
        Call::Open(_)
        | Call::Recall
        | Call::LatestPods(_)
        | Call::Survey { .. }
        | Call::InstanceState(_)
        | Call::Receive
        | Call::Extend(_)
        | Call::Settle { .. }
        | Call::Fleets => false,
    }
}

/// Whether a pod counts as gone though its object is there: its node does not answer, and its time is up.
fn is_overdue(world: &World, node: &NodeRef, pod: &Uid) -> bool {
    let silent = world.node(&node.name).is_some_and(|node| node.readiness != crate::node::Readiness::Ready);
    let pod = world.view().pods_on(&node.name).find(|other| other.uid == *pod);
    silent && pod.and_then(|pod| pod.deletion).is_some_and(|until| until <= world.wall())
}
