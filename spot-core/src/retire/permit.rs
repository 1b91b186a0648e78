//! What may be destroyed, as values that only the core can make.

use std::sync::Arc;

use crate::claim::{Claim, InstanceId, Machine};
use crate::node::{NodeRef, NodeSnapshot};
use crate::pod::PodRef;

/// A node that was claimed, drained and tainted: only the core makes one, and only such a node's machine can be
/// deleted.
#[derive(Clone, Debug)]
pub struct RetiredNode {
    node: Arc<NodeSnapshot>,
    claim: Claim,
}

impl RetiredNode {
    pub(super) const fn new(node: Arc<NodeSnapshot>, claim: Claim) -> Self {
        Self { node, claim }
    }

    /// One for tests of adapters.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub const fn assume(node: Arc<NodeSnapshot>, claim: Claim) -> Self {
        Self::new(node, claim)
    }

    /// The node as it was last seen.
    #[must_use]
    pub const fn node(&self) -> &Arc<NodeSnapshot> {
        &self.node
    }

    /// The instance that was claimed, the only one that may be deleted; none: the machine goes with its Node.
    #[must_use]
    pub const fn instance(&self) -> Option<&InstanceId> {
        match &self.claim.machine {
            Machine::Instance(instance) => Some(instance),
            Machine::WithNode => None,
        }
    }

    /// The record on the node.
    #[must_use]
    pub const fn claim(&self) -> &Claim {
        &self.claim
    }
}

/// A Node object that may be deleted: its machine goes with it, or is gone by the cloud's own word.
#[derive(Clone, Debug)]
pub struct DeletableNode(NodeRef);

impl DeletableNode {
    pub(super) fn with_its_machine(node: &RetiredNode) -> Self {
        Self(node.node.at_version())
    }

    pub(super) const fn without_machine(node: NodeRef) -> Self {
        Self(node)
    }

    /// One for tests of adapters.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub const fn assume(node: NodeRef) -> Self {
        Self(node)
    }

    /// Which object, and in which version.
    #[must_use]
    pub const fn node(&self) -> &NodeRef {
        &self.0
    }
}

/// A pod whose node dies before its budget lets it go: only a forced drain makes one.
#[derive(Clone, Debug)]
pub struct DoomedPod(PodRef);

impl DoomedPod {
    pub(crate) const fn new(pod: PodRef) -> Self {
        Self(pod)
    }

    /// One for tests of adapters.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub const fn assume(pod: PodRef) -> Self {
        Self(pod)
    }

    /// Which object.
    #[must_use]
    pub const fn pod(&self) -> &PodRef {
        &self.0
    }
}
