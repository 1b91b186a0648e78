//! Why a node may not be retired: a closed list.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::pod::{BudgetRef, PodRef};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $word:literal, $span:ident, $remedy:literal;)*) => {
        /// The kinds of reasons: metric labels, and the words in reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ReasonKind { $($(#[$doc])* $kind,)* }

        impl ReasonKind {
            /// Every kind, in the order in which reports list them.
            pub const ALL: [Self; [$(Self::$kind),*].len()] = [$(Self::$kind),*];

            /// Its word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word,)* }
            }

            /// Whether it may pass by itself within a run.
            #[must_use]
            pub const fn span(self) -> Span {
                match self { $(Self::$kind => Span::$span,)* }
            }

            /// What a person can do about it.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy,)* }
            }
        }
    };
}

/// How long a reason holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// It may pass within minutes, by itself: a run waits for it.
    Transient,
    /// It holds for longer than a run.
    Lasting,
}

kinds! {
    /// The node runs the control plane.
    ControlPlane = "control_plane", Lasting, "nothing to do: control-plane nodes are never retired";
    /// A person paused us.
    Paused = "paused", Lasting, "`spot-migrator resume` goes on";
    /// The node carries an opt-out.
    OptedOut = "opted_out", Lasting, "remove the opt-out from the node to let it go";
    /// A pod on the node carries an opt-out.
    PodOptedOut = "pod_opted_out", Lasting, "remove the opt-out from the pod, or move the pod by hand";
    /// Another provisioner owns the node.
    ProvisionedByOther = "provisioned_by_other", Lasting, "set `selection.provisionedNodes: migrate` to retire such nodes too";
    /// Nobody could tell how the machine is paid for.
    UnknownCapacity = "unknown_capacity", Lasting, "label the node, add a label to `selection.capacityLabels`, or set `selection.unlabelledNodes: on-demand`";
    /// Deleting the Node would leave its machine running.
    NoMachineOwner = "no_machine_owner", Lasting, "use the cloud's own provider, so that the machine goes too";
    /// No controller would bring a pod back.
    UnmanagedPod = "unmanaged_pod", Lasting, "give the pod a controller, move it by hand, or set `drain.force: true`";
    /// A pod's local data would be lost.
    EmptyDir = "empty_dir", Lasting, "move the data, or set `drain.deleteEmptyDirData: true`";
    /// A budget allows no disruption.
    BudgetAllowsNone = "budget_allows_none", Transient, "give the application more replicas, or its budget more room";
    /// Two budgets protect the same pod, which Kubernetes refuses to evict.
    MultipleBudgets = "multiple_budgets", Lasting, "let only one PodDisruptionBudget select the pod";
    /// No spot node could take a pod.
    NoSpotPlacement = "no_spot_placement", Lasting, "let the pod's selectors and tolerations match other nodes: for a migration those of a spot pool (or opt the node out), for work on a pool those that stay or come";
    /// A pod's volume is bound to this host.
    LocalVolume = "local_volume", Lasting, "move the data off the local volume";
    /// A pod needs longer to end than a drain may take.
    GraceExceedsTimeout = "grace_exceeds_timeout", Lasting, "raise `drain.timeout`, or set `drain.podGracePeriod`";
    /// The kubelet has not been ready for a moment.
    NotReady = "not_ready", Transient, "wait: it is a candidate again when it is ready, or after five minutes";
    /// Its last retirement failed.
    BackingOff = "backing_off", Lasting, "remove the cause of the failure; `spot-migrator release` ends the back-off";
    /// No window is open.
    OutsideWindow = "outside_window", Lasting, "wait for the next window, or widen `windows`";
    /// The run has begun as many nodes as it may.
    RunLimit = "run_limit", Lasting, "raise `selection.maxNodesPerRun`, or wait for the next run";
    /// The day has seen as many nodes retired as it may.
    DayLimit = "day_limit", Lasting, "raise `selection.maxNodesPerDay`, or wait for tomorrow";
    /// Too few other nodes would be left.
    TooFewNodes = "too_few_nodes", Transient, "add a node, or lower `selection.minRemainingNodes`";
    /// It is on its way out already.
    Departing = "departing", Transient, "wait until the machine is gone";
    /// Spot was exhausted a while ago.
    Exhausted = "exhausted", Lasting, "wait: a new spot node ends it at once; diversify the spot pool's instance types";
    /// Its group is at its minimum size.
    GroupAtMinimum = "group_at_minimum", Lasting, "lower the group's minimum size";
    /// The instance is protected from scale-in.
    ScaleInProtected = "scale_in_protected", Lasting, "remove the instance's scale-in protection";
    /// The instance is protected from termination.
    TerminationProtected = "termination_protected", Lasting, "remove the instance's termination protection";
    /// The instance is being started, stopped or moved.
    InstanceInTransition = "instance_in_transition", Transient, "wait until the instance is in service";
    /// The group would buy an on-demand machine again.
    MixedOnDemandBase = "mixed_on_demand_base", Lasting, "lower the group's on-demand base or percentage";
    /// The group would terminate another machine to balance its zones.
    ZoneRebalance = "zone_rebalance", Lasting, "suspend the group's AZRebalance process";
    /// The group is being rolled.
    GroupRefreshing = "group_refreshing", Transient, "wait until the group's refresh or update has ended";
    /// The machine is not the one the node claims to be.
    IdentityMismatch = "identity_mismatch", Lasting, "look at the node: its provider ID names a machine that is not its own";
    /// The machine is not tagged for this cluster.
    WrongCluster = "wrong_cluster", Lasting, "tag the instance `kubernetes.io/cluster/<name>`, or correct `clusterName`";
    /// Two nodes claim the same machine.
    ClaimedTwice = "claimed_twice", Lasting, "delete the Node object that is not the machine's own";
    /// The provider ID is none that this provider understands.
    UnsupportedProviderId = "unsupported_provider_id", Lasting, "opt the node out, or choose the provider that runs it";
    /// The fleet's weights are not whole numbers.
    FractionalWeight = "fractional_weight", Lasting, "give the fleet whole weights";
    /// The cloud does not answer.
    CloudUnreachable = "cloud_unreachable", Transient, "wait until the cloud's API answers, and look at the credentials";
}

