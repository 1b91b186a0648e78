//! Spot Fleets and EC2 Fleets.

use std::time::Duration;

use serde_json::{Value, json};
use spot_tests::{
    aws::fleet::ROLE,
    wait::{PATIENCE, until},
};

use super::{Region, STILL, strings};

/// A fleet of either kind: what differs between them is in the methods here.
struct Fleet<'r> {
    region: &'r Region,
    kind: Kind,
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Spot,
    Ec2,
}

const KINDS: [Kind; 2] = [Kind::Spot, Kind::Ec2];

/// A member, as EC2 describes the instance.
#[derive(Clone, Debug)]
struct Member {
    id: String,
    spot: bool,
    instance_type: String,
    tags: Value,
}

impl<'r> Fleet<'r> {
    /// A fleet of type `r#type` with a target of `total`, `on_demand` of it on-demand, whose instances weigh `weight`.
    async fn request(region: &'r Region, kind: Kind, r#type: &str, total: u32, on_demand: u32, weight: u32) -> Self {
        let configs = json!([{
            "LaunchTemplateSpecification": {"LaunchTemplateName": "fleet", "Version": "1"},
            "Overrides": [{"InstanceType": "m5.xlarge", "SubnetId": region.subnets[0], "WeightedCapacity": weight}],
        }]);
        let (operation, request, id) = match kind {
            Kind::Spot => {
                let config = json!({
                    "IamFleetRole": format!("arn:aws:iam::123456789012:role/{ROLE}"),
                    "Type": r#type,
                    "TargetCapacity": total,
                    "OnDemandTargetCapacity": on_demand,
                    "LaunchTemplateConfigs": configs,
                });
                ("RequestSpotFleet", json!({"SpotFleetRequestConfig": config}), "SpotFleetRequestId")
            }
            Kind::Ec2 => {
                let target = json!({
                    "TotalTargetCapacity": total,
                    "OnDemandTargetCapacity": on_demand,
                    "DefaultTargetCapacityType": "spot",
                });
                let request = json!({
                    "Type": r#type, "TargetCapacitySpecification": target, "LaunchTemplateConfigs": configs,
                });
                ("CreateFleet", request, "FleetId")
            }
        };
        let answer = region.aws.call("ec2", operation, request).await;
        Self { region, kind, id: answer[id].as_str().expect("it has an ID").to_owned() }
    }

    fn ids_field(&self) -> &'static str {
        match self.kind {
            Kind::Spot => "SpotFleetRequestId",
            Kind::Ec2 => "FleetId",
        }
    }

    /// The request that changes its targets, without the policy.
    fn change(&self, total: u32, on_demand: u32) -> (&'static str, Value) {
        match self.kind {
            Kind::Spot => (
                "ModifySpotFleetRequest",
                json!({"SpotFleetRequestId": self.id, "TargetCapacity": total, "OnDemandTargetCapacity": on_demand}),
            ),
            Kind::Ec2 => {
                let target = json!({"TotalTargetCapacity": total, "OnDemandTargetCapacity": on_demand});
                ("ModifyFleet", json!({"FleetId": self.id, "TargetCapacitySpecification": target}))
            }
        }
    }

    async fn modify(&self, total: u32, on_demand: u32, terminate: bool) {
        let (operation, mut request) = self.change(total, on_demand);
        request["ExcessCapacityTerminationPolicy"] = json!(match (self.kind, terminate) {
            (Kind::Spot, true) => "default",
            (Kind::Spot, false) => "noTermination",
            (Kind::Ec2, true) => "termination",
            (Kind::Ec2, false) => "no-termination",
        });
        self.region.aws.call("ec2", operation, request).await;
    }

    /// Its state, and how much of its target is fulfilled.
    async fn state(&self) -> (String, f64) {
        let (operation, state, fulfilled, list, ids) = match self.kind {
            Kind::Spot => (
                "DescribeSpotFleetRequests",
                "/SpotFleetRequestState",
                "/SpotFleetRequestConfig/FulfilledCapacity",
                "SpotFleetRequestConfigs",
                "SpotFleetRequestIds",
            ),
            Kind::Ec2 => ("DescribeFleets", "/FleetState", "/FulfilledCapacity", "Fleets", "FleetIds"),
        };
        let answer = self.region.aws.call("ec2", operation, json!({ids: [self.id]})).await;
        let fleet = &answer[list][0];
        let state = fleet.pointer(state).and_then(Value::as_str).expect("it has a state").to_owned();
        (state, fleet.pointer(fulfilled).and_then(Value::as_f64).expect("it tells what it has"))
    }

    /// Its running instances.
    async fn members(&self) -> Vec<Member> {
        let operation = match self.kind {
            Kind::Spot => "DescribeSpotFleetInstances",
            Kind::Ec2 => "DescribeFleetInstances",
        };
        let answer = self.region.aws.call("ec2", operation, json!({self.ids_field(): self.id})).await;
        let ids = strings(&answer["ActiveInstances"], "InstanceId");
        if ids.is_empty() {
            return Vec::new();
        }
        let answer = self.region.aws.call("ec2", "DescribeInstances", json!({"InstanceIds": ids})).await;
        let reservations = answer["Reservations"].as_array().into_iter().flatten();
        let instances = reservations.filter_map(|reservation| reservation["Instances"].as_array()).flatten();
        let text = |value: &Value| value.as_str().expect("it is text").to_owned();
        instances
            .map(|instance| Member {
                id: text(&instance["InstanceId"]),
                spot: instance["InstanceLifecycle"] == "spot",
                instance_type: text(&instance["InstanceType"]),
                tags: instance["Tags"].clone(),
            })
            .collect()
    }

    async fn terminate(&self, member: &Member) {
        self.region.aws.call("ec2", "TerminateInstances", json!({"InstanceIds": [member.id]})).await;
    }
}

