//! What a pool asks EC2 for: a launch template, with a version for each root volume, and a fleet that launches them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::pool::{Allocation, Offer, Pool, Rebalance, RebalanceStrategy};
use super::{hash, tags, user_data, volume};

/// How many digits the hash of a pool has.
const HASH: usize = 16;

/// That a fleet can take a node away that nobody has emptied.
const UNDRAINED: &str = "capacityRebalance: with `launch-before-terminate` the fleet terminates the old machine by itself \
                         after `terminationDelay`, drained or not: set `interruption.rebalanceRecommendation: drain` in \
                         spot-migrator's configuration, or use strategy `launch`";

/// Everything that a pool asks EC2 for, but for how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// Whose machines they are.
    pub cluster: String,
    /// The pool.
    pub pool: String,
    /// Changes with everything that shapes a machine or the fleet, and with nothing else: not with the capacity.
    pub hash: String,
    /// The launch template.
    pub template: Template,
    /// The fleet.
    pub request: Request,
    /// What is other than the pool's file says, or than it seems, and why.
    pub notes: Vec<String>,
}

/// A launch template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Its name, unique in the account and region.
    pub name: String,
    /// Its own tags.
    pub tags: BTreeMap<String, String>,
    /// What it holds, in the order in which it is made.
    pub versions: Vec<Version>,
}

/// A version of a launch template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// By this it is found again: one text, one version.
    pub description: String,
    /// What it launches.
    pub machine: Machine,
}

/// What a version launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The AMI.
    pub image: String,
    /// The SSH key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<String>,
    /// The instance profile: a name, or an ARN.
    pub instance_profile: String,
    /// The security groups.
    pub security_groups: BTreeSet<String>,
    /// The metadata service.
    pub metadata: Metadata,
    /// The root volume.
    pub root_volume: Root,
    /// Tags of instance and volumes.
    pub tags: BTreeMap<String, String>,
    /// What it does when it starts, before it is encoded.
    pub user_data: String,
}

/// How a machine's metadata service answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Whether there is one.
    pub endpoint: String,
    /// Whether it wants a token.
    pub tokens: String,
    /// How many network hops its answers live.
    pub hop_limit: u32,
    /// Whether it tells the instance's tags.
    pub instance_tags: String,
}

/// A root volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Root {
    /// The device, as the AMI names it.
    pub device: String,
    /// As EBS names it.
    pub kind: String,
    /// In GiB.
    pub size: u32,
    /// In operations a second; none: as EBS has them by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// In MiB a second; none: as EBS has it by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<u32>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// By which key; none: by the account's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms_key: Option<String>,
    /// Whether it goes with its machine.
    pub delete_on_termination: bool,
}

/// A fleet, in EC2's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Whether it replaces machines that go.
    pub kind: String,
    /// The role that it acts by: a name, or an ARN.
    pub fleet_role: String,
    /// By what it chooses.
    pub allocation_strategy: String,
    /// What becomes of machines when it wants less than it has.
    pub excess_capacity_termination: String,
    /// What becomes of a machine that EC2 takes back.
    pub interruption: String,
    /// Whether it replaces machines whose status checks fail.
    pub replace_unhealthy: bool,
    /// What it does when a machine is likelier than others to be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_rebalance: Option<Replacement>,
    /// What it launches.
    pub launches: Vec<Launches>,
    /// Classic load balancers that it registers machines with.
    pub load_balancers: BTreeSet<String>,
    /// ARNs of target groups that it registers machines with.
    pub target_groups: BTreeSet<String>,
    /// Its own tags, but for [`CAPACITY`](super::tag::CAPACITY).
    pub tags: BTreeMap<String, String>,
}

/// What a fleet does when a machine is likelier than others to be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// Which machine goes when.
    pub strategy: String,
    /// How long the old one is left, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_delay: Option<u32>,
}

/// What a fleet launches from one version of the template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launches {
    /// The version, by its description.
    pub version: String,
    /// What is other than the version says.
    pub overrides: Vec<Override>,
}

