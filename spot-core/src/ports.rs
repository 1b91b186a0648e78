//! The seams: what the core asks of a cluster, a cloud, a clock and a lease. The comments are contracts.
//!
//! Every deadline is the core's, a monotonic [`Instant`] passed as `by`; attempt time-outs and retries within it are
//! the adapter's. Any future may be dropped, at the latest two seconds after its deadline: its effect is then unknown,
//! and the core reads the state again.

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::claim::{BackOff, Claim, InstanceId};
use crate::cloud::{CloudFacts, Deletion, Freshness, InstanceState};
use crate::error::PortError;
use crate::interruption::{Delivery, Handled, Source};
use crate::memory::Memory;
use crate::node::{NodeRef, NodeSnapshot, Taint};
use crate::pod::{BudgetRef, PodRef, PodSnapshot};
use crate::progress::Progress;
use crate::retire::{DeletableNode, DoomedPod, RetiredNode};
use crate::view::{Revision, View};

/// A moment of a monotonic clock: the time since that clock's own beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub Duration);

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Instant {
    /// How long ago `earlier` was; zero if it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The two clocks.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Wall clock: cron, taint values, the cloud's times. It may jump.
    fn now(&self) -> Timestamp;
    /// Monotonic clock: every deadline, the lease.
    fn instant(&self) -> Instant;
    /// Returns at that instant, or at once when it has passed.
    async fn sleep_until(&self, at: Instant);
}

/// Whether we may write.
#[async_trait]
pub trait Leadership: Send + Sync {
    /// Local, no I/O: would a request sent now end before the lease can change hands?
    ///
    /// # Errors
    /// Of class [`NotLeader`](crate::error::ErrorClass::NotLeader) when not.
    fn check(&self) -> Result<(), PortError>;
    /// When a request that is under way must have ended, unless the lease is renewed before; none: never. Of the
    /// monotonic clock of the same process, and past once the leadership is lost.
    fn valid_until(&self) -> Option<Instant> {
        None
    }
    /// Returns when the leadership is lost; the core then drops all work.
    async fn lost(&self);
}

/// Leads always: for a process that is known to be alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

#[async_trait]
impl Leadership for Alone {
    fn check(&self) -> Result<(), PortError> {
        Ok(())
    }
    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

/// Which of two kinds of work a request belongs to, so that one can't hold up the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The answer to an interruption.
    Forced,
    /// Everything else.
    Planned,
}

/// Goes with every write; for what is a node's only the core makes one.
#[derive(Clone)]
pub struct Write {
    /// When the request must have ended.
    pub by: Instant,
    /// Whose work it is.
    pub lane: Lane,
    leadership: Arc<dyn Leadership>,
}

impl Write {
    pub(crate) fn new(by: Instant, lane: Lane, leadership: Arc<dyn Leadership>) -> Self {
        Self { by, lane, leadership }
    }

    /// A permit for planned work that is no node's: on what a pool is launched by, say.
    #[must_use]
    pub fn planned(by: Instant, leadership: Arc<dyn Leadership>) -> Self {
        Self::new(by, Lane::Planned, leadership)
    }

    /// A permit for tests of adapters.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn assume(by: Instant, leadership: Arc<dyn Leadership>) -> Self {
        Self::planned(by, leadership)
    }

    /// The same for the answer to an interruption.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn forced(self) -> Self {
        Self { lane: Lane::Forced, ..self }
    }

    /// Adapters call it before each request that they send.
    ///
    /// # Errors
    /// When the lease may change hands before the request has ended: it must not be sent.
    pub fn permit(&self) -> Result<(), PortError> {
        self.leadership.check()
    }

    /// When the request must have ended, unless it is later by the time that comes; none: only `by` counts. Adapters
    /// end a request that is under way by then.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.leadership.valid_until()
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").field("by", &self.by).field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// What to do with one value on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Edit<T> {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Make it this.
    Set(T),
    /// Take it off.
    Remove,
}

impl<T> Edit<T> {
    /// Whether it changes nothing.
    #[must_use]
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

/// What one patch changes on a node; the default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// Our mark, `spot-migrator.io/selected-for-deletion`: `true`, or off.
    pub mark: Edit<()>,
    /// Whether the mark of cost-manager is taken off.
    pub remove_old_mark: bool,
    /// Our record.
    pub claim: Edit<Claim>,
    /// How long the node is left alone.
    pub back_off: Edit<BackOff>,
    /// Whether it is cordoned.
    pub unschedulable: Option<bool>,
    /// The whole list of taints as it is to be. Only together with a resourceVersion: the list is one value.
    pub taints: Option<Vec<Taint>>,
}

