//! The configuration file as it is written: names, shapes and defaults.
//!
//! This is the only list of keys. Flags, variables, the JSON Schema and the manual are made from its schema
//! (see [`key`](super::key)), so the comments on the fields are what users read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lapse::{OptionalTimeout, Timeout, Wait};

/// Configuration of spot-migrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("required" = ["apiVersion", "kind"]))]
pub(crate) struct File {
    /// Version of this format.
    pub(crate) api_version: ApiVersion,
    /// Kind of this file.
    pub(crate) kind: Kind,
    /// When a migration begins: cron with five fields, `@hourly` and its like, or `@every 6h`.
    pub(crate) schedule: Schedule,
    /// IANA name of the zone in which the schedule, the windows and the days are read.
    pub(crate) time_zone: TimeZone,
    /// When nodes may be retired; none: at any time.
    pub(crate) windows: Vec<Window>,
    /// Judge and report, but write nothing to nodes or cloud.
    pub(crate) dry_run: bool,
    /// Where the machines are.
    pub(crate) cloud_provider: CloudProvider,
    /// How long load balancers get.
    pub(crate) load_balancer: LoadBalancer,
    /// Which nodes are retired, and how many.
    pub(crate) selection: Selection,
    /// How a node is emptied.
    pub(crate) drain: Drain,
    /// The calm before the next node.
    pub(crate) settle: Settle,
    /// The wait for a deleted node to leave the cluster.
    pub(crate) node_gone: NodeGone,
    /// How long a node whose drain failed is left alone.
    pub(crate) back_off: BackOff,
    /// What is remembered of a shortage of spot nodes.
    pub(crate) exhaustion: Exhaustion,
    /// How spot interruptions are answered.
    pub(crate) interruption: Interruption,
    /// How one of several replicas is chosen.
    pub(crate) leader_election: LeaderElection,
    /// Where the migrator keeps what outlives its process.
    pub(crate) state: State,
    /// Who is told about runs.
    pub(crate) notifications: Notifications,
    /// File of prices that count before those that are built in: a line for each instance type, `region,instance
    /// type,dollars an hour on demand`, with the price on spot behind it where it is known. Empty: none.
    pub(crate) prices: String,
    /// How the process ends.
    pub(crate) shutdown: Shutdown,
    /// Metrics and health over HTTP.
    pub(crate) server: Server,
    /// What the process writes about itself.
    pub(crate) log: Log,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ApiVersion {
    #[default]
    #[serde(rename = "spot-migrator.io/v1alpha1")]
    V1Alpha1,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Kind {
    #[default]
    SpotMigratorConfiguration,
}

/// Text with a default of its own.
macro_rules! text {
    ($($name:ident = $default:literal),* $(,)?) => {$(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(from = "String", into = "String")]
        #[schemars(inline, with = "String")]
        pub(crate) struct $name(pub(crate) String);

        impl Default for $name {
            fn default() -> Self {
                Self($default.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }
    )*};
}

#[cfg(feature = "aws")]
pub(crate) use text;

text! {
    Schedule = "@hourly",
    TimeZone = "UTC",
    Address = "0.0.0.0:8080",
    Named = "spot-migrator",
}

/// A stretch of time in which nodes may be retired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Window {
    /// Days on which it opens; none: every day.
    #[serde(default)]
    pub(crate) days: Vec<Day>,
    /// Time of day at which it opens, as `22:00`.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub(crate) start: String,
    /// How long it stays open, at most 24h.
    pub(crate) duration: Timeout,
    /// IANA name of its zone; empty: the top-level `timeZone`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) time_zone: String,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct CloudProvider {
    /// How nodes are classified and machines deleted.
    pub(crate) name: Provider,
    /// Settings of provider `aws`.
    pub(crate) aws: Aws,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Provider {
    /// The EC2 instance is deleted, after EC2 was asked for its class.
    #[default]
    Aws,
    /// Labels tell the class, and the Node object is deleted, whose owner (Karpenter, KWOK) follows.
    NodeObject,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Aws {
    /// Region; empty: as the AWS SDK finds it. The machine's metadata service is asked for it, and for credentials, only
    /// with `AWS_EC2_METADATA_DISABLED=false` in the environment.
    pub(crate) region: String,
    /// Name of the cluster as its instances are tagged; required with provider `aws`.
    pub(crate) cluster_name: String,
    /// Refuse instances without the cluster's tag.
    pub(crate) require_cluster_tag: bool,
    /// Which of an instance's own words tells which node it is, where the provider ID does not.
    pub(crate) identity: super::Identity,
    /// Endpoint to call instead of AWS's own; empty: AWS's own.
    pub(crate) endpoint_url: String,
}

impl Default for Aws {
    fn default() -> Self {
        Self {
            region: String::new(),
            cluster_name: String::new(),
            require_cluster_tag: true,
            identity: super::Identity::Name,
            endpoint_url: String::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct LoadBalancer {
    /// Shortest time between the taint that fails health checks and the deletion of the instance.
    pub(crate) drain: Wait,
    /// Longest wait for a load balancer that is still draining.
    pub(crate) drain_max: Wait,
}

impl Default for LoadBalancer {
    fn default() -> Self {
        Self { drain: Wait::seconds(60), drain_max: Wait::seconds(600) }
    }
}

impl From<&LoadBalancer> for super::LoadBalancer {
    fn from(balancer: &LoadBalancer) -> Self {
        Self { drain: balancer.drain.get(), drain_max: balancer.drain_max.get() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Selection {
    /// Label selector of the nodes that may be retired, as `pool=batch,!pinned`; empty: every node.
    pub(crate) node_selector: String,
    /// Nodes that are retired side by side.
    #[schemars(range(min = 1))]
    pub(crate) nodes_at_once: u32,
    /// Most nodes that one run retires; 0: no limit.
    pub(crate) max_nodes_per_run: u32,
    /// Most nodes that are retired in one day; 0: no limit.
    pub(crate) max_nodes_per_day: u32,
    /// Fewest other ready, schedulable nodes that must be left.
    pub(crate) min_remaining_nodes: u32,
    /// What a node is taken for whose labels don't tell its class, where no cloud can be asked.
    pub(crate) unlabelled_nodes: super::UnlabelledNodes,
    /// What happens to on-demand nodes of another provisioner (Karpenter).
    pub(crate) provisioned_nodes: super::ProvisionedNodes,
    /// More labels that tell a node's class: `label=value` to `spot`, `on-demand` or `reserved`.
    pub(crate) capacity_labels: BTreeMap<String, super::CapacityClass>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            node_selector: String::new(),
            nodes_at_once: 1,
            max_nodes_per_run: 0,
            max_nodes_per_day: 0,
            min_remaining_nodes: 1,
            unlabelled_nodes: super::UnlabelledNodes::Unknown,
            provisioned_nodes: super::ProvisionedNodes::Skip,
            capacity_labels: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Drain {
    /// Longest that emptying a node may take; then the node is released.
    pub(crate) timeout: Timeout,
    /// Also evict pods that no controller owns, and that nobody will bring back.
    pub(crate) force: bool,
    /// Also evict pods whose `emptyDir` data is lost by it.
    pub(crate) delete_empty_dir_data: bool,
    /// Grace period of evicted pods; empty: each pod's own.
    pub(crate) pod_grace_period: OptionalTimeout,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            timeout: Timeout::seconds(3600),
            force: false,
            delete_empty_dir_data: true,
            pod_grace_period: OptionalTimeout(None),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Settle {
    /// Longest wait for evicted pods to run elsewhere; then the run ends without another node.
    pub(crate) timeout: Timeout,
}

impl Default for Settle {
    fn default() -> Self {
        Self { timeout: Timeout::seconds(25 * 60) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct NodeGone {
    /// Longest wait for the Node object to go after its machine.
    pub(crate) timeout: Timeout,
    /// Delete the Node object when its machine is terminated and the wait is over.
    pub(crate) delete_node_object: bool,
}

impl Default for NodeGone {
    fn default() -> Self {
        Self { timeout: Timeout::seconds(15 * 60), delete_node_object: true }
    }
}

impl From<&NodeGone> for super::NodeGone {
    fn from(gone: &NodeGone) -> Self {
        Self { timeout: gone.timeout.get(), delete_node_object: gone.delete_node_object }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct BackOff {
    /// After the first failure; doubles with each further one.
    pub(crate) initial: Timeout,
    /// Where the doubling ends.
    pub(crate) max: Timeout,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { initial: Timeout::seconds(3600), max: Timeout::seconds(24 * 3600) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Exhaustion {
    /// How long no run begins after spot capacity ran out.
    pub(crate) back_off: ExhaustionBackOff,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ExhaustionBackOff {
    /// After the first exhausted run; doubles with each further one, until a new spot node comes.
    pub(crate) initial: Timeout,
    /// Where the doubling ends.
    pub(crate) max: Timeout,
}

impl Default for ExhaustionBackOff {
    fn default() -> Self {
        Self { initial: Timeout::seconds(3600), max: Timeout::seconds(6 * 3600) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Interruption {
    /// URL of the SQS queue of interruption messages, in the region of the machines (`cloudProvider.aws.region`); empty:
    /// no queue is read.
    pub(crate) queue_url: String,
    /// What follows a rebalance recommendation.
    pub(crate) rebalance_recommendation: super::RebalanceRecommendation,
    /// How long before a scheduled change of its machine a node is drained.
    pub(crate) scheduled_change_lead: Wait,
    /// Names of the Auto Scaling lifecycle hooks that are completed when their work is done; needs `queueUrl`.
    pub(crate) complete_lifecycle_hooks: Vec<String>,
    /// How long after its notice the drain of an interrupted node obeys budgets; then it deletes the pods that they
    /// block. At most 2m.
    pub(crate) delete_blocked_pods_after: Wait,
    /// How long no migration begins after an interruption.
    pub(crate) pause_migration_for: Wait,
}

impl Default for Interruption {
    fn default() -> Self {
        Self {
            queue_url: String::new(),
            rebalance_recommendation: super::RebalanceRecommendation::Taint,
            scheduled_change_lead: Wait::seconds(30 * 60),
            complete_lifecycle_hooks: Vec::new(),
            delete_blocked_pods_after: Wait::seconds(60),
            pause_migration_for: Wait::seconds(15 * 60),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct LeaderElection {
    /// Work only while holding the lease; off: only ever one process must run.
    pub(crate) enabled: bool,
    /// Name of the Lease object.
    pub(crate) lease_name: Named,
    /// How long the lease lasts without a renewal, in whole seconds.
    pub(crate) lease_duration: Timeout,
    /// How long the leader tries to renew before it gives up; shorter than `leaseDuration`.
    pub(crate) renew_deadline: Timeout,
    /// Pause between two attempts; shorter than `renewDeadline`.
    pub(crate) retry_period: Timeout,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_name: Named::default(),
            lease_duration: Timeout::seconds(15),
            renew_deadline: Timeout::seconds(10),
            retry_period: Timeout::seconds(2),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct State {
    /// Namespace of the ConfigMap and the lease; empty: the pod's own, and outside a pod it must be named.
    pub(crate) namespace: String,
    /// Name of the ConfigMap.
    pub(crate) config_map: Named,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Notifications {
    /// File that holds the URL which is posted to; empty: nothing is posted.
    pub(crate) webhook_url_file: String,
    /// File that holds the template of the message; empty: the built-in one.
    pub(crate) template_file: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Shutdown {
    /// How long the process may clean up after it was told to stop.
    pub(crate) grace_period: Timeout,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { grace_period: Timeout::seconds(30) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Server {
    /// IP address and port that are listened on.
    pub(crate) address: Address,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Log {
    /// Shape of the lines.
    pub(crate) format: super::LogFormat,
    /// Least severe lines that are written.
    pub(crate) level: super::LogLevel,
}
