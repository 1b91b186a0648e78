//! Labels and taints: what Kubernetes takes, and what a kubelet may set on its own Node.

use std::collections::BTreeSet;

use spot_core::capacity::{CapacityLabels, Class};
use spot_core::node::key;

use super::{Faults, LIFECYCLE, entry};

/// Prefixes below which a kubelet may set labels, though they are Kubernetes' own.
/// <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>
const ALLOWED: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Labels that the kubelet or the cloud controller sets.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/>
const SET_BY_OTHERS: [&str; 8] = [
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.k8s.aws/zone-id",
];

impl Faults<'_> {
    pub(super) fn labels(&mut self) {
        let (pool, known) = (self.pool, CapacityLabels::default());
        for (key, value) in &pool.labels {
            let message = if let Some(message) = name_fault(key).or_else(|| reserved_label(key)) {
                message
            } else if key == LIFECYCLE && value != "spot" {
                format!("every machine of the pool is spot capacity, not {value:?}: leave it out")
            } else if let Some(class) = known.class_of(key, value).filter(|class| *class != Class::Spot) {
                format!("{value:?} says {class}, and every machine of the pool is spot capacity: leave it out")
            } else if let Some(message) = value_fault(value) {
                message
            } else {
                continue;
            };
            self.add(entry("labels", key), message);
        }
    }

    pub(super) fn taints(&mut self) {
        let pool = self.pool;
        let mut seen = BTreeSet::new();
        for (at, taint) in pool.taints.iter().enumerate() {
            let place = format!("taints[{at}]");
            if let Some(message) = name_fault(&taint.key).or_else(|| reserved_taint(&taint.key)) {
                self.add(format!("{place}.key"), message);
            }
            if let Some(message) = value_fault(&taint.value) {
                self.add(format!("{place}.value"), message);
            }
            if !seen.insert((&taint.key, taint.effect)) {
                let effect = taint.effect.as_str();
                let message = format!("{:?} with effect {effect} comes twice: keep one of the two", taint.key);
                self.add(place, message);
            }
        }
    }
}

/// What Kubernetes does not take for a key.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>
fn name_fault(key: &str) -> Option<String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let part = |part: &str| super::is_dns_label(part) && part.len() <= 63;
    if prefix.is_some_and(|prefix| prefix.len() > 253 || !prefix.split('.').all(part)) {
        return Some(format!("{key:?} has no DNS name before its `/`: as in `example.com/name`"));
    }
    let sound = !name.is_empty() && value_fault(name).is_none();
    (!sound).then(|| format!("{key:?} is no key: letters, digits, `-`, `_` and `.`, at most 63 characters, perhaps below a prefix as in `example.com/name`"))
}

fn value_fault(value: &str) -> Option<String> {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    let sound = value.len() <= 63
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && ends(value.chars().next())
        && ends(value.chars().next_back());
    (!sound).then(|| {
        format!("{value:?} is no value: letters, digits, `-`, `_` and `.`, at most 63 characters, a letter or digit at both ends")
    })
}

fn reserved_label(label: &str) -> Option<String> {
    let prefix = label.split_once('/')?.0;
    let below = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if below("spot-migrator.io") {
        Some(format!("{label:?} is below a prefix of this program's own: choose another"))
    } else if below("karpenter.sh") || below("karpenter.k8s.aws") {
        Some(format!("Karpenter would take the node for its own by {label:?}: choose another"))
    } else if SET_BY_OTHERS.contains(&label) {
        Some(format!("{label:?} is set by the kubelet or the cloud controller: leave it out"))
    } else if below("node-restriction.kubernetes.io") {
        Some(format!("no kubelet may set {label:?}, so that a node can't give it to itself: set it from outside"))
    } else if (below("kubernetes.io") || below("k8s.io")) && !ALLOWED.into_iter().any(below) {
        let [one, other] = ALLOWED;
        Some(format!(
            "the kubelet refuses to start with {label:?}, below a prefix of Kubernetes' own: choose a prefix of yours, or \
             `{one}/` or `{other}/`"
        ))
    } else {
        None
    }
}

fn reserved_taint(taint: &str) -> Option<String> {
    let prefix = taint.split_once('/').map(|(prefix, _)| prefix).unwrap_or_default();
    let below = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if below("spot-migrator.io") || [key::TO_BE_DELETED, key::DELETION_CANDIDATE].contains(&taint) {
        Some(format!("{taint:?} says that the node is about to go: choose another"))
    } else if below("node.kubernetes.io") || below("node.cloudprovider.kubernetes.io") {
        Some(format!("Kubernetes itself puts {taint:?} on and takes it off: choose another"))
    } else if [key::CONTROL_PLANE, key::MASTER].contains(&taint) {
        Some(format!("the node would count as control plane by {taint:?}, and never go: choose another"))
    } else if below("karpenter.sh") {
        Some(format!("Karpenter would take the node for its own by {taint:?}: choose another"))
    } else {
        None
    }
}
