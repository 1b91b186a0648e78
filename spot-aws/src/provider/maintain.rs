//! A fleet that maintains its capacity, and how its target is lowered when a member goes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types;
use spot_core::capacity::Class;
use spot_core::cloud::InstanceState;
use spot_core::reason::{Reason, ReasonKind};

use crate::provider::instance::{FleetId, Instance, clusters};

/// The states of a fleet that launches nothing any more. One that is in none that is known may.
const ENDED: [&str; 7] = [
    "deleted",
    "deleted_running",
    "deleted_terminating",
    "cancelled",
    "cancelled_running",
    "cancelled_terminating",
    "failed",
];

/// What a fleet may launch, and how much of its target that is.
#[derive(Clone, Debug, Default, PartialEq)]
struct Offer {
    kind: Option<String>,
    zone: Option<String>,
    subnet: Option<String>,
    weight: Option<f64>,
}

impl Offer {
    fn covers(&self, instance: &Instance) -> bool {
        let is = |asked: &Option<String>, there: &str| asked.as_ref().is_none_or(|asked| asked == there);
        is(&self.kind, &instance.kind) && is(&self.zone, &instance.zone) && is(&self.subnet, &instance.subnet)
    }
}

/// A fleet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fleet {
    pub(crate) id: FleetId,
    /// Whether it launches another instance when one goes; if not, it is nobody's keeper.
    pub(crate) maintains: bool,
    pub(crate) target: Target,
    /// Whether it lets members live that are more than its target.
    pub(crate) spares: bool,
    /// EC2's word for its state.
    pub(crate) state: String,
    /// The names of the clusters that it is tagged for.
    pub(crate) clusters: Vec<String>,
    /// Where it registers what it launches: ARNs of target groups, and names of classic load balancers.
    pub(crate) target_groups: Vec<String>,
    pub(crate) classic: Vec<String>,
    /// How much of its target is to be spot and is not launched yet.
    pub(crate) pending_spot: u32,
    offers: Vec<Offer>,
    /// What it counts if not units.
    unit: Option<String>,
}

/// What a fleet keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) total: u32,
    /// How much of that is to be on-demand.
    pub(crate) on_demand: u32,
}

/// A member that is there, and will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    class: Class,
    weight: u32,
}

impl Fleet {
    pub(crate) fn of_ec2(described: &types::FleetData) -> Option<Self> {
        let spec = described.target_capacity_specification();
        let total = size(spec.and_then(types::TargetCapacitySpecification::total_target_capacity));
        let spot = size(spec.and_then(types::TargetCapacitySpecification::spot_target_capacity));
        let by_default = spec.and_then(types::TargetCapacitySpecification::default_target_capacity_type);
        let on_demand = match by_default {
            Some(types::DefaultTargetCapacityType::OnDemand) => total.saturating_sub(spot),
            _ => size(spec.and_then(types::TargetCapacitySpecification::on_demand_target_capacity)),
        };
        let overrides =
            described.launch_template_configs().iter().flat_map(types::FleetLaunchTemplateConfig::overrides);
        let offers = overrides.map(|offer| Offer {
            kind: offer.instance_type().map(|kind| kind.as_str().to_owned()),
            zone: offer.availability_zone().map(str::to_owned),
            subnet: offer.subnet_id().map(str::to_owned),
            weight: offer.weighted_capacity(),
        });
        Some(Self {
            id: FleetId::Ec2(described.fleet_id()?.to_owned()),
            maintains: described.r#type() == Some(&types::FleetType::Maintain),
            target: Target { total, on_demand },
            spares: described.excess_capacity_termination_policy()
                == Some(&types::FleetExcessCapacityTerminationPolicy::NoTermination),
            state: described.fleet_state().map(types::FleetStateCode::as_str).unwrap_or_default().to_owned(),
            clusters: Vec::new(),
            target_groups: Vec::new(),
            classic: Vec::new(),
            pending_spot: 0,
            offers: offers.collect(),
            unit: unit(spec.and_then(types::TargetCapacitySpecification::target_capacity_unit_type)),
        })
    }

