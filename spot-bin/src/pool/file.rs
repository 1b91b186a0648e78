//! The pool file as it is written: names, shapes and defaults.
//!
//! This is the only list of its keys. The JSON Schema and the manual are made from it, so the comments on the fields are
//! what users read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::config::file::{ApiVersion, Drain, LeaderElection, LoadBalancer, Named, NodeGone, Settle, text};
use crate::config::key::{Key, keys_of};
use crate::config::lapse::{OptionalTimeout, Timeout};

/// A pool of spot nodes that an EC2 Spot Fleet keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("required" = [
    "apiVersion", "kind", "cluster", "name", "targetCapacity", "subnets", "securityGroups", "instanceProfile", "image",
    "userData", "launchSpecifications"
]))]
pub(super) struct File {
    /// Version of this format.
    pub(super) api_version: ApiVersion,
    /// Kind of this file.
    pub(super) kind: Kind,
    /// Name of the cluster as its machines are tagged.
    pub(super) cluster: String,
    /// Name of the pool, of its own in the cluster: small letters, digits and `-`, at most 40.
    #[schemars(regex(pattern = "^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"))]
    pub(super) name: String,
    /// Region; empty: as the AWS SDK finds it.
    pub(super) region: String,
    /// Endpoint to call instead of AWS's own; empty: AWS's own.
    pub(super) endpoint_url: String,
    /// Capacity that the pool is created with, in units.
    pub(super) target_capacity: u32,
    /// Capacity in units below which the pool is never scaled.
    pub(super) min_capacity: u32,
    /// By what the fleet chooses among `launchSpecifications` and `subnets`.
    pub(super) allocation_strategy: Allocation,
    /// What the fleet does when EC2 says that a machine is likely to be taken back; left out: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CapacityRebalance")]
    pub(super) capacity_rebalance: Option<CapacityRebalance>,
    /// Name or ARN of the role that Spot Fleet acts by.
    pub(super) fleet_role: FleetRole,
    /// IDs of the subnets in which machines are launched, all of one VPC, and one in each zone.
    #[schemars(length(min = 1))]
    pub(super) subnets: Vec<String>,
    /// IDs of the security groups of the machines.
    #[schemars(length(min = 1))]
    pub(super) security_groups: Vec<String>,
    /// Name or ARN of the instance profile that is the machines' own role.
    pub(super) instance_profile: String,
    /// ID of the AMI.
    #[schemars(regex(pattern = "^ami-[0-9a-z]+$"))]
    pub(super) image: String,
    /// Name of the SSH key; empty: none.
    pub(super) ssh_key: String,
    /// What a machine does when it starts, in one of four ways.
    pub(super) user_data: UserData,
    /// Size of the root volume for each unit of an offer's weight, in GiB.
    #[schemars(range(min = 1))]
    pub(super) unit_root_volume_size: UnitSize,
    /// Operations a second of the root volume for each unit of an offer's weight; left out: as EBS has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1))]
    pub(super) unit_root_volume_iops: Option<u32>,
    /// The root volume of each machine.
    pub(super) root_volume: RootVolume,
    /// Instance types that will do, at least one; the more, the rarer the pool lacks machines.
    #[schemars(length(min = 1))]
    pub(super) launch_specifications: Vec<LaunchSpecification>,
    /// Labels that nodes register with, beside `node.kubernetes.io/lifecycle=spot` and `spot-migrator.io/pool=<name>`.
    pub(super) labels: BTreeMap<String, String>,
    /// Taints that nodes register with.
    pub(super) taints: Vec<Taint>,
    /// Tags of the fleet, its machines and their volumes, beside those that every pool has.
    pub(super) tags: BTreeMap<String, String>,
    /// Names of classic load balancers with which the fleet registers its machines, at most 5.
    pub(super) load_balancers: Vec<String>,
    /// ARNs of target groups with which the fleet registers its machines, at most 5.
    pub(super) target_groups: Vec<String>,
    /// When a new machine counts.
    pub(super) ready: Ready,
    /// How a node is emptied.
    pub(super) drain: Drain,
    /// How long load balancers get.
    pub(super) load_balancer: LoadBalancer,
    /// The calm before the next node.
    pub(super) settle: Settle,
    /// The wait for a deleted node to leave the cluster.
    pub(super) node_gone: NodeGone,
    /// What the commands on pools share with the migrator of the cluster: write what its configuration has.
    pub(super) state: State,
    /// How one of several commands on the same pool is chosen.
    pub(super) leader_election: LeaderElection,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) enum Kind {
    #[default]
    SpotFleetNodePool,
}

