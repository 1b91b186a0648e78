//! What AWS is asked, batched and page by page.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{self, Filter, InstanceAttributeName};
use aws_sdk_eks::types::NodegroupStatus;
use spot_core::ports::Instant;

use crate::action::Action;
use crate::client::Api;
use crate::error::CallError;
use crate::provider::group::{Group, NodeGroup};
use crate::provider::instance::{FleetId, Instance};
use crate::provider::maintain::Fleet;

/// The most values of a filter.
const FILTER_VALUES: usize = 200;
/// The most names or IDs in one call to Auto Scaling.
const NAMES: usize = 50;
/// The largest page of instances.
const PAGE: i32 = 1000;
/// The largest page of groups.
const GROUP_PAGE: i32 = 100;
/// EKS' status of a managed node group that nothing changes.
const AT_REST: [&str; 4] = ["ACTIVE", "DEGRADED", "CREATE_FAILED", "DELETE_FAILED"];
/// The statuses of an instance refresh that has ended.
const ENDED: [&str; 5] = ["Successful", "Failed", "Cancelled", "RollbackSuccessful", "RollbackFailed"];

/// An instance's place in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) group: String,
    pub(crate) state: String,
}

impl Api {
    /// Describes up to 200 instances. Those that EC2 does not know are absent: by a filter, an unknown ID fails nothing.
    pub(crate) async fn instances(&self, ids: &[&str], by: Instant) -> Result<BTreeMap<String, Instance>, CallError> {
        let filter = Filter::builder().name("instance-id").set_values(Some(owned(ids))).build();
        let mut found = BTreeMap::new();
        let mut token = None;
        loop {
            let request = self.ec2.describe_instances().filters(filter.clone()).max_results(PAGE).set_next_token(token);
            let page = self.call(Action::DescribeInstances, by, request.send()).await?;
            let instances = page.reservations().iter().flat_map(types::Reservation::instances);
            found.extend(instances.filter_map(|one| Some((one.instance_id()?.to_owned(), Instance::of(one)))));
            token = more(page.next_token());
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    /// Describes one instance; none if EC2 does not know it.
    pub(crate) async fn instance(&self, id: &str, by: Instant) -> Result<Option<Instance>, CallError> {
        Ok(self.instances(&[id], by).await?.remove(id))
    }

    /// Whether the instance is protected from termination. One that is not there is not.
    pub(crate) async fn is_termination_protected(&self, id: &str, by: Instant) -> Result<bool, CallError> {
        let attribute = InstanceAttributeName::DisableApiTermination;
        let request = self.ec2.describe_instance_attribute().instance_id(id).attribute(attribute);
        match self.call(Action::DescribeInstanceAttribute, by, request.send()).await {
            Ok(answer) => {
                Ok(answer.disable_api_termination().and_then(types::AttributeBooleanValue::value).unwrap_or_default())
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Describes groups; those that are gone are absent.
    pub(crate) async fn groups(
        &self,
        names: &BTreeSet<String>,
        by: Instant,
    ) -> Result<BTreeMap<String, Group>, CallError> {
        let names: Vec<_> = names.iter().collect();
        let mut found = BTreeMap::new();
        for names in names.chunks(NAMES) {
            let names: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
            let mut token = None;
            loop {
                let request = self.autoscaling.describe_auto_scaling_groups();
                let request = request.set_auto_scaling_group_names(Some(names.clone()));
                let request = request.max_records(GROUP_PAGE).set_next_token(token);
                let page = self.call(Action::DescribeAutoScalingGroups, by, request.send()).await?;
                found.extend(page.auto_scaling_groups().iter().map(Group::of).map(|group| (group.name.clone(), group)));
                token = more(page.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The groups of these instances by Auto Scaling's own word; an instance without a group is absent.
    pub(crate) async fn memberships(
        &self,
        ids: &[&str],
        by: Instant,
    ) -> Result<BTreeMap<String, Membership>, CallError> {
        let mut found = BTreeMap::new();
        for ids in ids.chunks(NAMES) {
            let mut token = None;
            loop {
                let request = self.autoscaling.describe_auto_scaling_instances().set_instance_ids(Some(owned(ids)));
                let request = request.set_next_token(token);
                let page = self.call(Action::DescribeAutoScalingInstances, by, request.send()).await?;
                found.extend(page.auto_scaling_instances().iter().filter_map(|one| {
                    let group = one.auto_scaling_group_name()?.to_owned();
                    let state = one.lifecycle_state().unwrap_or_default().to_owned();
                    Some((one.instance_id()?.to_owned(), Membership { group, state }))
                }));
                token = more(page.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The status of a refresh of this group that has not ended. The latest come first, and one runs at a time.
    pub(crate) async fn refreshing(&self, group: &str, by: Instant) -> Result<Option<String>, CallError> {
        let request = self.autoscaling.describe_instance_refreshes().auto_scaling_group_name(group);
        let answer = self.call(Action::DescribeInstanceRefreshes, by, request.send()).await?;
        let mut statuses = answer.instance_refreshes().iter().filter_map(|refresh| Some(refresh.status()?.as_str()));
        Ok(statuses.find(|status| !ENDED.contains(status)).map(str::to_owned))
    }

    /// The status of a managed node group that is being changed.
    pub(crate) async fn updating(&self, group: &NodeGroup, by: Instant) -> Result<Option<String>, CallError> {
        let request = self.eks.describe_nodegroup().cluster_name(&group.cluster).nodegroup_name(&group.name);
        match self.call(Action::DescribeNodegroup, by, request.send()).await {
            Ok(answer) => {
                let status = answer.nodegroup().and_then(|group| group.status()).map(NodegroupStatus::as_str);
                Ok(status.filter(|status| !AT_REST.contains(status)).map(str::to_owned))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of hooks that may hold an instance of this group when it is terminated.
    pub(crate) async fn termination_hooks(&self, group: &str, by: Instant) -> Result<Vec<String>, CallError> {
        let request = self.autoscaling.describe_lifecycle_hooks().auto_scaling_group_name(group);
        let answer = self.call(Action::DescribeLifecycleHooks, by, request.send()).await?;
        let holding = answer
            .lifecycle_hooks()
            .iter()
            .filter(|hook| hook.lifecycle_transition() == Some("autoscaling:EC2_INSTANCE_TERMINATING"));
        Ok(holding.filter_map(|hook| hook.lifecycle_hook_name().map(str::to_owned)).collect())
    }

    /// Describes those EC2 Fleets that are wanted. Those that are gone are absent, and so are instant ones, which keep
    /// nothing: provisioners make one a node. So all are listed, instead of each being asked for.
    pub(crate) async fn ec2_fleets(
        &self,
        wanted: &BTreeSet<FleetId>,
        by: Instant,
    ) -> Result<BTreeMap<FleetId, Fleet>, CallError> {
        let mut found = BTreeMap::new();
        let mut token = None;
        loop {
            let request = self.ec2.describe_fleets().set_next_token(token);
            let page = self.call(Action::DescribeFleets, by, request.send()).await?;
            let fleets = page.fleets().iter().filter_map(Fleet::of_ec2).filter(|fleet| wanted.contains(&fleet.id));
            found.extend(fleets.map(|fleet| (fleet.id.clone(), fleet)));
            token = more(page.next_token());
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    /// All Spot Fleet requests of the account in this region; EC2 has no filter for them.
    pub(crate) async fn spot_fleet_requests(
        &self,
        by: Instant,
    ) -> Result<Vec<types::SpotFleetRequestConfig>, CallError> {
        let mut found = Vec::new();
        let mut token = None;
        loop {
            let request = self.ec2.describe_spot_fleet_requests().set_next_token(token);
            let page = self.call(Action::DescribeSpotFleetRequests, by, request.send()).await?;
            token = more(page.next_token());
            found.extend(page.spot_fleet_request_configs.unwrap_or_default());
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    /// The IDs of a fleet's instances.
    pub(crate) async fn fleet_members(&self, id: &FleetId, by: Instant) -> Result<Vec<String>, CallError> {
        let mut members = Vec::new();
        let mut token = None;
        loop {
            let page = match id {
                FleetId::Ec2(id) => {
                    let request = self.ec2.describe_fleet_instances().fleet_id(id).set_next_token(token);
                    let page = self.call(Action::DescribeFleetInstances, by, request.send()).await?;
                    (page.active_instances().to_vec(), page.next_token().map(str::to_owned))
                }
                FleetId::Spot(id) => {
                    let request = self.ec2.describe_spot_fleet_instances().spot_fleet_request_id(id);
                    let request = request.set_next_token(token);
                    let page = self.call(Action::DescribeSpotFleetInstances, by, request.send()).await?;
                    (page.active_instances().to_vec(), page.next_token().map(str::to_owned))
                }
            };
            let (instances, next) = page;
            members.extend(instances.iter().filter_map(|one| one.instance_id().map(str::to_owned)));
            token = next.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(members);
            }
        }
    }

    /// Describes any number of instances.
    pub(crate) async fn all_instances(
        &self,
        ids: &[&str],
        by: Instant,
    ) -> Result<BTreeMap<String, Instance>, CallError> {
        let mut found = BTreeMap::new();
        for ids in ids.chunks(FILTER_VALUES) {
            found.append(&mut self.instances(ids, by).await?);
        }
        Ok(found)
    }
}

/// Where the next page begins; none after the last one.
pub(crate) fn more(token: Option<&str>) -> Option<String> {
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}