/// What became of a patch.
#[derive(Clone, Debug)]
#[must_use]
pub enum Written {
    /// It took effect; the node as it is now.
    Applied(Arc<NodeSnapshot>),
    /// Another version is there, and nothing was written; the node as it is now.
    Conflict(Arc<NodeSnapshot>),
    /// That node is gone, whatever bears its name now.
    Gone,
}

/// What became of a Node object that was to be deleted.
#[derive(Clone, Debug)]
#[must_use]
pub enum Erased {
    /// It is gone, or goes as soon as its finalizers let it.
    Gone,
    /// Another version is there, and nothing happened; the node as it is now.
    Changed(Arc<NodeSnapshot>),
}

/// The API server's answer to an eviction. It is data: each has its own rule in the drain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum EvictAnswer {
    /// 201: the pod is going.
    Accepted,
    /// 404, or a conflict with the UID: that pod is gone.
    Gone,
    /// 429 with a budget's cause.
    Budget {
        /// The budget, if the answer names it.
        budget: Option<BudgetRef>,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// 429 without a cause: the server is overloaded.
    Overloaded {
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// 500: more than one budget protects the pod.
    MultipleBudgets,
    /// Any other 5xx.
    ServerError(String),
    /// 403 with cause `NamespaceTerminating`.
    NamespaceTerminating,
    /// 403, and an access review says that we may not.
    Denied(String),
    /// 403, though an access review says that we may: somebody's webhook.
    Webhook(String),
    /// 422.
    Invalid(String),
}

/// What a [`Live`] view covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole cluster.
    Cluster,
    /// One node and its pods.
    Node(String),
}

/// A Kubernetes cluster.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Opens a view of nodes, pods, budgets, DaemonSets, our ConfigMap and, of a whole cluster, volumes, that follows
    /// every change until dropped. Done when each of them was listed once.
    ///
    /// # Errors
    /// When one of them could not be listed; the message names it, and the right that is missing.
    async fn open(&self, scope: Scope, by: Instant) -> Result<Box<dyn Live>, PortError>;

    /// Writes labels, annotations, cordon and taints in one patch, conditional on the UID and, where given, on the
    /// resourceVersion. Idempotent with a resourceVersion. When it returns, open views show at least what it returns.
    ///
    /// # Errors
    /// When it could not be written within the deadline, or it is unknown whether it was.
    async fn write_node(&self, node: &NodeRef, change: &NodeChange, write: &Write) -> Result<Written, PortError>;

    /// Asks for one eviction, once, with the UID as precondition. Never retried inside: every answer comes back.
    ///
    /// # Errors
    /// When there was no answer within the deadline: the effect is unknown.
    async fn evict(&self, pod: &PodRef, grace: Option<Duration>, write: &Write) -> Result<EvictAnswer, PortError>;

    /// Deletes a pod of a dying node, with the UID as precondition. Gone already is done.
    ///
    /// # Errors
    /// When it could not be deleted within the deadline.
    async fn delete_pod(&self, pod: &DoomedPod, grace: Duration, write: &Write) -> Result<(), PortError>;

    /// Deletes a Node object, with UID and, where given, resourceVersion as preconditions. Gone already is done.
    ///
    /// # Errors
    /// When it could not be deleted within the deadline, or it is unknown whether it was.
    async fn delete_node(&self, node: &DeletableNode, write: &Write) -> Result<Erased, PortError>;

    /// Reads the cluster's memory. A missing or unreadable one is an empty one.
    ///
    /// # Errors
    /// When it could not be read within the deadline.
    async fn recall(&self, by: Instant) -> Result<Memory, PortError>;

    /// Writes the cluster's memory, conditional on the version that was read. Returns it with its new version.
    ///
    /// # Errors
    /// When it could not be written, or somebody else wrote it.
    async fn remember(&self, memory: &Memory, write: &Write) -> Result<Memory, PortError>;
}

/// The cluster as it goes on changing.
#[async_trait]
pub trait Live: Send + Sync {
    /// The newest view; never older than our own last write.
    fn view(&self) -> Arc<View>;

    /// The pods of a node from a quorum list, not from a cache.
    ///
    /// # Errors
    /// When they could not be read; unreadable is never empty.
    async fn latest_pods(&self, node: &NodeRef, by: Instant) -> Result<Vec<Arc<PodSnapshot>>, PortError>;

