//! How the world behaves: delays, capacity, and which kind of machines it has.

use std::time::Duration;

use jiff::Timestamp;

/// Where the scheduler puts a pod that several nodes could take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On the node with the fewest pods.
    #[default]
    LeastFilled,
    /// On the node with the most pods.
    MostFilled,
    /// On the first by name.
    ByName,
}

/// How a machine goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineKind {
    /// The cloud deletes it, as on EC2.
    #[default]
    Instance,
    /// Whoever owns it removes it when its Node object is deleted, as Karpenter does.
    WithNode,
}

/// Whoever buys machines for pods that fit nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autoscaler {
    /// How many spot machines can still be bought.
    pub spot_left: u32,
    /// From which moment on how many can be bought.
    pub spot_schedule: Vec<(Duration, u32)>,
    /// From the order of a spot machine to its Node.
    pub spot_delay: Duration,
    /// From the order of an on-demand machine *because there was no spot machine* to its Node; none: it buys none.
    pub fallback: Option<Duration>,
    /// From the order of an on-demand machine for pods that need one to its Node.
    pub on_demand_delay: Duration,
    /// How many pods fit on a machine that it buys.
    pub slots: u32,
}

impl Default for Autoscaler {
    fn default() -> Self {
        Self {
            spot_left: 1_000_000,
            spot_schedule: Vec::new(),
            spot_delay: Duration::from_mins(1),
            // an Auto Scaling group waits about a quarter of an hour for spot before others take its place
            fallback: Some(Duration::from_mins(12)),
            on_demand_delay: Duration::from_secs(90),
            slots: 20,
        }
    }
}

/// How the world behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What all chance comes from.
    pub seed: u64,
    /// The wall clock's first moment.
    pub start: Timestamp,
    /// How long a call takes, there and back.
    pub latency: Duration,
    /// How much later a change is seen in a view; one's own writes are seen at once.
    pub view_lag: Duration,
    /// From a change of pods to the budgets' new status.
    pub budget_lag: Duration,
    /// From the loss of a pod to the creation of its replacement.
    pub controller_lag: Duration,
    /// From the creation of a pod to its placement.
    pub scheduler_lag: Duration,
    /// From a cordon to Kubernetes' own taint for it, which changes the object's version.
    pub cordon_taint_lag: Duration,
    /// How often each kubelet writes its Node, which changes the object's version; none: never.
    pub heartbeat: Option<Duration>,
    /// Where pods go.
    pub placement: Placement,
    /// How long load balancers go on sending traffic after the taint.
    pub load_balancer_drain: Duration,
    /// From the acceptance of a deletion to the end of the machine.
    pub machine_gone: Duration,
    /// The lifecycle hook that holds a machine until then, if any.
    pub hook: Option<String>,
    /// From the end of the machine to the end of its Node object.
    pub node_gone: Duration,
    /// From a Node's registration to its readiness.
    pub node_ready: Duration,
    /// From the deletion of a Node object whose machine runs on to its next registration.
    pub reregister: Duration,
    /// How much later the cloud's descriptions show a deletion.
    pub describe_lag: Duration,
    /// How long the cloud can't tell the class of a machine whose Node has registered.
    pub class_lag: Duration,
    /// How machines go.
    pub machines: MachineKind,
    /// Whether a new node takes the name of one that is gone.
    pub reuse_names: bool,
    /// Whoever buys machines.
    pub autoscaler: Autoscaler,
    /// By how many whole seconds, at most, pods start and stop later than their workload says, by chance.
    pub jitter_seconds: u64,
    /// After how much virtual time a run counts as one that never ends.
    pub horizon: Duration,
}

/// 2026-01-05, a Monday, at midnight UTC.
const START: Timestamp = Timestamp::constant(1_767_571_200, 0);

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            start: START,
            latency: Duration::from_millis(5),
            view_lag: Duration::ZERO,
            budget_lag: Duration::from_millis(20),
            controller_lag: Duration::from_millis(20),
            scheduler_lag: Duration::from_millis(10),
            cordon_taint_lag: Duration::from_millis(50),
            heartbeat: None,
            placement: Placement::default(),
            load_balancer_drain: Duration::from_mins(1),
            machine_gone: Duration::from_secs(30),
            hook: None,
            node_gone: Duration::from_secs(5),
            node_ready: Duration::from_secs(10),
            reregister: Duration::from_secs(10),
            describe_lag: Duration::ZERO,
            class_lag: Duration::ZERO,
            machines: MachineKind::default(),
            reuse_names: false,
            autoscaler: Autoscaler::default(),
            jitter_seconds: 0,
            horizon: Duration::from_hours(30 * 24),
        }
    }
}
