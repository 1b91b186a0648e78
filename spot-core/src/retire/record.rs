//! What is written on a node at each step, and what on it says that a person took it back. Pure.

use jiff::Timestamp;

use super::{Halt, is_deletion_taint, seconds};
use crate::claim::{BackOff, Claim, ClaimStep, FleetBefore, Machine, Owner};
use crate::decision;
use crate::node::{ClaimAnnotation, Effect, Node, NodeSnapshot, Taint, key};
use crate::ports::{Edit, NodeChange};
use crate::progress::Undo;

/// The claim of this owner on this node.
pub(crate) fn ours<'a>(node: &'a NodeSnapshot, owner: &Owner) -> Option<&'a Claim> {
    node.claim().of(node.uid.as_str()).filter(|claim| claim.owner == *owner)
}

/// Whether an unclaimed node must not be claimed, though its judgement said otherwise: what can change in between.
pub(super) fn is_untouchable(node: &NodeSnapshot, judged: &NodeSnapshot) -> bool {
    decision::is_control_plane(node)
        || decision::opt_out(node).is_some()
        || node.deleting_since.is_some()
        || node.claim != ClaimAnnotation::Absent
        || (node.provider_id.as_str(), node.boot_id.as_str()) != (judged.provider_id.as_str(), judged.boot_id.as_str())
}

/// Where a claim, which a kubelet can forge, and the facts disagree.
pub(crate) fn mismatch(node: &NodeSnapshot, claim: &Claim, machine: &Machine) -> Option<&'static str> {
    if claim.machine != *machine {
        Some("its claim names another machine than the cloud does")
    } else if claim.boot_id != node.boot_id {
        Some("another boot of the machine has taken the node over since it was claimed")
    } else {
        None
    }
}

/// Whether an interruption has taken the node over from this owner.
pub(super) fn is_overtaken(node: &NodeSnapshot, owner: &Owner) -> bool {
    *owner != Owner::Interruption && ours(node, &Owner::Interruption).is_some()
}

/// What a person did to take the node back, or who else took it over.
pub(super) fn taken_back(node: &NodeSnapshot, owner: &Owner) -> Option<Halt> {
    if is_overtaken(node, owner) {
        return Some(Halt::Overtaken);
    }
    let undo = match node.claim().of(node.uid.as_str()) {
        Some(claim) if claim.owner == *owner => {
            if node.label(key::SELECTED) != Some("true") {
                Undo::MarkRemoved
            } else if !node.unschedulable {
                Undo::Uncordoned
            } else if decision::opt_out(node).is_some() && *owner != Owner::Interruption {
                Undo::OptedOut
            } else {
                return None;
            }
        }
        Some(_) | None => Undo::ClaimRemoved,
    };
    Some(Halt::Undone(undo))
}

/// Whether our taint and the cordon went in one update, while the mark stayed: what a cluster-autoscaler does to the
/// nodes of its groups when it starts. It is put right once; a second time it is taken for a person's doing.
pub(super) fn lost_its_taint(node: &NodeSnapshot, owner: &Owner) -> bool {
    let Some(claim) = ours(node, owner) else { return false };
    claim.taint.is_some()
        && !claim.restored
        && !node.unschedulable
        && !node.taints.iter().any(is_deletion_taint)
        && node.label(key::SELECTED) == Some("true")
        && (*owner == Owner::Interruption || decision::opt_out(node).is_none())
}

/// Taint and cordon put back, and the record of it.
pub(super) fn restoring(node: &NodeSnapshot, owner: &Owner, now: Timestamp) -> NodeChange {
    let value = seconds(now);
    let mut taints = node.taints.clone();
    taints.push(Taint::new(key::TO_BE_DELETED, value.clone(), Effect::NoSchedule));
    let change = edited(node, owner, |claim| {
        claim.restored = true;
        claim.taint = Some(value);
    });
    NodeChange { unschedulable: Some(true), taints: Some(taints), ..change }
}

