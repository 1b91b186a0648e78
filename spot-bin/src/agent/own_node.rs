//! The node on which the agent runs, and the machine that it says it is.

use anyhow::anyhow;
use spot_aws::ProviderId;
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::Node as _;
use spot_core::ports::{Clock, Cluster, Scope};

use super::patiently;
use crate::exit::Fault;

/// The provider ID of the node, which may have to join the cluster first, and to be given one.
pub(super) async fn provider_id(cluster: &dyn Cluster, clock: &dyn Clock, name: &str) -> Result<ProviderId, Fault> {
    let found = patiently(clock, async |by| {
        let live = cluster.open(Scope::Node(name.to_owned()), by).await?;
        let view = live.view();
        let waits = |what: String| Err(PortError::new(ErrorClass::Transient, what));
        match view.nodes().iter().find(|node| *node.name == *name) {
            None => waits(format!("there is no node {name:?}: NODE_NAME is to be the node's own name")),
            Some(node) => match node.provider_id() {
                None => waits(format!("node {name} has no provider ID yet: the cloud controller manager gives it one")),
                Some(provider_id) => Ok(provider_id.to_owned()),
            },
        }
    });
    let found = found.await?;
    ProviderId::parse(&found).map_err(|error| {
        let what = format!("the agent has nothing to do on node {name}: run it on EC2 instances only");
        Fault::usage(anyhow!(error).context(what))
    })
}
