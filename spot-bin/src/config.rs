//! Strings from a file, variables and flags become one validated, typed [`Config`], once.
//!
//! ```text
//!  file ──► tree, each value with its place ──► variables, flags planted ──► `File` (serde) ──► validated ──► `Config`
//!                 │                                    │                        │                  │
//!                 └── duplicate keys                   └── unknown names        └── unknown keys,  └── everything else
//!                                                                                   wrong types
//! ```
//!
//! Nothing is read here but what is passed in: the caller opens the file and hands over the environment. Every problem
//! that can be found is reported at once, with its place, the reason and the remedy.

pub(crate) mod check;
pub(crate) mod file;
pub(crate) mod key;
pub(crate) mod lapse;
#[cfg(test)]
pub(crate) mod manual;
pub(crate) mod problem;
mod queue;
pub(crate) mod reader;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod validation;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};

use clap::ValueEnum;
use jiff::{
    civil::{Time, Weekday},
    tz::TimeZone,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spot_core::{Schedule, capacity::CapacityLabels, selector::LabelSelector};

use self::{file::File, tree::Tree};
pub use self::{
    key::{flag_values, flags},
    problem::{ConfigError, Place, Problem},
};
#[cfg(feature = "agent")]
pub(crate) use self::{lapse::parse as duration, validation::delete_blocked_pods_after};

/// The configuration, validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// When a migration begins.
    pub schedule: Schedule,
    /// Zone of the schedule and of what counts by day.
    pub time_zone: TimeZone,
    /// When nodes may be retired; none: at any time.
    pub windows: Vec<Window>,
    /// Whether nothing may be written to nodes or cloud.
    pub dry_run: bool,
    /// Where the machines are.
    pub cloud_provider: CloudProvider,
    /// How long load balancers get.
    pub load_balancer: LoadBalancer,
    /// Which nodes are retired, and how many.
    pub selection: Selection,
    /// How a node is emptied.
    pub drain: Drain,
    /// Longest wait for evicted pods to run elsewhere.
    pub settle_timeout: Duration,
    /// The wait for a deleted node to leave the cluster.
    pub node_gone: NodeGone,
    /// How long a node whose drain failed is left alone.
    pub back_off: BackOff,
    /// How long no run begins after spot capacity ran out.
    pub exhaustion_back_off: BackOff,
    /// How spot interruptions are answered.
    pub interruption: Interruption,
    /// How one of several replicas is chosen.
    pub leader_election: LeaderElection,
    /// Where the migrator keeps what outlives its process.
    pub state: State,
    /// Who is told about runs.
    pub notifications: Notifications,
    /// File of prices that count before those that are built in.
    pub prices: Option<PathBuf>,
    /// How long the process may clean up after it was told to stop.
    pub shutdown_grace_period: Duration,
    /// Address of metrics and health.
    pub server_address: SocketAddr,
    /// What the process writes about itself.
    pub log: Log,
    effective: File,
}

/// A stretch of time in which nodes may be retired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Days on which it opens, never empty.
    pub days: BTreeSet<Day>,
    /// Time of day at which it opens.
    pub start: Time,
    /// How long it stays open, at most a day.
    pub duration: Duration,
    /// Zone of `start` and `days`.
    pub time_zone: TimeZone,
}

/// A day of the week, Monday first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i8);

/// Where the machines are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudProvider {
    /// EC2.
    Aws(Aws),
    /// Whoever owns a machine deletes it when its Node object is deleted.
    NodeObject,
}

/// Settings of provider `aws`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aws {
    /// Region; `None`: as the SDK finds it.
    pub region: Option<String>,
    /// Name of the cluster as its instances are tagged.
    pub cluster_name: String,
    /// Whether instances without the cluster's tag are refused.
    pub require_cluster_tag: bool,
    /// Which of an instance's own words tells which node it is.
    pub identity: Identity,
    /// Endpoint to call instead of AWS's own.
    pub endpoint_url: Option<String>,
}