/// A type of machine in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// As in `m5.large`.
    pub instance_type: String,
    /// Where.
    pub subnet: String,
    /// How much of the capacity one is.
    pub weight: u32,
    /// The most that an hour of one unit costs, in dollars; none: the on-demand price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_price: Option<String>,
}

impl Launch {
    /// What `pool` asks for, if it has no [faults](Pool::faults). `root_device` is the name that the pool or its AMI has
    /// for the root device; the hash depends on the pool alone.
    #[must_use]
    pub fn of(pool: &Pool, root_device: &str) -> Self {
        let hash = pool.hash();
        let (versions, launches) = render(pool, root_device, &hash);
        let tags = tags::own(pool, &hash);
        Self {
            cluster: pool.cluster.clone(),
            pool: pool.name.clone(),
            template: Template { name: pool.full_name(), tags: tags.clone(), versions },
            request: request(pool, launches, tags),
            notes: notes(pool),
            hash,
        }
    }

    /// The client token of the fleet's request: one fleet for a pool, its hash and the youngest of its fleets with that
    /// hash that has ended.
    #[must_use]
    pub fn token(&self, ended: Option<&str>) -> String {
        self.token_for("fleet", ended)
    }

    /// The client token of a version.
    #[must_use]
    pub fn version_token(&self, version: &Version, within: Option<&str>) -> String {
        self.token_for(&version.description, within)
    }

    fn token_for(&self, what: &str, since: Option<&str>) -> String {
        hash::hex(&[&self.cluster, &self.pool, &self.hash, what, since.unwrap_or_default()])
    }
}

impl Version {
    fn described(hash: &str, root: &Root) -> String {
        format!("{hash}: {root}")
    }

    /// The hash that a version's description names; none: it is no description of ours.
    pub(super) fn hash_of(description: &str) -> Option<&str> {
        let (hash, _) = description.split_once(": ")?;
        (hash.len() == HASH && hash.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(hash)
    }
}

impl Pool {
    /// The name of its launch template, and of its machines.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}-{}", self.cluster, self.name)
    }

    /// Changes with everything that shapes a machine or the fleet, and with nothing else: 16 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> String {
        // The AMI's own name of its root device follows from the AMI.
        let device = self.root_volume.device.as_deref().unwrap_or_default();
        let (mut versions, launches) = render(self, device, "");
        let mut request = request(self, launches, tags::own(self, ""));
        // A name and the ARN that ends with it mean the same.
        last_of(&self.fleet_role).clone_into(&mut request.fleet_role);
        for version in &mut versions {
            last_of(&self.instance_profile).clone_into(&mut version.machine.instance_profile);
        }
        let asked = (versions, request);
        // Texts, numbers and maps of texts are JSON without fail.
        let rendered = serde_json::to_string(&asked).unwrap_or_else(|error| error.to_string());
        let mut hex = hash::hex(&[&rendered]);
        hex.truncate(HASH);
        hex
    }
}

/// A version for each root volume, and what is launched from each.
fn render(pool: &Pool, root_device: &str, hash: &str) -> (Vec<Version>, Vec<Launches>) {
    let mut by_root: BTreeMap<Root, Vec<&Offer>> = BTreeMap::new();
    for offer in &pool.offers {
        by_root.entry(volume::of(pool, offer).root(pool, root_device)).or_default().push(offer);
    }
    let (tags, user_data) = (tags::own(pool, hash), user_data::of(pool));
    let versions = by_root.into_iter().map(|(root_volume, offers)| {
        let description = Version::described(hash, &root_volume);
        let launches = Launches { version: description.clone(), overrides: overrides(pool, offers) };
        let machine = Machine {
            image: pool.image.clone(),
            ssh_key: pool.ssh_key.clone(),
            instance_profile: pool.instance_profile.clone(),
            security_groups: pool.security_groups.iter().cloned().collect(),
            metadata: Metadata::default(),
            root_volume,
            tags: tags.clone(),
            user_data: user_data.clone(),
        };
        (Version { description, machine }, launches)
    });
    versions.unzip()
}

