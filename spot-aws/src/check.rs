//! Whether AWS answers as the provider needs it: found out at start, before anything is cordoned.

use spot_core::error::PortError;
use spot_core::ports::Instant;

use crate::action::Action;
use crate::error::CallError;
use crate::provider::Aws;

/// What became of one question.
#[derive(Debug)]
pub struct Checked {
    /// What was tried.
    pub action: Action,
    /// Whether it worked. An error of class denied or permanent is definite; any other may pass.
    pub outcome: Result<(), PortError>,
    /// Whether a run can do without: only where there are fleets are they asked for.
    pub dispensable: bool,
}

impl Aws {
    /// Tries every read that needs no instance, group or fleet to ask about. Region, credentials, endpoint and these
    /// rights are right if all are answered. Nothing is changed.
    pub async fn check(&self, by: Instant) -> Vec<Checked> {
        let api = &self.api;
        let mut checked = Vec::new();
        let mut note = |action, answer: Result<(), CallError>| {
            let dispensable = matches!(action, Action::DescribeFleets | Action::DescribeSpotFleetRequests);
            checked.push(Checked { action, outcome: answer.map_err(PortError::from), dispensable });
        };
        let request = api.ec2.describe_instances().max_results(5);
        note(Action::DescribeInstances, api.call(Action::DescribeInstances, by, request.send()).await.map(|_| ()));
        let request = api.autoscaling.describe_auto_scaling_instances().max_records(1);
        let answer = api.call(Action::DescribeAutoScalingInstances, by, request.send()).await;
        note(Action::DescribeAutoScalingInstances, answer.map(|_| ()));
        let request = api.autoscaling.describe_auto_scaling_groups().max_records(1);
        let answer = api.call(Action::DescribeAutoScalingGroups, by, request.send()).await;
        note(Action::DescribeAutoScalingGroups, answer.map(|_| ()));
        let request = api.ec2.describe_fleets().max_results(1);
        note(Action::DescribeFleets, api.call(Action::DescribeFleets, by, request.send()).await.map(|_| ()));
        let request = api.ec2.describe_spot_fleet_requests().max_results(1);
        let answer = api.call(Action::DescribeSpotFleetRequests, by, request.send()).await;
        note(Action::DescribeSpotFleetRequests, answer.map(|_| ()));
        let request = api.balancing.describe_target_groups().page_size(1);
        let answer = api.call(Action::DescribeTargetGroups, by, request.send()).await;
        note(Action::DescribeTargetGroups, answer.map(|_| ()));
        let request = api.classic.describe_load_balancers().page_size(1);
        let answer = api.call(Action::DescribeLoadBalancers, by, request.send()).await;
        note(Action::DescribeLoadBalancers, answer.map(|_| ()));
        checked
    }
}
