//! What was called, and what happened: the world's two logs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::capacity::Class;
use crate::claim::InstanceId;
use crate::cloud::{Deletion, Freshness, InstanceState};
use crate::error::ErrorClass;
use crate::interruption::Handled;
use crate::memory::Memory;
use crate::node::NodeRef;
use crate::pod::{BudgetRef, PodRef};
use crate::ports::{EvictAnswer, Instant, NodeChange, Scope};

use super::process::ProcessId;

/// A call to a port, with all that it said.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `Cluster::open`.
    Open(Scope),
    /// `Cluster::write_node`.
    WriteNode {
        /// The node.
        node: NodeRef,
        /// What changes.
        change: Box<NodeChange>,
    },
    /// `Cluster::evict`.
    Evict {
        /// The pod.
        pod: PodRef,
        /// Its grace period, if not its own.
        grace: Option<Duration>,
    },
    /// `Cluster::delete_pod`.
    DeletePod {
        /// The pod.
        pod: PodRef,
        /// Its grace period.
        grace: Duration,
    },
    /// `Cluster::delete_node`.
    DeleteNode(NodeRef),
    /// `Cluster::recall`.
    Recall,
    /// `Cluster::remember`.
    Remember(Memory),
    /// `Live::latest_pods`.
    LatestPods(NodeRef),
    /// `CloudProvider::survey`.
    Survey {
        /// How many nodes were asked about.
        nodes: usize,
        /// Those of which everything is to be known.
        chosen: Vec<NodeRef>,
        /// How old the answer may be.
        freshness: Freshness,
    },
    /// `CloudProvider::detach`.
    Detach {
        /// The node.
        node: NodeRef,
        /// Since when it carries the taint.
        tainted_at: Option<Timestamp>,
    },
    /// `CloudProvider::attach`.
    Attach {
        /// The node.
        node: NodeRef,
    },
    /// `CloudProvider::delete_instance`.
    DeleteInstance {
        /// The node.
        node: NodeRef,
        /// The instance that the claim names.
        instance: Option<InstanceId>,
    },
    /// `CloudProvider::instance_state`.
    InstanceState(InstanceId),
    /// `NoticeSource::next`, when its wait is over.
    Receive,
    /// `NoticeSource::extend` of this message.
    Extend(Arc<str>),
    /// `NoticeSource::settle`.
    Settle {
        /// The message.
        message: Arc<str>,
        /// As what.
        handled: Handled,
    },
    /// `PoolCapacity::fleets`.
    Fleets,
    /// `PoolCapacity::resize`.
    Resize {
        /// The fleet.
        fleet: String,
        /// What it is to want now.
        from: u32,
        /// What it is to want.
        to: u32,
    },
    /// `PoolCapacity::terminate`.
    Terminate {
        /// The fleet.
        fleet: String,
        /// The machine.
        instance: InstanceId,
    },
    /// `PoolCapacity::cancel` of this fleet.
    Cancel(String),
}

impl Call {
    /// Its port's method, as a word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::WriteNode { .. } => "write_node",
            Self::Evict { .. } => "evict",
            Self::DeletePod { .. } => "delete_pod",
            Self::DeleteNode(_) => "delete_node",
            Self::Recall => "recall",
            Self::Remember(_) => "remember",
            Self::LatestPods(_) => "latest_pods",
            Self::Survey { .. } => "survey",
            Self::Detach { .. } => "detach",
            Self::Attach { .. } => "attach",
            Self::DeleteInstance { .. } => "delete_instance",
            Self::InstanceState(_) => "instance_state",
            Self::Receive => "receive",
            Self::Extend(_) => "extend",
            Self::Settle { .. } => "settle",
            Self::Fleets => "fleets",
            Self::Resize { .. } => "resize",
            Self::Terminate { .. } => "terminate",
            Self::Cancel(_) => "cancel",
        }
    }
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Nothing yet.
    Underway,
    /// It had its effect, which needs no more words.
    Done,
    /// The node was written, and has this version now.
    Written(String),
    /// The node has another version: nothing was written.
    Conflict,
    /// The node is gone: nothing was written.
    NodeGone,
    /// The API server's answer to an eviction.
    Eviction(EvictAnswer),
    /// The pods on the node that are not a DaemonSet's, mirrors or finished.
    Pods(Vec<PodRef>),
    /// The memory's version.
    Memory(Option<String>),
    /// The cloud's answer to a deletion.
    Deletion(Deletion),
    /// The instance's state.
    Instance(InstanceState),
    /// These messages were delivered.
    Delivered(Vec<Arc<str>>),
    /// It failed, without effect.
    Failed(ErrorClass, String),
    /// It hangs for ever, without effect.
    Hung,
    /// Its process was killed before its effect.
    Killed,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// Its number, counted from 0 over all processes, in the order in which calls are sent.
    pub number: u64,
    /// Who called.
    pub process: ProcessId,
    /// What was called.
    pub call: Call,
    /// When it was sent.
    pub sent: Instant,
    /// When it had its effect, or was refused.
    pub answered: Option<Instant>,
    /// What became of it. An answer may be lost on its way back all the same.
    pub answer: Answer,
}

/// Why a pod went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Removal {
    /// An eviction was accepted.
    Evicted,
    /// `Cluster::delete_pod`.
    Deleted,
    /// Its node went.
    NodeLost,
    /// Somebody else deleted it.
    Others,
}

/// Something that happened in the world.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A pod is gone.
    PodGone {
        /// The pod.
        pod: PodRef,
        /// Where it ran.
        node: Option<Arc<str>>,
        /// Why.
        removal: Removal,
        /// Whether a drain ought to have moved it: no DaemonSet's, no mirror, not finished.
        movable: bool,
    },
    /// An accepted eviction left fewer healthy pods than a budget demands.
    BudgetOverrun {
        /// The budget.
        budget: BudgetRef,
        /// How many are healthy.
        healthy: i32,
        /// How many must be.
        desired: i32,
    },
    /// A node joined.
    NodeJoined {
        /// The node.
        node: NodeRef,
        /// Its class.
        class: Class,
    },
    /// A Node object is gone.
    NodeGone(NodeRef),
    /// The deletion of a machine was accepted.
    MachineDeleted {
        /// The machine.
        instance: InstanceId,
        /// Its node.
        node: NodeRef,
        /// Pods that ran there and that a drain ought to have moved.
        pods: Vec<PodRef>,
        /// How long it carried the taint that takes it out of load balancers.
        tainted_for: Option<Duration>,
    },
    /// A machine is gone.
    MachineGone(InstanceId),
}

/// A fact and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct FactRecord {
    /// When it happened.
    pub at: Instant,
    /// What happened.
    pub fact: Fact,
}