/// In an order of its own, so that the order of a file makes no difference.
fn overrides(pool: &Pool, mut offers: Vec<&Offer>) -> Vec<Override> {
    offers.sort_by(|one, other| one.instance_type.cmp(&other.instance_type));
    let subnets: BTreeSet<_> = pool.subnets.iter().collect();
    let pairs = offers.into_iter().flat_map(|offer| subnets.iter().map(move |subnet| (offer, *subnet)));
    let overrides = pairs.map(|(offer, subnet)| Override {
        instance_type: offer.instance_type.clone(),
        subnet: subnet.clone(),
        weight: offer.weight,
        max_price: offer.max_price.as_deref().map(price),
    });
    overrides.collect()
}

/// A price without zeros that say nothing: one that is the same is the same text.
pub(super) fn price(price: &str) -> String {
    let (dollars, rest) = price.split_once('.').unwrap_or((price, ""));
    match (dollars.trim_start_matches('0'), rest.trim_end_matches('0')) {
        ("", "") => "0".to_owned(),
        (dollars, "") => dollars.to_owned(),
        ("", rest) => format!("0.{rest}"),
        (dollars, rest) => format!("{dollars}.{rest}"),
    }
}

/// The name of a role or a profile, which its ARN ends with.
pub(super) fn last_of(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or(arn)
}

fn request(pool: &Pool, launches: Vec<Launches>, tags: BTreeMap<String, String>) -> Request {
    Request {
        kind: "maintain".to_owned(),
        fleet_role: pool.fleet_role.clone(),
        allocation_strategy: pool.allocation.as_str().to_owned(),
        // Whoever lowers the target, as Application Auto Scaling may: no machine goes undrained.
        excess_capacity_termination: "noTermination".to_owned(),
        interruption: "terminate".to_owned(),
        // A machine that is replaced for its status checks goes undrained too.
        replace_unhealthy: false,
        capacity_rebalance: pool.rebalance.map(Replacement::from),
        launches,
        load_balancers: pool.load_balancers.iter().cloned().collect(),
        target_groups: pool.target_groups.iter().cloned().collect(),
        tags,
    }
}

impl Default for Metadata {
    /// Only what runs on the machine itself, with a token that it asked for, gets the machine's credentials. A second
    /// hop would hand them to every pod; those that need them use the host's network, or have credentials of their own.
    fn default() -> Self {
        Self {
            endpoint: "enabled".to_owned(),
            tokens: "required".to_owned(),
            hop_limit: 1,
            // With it, no key of a tag may hold a slash, as that of the cluster does.
            instance_tags: "disabled".to_owned(),
        }
    }
}

/// What is as the file says, and may be other than it seems.
fn notes(pool: &Pool) -> Vec<String> {
    let volumes = pool.offers.iter().flat_map(|offer| volume::of(pool, offer).notes);
    let terminates = |rebalance: &Rebalance| rebalance.strategy == RebalanceStrategy::LaunchBeforeTerminate;
    volumes.chain(pool.rebalance.filter(terminates).map(|_| UNDRAINED.to_owned())).collect()
}

impl From<Rebalance> for Replacement {
    fn from(rebalance: Rebalance) -> Self {
        let strategy = match rebalance.strategy {
            RebalanceStrategy::Launch => "launch",
            RebalanceStrategy::LaunchBeforeTerminate => "launch-before-terminate",
        };
        let seconds = |delay: std::time::Duration| u32::try_from(delay.as_secs()).unwrap_or(u32::MAX);
        Self { strategy: strategy.to_owned(), termination_delay: rebalance.termination_delay.map(seconds) }
    }
}

impl Allocation {
    /// EC2's word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PriceCapacityOptimized => "priceCapacityOptimized",
            Self::CapacityOptimized => "capacityOptimized",
            Self::Diversified => "diversified",
            Self::LowestPrice => "lowestPrice",
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device: _, kind, size, iops, throughput, encrypted: _, kms_key: _, delete_on_termination: _ } = self;
        write!(f, "{size} GiB {kind}")?;
        if let Some(iops) = iops {
            write!(f, ", {iops} IOPS")?;
        }
        if let Some(throughput) = throughput {
            write!(f, ", {throughput} MiB/s")?;
        }
        Ok(())
    }
}
