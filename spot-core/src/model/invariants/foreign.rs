//! What belongs to others on a node.

use crate::claim::Claim;
use crate::node::{NodeSnapshot, Taint, key};

use super::is_to_be_deleted;

/// Why a node may not be claimed.
pub(super) fn kept_away(node: &NodeSnapshot) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    for role in [key::CONTROL_PLANE, key::MASTER] {
        if node.labels.contains_key(role) || node.taints.iter().any(|taint| taint.key == role) {
            reasons.push(role);
        }
    }
    let set =
        |key: &str| node.labels.get(key).or_else(|| node.annotations.get(key)).is_some_and(|value| value == "true");
    reasons.extend(
        [key::DO_NOT_MIGRATE, key::SCALE_DOWN_DISABLED, key::DO_NOT_DISRUPT].into_iter().filter(|key| set(key)),
    );
    reasons
}

/// What a write took off a node that was not ours.
pub(super) fn taken_off(before: &NodeSnapshot, after: &NodeSnapshot, claim: Option<&Claim>) -> Vec<String> {
    let ours = |taint: &Taint| {
        let recorded = claim.and_then(|claim| claim.taint.as_ref());
        [key::LEAVING, key::REBALANCE].contains(&taint.key.as_str())
            || (is_to_be_deleted(taint) && recorded == Some(&taint.value))
    };
    let taints = before.taints.iter().filter(|taint| !ours(taint) && !after.taints.contains(taint));
    let mut lost: Vec<String> = taints.map(|taint| format!("the taint {}={}", taint.key, taint.value)).collect();
    let labels = before.labels.keys().filter(|label| !after.labels.contains_key(*label));
    let labels = labels.filter(|label| *label != key::SELECTED && *label != key::COST_MANAGER_SELECTED);
    lost.extend(labels.map(|label| format!("the label {label}")));
    let old_mark = before.labels.get(key::COST_MANAGER_SELECTED).is_some_and(|value| value == "true");
    let cordon_is_ours = old_mark || claim.is_some_and(|claim| claim.cordoned);
    if before.unschedulable && !after.unschedulable && !cordon_is_ours {
        lost.push("a cordon".to_owned());
    }
    lost
}
