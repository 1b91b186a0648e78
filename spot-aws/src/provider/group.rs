//! An Auto Scaling group, and what it would do if a member of it went. Pure.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_autoscaling::types;
use spot_core::capacity::Class;
use spot_core::reason::{Reason, ReasonKind};

/// The process that terminates members in full zones to launch others in empty ones.
const REBALANCE: &str = "AZRebalance";
/// The unit in which a group counts unless it was told otherwise.
const UNITS: &str = "units";
/// EKS tags the groups of its managed node groups with these.
const EKS_CLUSTER: &str = "eks:cluster-name";
const EKS_NODE_GROUP: &str = "eks:nodegroup-name";

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Auto Scaling's word for where it is in its life.
    pub(crate) state: String,
    pub(crate) protected: bool,
    pub(crate) weight: u32,
    pub(crate) zone: String,
}

impl Member {
    pub(crate) fn is_in_service(&self) -> bool {
        self.state == "InService"
    }

    /// Whether it is on its way out.
    pub(crate) fn is_leaving(&self) -> bool {
        is_leaving(&self.state)
    }
}

/// Whether this is a state of a member that is being terminated, or was.
pub(crate) fn is_leaving(state: &str) -> bool {
    state.starts_with("Terminat") || state.starts_with("Warmed:Terminat")
}

/// How many of a group's instances are to be on-demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    base: u32,
    percentage: u32,
    /// It is told in another way, which we can't compute.
    segmented: bool,
}

impl Mix {
    /// The on-demand capacity that a group of this size keeps. Auto Scaling rounds up in favour of on-demand.
    fn on_demand(self, desired: u32) -> u32 {
        let above = desired.saturating_sub(self.base);
        let part = (u64::from(above) * u64::from(self.percentage)).div_ceil(100);
        self.base.min(desired).saturating_add(u32::try_from(part).unwrap_or(u32::MAX))
    }
}

/// A managed node group of EKS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeGroup {
    pub(crate) cluster: String,
    pub(crate) name: String,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) desired: u32,
    pub(crate) min: u32,
    zones: Vec<String>,
    pub(crate) members: BTreeMap<String, Member>,
    rebalances: bool,
    /// Whether it replaces spot instances at EC2's recommendation, before they are interrupted.
    pub(crate) replaces_early: bool,
    mix: Option<Mix>,
    /// What it counts if not instances.
    unit: Option<String>,
    /// Its status while it is being deleted.
    deleting: Option<String>,
    pub(crate) target_groups: Vec<String>,
    pub(crate) classic: Vec<String>,
    pub(crate) managed: Option<NodeGroup>,
}

impl Group {
    /// Whether it holds on-demand and spot instances in a proportion.
    pub(crate) const fn is_mixed(&self) -> bool {
        self.mix.is_some()
    }

    pub(crate) fn of(described: &types::AutoScalingGroup) -> Self {
        let number = |size: Option<i32>| size.and_then(|size| u32::try_from(size).ok()).unwrap_or_default();
        let tag = |key| {
            let tag = described.tags().iter().find(|tag| tag.key() == Some(key));
            tag.and_then(types::TagDescription::value).map(str::to_owned)
        };
        let sources = |kinds: &[&str]| {
            let sources = described.traffic_sources().iter();
            let ours = sources.filter(|source| source.r#type().is_some_and(|kind| kinds.contains(&kind)));
            ours.filter_map(|source| source.identifier().map(str::to_owned)).collect::<Vec<_>>()
        };
        let union = |attached: &[String], mut sources: Vec<String>| {
            sources.extend_from_slice(attached);
            sources.sort_unstable();
            sources.dedup();
            sources
        };
        let suspended = described.suspended_processes().iter().any(|process| process.process_name() == Some(REBALANCE));
        Self {
            name: described.auto_scaling_group_name().unwrap_or_default().to_owned(),
            desired: number(described.desired_capacity()),
            min: number(described.min_size()),
            zones: described.availability_zones().to_vec(),
            members: described.instances().iter().filter_map(member).collect(),
            rebalances: !suspended,
            replaces_early: described.capacity_rebalance().unwrap_or_default(),
            mix: described.mixed_instances_policy().map(mix),
            unit: described.desired_capacity_type().filter(|unit| *unit != UNITS).map(str::to_owned),
            deleting: described.status().map(str::to_owned),
            target_groups: union(described.target_group_arns(), sources(&["elbv2"])),
            classic: union(described.load_balancer_names(), sources(&["elb"])),
            managed: tag(EKS_CLUSTER).zip(tag(EKS_NODE_GROUP)).map(|(cluster, name)| NodeGroup { cluster, name }),
        }
    }
}

fn member(described: &types::Instance) -> Option<(String, Member)> {
    let weight = described.weighted_capacity().and_then(|weight| weight.parse().ok()).unwrap_or(1);
    let member = Member {
        state: described.lifecycle_state().map(types::LifecycleState::as_str).unwrap_or_default().to_owned(),
        protected: described.protected_from_scale_in().unwrap_or_default(),
        weight,
        zone: described.availability_zone().unwrap_or_default().to_owned(),
    };
    Some((described.instance_id()?.to_owned(), member))
}

fn mix(policy: &types::MixedInstancesPolicy) -> Mix {
    let number = |value: Option<i32>| value.and_then(|value| u32::try_from(value).ok());
    let distribution = policy.instances_distribution();
    Mix {
        base: distribution.and_then(|spread| number(spread.on_demand_base_capacity())).unwrap_or(0),
        percentage: distribution
            .and_then(|spread| number(spread.on_demand_percentage_above_base_capacity()))
            .unwrap_or(100),
        segmented: distribution.is_some_and(|spread| !spread.distribution_segments().is_empty()),
    }
}

/// A group from which members are taken in thought. Which of them go first, or at all, is not known: so what is refused
/// is refused for any number of them in any order.
#[derive(Clone, Debug)]
pub(crate) struct Shrinking<'a> {
    group: &'a Group,
    desired: u32,
    /// What it keeps if of those that were taken only the on-demand ones go: then its mix wants the most of them.
    largest: u32,
    /// What its on-demand members are worth together.
    on_demand: u32,
    /// Members by zone, those that were taken too; zones without one too.
    by_zone: BTreeMap<&'a str, u32>,
    /// How many of them were taken.
    taken: BTreeMap<&'a str, u32>,
}