/// Mark, cordon and record. A claim of ours is taken up; one that was about to delete drains again first.
pub(super) fn claiming(node: &NodeSnapshot, owner: &Owner, machine: &Machine, now: Timestamp) -> NodeChange {
    let resumed = ours(node, owner);
    let claim = match resumed {
        Some(claim) => Claim { step: claim.step.min(ClaimStep::Tainted), ..claim.clone() },
        None => Claim {
            owner: owner.clone(),
            node: node.uid.clone(),
            machine: machine.clone(),
            boot_id: node.boot_id.clone(),
            step: ClaimStep::Draining,
            // The mark of the tool that this one replaces tells that the cordon was that tool's, and so is ours now.
            cordoned: !node.unschedulable || node.label(key::COST_MANAGER_SELECTED) == Some("true"),
            taint: None,
            since: now,
            own_pod_left: false,
            restored: false,
            until: None,
            fleet_before: None,
        },
    };
    NodeChange {
        mark: if node.label(key::SELECTED) == Some("true") { Edit::Keep } else { Edit::Set(()) },
        claim: if resumed == Some(&claim) { Edit::Keep } else { Edit::Set(claim) },
        unschedulable: (!node.unschedulable).then_some(true),
        ..NodeChange::default()
    }
}

/// Mark, cordon and record of an interruption, and the taint where the machine surely goes. What another claim lists
/// stays listed: it is taken over with all that was done for it.
pub(super) fn seizing(
    node: &NodeSnapshot,
    machine: &Machine,
    until: Option<Timestamp>,
    taint: bool,
    now: Timestamp,
) -> NodeChange {
    let listed = node.claim().of(node.uid.as_str());
    let resumed = listed.filter(|claim| claim.owner == Owner::Interruption && claim.boot_id == node.boot_id);
    let tainting = taint && !node.taints.iter().any(is_deletion_taint);
    let claim = Claim {
        owner: Owner::Interruption,
        node: node.uid.clone(),
        machine: machine.clone(),
        boot_id: node.boot_id.clone(),
        step: ClaimStep::Draining,
        cordoned: !node.unschedulable
            || listed.is_some_and(|claim| claim.cordoned)
            || node.label(key::COST_MANAGER_SELECTED) == Some("true"),
        taint: if tainting { Some(seconds(now)) } else { listed.and_then(|claim| claim.taint.clone()) },
        since: resumed.map_or(now, |claim| claim.since),
        own_pod_left: false,
        restored: resumed.is_some_and(|claim| claim.restored) || lost_its_taint(node, &Owner::Interruption),
        until: match (resumed.and_then(|claim| claim.until), until) {
            (Some(before), Some(until)) if taint && before > now => Some(before.min(until)),
            // That time has passed, and nothing happened; or it was that of an earlier process's own drain.
            (before, until) => until.or(before),
        },
        fleet_before: listed.and_then(|claim| claim.fleet_before.clone()),
    };
    let mut taints = node.taints.clone();
    taints.push(Taint::new(key::TO_BE_DELETED, seconds(now), Effect::NoSchedule));
    NodeChange {
        mark: if node.label(key::SELECTED) == Some("true") { Edit::Keep } else { Edit::Set(()) },
        claim: if listed == Some(&claim) { Edit::Keep } else { Edit::Set(claim) },
        unschedulable: (!node.unschedulable).then_some(true),
        taints: tainting.then_some(taints),
        ..NodeChange::default()
    }
}

/// The record with another step, and what the fleet that keeps the machine wanted before; nothing if that is where it
/// stands.
pub(super) fn reaching(
    node: &NodeSnapshot,
    owner: &Owner,
    step: ClaimStep,
    fleet_before: Option<&FleetBefore>,
) -> NodeChange {
    edited(node, owner, |claim| {
        claim.step = step;
        claim.fleet_before = fleet_before.cloned();
    })
}

