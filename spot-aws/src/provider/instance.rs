//! An instance as EC2 describes it: the fields that are read, and no others.

use std::fmt;

use aws_sdk_ec2::types;
use spot_core::capacity::Class;
use spot_core::cloud::InstanceState;
use spot_core::node::NodeSnapshot;

use crate::provider::Identity;

/// Auto Scaling tags the members of its groups with it; nobody else may.
const GROUP_TAG: &str = "aws:autoscaling:groupName";
/// EC2 Fleet does the same.
const EC2_FLEET_TAG: &str = "aws:ec2:fleet-id";
/// Spot Fleet does the same.
pub(crate) const SPOT_FLEET_TAG: &str = "aws:ec2spot:fleet-request-id";
/// The tag of a cluster's machines, by which the cloud controller manager finds them too.
pub(crate) const CLUSTER_TAG: &str = "kubernetes.io/cluster/";

/// A fleet, of one kind or the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FleetId {
    /// An EC2 Fleet.
    Ec2(String),
    /// A Spot Fleet.
    Spot(String),
}

impl FleetId {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Ec2(id) | Self::Spot(id) => id,
        }
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who keeps an instance, by its tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// An Auto Scaling group.
    Group(String),
    /// A fleet, of whatever type.
    Fleet(FleetId),
    /// Nobody.
    Nobody,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) class: Class,
    /// EC2's word for its state.
    pub(crate) state: String,
    pub(crate) private_dns_name: String,
    pub(crate) private_address: String,
    pub(crate) kind: String,
    pub(crate) zone: String,
    pub(crate) subnet: String,
    pub(crate) keeper: Keeper,
    /// The names of the clusters that it is tagged for.
    pub(crate) clusters: Vec<String>,
}

impl Instance {
    pub(crate) fn of(described: &types::Instance) -> Self {
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        Self {
            class: class(described),
            state: text(described.state().and_then(|state| state.name()).map(types::InstanceStateName::as_str)),
            private_dns_name: text(described.private_dns_name()),
            private_address: text(described.private_ip_address()),
            kind: text(described.instance_type().map(types::InstanceType::as_str)),
            zone: text(described.placement().and_then(types::Placement::availability_zone)),
            subnet: text(described.subnet_id()),
            keeper: keeper(described.tags()),
            clusters: clusters(described.tags()),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == "running"
    }

    /// Where it is in its life, by EC2's word alone.
    pub(crate) fn life(&self) -> InstanceState {
        match self.state.as_str() {
            "terminated" => InstanceState::Gone,
            "shutting-down" => InstanceState::ShuttingDown,
            _ => InstanceState::Running,
        }
    }

    /// Whether it is the machine of this node: EC2's own name for it is the node's, to which the kubelet's credential is
    /// bound. Whatever else a node says of itself, its kubelet wrote.
    pub(crate) fn is_machine_of(&self, node: &NodeSnapshot, id: &str, identity: Identity) -> bool {
        let named = *node.name == *id || node.name.eq_ignore_ascii_case(&self.private_dns_name);
        named
            || match identity {
                Identity::Name => false,
                Identity::Address => {
                    !self.private_address.is_empty() && node.internal_addresses.contains(&self.private_address)
                }
            }
    }
}

/// How EC2 is paid for it. Absence of a lifecycle is EC2's word for on-demand.
fn class(described: &types::Instance) -> Class {
    use types::InstanceLifecycleType as Lifecycle;
    match described.instance_lifecycle() {
        Some(Lifecycle::Spot) => Class::Spot,
        Some(Lifecycle::Scheduled | Lifecycle::CapacityBlock | Lifecycle::InterruptibleCapacityReservation) => {
            Class::Reserved
        }
        Some(_) => Class::Unknown,
        None if described.spot_instance_request_id().is_some_and(|id| !id.is_empty()) => Class::Spot,
        None if described.capacity_reservation_id().is_some_and(|id| !id.is_empty()) => Class::Reserved,
        None => Class::OnDemand,
    }
}

fn keeper(tags: &[types::Tag]) -> Keeper {
    let tag = |key| tags.iter().find(|tag| tag.key() == Some(key)).and_then(types::Tag::value).map(str::to_owned);
    if let Some(name) = tag(GROUP_TAG) {
        Keeper::Group(name)
    } else if let Some(id) = tag(EC2_FLEET_TAG) {
        Keeper::Fleet(FleetId::Ec2(id))
    } else if let Some(id) = tag(SPOT_FLEET_TAG) {
        Keeper::Fleet(FleetId::Spot(id))
    } else {
        Keeper::Nobody
    }
}

/// The clusters that tags name.
pub(crate) fn clusters(tags: &[types::Tag]) -> Vec<String> {
    tags.iter().filter_map(cluster).collect()
}

/// The cluster that a tag names.
fn cluster(tag: &types::Tag) -> Option<String> {
    let name = tag.key()?.strip_prefix(CLUSTER_TAG)?;
    matches!(tag.value(), Some("owned" | "shared")).then(|| name.to_owned())
}