/// Which of an instance's own words tells which node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// Its private DNS name.
    Name,
    /// Its private address.
    Address,
}

/// How long load balancers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Shortest time between taint and deletion.
    pub drain: Duration,
    /// Longest wait for a load balancer that is still draining.
    pub drain_max: Duration,
}

/// Which nodes are retired, and how many.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The nodes that may be retired.
    pub node_selector: LabelSelector,
    /// Nodes that are retired side by side.
    pub nodes_at_once: NonZeroU32,
    /// Most nodes that one run retires; `None`: no limit.
    pub max_nodes_per_run: Option<NonZeroU32>,
    /// Most nodes that are retired in one day; `None`: no limit.
    pub max_nodes_per_day: Option<NonZeroU32>,
    /// Fewest other ready, schedulable nodes that must be left.
    pub min_remaining_nodes: u32,
    /// What happens to on-demand nodes of another provisioner.
    pub provisioned_nodes: ProvisionedNodes,
    /// The labels that tell a node's class, and what a node without them is.
    pub capacity_labels: CapacityLabels,
}

/// What a node is taken for whose labels don't tell its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnlabelledNodes {
    /// Nobody knows: it is never touched.
    Unknown,
    /// On-demand, as cost-manager took it.
    OnDemand,
}

/// What happens to on-demand nodes of another provisioner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProvisionedNodes {
    /// They are left to it.
    Skip,
    /// They are retired by deleting their Node object.
    Migrate,
}

/// A class that a label can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CapacityClass {
    Spot,
    OnDemand,
    Reserved,
}

/// How a node is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Longest that emptying a node may take.
    pub timeout: Duration,
    /// Whether pods that no controller owns are evicted too.
    pub force: bool,
    /// Whether pods are evicted whose `emptyDir` data is lost by it.
    pub delete_empty_dir_data: bool,
    /// Grace period of evicted pods, in whole seconds; `None`: each pod's own.
    pub pod_grace_period: Option<Duration>,
}

/// The wait for a deleted node to leave the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGone {
    /// Longest wait for the Node object to go after its machine.
    pub timeout: Duration,
    /// Whether the Node object is deleted when its machine is terminated and the wait is over.
    pub delete_node_object: bool,
}

/// A wait that doubles with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// After the first failure.
    pub initial: Duration,
    /// Where the doubling ends, never below `initial`.
    pub max: Duration,
}

/// How spot interruptions are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// The queue that is read, if any.
    pub queue: Option<Queue>,
    /// What follows a rebalance recommendation.
    pub rebalance_recommendation: RebalanceRecommendation,
    /// How long before a scheduled change of its machine a node is drained.
    pub scheduled_change_lead: Duration,
    /// Names of the lifecycle hooks that are completed when their work is done.
    pub complete_lifecycle_hooks: BTreeSet<String>,
    /// How long a forced drain obeys budgets.
    pub delete_blocked_pods_after: Duration,
    /// How long no migration begins after an interruption.
    pub pause_migration_for: Duration,
}

/// A queue of interruption messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its URL.
    pub url: String,
    /// Its region; `None`: as the URL or the SDK tells it.
    pub region: Option<String>,
    /// Endpoint to call instead of AWS's own.
    pub endpoint_url: Option<String>,
}

/// What follows a rebalance recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceRecommendation {
    /// Nothing.
    Ignore,
    /// New pods are kept off the node where others have room.
    Taint,
    /// The node is drained, one at a time.
    Drain,
}

/// How one of several replicas is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether to work only while holding the lease.
    pub enabled: bool,
    /// Name of the Lease object.
    pub lease_name: String,
    /// How long the lease lasts without a renewal, in whole seconds.
    pub lease_duration: Duration,
    /// How long the leader tries to renew; below `lease_duration`.
    pub renew_deadline: Duration,
    /// Pause between two attempts; below `renew_deadline`.
    pub retry_period: Duration,
}