    /// Whether a person paused us, as of a few seconds ago at most: a watch whose connection is dead shows nothing for
    /// longer.
    ///
    /// # Errors
    /// When that could not be read; unreadable is never "no".
    async fn paused(&self, by: Instant) -> Result<bool, PortError>;

    /// Returns when the view has a later revision than `seen`; at once when it has one already.
    ///
    /// # Errors
    /// When the view can't be kept up to date any more.
    async fn changed(&self, seen: Revision) -> Result<(), PortError>;
}

/// Whoever owns the machines.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// What is known of the machines behind `nodes`, which are *all* nodes; one that is absent from the answer is of
    /// unknown class. Facts that cost a call each are asked for `chosen` only.
    ///
    /// # Errors
    /// When nothing could be learnt at all. One odd node never fails the survey.
    async fn survey(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        chosen: &[NodeRef],
        freshness: Freshness,
        by: Instant,
    ) -> Result<CloudFacts, PortError>;

    /// Takes the machine out of its load balancers. Done when none sends traffic; at once where there are none.
    ///
    /// # Errors
    /// When that could not be brought about within the deadline.
    async fn detach(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>, write: &Write) -> Result<(), PortError>;

    /// Takes back what was done for the deletion of a machine that stays after all: puts it back into the load balancers
    /// that `detach` took it out of, those and no others, and has its fleet want again what its claim recorded, where
    /// that was lowered for it. Idempotent; done at once where nothing was, or where it is not known what.
    ///
    /// # Errors
    /// When it is missing somewhere; the message says where.
    async fn attach(&self, _node: &NodeSnapshot, _write: &Write) -> Result<(), PortError> {
        Ok(())
    }

    /// Has the machine deleted that the claim names, after verifying again that it is the node's. Idempotent: a
    /// machine that is gone or on its way out is accepted.
    ///
    /// # Errors
    /// When the cloud refuses (nothing happened), or its answer is unknown; the class tells.
    async fn delete_instance(&self, node: &RetiredNode, write: &Write) -> Result<Deletion, PortError>;

    /// Where the instance is in its life.
    ///
    /// # Errors
    /// When the cloud could not be asked.
    async fn instance_state(&self, instance: &InstanceId, by: Instant) -> Result<InstanceState, PortError>;
}

/// Whoever announces what happens to machines: a queue, the metadata service of one machine, the model.
#[async_trait]
pub trait NoticeSource: Send + Sync {
    /// Which kind of source it is.
    fn kind(&self) -> Source;

    /// How many calls of [`Self::next`] may usefully wait side by side.
    fn receivers(&self) -> usize {
        1
    }

    /// The machine of a node by its provider ID, which alone is asked: names are not identity. None: no machine that
    /// this source can announce anything of.
    fn instance_of(&self, provider_id: &str) -> Option<InstanceId>;

    /// Waits for the next notices; none came within the source's own wait: an empty answer. What is not a notice, or
    /// nobody here has an answer to, is settled by the source itself, counted, and never an error. Dropped, nothing is
    /// lost: what was on its way is delivered again.
    ///
    /// # Errors
    /// When the source could not be asked. The caller asks again, after a pause.
    async fn next(&self) -> Result<Vec<Delivery>, PortError>;

    /// Keeps a notice for us, for at least ten seconds from now, and tells whoever waits for the answer that it is being
    /// worked on. Idempotent.
    ///
    /// # Errors
    /// When that could not be brought about: the notice may be delivered again.
    async fn extend(&self, delivery: &Delivery, by: Instant) -> Result<(), PortError>;

    /// Settles a notice. Idempotent; one that is not known any more is settled.
    ///
    /// # Errors
    /// When that could not be brought about: the notice is delivered again.
    async fn settle(&self, delivery: &Delivery, handled: Handled, by: Instant) -> Result<(), PortError>;
}

/// Whoever wants to know. Never blocks, never fails: adapters queue, bounded, and count what they drop.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn observe(&self, at: Timestamp, event: &Progress);
}

/// Wants to know nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn observe(&self, _at: Timestamp, _event: &Progress) {}
}

/// Everything outside, together.
#[derive(Clone)]
pub struct Ports {
    /// The cluster.
    pub cluster: Arc<dyn Cluster>,
    /// The cloud.
    pub cloud: Arc<dyn CloudProvider>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Who is told.
    pub observer: Arc<dyn Observer>,
    /// Whether we may write.
    pub leadership: Arc<dyn Leadership>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}
