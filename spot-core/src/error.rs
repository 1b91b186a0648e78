//! What can go wrong, classified for the caller.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use crate::node::NodeRef;
use crate::pod::{BudgetRef, PodRef};
use crate::progress::Step;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// The other side is overloaded, or can't be reached: later it may work.
    Transient,
    /// No answer within the deadline: whether it took effect is unknown.
    Timeout,
    /// We may not. The message names the missing right.
    Denied,
    /// The other side will not, or does not understand: asking again changes nothing.
    Permanent,
    /// We do not lead, or would not for long enough.
    NotLeader,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [Self; 5] = [Self::Transient, Self::Timeout, Self::Denied, Self::Permanent, Self::NotLeader];

    /// Its word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Permanent => "permanent",
            Self::NotLeader => "not_leader",
        }
    }

    /// Whether the request certainly had no effect.
    #[must_use]
    pub const fn had_no_effect(self) -> bool {
        match self {
            Self::Denied | Self::Permanent | Self::NotLeader => true,
            Self::Transient | Self::Timeout => false,
        }
    }
}

/// A call to the outside that failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct PortError {
    /// What can be done about it.
    pub class: ErrorClass,
    message: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl PortError {
    /// An error of this class; the message says what was tried, on what.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), source: None }
    }

    /// The same with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// A pod that could not be evicted, and what stood in its way last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedPod {
    /// The pod.
    pub pod: PodRef,
    /// What stood in its way.
    pub obstacle: Obstacle,
}

/// What stands in the way of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A budget allows no disruption; its name, if known.
    Budget(String),
    /// More than one budget protects the pod: their names, as far as they are known.
    MultipleBudgets(Vec<BudgetRef>),
    /// An admission webhook refuses; its words.
    Webhook(String),
    /// We may not evict; the server's words.
    Denied(String),
    /// The API server fails; its words.
    ServerError(String),
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The eviction was accepted, but the object does not go.
    TerminatingStuck,
    /// The pod can't be moved by the rules of the drain.
    NotEvictable(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(budget) => write!(f, "budget_allows_none: budget {budget}"),
            Self::MultipleBudgets(budgets) => {
                f.write_str("multiple_budgets")?;
                for (at, budget) in budgets.iter().enumerate() {
                    write!(f, "{}{budget}", if at == 0 { ": " } else { " and " })?;
                }
                Ok(())
            }
            Self::Webhook(words) => write!(f, "an admission webhook refuses: {words}"),
            Self::Denied(words) => write!(f, "not allowed to evict: {words}"),
            Self::ServerError(words) => write!(f, "the API server fails: {words}"),
            Self::NamespaceTerminating => f.write_str("its namespace is being deleted"),
            Self::TerminatingStuck => f.write_str("terminating_stuck: it was evicted, but its object does not go"),
            Self::NotEvictable(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for BlockedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pod, self.obstacle)
    }
}

/// Why a node's retirement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A call failed for good.
    #[error("a call failed")]
    Port(#[from] PortError),
    /// Pods could not be evicted.
    #[error("{} could not be evicted: {}", count(.0.len()), list(.0))]
    Blocked(Vec<BlockedPod>),
    /// Something else wrote the node at the same time, again and again.
    #[error("the node was changed by others at the same time, {0} times in a row")]
    Contended(u32),
    /// A record, the node and the cloud do not agree.
    #[error("{0}")]
    Mismatch(&'static str),
}

fn count(pods: usize) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

fn list(pods: &[BlockedPod]) -> String {
    pods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A node's retirement that failed, and where.
#[derive(Debug, thiserror::Error)]
#[error("node {node}: {step} failed")]
pub struct Failure {
    /// The node.
    pub node: NodeRef,
    /// The step that failed.
    pub step: Step,
    /// Why.
    #[source]
    pub cause: Cause,
}

/// A run that could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Nodes, pods or budgets could not be read.
    #[error("could not read the cluster")]
    Cluster(#[source] PortError),
    /// The cloud could not be asked about the nodes.
    #[error("could not ask the cloud about the nodes")]
    Cloud(#[source] PortError),
    /// The memory could not be read or written.
    #[error("could not read or write the cluster's memory")]
    Memory(#[source] PortError),
    /// Somebody else leads.
    #[error("lost the leadership")]
    LostLeadership,
}

impl RunError {
    /// What can be done about it.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Cluster(error) | Self::Cloud(error) | Self::Memory(error) => error.class,
            Self::LostLeadership => ErrorClass::NotLeader,
        }
    }
}

/// An error with its causes, outermost first, on one line.
#[must_use]
pub fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Foreign text as it may stand in a message of one line: white space as spaces, other control characters escaped.
///
/// ```
/// assert_eq!(spot_core::error::plain("a\u{1b}[31m\nb"), r"a\u{1b}[31m b");
/// ```
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            _ if !letter.is_control() => plain.push(letter),
            _ if letter.is_whitespace() => plain.push(' '),
            _ => plain.extend(letter.escape_unicode()),
        }
    }
    Cow::Owned(plain)
}