/// The record that says that the migrator's own pod is all that is left.
pub(super) fn own_pod_left(node: &NodeSnapshot, owner: &Owner) -> NodeChange {
    edited(node, owner, |claim| claim.own_pod_left = true)
}

/// The taint that fails load balancers' health checks, and the record of it.
pub(super) fn tainting(node: &NodeSnapshot, owner: &Owner, now: Timestamp) -> NodeChange {
    if node.taints.iter().any(is_deletion_taint) {
        return edited(node, owner, |claim| claim.step = claim.step.max(ClaimStep::Tainted));
    }
    let value = seconds(now);
    let mut taints = node.taints.clone();
    taints.push(Taint::new(key::TO_BE_DELETED, value.clone(), Effect::NoSchedule));
    let change = edited(node, owner, |claim| {
        claim.step = claim.step.max(ClaimStep::Tainted);
        claim.taint = Some(value);
    });
    NodeChange { taints: Some(taints), ..change }
}

fn edited(node: &NodeSnapshot, owner: &Owner, edit: impl FnOnce(&mut Claim)) -> NodeChange {
    let Some(before) = ours(node, owner) else { return NodeChange::default() };
    let mut claim = before.clone();
    edit(&mut claim);
    let claim = if claim == *before { Edit::Keep } else { Edit::Set(claim) };
    NodeChange { claim, ..NodeChange::default() }
}

/// When the node was tainted for deletion, by whomever; none if that can't be read.
pub(super) fn tainted_at(node: &NodeSnapshot) -> Option<Timestamp> {
    let taint = node.taints.iter().find(|taint| is_deletion_taint(taint))?;
    taint.value.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok())
}

/// Takes everything of ours off: what the claim lists, the mark, and the soft taint. A person's doings stay.
pub(crate) fn releasing(node: &NodeSnapshot, claim: Option<&Claim>, back_off: Option<BackOff>) -> NodeChange {
    let is_ours = |taint: &Taint| {
        let deletion =
            is_deletion_taint(taint) && claim.is_some_and(|claim| claim.taint.as_ref() == Some(&taint.value));
        deletion || is_leaving(taint)
    };
    let uncordon = node.unschedulable && claim.is_some_and(|claim| claim.cordoned);
    let taints: Vec<_> = node.taints.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    NodeChange {
        mark: if node.label(key::SELECTED).is_some() { Edit::Remove } else { Edit::Keep },
        remove_old_mark: node.label(key::COST_MANAGER_SELECTED).is_some(),
        claim: if node.claim == ClaimAnnotation::Absent { Edit::Keep } else { Edit::Remove },
        back_off: back_off.map_or(Edit::Keep, Edit::Set),
        unschedulable: uncordon.then_some(false),
        taints: (taints.len() != node.taints.len()).then_some(taints),
    }
}

/// Whether this is the soft taint of nodes that may still go.
pub(crate) fn is_leaving(taint: &Taint) -> bool {
    taint.is(key::LEAVING, Effect::PreferNoSchedule)
}

/// The soft taint put on; nothing if it is there.
pub(crate) fn softening(node: &NodeSnapshot, now: Timestamp) -> NodeChange {
    if node.taints.iter().any(is_leaving) {
        return NodeChange::default();
    }
    let mut taints = node.taints.clone();
    taints.push(Taint::new(key::LEAVING, seconds(now), Effect::PreferNoSchedule));
    NodeChange { taints: Some(taints), ..NodeChange::default() }
}

/// The soft taint taken off; nothing if it is not there.
pub(crate) fn hardening(node: &NodeSnapshot) -> NodeChange {
    let taints: Vec<_> = node.taints.iter().filter(|taint| !is_leaving(taint)).cloned().collect();
    NodeChange { taints: (taints.len() != node.taints.len()).then_some(taints), ..NodeChange::default() }
}
