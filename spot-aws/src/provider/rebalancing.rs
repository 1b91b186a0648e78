//! Groups that replace spot instances at EC2's recommendation, before these are interrupted, and terminate the old ones
//! by themselves: without a hook that waits, nobody drains those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future;
use spot_core::capacity::Class;
use spot_core::error::PortError;
use spot_core::node::NodeSnapshot;
use spot_core::ports::Instant;

use crate::provider::Aws;
use crate::provider::instance::Keeper;

impl Aws {
    /// The Auto Scaling groups of these nodes' spot instances that have capacity rebalancing on, each with the names of its
    /// hooks that hold what it terminates; none: they are not known. Managed node groups of EKS are left out: EKS drains
    /// them.
    ///
    /// # Errors
    /// When AWS could not be asked.
    pub async fn rebalancing(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        by: Instant,
    ) -> Result<BTreeMap<String, Option<Vec<String>>>, PortError> {
        let known = self.learn(nodes, &[], self.cached_since(), by).await?;
        let spot = known.instances.values().filter(|instance| instance.class == Class::Spot);
        let groups: BTreeSet<_> = spot
            .filter_map(|instance| match &instance.keeper {
                Keeper::Group(name) => known.groups.get(name),
                Keeper::Fleet(_) | Keeper::Nobody => None,
            })
            .filter(|group| group.replaces_early && group.managed.is_none())
            .map(|group| group.name.as_str())
            .collect();
        let hooks = future::join_all(groups.iter().map(|name| self.api.termination_hooks(name, by))).await;
        let hooks = hooks.into_iter().map(|hooks| {
            hooks.inspect_err(|error| tracing::debug!(%error, "the names of the hooks are not known")).ok()
        });
        Ok(groups.into_iter().map(str::to_owned).zip(hooks).collect())
    }
}
