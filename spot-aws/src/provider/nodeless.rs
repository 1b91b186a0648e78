//! Instances of the cluster that run, and are billed, though no Node names them: detached from their group, or never
//! joined. They are told of, and never touched.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_ec2::types::{self, Filter};
use spot_core::error::PortError;
use spot_core::node::NodeSnapshot;
use spot_core::ports::Instant;

use crate::action::Action;
use crate::error::CallError;
use crate::lock;
use crate::provider::Aws;
use crate::provider::describe::more;
use crate::provider::instance::CLUSTER_TAG;
use crate::provider_id::ProviderId;

/// How long an instance may take to join.
const JOINING: Duration = Duration::from_mins(15);
/// How often they are looked for.
const EVERY: Duration = Duration::from_hours(1);
/// How long that may take: it is no more than a hint.
const LOOK: Duration = Duration::from_secs(20);
/// The instances in one answer.
const PAGE: i32 = 500;
/// The most answers that are read.
const PAGES: usize = 20;

/// When it was last looked for, and what was told of then.
#[derive(Debug, Default)]
pub(crate) struct Nodeless {
    looked: Option<Instant>,
    told: BTreeSet<String>,
}

impl Aws {
    /// The running instances that are tagged for the cluster, had the time to join it, and are named by none of `nodes`,
    /// which are *all* nodes. In a cluster of more than 10,000 instances, some of them. Whoever asks is told of them: they
    /// are not warned of for a while.
    ///
    /// # Errors
    /// When EC2 could not be asked.
    pub async fn without_node(&self, nodes: &[Arc<NodeSnapshot>], by: Instant) -> Result<BTreeSet<String>, PortError> {
        let looked = self.api.clock.instant();
        let found = self.nameless(nodes, by).await?;
        *lock(&self.nodeless) = Nodeless { looked: Some(looked), told: found.clone() };
        Ok(found)
    }

    /// Warns of them, now and then, and only of what was not told of yet.
    pub(crate) async fn look_for_nodeless(&self, nodes: &[Arc<NodeSnapshot>], by: Instant) {
        let now = self.api.clock.instant();
        {
            let mut nodeless = lock(&self.nodeless);
            if nodeless.looked.is_some_and(|looked| now < looked + EVERY) {
                return;
            }
            nodeless.looked = Some(now);
        }
        match self.nameless(nodes, by.min(now + LOOK)).await {
            Ok(found) => {
                let mut nodeless = lock(&self.nodeless);
                let new = found.difference(&nodeless.told).cloned().collect::<Vec<_>>().join(", ");
                if !new.is_empty() {
                    tracing::warn!(instances = new, "instances of the cluster run without a Node; they are left alone");
                }
                nodeless.told = found;
            }
            Err(error) => tracing::debug!(%error, "instances without a Node could not be looked for"),
        }
    }

    async fn nameless(&self, nodes: &[Arc<NodeSnapshot>], by: Instant) -> Result<BTreeSet<String>, CallError> {
        let named =
            |node: &Arc<NodeSnapshot>| Some(ProviderId::parse(&node.provider_id).ok()?.instance_id().to_owned());
        let named: BTreeSet<_> = nodes.iter().filter_map(named).collect();
        let running = self.running_for_long(by).await?;
        Ok(running.into_iter().filter(|id| !named.contains(id)).collect())
    }

    async fn running_for_long(&self, by: Instant) -> Result<BTreeSet<String>, CallError> {
        let tag = format!("tag:{CLUSTER_TAG}{}", self.rules.cluster_name);
        let ours = Filter::builder().name(tag).values("owned").values("shared").build();
        let running = Filter::builder().name("instance-state-name").values("running").build();
        let joined = self.api.clock.now() - JOINING;
        let is_old =
            |one: &&types::Instance| one.launch_time().is_some_and(|launched| launched.secs() < joined.as_second());
        let mut found = BTreeSet::new();
        let mut token = None;
        for _page in 0..PAGES {
            let request = self.api.ec2.describe_instances().filters(ours.clone()).filters(running.clone());
            let request = request.max_results(PAGE).set_next_token(token);
            let page = self.api.call(Action::DescribeInstances, by, request.send()).await?;
            let instances = page.reservations().iter().flat_map(types::Reservation::instances).filter(is_old);
            found.extend(instances.filter_map(|one| one.instance_id().map(str::to_owned)));
            token = more(page.next_token());
            if token.is_none() {
                break;
            }
        }
        Ok(found)
    }
}