    pub(crate) fn of_spot(described: &types::SpotFleetRequestConfig) -> Option<Self> {
        let config = described.spot_fleet_request_config()?;
        let specified = config.launch_specifications().iter().map(|offer| Offer {
            kind: offer.instance_type().map(|kind| kind.as_str().to_owned()),
            zone: offer.placement().and_then(types::SpotPlacement::availability_zone).map(str::to_owned),
            subnet: offer.subnet_id().map(str::to_owned),
            weight: offer.weighted_capacity(),
        });
        let overrides = config.launch_template_configs().iter().flat_map(types::LaunchTemplateConfig::overrides);
        let overridden = overrides.map(|offer| Offer {
            kind: offer.instance_type().map(|kind| kind.as_str().to_owned()),
            zone: offer.availability_zone().map(str::to_owned),
            subnet: offer.subnet_id().map(str::to_owned),
            weight: offer.weighted_capacity(),
        });
        let balancers = config.load_balancers_config();
        let target_groups = balancers.and_then(types::LoadBalancersConfig::target_groups_config);
        let target_groups = target_groups.map(types::TargetGroupsConfig::target_groups).unwrap_or_default();
        let classic = balancers.and_then(types::LoadBalancersConfig::classic_load_balancers_config);
        let classic = classic.map(types::ClassicLoadBalancersConfig::classic_load_balancers).unwrap_or_default();
        Some(Self {
            id: FleetId::Spot(described.spot_fleet_request_id()?.to_owned()),
            // What a request is if it does not say.
            maintains: config.r#type().is_none_or(|kind| *kind == types::FleetType::Maintain),
            target: Target {
                total: size(config.target_capacity()),
                on_demand: size(config.on_demand_target_capacity()),
            },
            spares: config.excess_capacity_termination_policy()
                == Some(&types::ExcessCapacityTerminationPolicy::NoTermination),
            state: described.spot_fleet_request_state().map(types::BatchState::as_str).unwrap_or_default().to_owned(),
            clusters: clusters(described.tags()),
            target_groups: target_groups.iter().filter_map(|group| group.arn().map(str::to_owned)).collect(),
            classic: classic.iter().filter_map(|balancer| balancer.name().map(str::to_owned)).collect(),
            pending_spot: pending_spot(described),
            offers: specified.chain(overridden).collect(),
            unit: unit(config.target_capacity_unit_type()),
        })
    }

    /// Whether it keeps its capacity now, so that a member that goes is replaced.
    pub(crate) fn is_keeping(&self) -> bool {
        self.maintains && !self.has_ended()
    }

    /// Whether it launches nothing any more.
    pub(crate) fn has_ended(&self) -> bool {
        ENDED.contains(&self.state.as_str())
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.state != "modifying" && self.state != "submitted"
    }

    /// How much of the target an instance is.
    pub(crate) fn weight(&self, instance: &Instance) -> Result<u32, Reason> {
        let refuse = |words: String| Err(Reason::Cloud(ReasonKind::FractionalWeight, words));
        let id = &self.id;
        if let Some(unit) = &self.unit {
            return refuse(format!("fleet {id} counts in {unit}, not in units"));
        }
        let mut weights = self.offers.iter().filter(|offer| offer.covers(instance)).map(|offer| offer.weight);
        let Some(weight) = weights.next() else {
            let unweighted = self.offers.iter().all(|offer| offer.weight.is_none());
            return if unweighted { Ok(1) } else { refuse(format!("fleet {id} gives no weight to {}", instance.kind)) };
        };
        if weights.any(|other| other != weight) {
            return refuse(format!("fleet {id} gives more than one weight to {}", instance.kind));
        }
        let weight = weight.unwrap_or(1.0);
        // Written out and read back: a weight that is no whole number of a sensible size is not understood.
        weight
            .to_string()
            .parse()
            .ok()
            .filter(|weight| *weight > 0)
            .map_or_else(|| refuse(format!("fleet {id} gives weight {weight} to {}", instance.kind)), Ok)
    }

