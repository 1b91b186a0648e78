//! What a run reports while it goes on, and how it ends.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::capacity::Class;
use crate::drain::plan::Loss;
use crate::error::{ErrorClass, Obstacle};
use crate::exposure::Exposed;
use crate::interruption::Told;
use crate::node::NodeRef;
use crate::pod::PodRef;
use crate::pool;
use crate::reason::{Reason, ReasonKind};

/// The steps of a retirement, and of the run around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Mark, cordon and record.
    Claim,
    /// Evict all pods and wait until they are gone.
    Drain,
    /// Put the taint on that takes the node out of load balancers.
    Taint,
    /// Wait until no load balancer sends traffic.
    Detach,
    /// Have the machine deleted.
    Delete,
    /// Wait until the Node object is gone.
    AwaitGone,
    /// Wait until the evicted pods run elsewhere.
    Settle,
    /// Take everything of ours off a node.
    Release,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 8] = [
        Self::Claim,
        Self::Drain,
        Self::Taint,
        Self::Detach,
        Self::Delete,
        Self::AwaitGone,
        Self::Settle,
        Self::Release,
    ];

    /// Its word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Drain => "drain",
            Self::Taint => "taint",
            Self::Detach => "detach",
            Self::Delete => "delete",
            Self::AwaitGone => "await_gone",
            Self::Settle => "settle",
            Self::Release => "release",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a step ended otherwise than well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Halted {
    /// It failed.
    Failed,
    /// The node is as it was: it must not be touched after all.
    Refused,
    /// A pause holds it back.
    Paused,
    /// It waits: spot capacity is being taken back.
    Held,
    /// A person took the node back.
    Undone,
    /// Somebody changed the node or its pods meanwhile: the steps before it are done again.
    Outdated,
    /// Somebody else removed the node.
    Vanished,
    /// The deletion was accepted, or its answer is unknown, and the node is still there.
    Departing,
    /// An interruption took the node over.
    Overtaken,
    /// An on-demand node came: spot is exhausted.
    SpotExhausted,
    /// The process is to end.
    Stopped,
    /// Somebody else leads.
    NotLeader,
}

impl Halted {
    /// Its word in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Paused => "paused",
            Self::Held => "held",
            Self::Undone => "undone",
            Self::Outdated => "outdated",
            Self::Vanished => "vanished",
            Self::Departing => "departing",
            Self::Overtaken => "overtaken",
            Self::SpotExhausted => "spot_exhausted",
            Self::Stopped => "stopped",
            Self::NotLeader => "not_leader",
        }
    }
}

/// The kinds of answers to an eviction, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answered {
    /// The pod is going.
    Accepted,
    /// It was gone already.
    Gone,
    /// A budget, a webhook or the server stood in the way.
    Blocked,
    /// The request itself failed.
    Failed,
}

impl Answered {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Gone, Self::Blocked, Self::Failed];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Gone => "gone",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
        }
    }
}

/// How a person took a node back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// It was uncordoned.
    Uncordoned,
    /// Our mark was taken off.
    MarkRemoved,
    /// Our record was taken off, or replaced.
    ClaimRemoved,
    /// An opt-out was put on it.
    OptedOut,
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uncordoned => "uncordoned",
            Self::MarkRemoved => "mark removed",
            Self::ClaimRemoved => "claim removed",
            Self::OptedOut => "opted out",
        })
    }
}

