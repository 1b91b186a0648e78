//! A node pool as its file describes it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use spot_core::node::Taint;

/// A node pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The cluster's name as its machines are tagged.
    pub cluster: String,
    /// Its own name, unique in the cluster.
    pub name: String,
    /// The capacity that it is created with, in units.
    pub target_capacity: u32,
    /// The capacity below which it is never scaled.
    pub min_capacity: u32,
    /// By what the fleet chooses among the offers.
    pub allocation: Allocation,
    /// What the fleet does when EC2 says that a machine is likelier than others to be taken back.
    pub rebalance: Option<Rebalance>,
    /// The role that Spot Fleet acts by: its name, or its ARN.
    pub fleet_role: String,
    /// Where machines are launched.
    pub subnets: Vec<String>,
    /// The security groups of the machines.
    pub security_groups: Vec<String>,
    /// The machines' own role, by its instance profile: a name, or an ARN.
    pub instance_profile: String,
    /// The AMI.
    pub image: String,
    /// The name of the SSH key, if any.
    pub ssh_key: Option<String>,
    /// What a machine does when it starts.
    pub user_data: UserData,
    /// The instance types that will do.
    pub offers: Vec<Offer>,
    /// The root volume of each.
    pub root_volume: RootVolume,
    /// Labels that the kubelet registers with, beside those that every pool has.
    pub labels: BTreeMap<String, String>,
    /// Taints that it registers with.
    pub taints: Vec<Taint>,
    /// Tags of machines and volumes, beside those that every pool has.
    pub tags: BTreeMap<String, String>,
    /// Names of classic load balancers.
    pub load_balancers: Vec<String>,
    /// ARNs of target groups.
    pub target_groups: Vec<String>,
}

/// By what a fleet chooses among its offers.
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-fleet-allocation-strategy.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// By room and price.
    #[default]
    PriceCapacityOptimized,
    /// By room.
    CapacityOptimized,
    /// All of them alike.
    Diversified,
    /// By price.
    LowestPrice,
}

/// The answer to a rebalance recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// Which machine goes when.
    pub strategy: RebalanceStrategy,
    /// How long the old machine is left after the new one came: 2 min to 2 h, with
    /// [`LaunchBeforeTerminate`](RebalanceStrategy::LaunchBeforeTerminate) only.
    pub termination_delay: Option<Duration>,
}

/// Which machine goes when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceStrategy {
    /// A new machine comes; the old one stays until EC2 takes it.
    Launch,
    /// A new machine comes, and then the fleet terminates the old one.
    LaunchBeforeTerminate,
}

/// What a machine does when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserData {
    /// A text of the user's own, with places for what the pool adds.
    Own(String),
    /// A shell script for machines with a plain kubelet.
    Kubelet(Kubelet),
    /// The configuration of `nodeadm`, as EKS' AL2023 images read it.
    Nodeadm(Nodeadm),
    /// The settings of Bottlerocket.
    Bottlerocket(Bottlerocket),
}

/// A plain kubelet, run by systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// More arguments, each whole: `--max-pods=58`.
    pub arguments: Vec<String>,
    /// Shell commands, run by `bash -eu` before the kubelet is started, and after its arguments were written.
    pub before: String,
}

/// What `nodeadm` has to know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodeadm {
    /// The URL of the API server.
    pub api_server: String,
    /// Its certificate authority, PEM in base 64.
    pub certificate_authority: String,
    /// The addresses of Services, as a CIDR.
    pub service_cidr: String,
    /// More arguments of the kubelet, each whole.
    pub kubelet_arguments: Vec<String>,
}

/// What Bottlerocket has to know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bottlerocket {
    /// The URL of the API server.
    pub api_server: String,
    /// Its certificate authority, PEM in base 64.
    pub certificate_authority: String,
    /// The address of the cluster's DNS; empty: as Bottlerocket finds it.
    pub cluster_dns: String,
}

/// An instance type that will do.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// As in `m5.large`.
    pub instance_type: String,
    /// How much of the pool's capacity one machine is.
    pub weight: u32,
    /// The most that is paid for an hour of one unit of capacity, in dollars, as decimal digits; none: the on-demand
    /// price.
    pub max_price: Option<String>,
    /// What its root volume has other than the pool's.
    pub root_volume: VolumeSize,
}

/// The size of a volume, as far as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSize {
    /// In GiB.
    pub size: Option<u32>,
    /// In operations a second.
    pub iops: Option<u32>,
    /// In MiB a second.
    pub throughput: Option<u32>,
}

/// The root volumes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootVolume {
    /// Its kind.
    pub kind: VolumeKind,
    /// GiB for each unit of an offer's weight.
    pub unit_size: u32,
    /// Operations a second for each unit of an offer's weight; none: as EBS has them by default.
    pub unit_iops: Option<u32>,
    /// The device, as the AMI names its root device; none: as the AMI says.
    pub device: Option<String>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// By which key; none: by the account's own.
    pub kms_key: Option<String>,
}

/// The kind of a volume.
/// <https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeKind {
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

/// What is wrong with a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key of its file, as in `launchSpecifications[1].weightedCapacity`; empty where it is about the whole.
    pub key: String,
    /// The reason, a colon, and the remedy.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.key, self.message) }
    }
}
