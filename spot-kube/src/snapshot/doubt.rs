//! Values of which nothing can be made: people write annotations and labels by hand, and kubelets may write anything.
//! They count as absent, and whoever reads the log is told of each once.

use super::{Budget, Metadata, Node, Object, Pod};
use crate::claim;
use spot_core::node::{ClaimAnnotation, key};

/// The most of a value that is shown: an annotation may have 256 KiB.
const SHOWN: usize = 64;

/// A value that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Where it stands.
    pub(crate) key: &'static str,
    /// What is wrong with it.
    pub(crate) fault: String,
    /// What comes of it.
    pub(crate) counts_as: &'static str,
}

impl Doubt {
    fn absent(key: &'static str, fault: String) -> Self {
        Self { key, fault, counts_as: "it counts as absent" }
    }
}

/// What can't be read on a node.
pub(crate) fn of_node(node: &Node) -> Vec<Doubt> {
    let Some(metadata) = node.metadata() else { return Vec::new() };
    let mut doubts = booleans(
        metadata,
        &[key::SELECTED, key::COST_MANAGER_SELECTED, key::DO_NOT_MIGRATE],
        &[key::DO_NOT_MIGRATE, key::SCALE_DOWN_DISABLED, key::DO_NOT_DISRUPT],
    );
    if let ClaimAnnotation::Unreadable(why) = claim::decode(metadata.annotation(key::CLAIM)) {
        doubts.push(Doubt::absent(key::CLAIM, format!("it is no record of ours: {why}")));
    }
    if let Some(text) = metadata.annotation(key::BACK_OFF)
        && claim::decode_back_off(text).is_none()
    {
        doubts.push(Doubt::absent(key::BACK_OFF, format!("{} is no time until which to wait", shown(text))));
    }
    doubts
}

/// What can't be read on a pod.
pub(crate) fn of_pod(pod: &Pod) -> Vec<Doubt> {
    let annotations = [key::DO_NOT_EVICT, key::DO_NOT_DISRUPT, key::SAFE_TO_EVICT];
    pod.metadata().map_or_else(Vec::new, |metadata| booleans(metadata, &[key::DO_NOT_EVICT], &annotations))
}

/// What can't be read of a budget.
pub(crate) fn of_budget(budget: &Budget) -> Vec<Doubt> {
    let doubt = |fault| Doubt {
        key: "spec.selector",
        fault,
        counts_as: "the budget lets no pod of its namespace go until it can be",
    };
    budget.selector_fault().map(doubt).into_iter().collect()
}

/// The labels and annotations of these keys that say neither yes nor no, as Kubernetes writes them.
fn booleans(metadata: &Metadata, labels: &[&'static str], annotations: &[&'static str]) -> Vec<Doubt> {
    let labels = labels.iter().map(|key| (*key, metadata.label(key)));
    let annotations = annotations.iter().map(|key| (*key, metadata.annotation(key)));
    let odd = |(key, text): (&'static str, Option<&str>)| {
        let text = text.filter(|text| !["true", "false"].contains(text))?;
        Some(Doubt::absent(key, format!("{} is neither `true` nor `false`", shown(text))))
    };
    labels.chain(annotations).filter_map(odd).collect()
}

/// The beginning of a value, quoted.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(SHOWN).collect();
    let more = if beginning.len() < text.len() { "…" } else { "" };
    format!("{beginning:?}{more}")
}