/// One thing that happened. Core reports it; adapters turn it into logs, metrics and Events.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// A run began, with this many nodes of each class.
    RunStarted {
        /// Nodes by class.
        nodes: BTreeMap<Class, usize>,
    },
    /// All nodes were judged: how many are eligible, and how many are not, by reason.
    Judged {
        /// Nodes that may go.
        eligible: usize,
        /// Nodes that may not, by the kind of their first reason.
        refused: BTreeMap<ReasonKind, usize>,
    },
    /// In a dry run: this node would be retired next.
    WouldRetire {
        /// The node.
        node: NodeRef,
    },
    /// Nobody can be retired now, but that may change; the run waits.
    Waiting {
        /// Why.
        reasons: Vec<(NodeRef, Reason)>,
    },
    /// A workload is about to lose all its ready pods at once. Told once a run.
    Exposed {
        /// The workload.
        exposed: Exposed,
    },
    /// A step began.
    StepStarted {
        /// The node.
        node: NodeRef,
        /// The step.
        step: Step,
    },
    /// A step ended well.
    StepDone {
        /// The node.
        node: NodeRef,
        /// The step.
        step: Step,
        /// How long it took.
        took: Duration,
    },
    /// A step ended otherwise than well.
    StepHalted {
        /// The node.
        node: NodeRef,
        /// The step.
        step: Step,
        /// How it ended.
        halted: Halted,
        /// How long it took.
        took: Duration,
    },
    /// A candidate may not be retired now. Told once a run.
    Refused {
        /// The node.
        node: NodeRef,
        /// Why; the first reason is the one that counts.
        reasons: Vec<Reason>,
    },
    /// An eviction was answered.
    Evicted {
        /// The node.
        node: NodeRef,
        /// The pod.
        pod: PodRef,
        /// What is lost for good when the pod goes.
        loses: Option<Loss>,
        /// The answer.
        answered: Answered,
    },
    /// A pod has been in the way for a minute or more.
    PodBlocked {
        /// The node.
        node: NodeRef,
        /// The pod.
        pod: PodRef,
        /// What is in the way.
        obstacle: Obstacle,
        /// For how long.
        since: Duration,
    },
    /// A node and its machine are gone.
    Retired {
        /// The node.
        node: NodeRef,
    },
    /// A retirement failed, and everything of ours was taken off the node.
    Released {
        /// The node.
        node: NodeRef,
        /// Where it failed.
        step: Step,
        /// Why, with all causes.
        why: String,
    },
    /// What was begun was taken off the node, though nothing failed: it may go another time.
    Postponed {
        /// The node.
        node: NodeRef,
        /// Why.
        why: String,
    },
    /// A person took the node back; everything of ours was taken off.
    Undone {
        /// The node.
        node: NodeRef,
        /// How.
        undo: Undo,
    },
    /// The deletion was accepted, or its answer is unknown, and the node is still there.
    Departing {
        /// The node.
        node: NodeRef,
        /// What is known.
        why: String,
    },
    /// An on-demand node came that nobody knew.
    Created {
        /// The node.
        node: NodeRef,
    },
    /// Something failed that does not end the run by itself.
    Problem {
        /// The node, if it is about one.
        node: Option<NodeRef>,
        /// What can be done about it.
        class: ErrorClass,
        /// What failed, with all causes.
        what: String,
    },
    /// A run ended.
    RunEnded {
        /// How.
        report: Report,
    },
    /// A run failed as a whole.
    RunFailed {
        /// What can be done about it.
        class: ErrorClass,
        /// Why, with all causes.
        why: String,
    },
    /// Something happened in answer to a notice.
    Interruption(Told),
    /// Something happened to a node pool.
    Pool(pool::Told),
    /// When the next run begins.
    NextRun {
        /// Then.
        at: Timestamp,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Outcome {
    /// No on-demand node is left.
    AllSpot,
    /// On-demand nodes are left, but none may go; the kinds of reasons say why.
    NothingEligible(BTreeMap<ReasonKind, usize>),
    /// An on-demand node came while nodes were being retired: spot is exhausted. The node.
    SpotExhausted(NodeRef),
    /// Evicted pods did not run elsewhere in time, or spot capacity was being taken back for as long. One of the pods,
    /// or the node that could not be classified.
    NotSettled(String),
    /// Leftovers of an earlier process were finished or released; nothing new was begun.
    Recovered,
    /// A dry run: these would go first.
    DryRun(Vec<NodeRef>),
    /// The process is to end.
    Stopped,
}

/// The kinds of outcomes, as a metric label and in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeKind {
    /// See [`Outcome::AllSpot`].
    AllSpot,
    /// See [`Outcome::NothingEligible`].
    NothingEligible,
    /// See [`Outcome::SpotExhausted`].
    SpotExhausted,
    /// See [`Outcome::NotSettled`].
    NotSettled,
    /// See [`Outcome::Recovered`].
    Recovered,
    /// See [`Outcome::DryRun`].
    DryRun,
    /// See [`Outcome::Stopped`].
    Stopped,
}

impl OutcomeKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::AllSpot,
        Self::NothingEligible,
        Self::SpotExhausted,
        Self::NotSettled,
        Self::Recovered,
        Self::DryRun,
        Self::Stopped,
    ];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllSpot => "all_spot",
            Self::NothingEligible => "nothing_eligible",
            Self::SpotExhausted => "spot_exhausted",
            Self::NotSettled => "not_settled",
            Self::Recovered => "recovered",
            Self::DryRun => "dry_run",
            Self::Stopped => "stopped",
        }
    }
}

impl Outcome {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> OutcomeKind {
        match self {
            Self::AllSpot => OutcomeKind::AllSpot,
            Self::NothingEligible(_) => OutcomeKind::NothingEligible,
            Self::SpotExhausted(_) => OutcomeKind::SpotExhausted,
            Self::NotSettled(_) => OutcomeKind::NotSettled,
            Self::Recovered => OutcomeKind::Recovered,
            Self::DryRun(_) => OutcomeKind::DryRun,
            Self::Stopped => OutcomeKind::Stopped,
        }
    }
}

/// What a run did, or other work by which nodes go, which has outcomes of its own.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Report<O = Outcome> {
    /// How it ended.
    pub outcome: O,
    /// Nodes that are gone.
    pub retired: Vec<NodeRef>,
    /// Nodes whose retirement failed, and why.
    pub failed: Vec<(NodeRef, String)>,
    /// Nodes that a person took back.
    pub undone: Vec<NodeRef>,
    /// Nodes on their way out.
    pub departing: Vec<NodeRef>,
    /// Evictions that were accepted.
    pub evictions: usize,
}

impl Report {
    /// Whether it counts as a success beside the retired nodes: nothing was left to do, and nothing failed.
    #[must_use]
    pub fn found_nothing_to_do(&self) -> bool {
        match self.outcome {
            Outcome::AllSpot | Outcome::NothingEligible(_) => self.failed.is_empty(),
            Outcome::SpotExhausted(_)
            | Outcome::NotSettled(_)
            | Outcome::Recovered
            | Outcome::DryRun(_)
            | Outcome::Stopped => false,
        }
    }
}

impl<O> Report<O> {
    /// The same with another outcome.
    pub(crate) fn ended<P>(self, outcome: P) -> Report<P> {
        let Self { outcome: _, retired, failed, undone, departing, evictions } = self;
        Report { outcome, retired, failed, undone, departing, evictions }
    }

    /// Whether it counts as a failure: a node failed, or was released against our will.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }
}
