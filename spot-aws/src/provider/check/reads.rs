//! What is asked of groups, fleets and load balancers: one question that needs a name about the first that is told of.

use aws_sdk_autoscaling::types::AutoScalingGroup;
use aws_sdk_ec2::types::{Filter, FleetData, TargetCapacitySpecification, TargetCapacitySpecificationRequest};
use futures::future;
use spot_core::ports::Instant;

use crate::action::Action;
use crate::check::Checked;
use crate::error::{CallError, Kind};
use crate::provider::Aws;
use crate::provider::group::Group;
use crate::provider::instance::CLUSTER_TAG;

/// How many groups are looked through for one of EKS: the largest page.
const GROUPS: i32 = 100;
/// How many fleets are looked through for one of the cluster.
const FLEETS: i32 = 100;
/// A type that nearly every region has.
const COMMON: &str = "m5.large";

impl Aws {
    pub(super) async fn check_groups(&self, by: Instant) -> Vec<Checked> {
        let scaling = &self.api.autoscaling;
        let members = scaling.describe_auto_scaling_instances().max_records(1);
        let groups = scaling.describe_auto_scaling_groups().max_records(GROUPS);
        let (members, groups) = future::join(
            self.api.call(Action::DescribeAutoScalingInstances, by, members.send()),
            self.api.call(Action::DescribeAutoScalingGroups, by, groups.send()),
        )
        .await;
        let mut checked = vec![
            noted(Action::DescribeAutoScalingInstances, &members),
            noted(Action::DescribeAutoScalingGroups, &groups),
        ];
        let Ok(groups) = groups else { return checked };
        let groups = groups.auto_scaling_groups();
        if let Some(name) = groups.iter().find_map(AutoScalingGroup::auto_scaling_group_name) {
            let (refreshes, hooks) =
                future::join(self.api.refreshing(name, by), self.api.termination_hooks(name, by)).await;
            checked.push(noted(Action::DescribeInstanceRefreshes, &about(refreshes)));
            checked.push(noted(Action::DescribeLifecycleHooks, &about(hooks)));
        }
        let mut managed = groups.iter().filter_map(|group| Group::of(group).managed);
        if let Some(node_group) = managed.find(|group| group.cluster == self.rules.cluster_name) {
            let updating = self.api.updating(&node_group, by).await;
            checked.push(noted(Action::DescribeNodegroup, &about(updating)));
        }
        checked
    }

    pub(super) async fn check_ec2_fleets(&self, by: Instant) -> Vec<Checked> {
        let ec2 = &self.api.ec2;
        // The members of one that is instant can't be asked for.
        let keeping = Filter::builder().name("type").values("maintain").build();
        let fleets = ec2.describe_fleets().filters(keeping).max_results(FLEETS);
        let fleets = self.api.call(Action::DescribeFleets, by, fleets.send()).await;
        let mut checked = vec![noted(Action::DescribeFleets, &fleets)];
        let Ok(fleets) = fleets else { return checked };
        if let Some(id) = fleets.fleets().iter().find_map(FleetData::fleet_id) {
            let members = ec2.describe_fleet_instances().fleet_id(id).max_results(1);
            let members = self.api.call(Action::DescribeFleetInstances, by, members.send()).await;
            checked.push(noted(Action::DescribeFleetInstances, &about(members)));
        }
        let cluster = format!("{CLUSTER_TAG}{}", self.rules.cluster_name);
        let is_ours = |fleet: &&FleetData| fleet.tags().iter().any(|tag| tag.key() == Some(&cluster));
        if let Some(fleet) = fleets.fleets().iter().find(is_ours) {
            // What it wants already: even without the flag, nothing would change.
            let now = fleet.target_capacity_specification();
            let unchanged = TargetCapacitySpecificationRequest::builder()
                .set_total_target_capacity(now.and_then(TargetCapacitySpecification::total_target_capacity))
                .set_on_demand_target_capacity(now.and_then(TargetCapacitySpecification::on_demand_target_capacity))
                .build();
            let modify = ec2.modify_fleet().set_fleet_id(fleet.fleet_id().map(str::to_owned)).dry_run(true);
            let modify = modify.target_capacity_specification(unchanged);
            let modified = self.rehearse(Action::ModifyFleet, by, Box::pin(modify.send())).await;
            checked.push(noted(Action::ModifyFleet, &modified));
        }
        checked
    }