impl<'a> Shrinking<'a> {
    /// The group without its members that are on their way out, nor those of `gone`, whose deletion may not show yet.
    pub(crate) fn of(group: &'a Group, gone: &BTreeSet<String>, class: impl Fn(&str) -> Option<Class>) -> Self {
        let by_zone = group.zones.iter().map(|zone| (zone.as_str(), 0)).collect();
        let (desired, taken) = (group.desired, BTreeMap::new());
        let mut left = Self { group, desired, largest: desired, on_demand: 0, by_zone, taken };
        let there = || group.members.iter().filter(|(_, member)| !member.is_leaving());
        for (id, member) in there() {
            *left.by_zone.entry(&member.zone).or_default() += 1;
            if class(id) == Some(Class::OnDemand) {
                left.on_demand = left.on_demand.saturating_add(member.weight);
            }
        }
        for (id, _) in there().filter(|(id, _)| gone.contains(*id)) {
            left.take(id, class(id).unwrap_or(Class::Unknown));
        }
        left
    }

    /// The capacity that the group keeps.
    pub(crate) const fn desired(&self) -> u32 {
        self.desired
    }

    /// Takes a member away.
    pub(crate) fn take(&mut self, id: &str, class: Class) {
        let Some(member) = self.group.members.get(id) else { return };
        self.desired = self.desired.saturating_sub(member.weight);
        if class == Class::OnDemand {
            self.largest = self.largest.saturating_sub(member.weight);
            self.on_demand = self.on_demand.saturating_sub(member.weight);
        }
        *self.taken.entry(&member.zone).or_default() += 1;
    }

    /// Why this member's deletion would not be accepted, or would cost another machine. Its minimum aside.
    pub(crate) fn refusals(&self, id: &str, member: &Member, class: Class) -> Vec<Reason> {
        let name = &self.group.name;
        let mut refusals = Vec::new();
        let mut refuse = |kind, words| refusals.push(Reason::Cloud(kind, words));
        if let Some(status) = &self.group.deleting {
            refuse(ReasonKind::InstanceInTransition, format!("group {name}: {status}"));
        }
        if let Some(unit) = &self.group.unit {
            refuse(ReasonKind::FractionalWeight, format!("group {name} counts in {unit}, not in instances"));
        }
        if !member.is_in_service() {
            refuse(ReasonKind::InstanceInTransition, format!("{id} is {} in group {name}", member.state));
        }
        if member.protected {
            refuse(ReasonKind::ScaleInProtected, format!("{id} is protected from scale-in in group {name}"));
        }
        if let Some(words) = self.buys_again(member, class) {
            refuse(ReasonKind::MixedOnDemandBase, words);
        }
        if let Some(words) = self.unbalances(member) {
            refuse(ReasonKind::ZoneRebalance, words);
        }
        refusals
    }

    /// Whether the group would launch an on-demand instance in this one's place, to keep its mix.
    fn buys_again(&self, member: &Member, class: Class) -> Option<String> {
        let mix = self.group.mix.filter(|_| class == Class::OnDemand)?;
        let name = &self.group.name;
        if mix.segmented {
            return Some(format!("group {name} distributes its capacity in a way that can't be foreseen"));
        }
        let keeps = mix.on_demand(self.largest.saturating_sub(member.weight));
        let left = self.on_demand.saturating_sub(member.weight);
        let Mix { base, percentage, segmented: _ } = mix;
        (keeps > left).then(|| {
            format!(
                "group {name} keeps {keeps} on demand (base {base}, {percentage} % above it), and {left} would be left"
            )
        })
    }

    /// Whether the group would terminate another member to balance its zones: one may go only from a fullest zone.
    fn unbalances(&self, member: &Member) -> Option<String> {
        let others = self.by_zone.iter().filter(|(zone, _)| **zone != member.zone);
        let most = others.map(|(_, count)| *count).max()?;
        let count = |zones: &BTreeMap<&str, u32>| zones.get(member.zone.as_str()).copied().unwrap_or_default();
        // The others of its zone go first, and those of other zones last.
        let here = count(&self.by_zone).saturating_sub(count(&self.taken));
        (self.group.rebalances && here < most).then(|| {
            let (name, zone, left) = (&self.group.name, &member.zone, here.saturating_sub(1));
            format!("zone {zone} of group {name} would be left with {left}, and its fullest has {most}")
        })
    }
}