text! {
    FleetRole = "aws-ec2-spot-fleet-tagging-role",
    Namespace = "kube-system",
}

/// What is said of numbers that may be none would be wrong of one that is at least 1.
fn from_one<'de, D: Deserializer<'de>>(number: D) -> Result<u32, D::Error> {
    u32::deserialize(number)
        .map_err(|error| <D::Error as de::Error>::custom(error.to_string().replace("from 0 to", "from 1 to")))
}

/// GiB, with a default of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct UnitSize(pub(super) u32);

impl Default for UnitSize {
    fn default() -> Self {
        Self(20)
    }
}

/// By what a fleet chooses among its offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Allocation {
    /// Where there is most room, and of that the cheapest.
    #[default]
    PriceCapacityOptimized,
    /// Where there is most room, whatever the price.
    CapacityOptimized,
    /// All offers and subnets alike.
    Diversified,
    /// The cheapest, which is also the likeliest to be taken back.
    LowestPrice,
}

/// What the fleet does when EC2 says that a machine is likely to be taken back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct CapacityRebalance {
    /// Which machine goes when.
    pub(super) strategy: RebalanceStrategy,
    /// How long the old machine is left after the new one came, with `launch-before-terminate` only: 2m to 2h.
    pub(super) termination_delay: OptionalTimeout,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RebalanceStrategy {
    /// A new machine comes, and the old one stays until EC2 takes it.
    #[default]
    Launch,
    /// A new machine comes, and then the fleet terminates the old one.
    LaunchBeforeTerminate,
}

/// What a machine does when it starts, in one of four ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct UserData {
    /// A file of your own, relative to this one, with `${NODE_LABELS}` and `${NODE_TAINTS}` where the kubelet is told of
    /// them; `$${` is a plain `${`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) file: String,
    /// A shell script for an image with a plain kubelet that systemd runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Kubelet")]
    pub(super) kubelet: Option<Kubelet>,
    /// The configuration of `nodeadm`, for the AL2023 images of EKS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Nodeadm")]
    pub(super) nodeadm: Option<Nodeadm>,
    /// The settings of Bottlerocket.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bottlerocket")]
    pub(super) bottlerocket: Option<Bottlerocket>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Kubelet {
    /// More arguments of the kubelet, each whole, as `--max-pods=58`.
    pub(super) arguments: Vec<String>,
    /// Shell commands that run before the kubelet is started, such as the one that joins the cluster.
    pub(super) before: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("required" = ["apiServer", "certificateAuthority", "serviceCidr"]))]
pub(super) struct Nodeadm {
    /// URL of the API server.
    pub(super) api_server: String,
    /// Its certificate authority, PEM in base 64.
    pub(super) certificate_authority: String,
    /// Addresses of Services, as `10.100.0.0/16`.
    pub(super) service_cidr: String,
    /// More arguments of the kubelet, each whole, as `--max-pods=58`.
    pub(super) kubelet_arguments: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("required" = ["apiServer", "certificateAuthority"]))]