    pub(super) async fn check_spot_fleets(&self, by: Instant) -> Vec<Checked> {
        let ec2 = &self.api.ec2;
        let fleets = ec2.describe_spot_fleet_requests().max_results(1);
        let fleets = self.api.call(Action::DescribeSpotFleetRequests, by, fleets.send()).await;
        let mut checked = vec![noted(Action::DescribeSpotFleetRequests, &fleets)];
        let first = fleets.ok().and_then(|mut page| page.spot_fleet_request_configs.take()?.pop());
        if let Some(id) = first.and_then(|fleet| fleet.spot_fleet_request_id) {
            let members = ec2.describe_spot_fleet_instances().spot_fleet_request_id(id).max_results(1);
            let members = self.api.call(Action::DescribeSpotFleetInstances, by, members.send()).await;
            checked.push(noted(Action::DescribeSpotFleetInstances, &about(members)));
        }
        checked
    }

    pub(super) async fn check_target_groups(&self, by: Instant) -> Vec<Checked> {
        let balancing = &self.api.balancing;
        let groups = balancing.describe_target_groups().page_size(1);
        let groups = self.api.call(Action::DescribeTargetGroups, by, groups.send()).await;
        let mut checked = vec![noted(Action::DescribeTargetGroups, &groups)];
        let first = groups.ok().and_then(|page| page.target_groups().first()?.target_group_arn().map(str::to_owned));
        if let Some(arn) = first {
            let (tags, health) = future::join(
                self.api.call(Action::DescribeTags, by, balancing.describe_tags().resource_arns(&arn).send()),
                self.api.call(
                    Action::DescribeTargetHealth,
                    by,
                    balancing.describe_target_health().target_group_arn(&arn).send(),
                ),
            )
            .await;
            checked.push(noted(Action::DescribeTags, &about(tags)));
            checked.push(noted(Action::DescribeTargetHealth, &about(health)));
        }
        checked
    }

    pub(super) async fn check_classic(&self, by: Instant) -> Vec<Checked> {
        let classic = &self.api.classic;
        let balancers = classic.describe_load_balancers().page_size(1);
        let balancers = self.api.call(Action::DescribeLoadBalancers, by, balancers.send()).await;
        let mut checked = vec![noted(Action::DescribeLoadBalancers, &balancers)];
        let first = balancers
            .ok()
            .and_then(|page| page.load_balancer_descriptions().first()?.load_balancer_name().map(str::to_owned));
        if let Some(name) = first {
            let health = classic.describe_instance_health().load_balancer_name(name);
            let health = self.api.call(Action::DescribeInstanceHealth, by, health.send()).await;
            checked.push(noted(Action::DescribeInstanceHealth, &about(health)));
        }
        checked
    }

    pub(super) async fn check_prices(&self, by: Instant) -> Vec<Checked> {
        let prices = self.prices([COMMON].into(), by).await;
        vec![noted(Action::DescribeSpotPriceHistory, &about(prices))]
    }
}

/// The answer to a question about one thing: that it has gone meanwhile is no want of a right.
fn about<T>(answer: Result<T, CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.kind == Kind::Refused => Ok(()),
        answer => answer.map(drop),
    }
}

fn noted<T>(action: Action, answer: &Result<T, CallError>) -> Checked {
    let outcome = answer.as_ref().map(drop).map_err(|error| error.clone().into());
    Checked { action, outcome, dispensable: is_dispensable(action) }
}

/// Whether a run goes on without: not every cluster has fleets or managed node groups, and what spot costs, and which hook
/// holds an instance, is only told.
const fn is_dispensable(action: Action) -> bool {
    matches!(
        action,
        Action::DescribeFleets
            | Action::DescribeFleetInstances
            | Action::ModifyFleet
            | Action::DescribeSpotFleetRequests
            | Action::DescribeSpotFleetInstances
            | Action::DescribeNodegroup
            | Action::DescribeSpotPriceHistory
            | Action::DescribeLifecycleHooks
    )
}