impl fmt::Display for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why this node may not be retired now, with what a person needs to find the cause.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A kind that needs no more words.
    Plain(ReasonKind),
    /// The key of the opt-out on the node.
    OptedOut(&'static str),
    /// The pod that opted out, and its key.
    PodOptedOut(PodRef, &'static str),
    /// The pod that no controller would bring back.
    UnmanagedPod(PodRef),
    /// The pod with local data.
    EmptyDir(PodRef),
    /// The pod and the budget that protects it.
    BudgetAllowsNone {
        /// The protected pod.
        pod: PodRef,
        /// Its budget.
        budget: BudgetRef,
        /// All its pods are healthy, and still none may go: waiting can't help.
        never: bool,
    },
    /// The pod, and the budgets that all protect it.
    MultipleBudgets(PodRef, Vec<BudgetRef>),
    /// The pod that no node could take: no spot node, or none that stays or comes of a pool's cluster.
    NoSpotPlacement(PodRef),
    /// The pod, and its volume on this host.
    LocalVolume(PodRef, Arc<str>),
    /// The pod, and its grace period.
    GraceExceedsTimeout(PodRef, Duration),
    /// Until when the node is left alone.
    BackingOff(Option<Timestamp>),
    /// Until when spot counts as exhausted.
    Exhausted(Timestamp),
    /// A reason of the cloud's, in its own words.
    Cloud(ReasonKind, String),
}

impl Reason {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> ReasonKind {
        match self {
            Self::Plain(kind) | Self::Cloud(kind, _) => *kind,
            Self::OptedOut(_) => ReasonKind::OptedOut,
            Self::PodOptedOut(..) => ReasonKind::PodOptedOut,
            Self::UnmanagedPod(_) => ReasonKind::UnmanagedPod,
            Self::EmptyDir(_) => ReasonKind::EmptyDir,
            Self::BudgetAllowsNone { .. } => ReasonKind::BudgetAllowsNone,
            Self::MultipleBudgets(..) => ReasonKind::MultipleBudgets,
            Self::NoSpotPlacement(_) => ReasonKind::NoSpotPlacement,
            Self::LocalVolume(..) => ReasonKind::LocalVolume,
            Self::GraceExceedsTimeout(..) => ReasonKind::GraceExceedsTimeout,
            Self::BackingOff(_) => ReasonKind::BackingOff,
            Self::Exhausted(_) => ReasonKind::Exhausted,
        }
    }

    /// Whether waiting a while may end it.
    #[must_use]
    pub fn span(&self) -> Span {
        match self {
            Self::BudgetAllowsNone { never: true, .. } => Span::Lasting,
            Self::Plain(_)
            | Self::OptedOut(_)
            | Self::PodOptedOut(..)
            | Self::UnmanagedPod(_)
            | Self::EmptyDir(_)
            | Self::BudgetAllowsNone { .. }
            | Self::MultipleBudgets(..)
            | Self::NoSpotPlacement(_)
            | Self::LocalVolume(..)
            | Self::GraceExceedsTimeout(..)
            | Self::BackingOff(_)
            | Self::Exhausted(_)
            | Self::Cloud(..) => self.kind().span(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Plain(_) | Self::BackingOff(None) => write!(f, "{kind}"),
            Self::OptedOut(key) => write!(f, "{kind} by {key}"),
            Self::PodOptedOut(pod, key) => write!(f, "{kind}: pod {pod} by {key}"),
            Self::UnmanagedPod(pod) | Self::EmptyDir(pod) | Self::NoSpotPlacement(pod) => {
                write!(f, "{kind}: pod {pod}")
            }
            Self::LocalVolume(pod, volume) => write!(f, "{kind}: volume {volume} of pod {pod}"),
            Self::GraceExceedsTimeout(pod, grace) => {
                write!(f, "{kind}: pod {pod} may take {} s to end", grace.as_secs())
            }
            Self::BudgetAllowsNone { pod, budget, never } => {
                let how = if *never { ", though all its pods are healthy" } else { "" };
                write!(f, "{kind}: budget {budget} protects pod {pod}{how}")
            }
            Self::MultipleBudgets(pod, budgets) => {
                write!(f, "{kind}: pod {pod} is protected by")?;
                for (at, budget) in budgets.iter().enumerate() {
                    write!(f, "{} {budget}", if at == 0 { "" } else { " and" })?;
                }
                Ok(())
            }
            Self::BackingOff(Some(until)) | Self::Exhausted(until) => write!(f, "{kind} until {until}"),
            Self::Cloud(_, words) => write!(f, "{kind}: {words}"),
        }
    }
}
