//! Notices as values: what is announced, by whom, and what is told of the answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::claim::InstanceId;
use crate::node::NodeRef;

/// Where a notice comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A queue of the whole cluster.
    Queue,
    /// The metadata service of the machine itself.
    Metadata,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 2] = [Self::Queue, Self::Metadata];

    /// Its word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Metadata => "metadata",
        }
    }
}

/// What becomes of a spot machine that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reclaim {
    /// It is gone for good.
    Terminate,
    /// It stops, and may start again with its disks.
    Stop,
    /// Its memory is written to disk, at once, and it may go on from there.
    Hibernate,
}

/// The state of a machine, where it tells anything of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineState {
    /// It is about to run, or runs.
    Up,
    /// It stops or is terminated, or was.
    Down,
}

/// What is announced of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// Spot capacity is taken back.
    Interruption {
        /// What becomes of the machine.
        action: Reclaim,
        /// When.
        at: Timestamp,
    },
    /// The machine is likelier than others to be taken back.
    Rebalance,
    /// The machine is to be retired, rebooted or worked on.
    ScheduledChange {
        /// When that begins.
        at: Timestamp,
    },
    /// A group terminates the machine, and waits for an answer.
    TerminateAction {
        /// How long it waits.
        until: Timestamp,
    },
    /// A group launched the machine, and waits for an answer before it counts on it.
    LaunchAction {
        /// How long it waits.
        until: Timestamp,
    },
    /// The machine is in another state.
    StateChange(MachineState),
}

impl Announcement {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> NoticeKind {
        match self {
            Self::Interruption { .. } => NoticeKind::Interruption,
            Self::Rebalance => NoticeKind::Rebalance,
            Self::ScheduledChange { .. } => NoticeKind::ScheduledChange,
            Self::TerminateAction { .. } => NoticeKind::TerminateAction,
            Self::LaunchAction { .. } => NoticeKind::LaunchAction,
            Self::StateChange(_) => NoticeKind::StateChange,
        }
    }
}

/// The kinds of announcements, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeKind {
    /// See [`Announcement::Interruption`].
    Interruption,
    /// See [`Announcement::Rebalance`].
    Rebalance,
    /// See [`Announcement::ScheduledChange`].
    ScheduledChange,
    /// See [`Announcement::TerminateAction`].
    TerminateAction,
    /// See [`Announcement::LaunchAction`].
    LaunchAction,
    /// See [`Announcement::StateChange`].
    StateChange,
}

impl NoticeKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Interruption,
        Self::Rebalance,
        Self::ScheduledChange,
        Self::TerminateAction,
        Self::LaunchAction,
        Self::StateChange,
    ];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interruption => "spot_interruption",
            Self::Rebalance => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::TerminateAction => "terminate_action",
            Self::LaunchAction => "launch_action",
            Self::StateChange => "state_change",
        }
    }
}

impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One announcement of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The machine.
    pub instance: InstanceId,
    /// What is announced.
    pub announcement: Announcement,
    /// When it was sent.
    pub sent: Timestamp,
}

/// What a source knows a notice by until it is settled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The message: the same however often it is delivered.
    pub message: Arc<str>,
    /// This delivery of it.
    pub receipt: Arc<str>,
}

/// A notice, and what to settle it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The notice.
    pub notice: Notice,
    /// By what it is settled.
    pub ticket: Ticket,
}

/// What became of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handled {
    /// It had its effect, or needs none: it is not delivered again, and whoever waits for the answer gets it.
    Done,
    /// It is not ours to answer: it is not delivered again, and whoever waits for an answer waits on.
    Ignored,
    /// It is to be delivered again at once: another process takes it up.
    Returned,
    /// It is to be delivered again after a while.
    Later,
}

/// Why a notice has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ignored {
    /// It can't be read.
    Unreadable,
    /// It is from somebody else.
    Foreign,
    /// It announces what nobody here has an answer to.
    UnknownKind,
    /// No node runs on its machine.
    UnknownInstance,
    /// It is about a machine that we have deleted ourselves.
    OurOwn,
    /// It was delivered before, and is being answered, or was.
    Duplicate,
    /// Nothing is to be done about it.
    NoAction,
}

impl Ignored {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Unreadable,
        Self::Foreign,
        Self::UnknownKind,
        Self::UnknownInstance,
        Self::OurOwn,
        Self::Duplicate,
        Self::NoAction,
    ];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Foreign => "foreign",
            Self::UnknownKind => "unknown_kind",
            Self::UnknownInstance => "unknown_instance",
            Self::OurOwn => "our_own",
            Self::Duplicate => "duplicate",
            Self::NoAction => "no_action",
        }
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happened in answer to notices.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The source answered.
    Polled {
        /// Which.
        source: Source,
        /// How long ago the oldest notice of this answer was sent; none: there was none.
        oldest: Option<Duration>,
    },
    /// A notice came.
    Received {
        /// From where.
        source: Source,
        /// What it announces.
        kind: NoticeKind,
        /// Of which machine.
        instance: InstanceId,
    },
    /// A notice has no effect.
    Ignored {
        /// From where it came.
        source: Source,
        /// Why.
        why: Ignored,
        /// What it was, as far as that could be read.
        what: String,
    },
    /// A node was cordoned.
    Cordoned {
        /// The node.
        node: NodeRef,
        /// Because of what.
        kind: NoticeKind,
        /// How long after the notice was sent.
        after: Duration,
    },
    /// A node is empty.
    Emptied {
        /// The node.
        node: NodeRef,
        /// Because of what.
        kind: NoticeKind,
        /// How long after the notice was sent.
        after: Duration,
    },
    /// A node was not empty in time.
    NotEmptied {
        /// The node.
        node: NodeRef,
        /// Because of what it was to be.
        kind: NoticeKind,
        /// What stood in the way.
        why: String,
    },
    /// Pods are kept off a node whose machine may be taken back soon.
    Softened {
        /// The node.
        node: NodeRef,
    },
    /// Nothing followed: pods are not kept off a node any longer.
    Hardened {
        /// The node.
        node: NodeRef,
    },
    /// A node's machine is back, or was never taken: everything of ours was taken off.
    Returned {
        /// The node.
        node: NodeRef,
        /// How that is known.
        why: &'static str,
    },
    /// Planned work waits: spot capacity is being taken back.
    Held {
        /// Until then at least.
        until: Timestamp,
    },
}