/// A region with the launch template of the fleets.
async fn start() -> Region {
    let region = Region::start().await;
    let data = json!({"ImageId": region.aws.image().await, "InstanceType": "m5.large"});
    let template = json!({"LaunchTemplateName": "fleet", "LaunchTemplateData": data});
    region.aws.call("ec2", "CreateLaunchTemplate", template).await;
    region.aws.create_fleet_roles().await;
    region
}

#[tokio::test(flavor = "multi_thread")]
async fn members_carry_the_tag_of_their_fleet_and_fulfil_its_target_by_their_weight() {
    let region = start().await;
    for (kind, tag) in [(Kind::Spot, "aws:ec2spot:fleet-request-id"), (Kind::Ec2, "aws:ec2:fleet-id")] {
        let fleet = Fleet::request(&region, kind, "maintain", 7, 2, 2).await;
        let members = fleet.members().await;
        assert_eq!(members.len(), 4, "of weight 2: {members:?}");
        assert_eq!(members.iter().filter(|member| !member.spot).count(), 1, "{members:?}");
        for member in members {
            assert_eq!(member.instance_type, "m5.xlarge");
            assert!(
                member.tags.as_array().expect("a list").contains(&json!({"Key": tag, "Value": fleet.id})),
                "{member:?}"
            );
        }
        assert_eq!(fleet.state().await, ("active".to_owned(), 8.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_member_of_a_maintained_fleet_is_replaced_and_of_a_request_is_not() {
    let region = start().await;
    for kind in KINDS {
        for (r#type, left) in [("maintain", 3), ("request", 2)] {
            let fleet = Fleet::request(&region, kind, r#type, 3, 0, 1).await;
            let ended = fleet.members().await.remove(0);
            fleet.terminate(&ended).await;
            let members = fleet.members().await;
            assert_eq!(members.len(), left, "{kind:?} {type}");
            assert!(members.iter().all(|member| member.id != ended.id));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lowered_target_ends_a_member_of_the_fleet_s_choice_unless_the_policy_says_no() {
    let region = start().await;
    for kind in KINDS {
        for (terminate, left) in [(true, 2), (false, 3)] {
            let fleet = Fleet::request(&region, kind, "maintain", 3, 0, 1).await;
            fleet.modify(2, 0, terminate).await;
            assert_eq!(fleet.members().await.len(), left, "{kind:?}, terminate: {terminate}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_ended_after_the_target_was_lowered_stays_ended() {
    let region = start().await;
    for kind in KINDS {
        let fleet = Fleet::request(&region, kind, "maintain", 6, 0, 2).await;
        let before = fleet.members().await;
        fleet.modify(4, 0, false).await;
        assert_eq!(fleet.state().await, ("active".to_owned(), 6.0));
        fleet.terminate(&before[1]).await;
        let after = fleet.members().await;
        let ids = |members: &[Member]| members.iter().map(|member| member.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&after), ids(&[before[0].clone(), before[2].clone()]), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_on_demand_member_is_bought_again_unless_the_on_demand_target_is_lowered_too() {
    let region = start().await;
    for kind in KINDS {
        for (on_demand_target, on_demand_left) in [(1, 1), (0, 0)] {
            let fleet = Fleet::request(&region, kind, "maintain", 3, 1, 1).await;
            let on_demand = fleet.members().await.into_iter().find(|member| !member.spot).expect("there is one");
            fleet.modify(2, on_demand_target, false).await;
            fleet.state().await;
            fleet.terminate(&on_demand).await;
            let left = fleet.members().await.into_iter().filter(|member| !member.spot).count();
            assert_eq!(left, on_demand_left, "{kind:?}, target {on_demand_target}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_modifying_for_a_while_and_takes_no_other_change_until_then() {
    let region = start().await;
    for kind in KINDS {
        let fleet = Fleet::request(&region, kind, "maintain", 3, 0, 1).await;
        region.aws.pace(STILL).await;
        fleet.modify(2, 0, false).await;
        assert_eq!(fleet.state().await.0, "modifying");
        let (operation, request) = fleet.change(1, 0);
        assert_eq!(region.refused("ec2", operation, request).await.code, "FleetNotInModifiableState");
        region.aws.pace(Duration::ZERO).await;
        until("the change to be over", PATIENCE, || async {
            let (state, _) = fleet.state().await;
            if state == "active" { Ok(()) } else { Err(state) }
        })
        .await;
        fleet.modify(1, 0, false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_maintained_fleet_can_be_modified_and_an_unknown_one_is_refused() {
    let region = start().await;
    for (kind, unknown, code) in [
        (Kind::Spot, "sfr-00000000-0000-0000-0000-000000000000", "InvalidSpotFleetRequestId.NotFound"),
        (Kind::Ec2, "fleet-00000000-0000-0000-0000-000000000000", "InvalidFleetId.NotFound"),
    ] {
        let mut fleet = Fleet::request(&region, kind, "request", 2, 0, 1).await;
        let (operation, request) = fleet.change(1, 0);
        assert_eq!(region.refused("ec2", operation, request).await.code, "InvalidParameterValue");
        fleet.id = unknown.to_owned();
        let (operation, request) = fleet.change(1, 0);
        assert_eq!(region.refused("ec2", operation, request).await.code, code);
    }
}
