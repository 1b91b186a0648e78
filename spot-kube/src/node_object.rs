//! The provider `node-object`: the machine goes when its Node object is deleted.
//!
//! For clusters in which something else owns the machines and follows the Node objects: Karpenter by its finalizer,
//! KWOK, kind. It asks no cloud; classes come from labels.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use spot_core::capacity::CapacityLabels;
use spot_core::claim::{InstanceId, Machine};
use spot_core::cloud::{CloudFact, CloudFacts, Deletion, Freshness, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::{NodeRef, NodeSnapshot};
use spot_core::ports::{Clock, CloudProvider, Instant, Write};
use spot_core::reason::{Reason, ReasonKind};
use spot_core::retire::RetiredNode;

/// Schemes of provider IDs behind which no machine is billed once its Node is gone.
const HARMLESS: [&str; 3] = ["kwok", "kind", "k3s"];

/// The provider `node-object`.
///
/// A provider ID of any other scheme than `kwok`, `kind` and `k3s` is a cloud's, and its node is refused: deleting the
/// Node would leave the machine running. Unless Karpenter's finalizer is on it: then Karpenter deletes the machine. A
/// node without a provider ID belongs to no cloud, and is accepted.
#[derive(Clone)]
pub struct NodeObject {
    labels: CapacityLabels,
    drain: Duration,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for NodeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { labels, drain, clock: _ } = self;
        f.debug_struct("NodeObject").field("labels", labels).field("drain", drain).finish_non_exhaustive()
    }
}

impl NodeObject {
    /// One that tells classes by `labels`, and gives load balancers `drain` from the taint on.
    #[must_use]
    pub fn new(labels: CapacityLabels, drain: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { labels, drain, clock }
    }

    /// What is known of a node, which is all on the node itself.
    #[must_use]
    pub fn fact(labels: &CapacityLabels, node: &NodeSnapshot) -> CloudFact {
        let refusal = refusal(node);
        CloudFact {
            class: labels.classify(node),
            machine: refusal.is_none().then_some(Machine::WithNode),
            group: None,
            refusals: refusal.into_iter().collect(),
        }
    }

    /// How long load balancers still need. A taint from the future, or without a time, tells nothing.
    fn rest(&self, tainted_at: Option<Timestamp>) -> Duration {
        let passed = tainted_at.and_then(|at| Duration::try_from(self.clock.now().duration_since(at)).ok());
        self.drain.saturating_sub(passed.unwrap_or_default())
    }
}

#[async_trait]
impl CloudProvider for NodeObject {
    async fn survey(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        _chosen: &[NodeRef],
        _freshness: Freshness,
        _by: Instant,
    ) -> Result<CloudFacts, PortError> {
        Ok(nodes.iter().map(|node| (node.uid.clone(), Self::fact(&self.labels, node))).collect())
    }

    async fn detach(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>, write: &Write) -> Result<(), PortError> {
        let done = self.clock.instant() + self.rest(tainted_at);
        self.clock.sleep_until(done.min(write.by)).await;
        if done > write.by {
            let what = format!("load balancers had no time to let go of node {}", node.name);
            return Err(PortError::new(ErrorClass::Timeout, what));
        }
        Ok(())
    }

    async fn delete_instance(&self, node: &RetiredNode, _write: &Write) -> Result<Deletion, PortError> {
        let refuse = |why: String| Err(PortError::new(ErrorClass::Permanent, why));
        let name = &node.node().name;
        match (&node.claim().machine, refusal(node.node())) {
            (Machine::Instance(instance), _) => {
                refuse(format!("the claim on node {name} names instance {instance}, which this provider can't delete"))
            }
            (Machine::WithNode, Some(reason)) => refuse(format!("node {name} may not be deleted: {reason}")),
            (Machine::WithNode, None) => Ok(Deletion::WithNode),
        }
    }

    async fn instance_state(&self, instance: &InstanceId, _by: Instant) -> Result<InstanceState, PortError> {
        Err(PortError::new(ErrorClass::Permanent, format!("no cloud can be asked about instance {instance}")))
    }
}

/// Why deleting the Node would leave its machine running.
fn refusal(node: &NodeSnapshot) -> Option<Reason> {
    let id = &node.provider_id;
    let harmless = id.is_empty() || id.split_once("://").is_some_and(|(scheme, _)| HARMLESS.contains(&scheme));
    let owned = node.takes_its_machine_along();
    let what = format!("nothing would remove the machine {id} when its Node is deleted");
    (!harmless && !owned).then_some(Reason::Cloud(ReasonKind::NoMachineOwner, what))
}