/// Where the migrator keeps what outlives its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Namespace of the `ConfigMap` and the lease; `None`: the pod's own.
    pub namespace: Option<String>,
    /// Name of the `ConfigMap`.
    pub config_map: String,
}

/// Who is told about runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notifications {
    /// File that holds the URL which is posted to.
    pub webhook_url_file: Option<PathBuf>,
    /// File that holds the template of the message.
    pub template_file: Option<PathBuf>,
}

/// What the process writes about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Log {
    /// Shape of the lines.
    pub format: LogFormat,
    /// Least severe lines that are written.
    pub level: LogLevel,
}

/// Shape of the lines that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Least severe lines that are logged.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What failed.
    Error,
    /// What may need attention.
    Warn,
    /// What was done.
    #[default]
    Info,
    /// What is waited for.
    Debug,
    /// Everything.
    Trace,
}

impl Config {
    /// Reads a file (its name, for messages, and its text), then what the environment and then the flags override.
    ///
    /// `environment` may hold everything: only `SPOT_MIGRATOR_*` is looked at. `flags` goes by the full path of the key,
    /// as [`flag_values`] returns it. Without a file every key has its default.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place, the reason and the remedy.
    pub fn load(
        file: Option<(&str, &str)>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let (name, text) = file.unzip();
        let fail = |problems| ConfigError::new("configuration", name.unwrap_or_default(), problems);

        let (mut tree, mut problems) = match text.map(Tree::parse) {
            None => (Tree::default(), Vec::new()),
            Some(Ok(parsed)) => parsed,
            Some(Err(problem)) => return Err(fail(vec![problem])),
        };
        if text.is_some() {
            problems.extend(format_problems(&tree, "SpotMigratorConfiguration"));
            let (_, refused) = reader::read::<File>(&mut tree, |name| key::elsewhere(name, key::keys()));
            problems.extend(refused);
        }

        if tree.value == tree::Value::Null {
            tree.value = tree::Value::Map(Vec::new());
        }
        let mut environment: Vec<_> = environment.into_iter().collect();
        environment.sort();
        problems.extend(key::override_keys(&mut tree, environment.into_iter(), flags));
        let (effective, refused) = reader::read::<File>(&mut tree, |name| key::elsewhere(name, key::keys()));
        problems.extend(refused);

        validation::validate(effective, &tree, problems).map_err(fail)
    }

    /// The configuration in force, with every key, as the YAML of a file that would load it again.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // Serializing plain text, numbers and maps into a String has no way to fail.
        serde_saphyr::to_string(&self.effective).unwrap_or_default()
    }

    /// The configuration in force, with every key, as one line of JSON.
    ///
    /// It holds no secret: those are named by the paths of their files.
    #[must_use]
    pub fn to_json(&self) -> String {
        // As above.
        serde_json::to_string(&self.effective).unwrap_or_default()
    }
}

/// Two configurations are equal when every key is.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.effective == other.effective
    }
}

impl Day {
    /// As a weekday.
    #[must_use]
    pub fn weekday(self) -> Weekday {
        // Made from a weekday only, so it is one.
        Weekday::from_monday_zero_offset(self.0).unwrap_or(Weekday::Monday)
    }
}

impl From<Weekday> for Day {
    fn from(weekday: Weekday) -> Self {
        Self(weekday.to_monday_zero_offset())
    }
}

/// What a file lacks that must say which format it has.
pub(crate) fn format_problems(tree: &Tree, kind: &str) -> Vec<Problem> {
    let wanted = [("apiVersion", "spot-migrator.io/v1alpha1"), ("kind", kind)];
    let missing = wanted.into_iter().filter(|(key, _)| tree.get(key).is_none());
    let problem = |(key, value): (&str, &str)| Problem {
        place: tree.place.clone(),
        key: key.to_owned(),
        message: format!("the key is missing: add `{key}: {value}`"),
    };
    missing.map(problem).collect()
}