pub(super) struct Bottlerocket {
    /// URL of the API server.
    pub(super) api_server: String,
    /// Its certificate authority, PEM in base 64.
    pub(super) certificate_authority: String,
    /// Address of the cluster's DNS; empty: as Bottlerocket finds it.
    pub(super) cluster_dns: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RootVolume {
    /// Kind of volume.
    #[serde(rename = "type")]
    pub(super) kind: VolumeKind,
    /// Its device; empty: the AMI's root device. Bottlerocket keeps containers on `/dev/xvdb`.
    pub(super) device: String,
    /// Encrypt it.
    pub(super) encrypted: bool,
    /// Key that encrypts it; empty: the account's own.
    pub(super) kms_key: String,
}

impl Default for RootVolume {
    fn default() -> Self {
        Self { kind: VolumeKind::Gp3, device: String::new(), encrypted: true, kms_key: String::new() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum VolumeKind {
    /// General purpose, the current generation.
    #[default]
    Gp3,
    /// General purpose, the generation before.
    Gp2,
    /// Provisioned operations.
    Io1,
    /// Provisioned operations, the current generation.
    Io2,
}

/// An instance type that will do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("required" = ["instanceType"]))]
pub(super) struct LaunchSpecification {
    /// As `m5.large`.
    pub(super) instance_type: String,
    /// Units of the pool's capacity that one machine is: a whole number from 1.
    #[serde(deserialize_with = "from_one")]
    #[schemars(range(min = 1))]
    pub(super) weighted_capacity: u32,
    /// The most that is paid for an hour of one unit, in dollars, as `"0.05"`; left out: the on-demand price.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Price")]
    pub(super) max_price: Option<Price>,
    /// What its root volume has instead of units times weight.
    #[serde(skip_serializing_if = "VolumeSize::is_empty")]
    pub(super) root_volume: VolumeSize,
}

impl Default for LaunchSpecification {
    fn default() -> Self {
        Self { instance_type: String::new(), weighted_capacity: 1, max_price: None, root_volume: VolumeSize::default() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct VolumeSize {
    /// In GiB; left out: `unitRootVolumeSize` times the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1))]
    pub(super) size: Option<u32>,
    /// Operations a second; left out: `unitRootVolumeIops` times the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1))]
    pub(super) iops: Option<u32>,
    /// MiB a second, of `gp3` only; left out: as EBS has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1))]
    pub(super) throughput: Option<u32>,
}

impl VolumeSize {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A taint that nodes register with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("required" = ["key", "effect"]))]
pub(super) struct Taint {
    /// Its key.
    pub(super) key: String,
    /// Its value, which may be empty.
    pub(super) value: String,
    /// What becomes of pods that do not tolerate it.
    #[schemars(with = "Effect")]
    pub(super) effect: Option<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) enum Effect {
    /// They are not scheduled here.
    NoSchedule,
    /// They are scheduled here last.
    PreferNoSchedule,
    /// They are not scheduled here, and evicted.
    NoExecute,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Ready {
    /// Longest wait for what was launched to be Ready nodes; then the command ends, and changes nothing further.
    pub(super) timeout: Timeout,
}

impl Default for Ready {
    fn default() -> Self {
        Self { timeout: Timeout::seconds(15 * 60) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct State {
    /// Namespace of the ConfigMap and the lease; empty: the pod's own, and outside a pod it must be named.
    pub(super) namespace: Namespace,
    /// Name of the ConfigMap.
    pub(super) config_map: Named,
}

/// A price in dollars, as decimal digits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Price(pub(super) String);

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PriceVisitor)
    }
}

struct PriceVisitor;

impl de::Visitor<'_> for PriceVisitor {
    type Value = Price;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a price in dollars, such as \"0.05\"")
    }

    // What the digits have to be is one question, whoever asks it: it is the pool's.
    fn visit_str<E>(self, text: &str) -> Result<Price, E> {
        Ok(Price(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Price, E> {
        Ok(Price(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Price, E> {
        Ok(Price(number.to_string()))
    }
}

impl JsonSchema for Price {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Price".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number"], "pattern": "^[0-9]+([.][0-9]+)?$", "exclusiveMinimum": 0 })
    }
}

/// Every key of a file, in the order in which people write it.
pub(super) fn keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| keys_of(&File::complete()));
    &KEYS
}

impl File {
    /// With every key that may be left out.
    pub(super) fn complete() -> Self {
        Self {
            capacity_rebalance: Some(CapacityRebalance::default()),
            user_data: UserData {
                file: "boot.sh".to_owned(),
                kubelet: Some(Kubelet::default()),
                nodeadm: Some(Nodeadm::default()),
                bottlerocket: Some(Bottlerocket::default()),
            },
            unit_root_volume_iops: Some(0),
            ..Self::default()
        }
    }
}
