//! Node pools: what keeps their capacity, and what is reported of the work on them.
//!
//! A pool is one or more fleets, which keep machines, and the nodes that those machines are. It grows by a fleet that is
//! told to want more; it shrinks node by node, each retired as in a migration, whatever its class.

mod change;
mod look;
mod pools;
mod ready;
mod remove;
pub mod roll;
mod scale;
mod work;

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
pub use pools::{Pools, Settings};

use crate::claim::InstanceId;
use crate::error::PortError;
use crate::node::NodeRef;
use crate::ports::{Instant, Write};
use crate::progress;
use crate::reason::Reason;

/// What keeps a pool's machines.
#[async_trait]
pub trait PoolCapacity: Send + Sync {
    /// The pool's fleets that keep machines, or whose machines are not all gone yet, in the order of their creation.
    /// What does not bear the pool's tags is not among them.
    ///
    /// # Errors
    /// When they could not be read as a whole; an unreadable fleet is never an empty one.
    async fn fleets(&self, by: Instant) -> Result<Vec<Fleet>, PortError>;

    /// Sets what a fleet wants, provided that it wants `from` now; no machine is terminated by it. Idempotent: one that
    /// wants `to` already is done. Done when the fleet can be changed again.
    ///
    /// # Errors
    /// Of class [`Permanent`](crate::error::ErrorClass::Permanent) where it wants something else by somebody else's
    /// doing: nothing happened.
    async fn resize(&self, fleet: &str, from: u32, to: u32, write: &Write) -> Result<(), PortError>;

    /// Terminates a member that no Node names, and has its fleet want less by its weight first, unless it wants so little
    /// already that it does not miss it. Idempotent.
    ///
    /// # Errors
    /// When the cloud refuses (nothing happened), or its answer is unknown; the class tells.
    async fn terminate(&self, fleet: &str, instance: &InstanceId, write: &Write) -> Result<(), PortError>;

    /// Ends a fleet that wants nothing any more, and whatever it may be launching with it. Idempotent.
    ///
    /// # Errors
    /// When it could not be ended within the deadline, or still wants or has something.
    async fn cancel(&self, fleet: &str, write: &Write) -> Result<(), PortError>;
}

/// A fleet of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Its name: that of the group in the [facts](crate::cloud::CloudFact::group) of its nodes.
    pub id: String,
    /// The capacity that it wants.
    pub target: u32,
    /// Whether it is what the pool's file asks for now; another one is to go.
    pub is_current: bool,
    /// Whether it can be changed: not while a change of it is under way.
    pub is_settled: bool,
    /// Whether it launches nothing any more.
    pub has_ended: bool,
    /// Its machines that run, or are about to.
    pub members: BTreeMap<InstanceId, Member>,
}

/// A machine of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// How much of what the fleet wants it is.
    pub weight: u32,
    /// When it was launched.
    pub launched: jiff::Timestamp,
}

impl Fleet {
    /// The capacity that is there.
    #[must_use]
    pub fn there(&self) -> u32 {
        self.members.values().map(|member| member.weight).fold(0, u32::saturating_add)
    }
}

/// How much of a pool is there, in units of capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// What is wanted.
    pub wanted: u32,
    /// What has been launched.
    pub launched: u32,
    /// What of that is a Node.
    pub joined: u32,
    /// What of that takes pods: Ready, and not cordoned.
    pub ready: u32,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, launched, joined, ready } = self;
        write!(f, "{launched} launched, {joined} joined, {ready} ready of {wanted}")
    }
}

/// One thing that happened to a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// How much of the pool is there. Told when it changes.
    Counted(Count),
    /// A fleet wants more, or less.
    Resized {
        /// The fleet.
        fleet: String,
        /// What it wanted before.
        from: u32,
        /// What it wants now.
        to: u32,
    },
    /// Nothing can be done now; that may change, and is waited for.
    Waiting {
        /// Until what is so.
        what: String,
    },
    /// A machine went that had no Node.
    Terminated {
        /// Its fleet.
        fleet: String,
        /// The machine.
        instance: InstanceId,
    },
    /// A fleet was ended.
    Cancelled {
        /// The fleet.
        fleet: String,
    },
}

/// How the work on a pool ended.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Outcome {
    /// Everything is as it was asked for.
    Done,
    /// The pool has as little as its nodes' weights allow, and nothing that may go fits into the rest. The capacity that
    /// is there.
    Remainder(u32),
    /// Nobody may go: each node with its first reason. Nothing was touched beyond what was reported.
    Blocked(Vec<(NodeRef, Reason)>),
    /// What was wanted is not all ready in time: what is missing.
    NotReady(Count),
    /// Evicted pods did not run elsewhere in time; one of them.
    NotSettled(String),
    /// Nodes failed or were released; the pool is smaller by what went.
    Failed,
    /// What was asked for can't be done, and nothing was touched: why, and what would help.
    Refused(String),
    /// Somebody else has a fleet want something else meanwhile, or took it away, which is left as it is: what. What was
    /// reported is done.
    Changed(String),
    /// A person paused us.
    Paused,
    /// The process is to end.
    Stopped,
}

/// What was done to a pool.
pub type Report = progress::Report<Outcome>;
