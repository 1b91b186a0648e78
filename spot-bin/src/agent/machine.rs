//! The cloud as an agent needs it: its machine is taken by somebody else.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use spot_core::claim::InstanceId;
use spot_core::cloud::{CloudFacts, Deletion, Freshness, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::{NodeRef, NodeSnapshot};
use spot_core::ports::{CloudProvider, Instant, Write};
use spot_core::retire::RetiredNode;

/// The machine on which the process runs. Nothing is asked of a cloud, and nothing is told it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnMachine;

#[async_trait]
impl CloudProvider for OwnMachine {
    /// Nothing is known.
    async fn survey(
        &self,
        _nodes: &[Arc<NodeSnapshot>],
        _chosen: &[NodeRef],
        _freshness: Freshness,
        _by: Instant,
    ) -> Result<CloudFacts, PortError> {
        Ok(CloudFacts::default())
    }

    /// The taint makes the load balancers' checks of the node's health fail, which is all that can be done from here.
    async fn detach(
        &self,
        _node: &NodeSnapshot,
        _tainted_at: Option<Timestamp>,
        _write: &Write,
    ) -> Result<(), PortError> {
        Ok(())
    }

    async fn delete_instance(&self, node: &RetiredNode, _write: &Write) -> Result<Deletion, PortError> {
        let what = format!("an agent deletes no machine, and not that of {}", node.node().name);
        Err(PortError::new(ErrorClass::Permanent, what))
    }

    /// It runs: so does the process.
    async fn instance_state(&self, _instance: &InstanceId, _by: Instant) -> Result<InstanceState, PortError> {
        Ok(InstanceState::Running)
    }
}
