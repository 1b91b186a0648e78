//! Pods of a node whose kubelet is silent, which nobody sees go.

use std::time::Duration;

use jiff::Timestamp;

use crate::node::{NodeSnapshot, Readiness};
use crate::pod::PodSnapshot;

/// How long past its grace period a pod on a silent node may still be there before it counts as gone: Kubernetes'
/// pod garbage collection and a rebooting kubelet are given a minute.
const UNREACHABLE_SLACK: Duration = Duration::from_mins(1);

/// Whether a pod on a silent node counts as gone: its grace period is over for longer than a kubelet needs.
pub(crate) fn is_lost(pod: &PodSnapshot, node: &NodeSnapshot, wall: Timestamp) -> bool {
    lost_at(pod, node).is_some_and(|at| wall >= at)
}

/// From when on a pod that is going counts as gone because its node is silent.
pub(super) fn lost_at(pod: &PodSnapshot, node: &NodeSnapshot) -> Option<Timestamp> {
    let silent = matches!(node.readiness, Readiness::Unreachable { .. });
    let ends = pod.deletion.filter(|_| silent)?;
    ends.checked_add(UNREACHABLE_SLACK).ok()
}
