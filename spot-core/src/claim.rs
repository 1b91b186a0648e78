//! Our record on a node that is being retired: what release may undo, and where recovery goes on.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cloud::{Group, GroupKind};
use crate::node::Uid;

/// Whose retirement it is. Recovery takes up only its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The scheduled migration.
    Migrator,
    /// The answer to an interruption.
    Interruption,
    /// A node pool's scaling, rolling or removal.
    Fleet(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Migrator => f.write_str("migrator"),
            Self::Interruption => f.write_str("interruption"),
            Self::Fleet(pool) => write!(f, "fleet:{pool}"),
        }
    }
}

impl Owner {
    /// The owner that [`Display`](fmt::Display) wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "migrator" => Some(Self::Migrator),
            "interruption" => Some(Self::Interruption),
            _ => text.strip_prefix("fleet:").filter(|pool| !pool.is_empty()).map(|pool| Self::Fleet(pool.to_owned())),
        }
    }
}

/// How far a retirement has come. The order is that of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimStep {
    /// Marked and cordoned; pods are being evicted.
    Draining,
    /// Empty and tainted; load balancers are being drained.
    Tainted,
    /// The deletion is about to be asked for, was asked for, or was accepted: the node is departing.
    Deleting,
}

impl ClaimStep {
    /// Every step.
    pub const ALL: [Self; 3] = [Self::Draining, Self::Tainted, Self::Deleting];

    /// Its word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::Tainted => "tainted",
            Self::Deleting => "deleting",
        }
    }

    /// The step with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.as_str() == word)
    }
}

/// The cloud's name of a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(Arc<str>);

impl InstanceId {
    /// The instance with this name.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the machine behind a node goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The cloud deletes this instance.
    Instance(InstanceId),
    /// Whoever owns the machine removes it when its Node object is deleted.
    WithNode,
}

/// The record. A kubelet can forge it, so it is held against the node and the cloud before use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose retirement it is.
    pub owner: Owner,
    /// The node that was claimed; a record on another node is a copy, and void.
    pub node: Uid,
    /// The machine that was claimed.
    pub machine: Machine,
    /// The boot that was claimed.
    pub boot_id: String,
    /// How far it has come.
    pub step: ClaimStep,
    /// Whether the cordon is ours to take off.
    pub cordoned: bool,
    /// The value of the taint that is ours to take off.
    pub taint: Option<String>,
    /// When the node was claimed.
    pub since: Timestamp,
    /// The migrator's own pod was all that was left: it counts as drained.
    pub own_pod_left: bool,
    /// Taint and cordon were put back once, after a cluster-autoscaler that started had taken them off.
    pub restored: bool,
    /// When the machine goes, where the cloud has announced it.
    pub until: Option<Timestamp>,
    /// What the fleet that keeps the machine wanted before it was asked for less.
    pub fleet_before: Option<FleetBefore>,
}

/// A fleet's target capacity before a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetBefore {
    /// The fleet.
    pub fleet: String,
    /// Its target.
    pub target: u32,
    /// How much of that was to be on-demand.
    pub on_demand: u32,
}

impl FleetBefore {
    /// What this group wants now; none if it is no fleet.
    #[must_use]
    pub fn of(group: &Group) -> Option<Self> {
        match group.kind {
            GroupKind::Fleet { on_demand } => Some(Self { fleet: group.id.clone(), target: group.desired, on_demand }),
            GroupKind::Group => None,
        }
    }
}

impl Claim {
    /// Whether the deletion was accepted, or its answer may be unknown.
    #[must_use]
    pub fn is_departing(&self) -> bool {
        self.step == ClaimStep::Deleting
    }
}

/// What is recorded on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimRecord<'a> {
    /// Nothing.
    None,
    /// This retirement.
    Valid(&'a Claim),
    /// Something that is not a record of ours.
    Unreadable,
}

impl<'a> ClaimRecord<'a> {
    /// The claim of this node, if it is one: readable, and written for this very object.
    #[must_use]
    pub fn of(self, uid: &str) -> Option<&'a Claim> {
        match self {
            Self::Valid(claim) if claim.node.as_str() == uid => Some(claim),
            Self::Valid(_) | Self::None | Self::Unreadable => None,
        }
    }
}

/// Until when a node is left alone after its retirement failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The end of it.
    pub until: Timestamp,
    /// How many times in a row it failed.
    pub count: u32,
}

impl BackOff {
    /// The back-off after one more failure at `now`: `initial`, doubling, at most `max`.
    #[must_use]
    pub fn after(
        previous: Option<Self>,
        now: Timestamp,
        initial: std::time::Duration,
        max: std::time::Duration,
    ) -> Self {
        let count = previous.map_or(0, |back_off| back_off.count);
        let factor = 2_u32.saturating_pow(count);
        let wait = initial.saturating_mul(factor).min(max);
        Self { until: now.saturating_add(wait).unwrap_or(Timestamp::MAX), count: count.saturating_add(1) }
    }
}