    /// Why no member may go now.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        let Self { id, state, .. } = self;
        let kind = match state.as_str() {
            "active" => return None,
            "modifying" | "submitted" => ReasonKind::GroupRefreshing,
            _ => ReasonKind::InstanceInTransition,
        };
        Some(Reason::Cloud(kind, format!("fleet {id} is {state}")))
    }

    /// The target at which nothing is launched in place of this one of `members`, those of `gone` being terminated.
    pub(crate) fn without(
        &self,
        id: &str,
        members: &BTreeMap<String, Instance>,
        gone: &BTreeSet<String>,
    ) -> Result<Target, Reason> {
        let Some(leaving) = members.get(id) else {
            let words = format!("{id} is tagged as a member of fleet {} that does not list it", self.id);
            return Err(Reason::Cloud(ReasonKind::InstanceInTransition, words));
        };
        self.lowered(&self.there(members, gone)?, self.part(leaving)?)
    }

    /// Whether so many of `members` are there, those of `gone` being terminated, that it launches none for this target.
    pub(crate) fn has(
        &self,
        target: Target,
        members: &BTreeMap<String, Instance>,
        gone: &BTreeSet<String>,
    ) -> Result<bool, Reason> {
        let (there, there_on_demand) = weights(&self.there(members, gone)?);
        Ok(there >= target.total && there_on_demand >= target.on_demand)
    }

    fn there(&self, members: &BTreeMap<String, Instance>, gone: &BTreeSet<String>) -> Result<Vec<Part>, Reason> {
        let is_there =
            |(id, instance): &(&String, &Instance)| instance.life() == InstanceState::Running && !gone.contains(*id);
        members.iter().filter(is_there).map(|(_, instance)| self.part(instance)).collect()
    }

    fn part(&self, instance: &Instance) -> Result<Part, Reason> {
        Ok(Part { class: instance.class, weight: self.weight(instance)? })
    }

    /// The target at which nothing is launched in place of `leaving`, one of `members`. It is the target as it is if
    /// the rest of them is enough: then it was lowered before, whoever did it.
    fn lowered(&self, members: &[Part], leaving: Part) -> Result<Target, Reason> {
        let Target { total, on_demand } = self.target;
        let (there, there_on_demand) = weights(members);
        if there < total {
            // Whether the target was lowered already could not be told, and the fleet launches instances anyway.
            let words = format!("fleet {} has {there} of {total}, and is launching the rest", self.id);
            return Err(Reason::Cloud(ReasonKind::InstanceInTransition, words));
        }
        let short = |there: u32, target: u32| there.saturating_sub(leaving.weight) < target;
        let lower = |target: u32| target.saturating_sub(leaving.weight);
        let new_total = if short(there, total) { lower(total) } else { total };
        let on_demand_leaves = leaving.class == Class::OnDemand && short(there_on_demand, on_demand);
        let new_on_demand = if on_demand_leaves { lower(on_demand) } else { on_demand };
        Ok(Target { total: new_total, on_demand: new_on_demand.min(new_total) })
    }
}

/// What members are worth together, and how much of that is on-demand.
fn weights(members: &[Part]) -> (u32, u32) {
    let demanded = |part: &&Part| part.class == Class::OnDemand;
    let there = members.iter().map(|part| part.weight).sum();
    (there, members.iter().filter(demanded).map(|part| part.weight).sum())
}

/// How much of a Spot Fleet's target is to be spot and is not launched yet. One that reports an error launches nothing.
fn pending_spot(described: &types::SpotFleetRequestConfig) -> u32 {
    let Some(config) = described.spot_fleet_request_config() else { return 0 };
    if described.activity_status() == Some(&types::ActivityStatus::Error) {
        return 0;
    }
    let on_demand = size(config.on_demand_target_capacity());
    let wanted = size(config.target_capacity()).saturating_sub(on_demand);
    let there = |fulfilled: Option<f64>| fulfilled.unwrap_or_default();
    let spot = there(config.fulfilled_capacity()) - there(config.on_demand_fulfilled_capacity());
    // Read back from its digits: nothing else makes a whole number of one that may have a fraction.
    (f64::from(wanted) - spot).ceil().max(0.0).to_string().parse().unwrap_or_default()
}

fn size(capacity: Option<i32>) -> u32 {
    capacity.and_then(|capacity| u32::try_from(capacity).ok()).unwrap_or_default()
}

fn unit(unit: Option<&types::TargetCapacityUnitType>) -> Option<String> {
    unit.filter(|unit| **unit != types::TargetCapacityUnitType::Units).map(|unit| unit.as_str().to_owned())
}
