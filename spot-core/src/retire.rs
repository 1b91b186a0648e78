//! One node's retirement: claim → drain → taint → detach → delete → gone, for every purpose.
//!
//! Each step leaves a record on the node before it has an effect elsewhere, so that whoever comes next knows what to
//! finish and what to take back. Every step may be repeated.

mod permit;
pub(crate) mod record;
pub(crate) mod release;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, Either};
use jiff::Timestamp;

use release::BackingOff;

pub use permit::{DeletableNode, DoomedPod, RetiredNode};

use crate::claim::{Claim, ClaimStep, Machine, Owner};
use crate::cloud::{Deletion, InstanceState};
use crate::drain::driver::{Drain, Drained};
use crate::drain::machine::DrainPolicy;
use crate::drain::plan::{self, DrainRules, Force, PodVerdict};
use crate::error::{Cause, ErrorClass, Failure, PortError, chain};
use crate::node::{Effect, NodeRef, NodeSnapshot, Uid, key};
use crate::ports::{Instant, Lane, Live, Ports, Write, Written};
use crate::progress::{Progress, Step, Undo};
use crate::settle::Awaited;
use crate::stop::Stop;
use crate::view::View;
use crate::wait::{self, REQUEST, within};

/// How often a write that met another version is made anew: each time somebody else got in between.
const CONFLICTS: u32 = 8;
/// How often pods may land on a node after it was empty.
const PASSES: u32 = 10;
/// How often a deletion is asked for when its answer is lost.
const DELETIONS: u32 = 3;
/// The pause between two of them.
const DELETION_PAUSE: Duration = Duration::from_secs(1);

/// What a node is retired for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is on-demand, and its pods can run on spot.
    Migration,
    /// Its pool shrinks.
    ScaleDown {
        /// The pool.
        pool: String,
    },
    /// Its pool is renewed.
    Roll {
        /// The pool.
        pool: String,
    },
    /// Its pool is removed.
    PoolRemoval {
        /// The pool.
        pool: String,
    },
    /// The cloud takes its machine away.
    Interruption {
        /// When.
        until: Instant,
        /// From when on pods that budgets hold back are deleted.
        delete_blocked: Instant,
    },
}

impl Purpose {
    /// Who owns a claim for this purpose.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self {
            Self::Migration => Owner::Migrator,
            Self::ScaleDown { pool } | Self::Roll { pool } | Self::PoolRemoval { pool } => Owner::Fleet(pool.clone()),
            Self::Interruption { .. } => Owner::Interruption,
        }
    }

    const fn force(&self) -> Force {
        match self {
            Self::Migration | Self::ScaleDown { .. } | Self::Roll { .. } | Self::PoolRemoval { .. } => Force::Planned,
            Self::Interruption { .. } => Force::Forced,
        }
    }

    const fn lane(&self) -> Lane {
        match self.force() {
            Force::Planned => Lane::Planned,
            Force::Forced => Lane::Forced,
        }
    }
}

/// How a retirement goes about it.
#[derive(Clone, Debug)]
pub struct RetireSettings {
    /// Which pods may be moved.
    pub drain: DrainRules,
    /// How long a planned drain may take.
    pub drain_timeout: Duration,
    /// How long the taint is on before the machine goes, and how long load balancers are waited for after that.
    pub load_balancer: (Duration, Duration),
    /// How long the Node object may outlive the deletion of its machine.
    pub node_gone_timeout: Duration,
    /// Whether a Node object whose machine is gone is deleted.
    pub delete_node_object: bool,
    /// The back-off of a node that failed: the first, and the longest.
    pub back_off: (Duration, Duration),
    /// How long a release is tried for.
    pub grace_period: Duration,
    /// The migrator's own pod.
    pub own_pod: Option<Uid>,
}

impl Default for RetireSettings {
    fn default() -> Self {
        Self {
            drain: DrainRules::default(),
            drain_timeout: Duration::from_hours(1),
            load_balancer: (Duration::from_mins(1), Duration::from_mins(10)),
            node_gone_timeout: Duration::from_mins(15),
            delete_node_object: true,
            back_off: (Duration::from_hours(1), Duration::from_hours(24)),
            grace_period: Duration::from_secs(30),
            own_pod: None,
        }
    }
}

/// A node to retire, and the machine behind it by the cloud's word.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) node: Arc<NodeSnapshot>,
    pub(crate) machine: Machine,
}

/// How a retirement ended.
#[derive(Debug)]
#[must_use]
pub(crate) enum End {
    /// Node and machine are gone.
    Retired,
    /// Somebody else removed the node before we did.
    Vanished,
    /// The deletion was accepted, or its answer is unknown, and the node is still there.
    Departing,
    /// It failed; everything of ours was taken off, or could not be, which was reported.
    Released(Failure),
    /// A person took it back.
    Undone,
    /// Nothing of ours is on it, and nothing failed: it may go another time.
    Postponed,
    /// An interruption took it over.
    Overtaken,
    /// The process is to end.
    Stopped,
    /// Somebody else leads.
    NotLeader,
}

/// A retirement that has ended.
#[derive(Debug)]
pub(crate) struct Retirement {
    pub(crate) node: NodeRef,
    pub(crate) end: End,
    pub(crate) evictions: usize,
    /// What has to settle; nothing if no pod was evicted.
    pub(crate) awaited: Awaited,
}

/// Why the work on a node stops before its end.
#[derive(Debug)]
pub(crate) enum Halt {
    Failed(Step, Cause),
    /// It must not be claimed after all: what was judged has changed since.
    Refused,
    Undone(Undo),
    Vanished,
    Departing(String),
    Overtaken,
    Stopped,
    NotLeader,
}

impl Halt {
    /// A failed call: of this step, or of the leadership.
    fn call(step: Step, error: PortError) -> Self {
        match error.class {
            ErrorClass::NotLeader => Self::NotLeader,
            ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::Denied | ErrorClass::Permanent => {
                Self::Failed(step, Cause::Port(error))
            }
        }
    }
}

/// Retires nodes.
#[derive(Clone, Copy)]
pub(crate) struct Retirer<'a> {
    pub(crate) ports: &'a Ports,
    pub(crate) live: &'a dyn Live,
    pub(crate) settings: &'a RetireSettings,
    pub(crate) stop: &'a Stop,
}

impl Retirer<'_> {
    /// Retires one node, from wherever its claim says it is. Whatever happens, the node is afterwards gone, departing,
    /// released, or (stopped, not leading) in a state that the next process takes up.
    pub(crate) async fn retire(&self, target: Target, purpose: &Purpose) -> Retirement {
        let node = target.node.reference();
        let mut job = Job {
            retirer: *self,
            purpose,
            awaited: Awaited::of(&self.live.view(), &target.node.name, &self.settings.drain, purpose.force()),
            claim: record::ours(&target.node, &purpose.owner()).cloned(),
            node: target.node,
            machine: target.machine,
            evictions: 0,
        };
        let end = match job.work().await {
            Ok(()) => {
                self.report(&Progress::Retired { node: node.clone() });
                End::Retired
            }
            Err(halt) => self.halted(&node, halt, &purpose.owner(), job.claim.as_ref()).await,
        };
        let awaited = if job.evictions == 0 { Awaited::default() } else { job.awaited };
        Retirement { node, end, evictions: job.evictions, awaited }
    }

    /// Awaits the end of a node whose deletion was accepted, or may have been.
    pub(crate) async fn follow(&self, target: Target, purpose: &Purpose) -> Retirement {
        let node = target.node.reference();
        let mut job = Job {
            retirer: *self,
            purpose,
            awaited: Awaited::default(),
            claim: record::ours(&target.node, &purpose.owner()).cloned(),
            node: target.node,
            machine: target.machine,
            evictions: 0,
        };
        // Counted from the taint, which was put on shortly before: each run must not wait as long again.
        let (load_balancer, _) = self.settings.load_balancer;
        let waited = record::tainted_at(&job.node).map_or(Duration::ZERO, |at| {
            Duration::try_from(self.ports.clock.now().duration_since(at)).unwrap_or(Duration::ZERO)
        });
        let left = (load_balancer + self.settings.node_gone_timeout).saturating_sub(waited);
        let until = self.ports.clock.instant() + left;
        let end = match job.timed(Step::AwaitGone, async |job| job.await_gone(until).await).await {
            Ok(()) => {
                self.report(&Progress::Retired { node: node.clone() });
                End::Retired
            }
            Err(halt) => self.halted(&node, halt, &purpose.owner(), job.claim.as_ref()).await,
        };
        Retirement { node, end, evictions: 0, awaited: job.awaited }
    }

    async fn halted(&self, node: &NodeRef, halt: Halt, owner: &Owner, known: Option<&Claim>) -> End {
        match halt {
            Halt::Failed(step, cause) => {
                let failure = Failure { node: node.clone(), step, cause };
                if self.release(node, owner, known, BackingOff::Yes).await {
                    self.report(&Progress::Released { node: node.clone(), step, why: chain(&failure) });
                }
                End::Released(failure)
            }
            Halt::Undone(undo) => {
                if self.release(node, owner, known, BackingOff::Yes).await {
                    self.report(&Progress::Undone { node: node.clone(), undo });
                }
                End::Undone
            }
            Halt::Departing(why) => {
                self.report(&Progress::Departing { node: node.clone(), why });
                End::Departing
            }
            Halt::Refused => End::Postponed,
            Halt::Vanished => End::Vanished,
            Halt::Overtaken => End::Overtaken,
            Halt::Stopped => End::Stopped,
            Halt::NotLeader => End::NotLeader,
        }
    }

    pub(crate) fn report(&self, event: &Progress) {
        self.ports.observer.observe(self.ports.clock.now(), event);
    }

    pub(crate) fn write(&self, lane: Lane) -> (Instant, Write) {
        let by = self.ports.clock.instant() + REQUEST;
        (by, Write::new(by, lane, Arc::clone(&self.ports.leadership)))
    }
}

/// The work on one node.
struct Job<'a> {
    retirer: Retirer<'a>,
    purpose: &'a Purpose,
    /// The node as it was last read or written.
    node: Arc<NodeSnapshot>,
    machine: Machine,
    /// What we know to have done to it, even if the record of it is taken off.
    claim: Option<Claim>,
    evictions: usize,
    awaited: Awaited,
}

impl Job<'_> {
    async fn work(&mut self) -> Result<(), Halt> {
        self.timed(Step::Claim, Self::claim).await?;
        let until = self.drain_deadline();
        for _pass in 0..PASSES {
            self.timed(Step::Drain, async |job| job.drain(until).await).await?;
            self.timed(Step::Taint, Self::taint).await?;
            self.timed(Step::Detach, Self::detach).await?;
            self.reach(Step::Delete, ClaimStep::Deleting).await?;
            if self.is_empty().await? {
                self.timed(Step::Delete, Self::delete).await?;
                let until = self.retirer.ports.clock.instant() + self.retirer.settings.node_gone_timeout;
                return self.timed(Step::AwaitGone, async |job| job.await_gone(until).await).await;
            }
            self.reach(Step::Drain, ClaimStep::Tainted).await?;
        }
        Err(Halt::Failed(Step::Drain, Cause::Mismatch("pods land on it again and again, though it is cordoned")))
    }

    /// Runs a step and reports its beginning and, if it ends well, its end.
    async fn timed(&mut self, step: Step, work: impl AsyncFnOnce(&mut Self) -> Result<(), Halt>) -> Result<(), Halt> {
        let node = self.node.reference();
        let clock = &self.retirer.ports.clock;
        let began = clock.instant();
        self.retirer.report(&Progress::StepStarted { node: node.clone(), step });
        work(self).await?;
        let took = clock.instant().since(began);
        self.retirer.report(&Progress::StepDone { node, step, took });
        Ok(())
    }

    /// Marks, cordons and records, in one patch; a claim of ours that is there already is taken up.
    async fn claim(&mut self) -> Result<(), Halt> {
        let now = self.retirer.ports.clock.now();
        let (owner, machine, judged) = (self.purpose.owner(), self.machine.clone(), Arc::clone(&self.node));
        self.write(Step::Claim, |node| {
            if let Some(claim) = record::ours(node, &owner) {
                if let Some(halt) = record::taken_back(node, &owner) {
                    return Err(halt);
                }
                if let Some(mismatch) = record::mismatch(node, claim, &machine) {
                    return Err(Halt::Failed(Step::Claim, Cause::Mismatch(mismatch)));
                }
            } else if record::is_untouchable(node, &judged) {
                return Err(Halt::Refused);
            }
            Ok(record::claiming(node, &owner, &machine, now))
        })
        .await
    }

    fn drain_deadline(&self) -> Instant {
        match self.purpose {
            Purpose::Interruption { until, .. } => *until,
            Purpose::Migration | Purpose::ScaleDown { .. } | Purpose::Roll { .. } | Purpose::PoolRemoval { .. } => {
                self.retirer.ports.clock.instant() + self.retirer.settings.drain_timeout
            }
        }
    }

    async fn drain(&mut self, until: Instant) -> Result<(), Halt> {
        let settings = self.retirer.settings;
        let delete_blocked = match self.purpose {
            Purpose::Interruption { delete_blocked, .. } => Some(*delete_blocked),
            Purpose::Migration | Purpose::ScaleDown { .. } | Purpose::Roll { .. } | Purpose::PoolRemoval { .. } => None,
        };
        let policy =
            DrainPolicy { rules: settings.drain.clone(), until, delete_blocked, own_pod: settings.own_pod.clone() };
        let drain = Drain {
            ports: self.retirer.ports,
            live: self.retirer.live,
            node: self.node.reference(),
            policy,
            lane: self.purpose.lane(),
            stop: self.retirer.stop,
        };
        let owner = self.purpose.owner();
        let look = |_: &View, node: Option<&Arc<NodeSnapshot>>| match node {
            None => Some(Halt::Vanished),
            Some(node) => record::taken_back(node, &owner),
        };
        let own_pod_left = match drain.run(&mut self.evictions, look).await {
            Drained::Empty { own_pod_left } => own_pod_left,
            Drained::Stopped => return Err(Halt::Stopped),
            Drained::Interrupted(halt) => return Err(halt),
            Drained::Failed(Cause::Port(error)) => return Err(Halt::call(Step::Drain, error)),
            Drained::Failed(cause) => return Err(Halt::Failed(Step::Drain, cause)),
        };
        if own_pod_left {
            self.write(Step::Drain, |node| Ok(record::own_pod_left(node, &owner))).await?;
        }
        Ok(())
    }

    /// Puts the taint on that fails load balancers' health checks; one that is there already is left alone.
    async fn taint(&mut self) -> Result<(), Halt> {
        let owner = self.purpose.owner();
        let now = self.retirer.ports.clock.now();
        self.write(Step::Taint, |node| Ok(record::tainting(node, &owner, now))).await
    }

    async fn detach(&mut self) -> Result<(), Halt> {
        let (drain, drain_max) = self.retirer.settings.load_balancer;
        let ports = self.retirer.ports;
        let by = ports.clock.instant() + drain + drain_max + REQUEST;
        let write = Write::new(by, self.purpose.lane(), Arc::clone(&ports.leadership));
        let tainted_at = record::tainted_at(&self.node);
        let detach =
            pin!(within(ports, by, "draining load balancers", ports.cloud.detach(&self.node, tainted_at, &write)));
        match future::select(detach, pin!(self.retirer.stop.wait())).await {
            Either::Left((Ok(()), _)) => Ok(()),
            Either::Left((Err(error), _)) => Err(Halt::call(Step::Detach, error)),
            Either::Right(_) => Err(Halt::Stopped),
        }
    }

    /// Records how far the work has come, provided nobody took the node back.
    async fn reach(&mut self, step: Step, reached: ClaimStep) -> Result<(), Halt> {
        let owner = self.purpose.owner();
        self.write(step, |node| Ok(record::reaching(node, &owner, reached))).await
    }

    /// Whether a quorum list shows no pod that ought to have gone. Unreadable is not empty.
    async fn is_empty(&self) -> Result<bool, Halt> {
        if self.retirer.stop.is_set() {
            return Err(Halt::Stopped);
        }
        let ports = self.retirer.ports;
        let by = ports.clock.instant() + REQUEST;
        let node = self.node.reference();
        let request = self.retirer.live.latest_pods(&node, by);
        let pods = within(ports, by, "listing the node's pods", request).await;
        let pods = pods.map_err(|error| Halt::call(Step::Delete, error))?;
        let view = self.retirer.live.view();
        let settings = self.retirer.settings;
        let own_pod = settings.own_pod.as_ref().filter(|_| self.claim.as_ref().is_some_and(|claim| claim.own_pod_left));
        Ok(pods.iter().all(|pod| match plan::verdict(pod, &settings.drain, self.purpose.force(), &view) {
            PodVerdict::Leave(_) => true,
            PodVerdict::Going => crate::drain::machine::is_lost(pod, &self.node, ports.clock.now()),
            PodVerdict::Evict | PodVerdict::Refuse(_) => own_pod == Some(&pod.uid),
        }))
    }

    /// Has the machine deleted. An answer that is lost is asked for again; lost for good, the node is departing.
    async fn delete(&mut self) -> Result<(), Halt> {
        let ports = self.retirer.ports;
        let Some(claim) = self.claim.clone() else {
            return Err(Halt::Undone(Undo::ClaimRemoved));
        };
        let retired = RetiredNode::new(Arc::clone(&self.node), claim);
        let mut tries = 1;
        loop {
            let error = match self.ask_for_deletion(&retired).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if error.class.had_no_effect() && tries == 1 {
                return Err(Halt::call(Step::Delete, error));
            }
            // An earlier try may have worked: whatever this one says, nothing may be taken back.
            if error.class.had_no_effect() || tries == DELETIONS {
                return Err(Halt::Departing(format!(
                    "its deletion was asked for, and not answered: {}",
                    chain(&error)
                )));
            }
            self.retirer.report(&Progress::Problem {
                node: Some(self.node.reference()),
                class: error.class,
                what: chain(&error),
            });
            tries += 1;
            ports.clock.sleep_until(ports.clock.instant() + DELETION_PAUSE).await;
        }
    }

    async fn ask_for_deletion(&self, retired: &RetiredNode) -> Result<(), PortError> {
        let ports = self.retirer.ports;
        let (by, write) = self.retirer.write(self.purpose.lane());
        match within(ports, by, "deleting the instance", ports.cloud.delete_instance(retired, &write)).await? {
            Deletion::Accepted => Ok(()),
            Deletion::WithNode => {
                let node = DeletableNode::with_its_machine(retired);
                within(ports, by, "deleting the Node object", ports.cluster.delete_node(&node, &write)).await
            }
        }
    }

    /// Waits until the Node object is gone; past the deadline the cloud's word decides.
    async fn await_gone(&mut self, until: Instant) -> Result<(), Halt> {
        let clock = &self.retirer.ports.clock;
        if self.gone_by(until).await? {
            return Ok(());
        }
        let Machine::Instance(instance) = &self.machine else {
            let holding = self.node.finalizers.join(", ");
            return Err(Halt::Departing(format!(
                "node_object_stuck: its Node object does not go; finalizers: {holding}"
            )));
        };
        let by = clock.instant() + REQUEST;
        let ports = self.retirer.ports;
        match within(ports, by, "asking for the instance", ports.cloud.instance_state(instance, by)).await {
            Ok(InstanceState::Gone) if self.retirer.settings.delete_node_object => {}
            Ok(InstanceState::Gone) => {
                let why = format!("node_object_stuck: instance {instance} is gone, but its Node object is not");
                return Err(Halt::Departing(why));
            }
            Ok(InstanceState::ShuttingDown) => {
                return Err(Halt::Departing(format!("instance {instance} is still shutting down")));
            }
            Ok(InstanceState::Running) => {
                return Err(Halt::Departing(format!(
                    "instance {instance} still runs, though its deletion was accepted"
                )));
            }
            Err(error) if error.class == ErrorClass::NotLeader => return Err(Halt::NotLeader),
            Err(error) => {
                return Err(Halt::Departing(format!("instance {instance} can't be asked for: {}", chain(&error))));
            }
        }
        let (by, write) = self.retirer.write(self.purpose.lane());
        let node = DeletableNode::without_machine(self.node.reference());
        match within(ports, by, "deleting the Node object", ports.cluster.delete_node(&node, &write)).await {
            Ok(()) if self.gone_by(clock.instant() + REQUEST).await? => Ok(()),
            Ok(()) => {
                Err(Halt::Departing("node_object_stuck: its Node object was deleted, but does not go".to_owned()))
            }
            Err(error) if error.class == ErrorClass::NotLeader => Err(Halt::NotLeader),
            Err(error) => Err(Halt::Departing(format!("node_object_stuck: {}", chain(&error)))),
        }
    }

    async fn gone_by(&mut self, until: Instant) -> Result<bool, Halt> {
        let ports = self.retirer.ports;
        loop {
            let view = self.retirer.live.view();
            let revision = view.revision();
            let Some(node) = view.node(self.node.uid.as_str()) else { return Ok(true) };
            self.node = Arc::clone(node);
            drop(view);
            if self.retirer.stop.is_set() {
                return Err(Halt::Stopped);
            }
            if ports.clock.instant() >= until {
                return Ok(false);
            }
            if let Err(error) = wait::change(ports, self.retirer.live, self.retirer.stop, revision, until).await {
                // The deletion is accepted; that we can't watch it end is no reason to take anything back.
                return Err(Halt::Departing(format!("it can't be watched any more: {}", chain(&error))));
            }
        }
    }

    /// Writes the node conditionally; where somebody else wrote it in between, looks again and decides anew.
    async fn write(
        &mut self,
        step: Step,
        change: impl Fn(&NodeSnapshot) -> Result<crate::ports::NodeChange, Halt>,
    ) -> Result<(), Halt> {
        let ports = self.retirer.ports;
        let owner = self.purpose.owner();
        for _conflict in 0..CONFLICTS {
            if step != Step::Claim
                && let Some(halt) = record::taken_back(&self.node, &owner)
            {
                return Err(halt);
            }
            let change = change(&self.node)?;
            if change == crate::ports::NodeChange::default() {
                return Ok(());
            }
            let (by, write) = self.retirer.write(self.purpose.lane());
            let at = self.node.at_version();
            let request = ports.cluster.write_node(&at, &change, &write);
            match within(ports, by, "writing the node", request).await {
                Ok(Written::Applied(node)) => {
                    self.claim = record::ours(&node, &owner).cloned();
                    self.node = node;
                    return Ok(());
                }
                Ok(Written::Conflict(node)) => self.node = node,
                Ok(Written::Gone) => return Err(Halt::Vanished),
                Err(error) => return Err(Halt::call(step, error)),
            }
        }
        Err(Halt::Failed(step, Cause::Contended(CONFLICTS)))
    }
}

/// Seconds since the epoch, as cluster-autoscaler writes them into its taint.
fn seconds(at: Timestamp) -> String {
    at.as_second().to_string()
}

/// Whether this is the taint that cluster-autoscaler puts on nodes that it is about to delete.
fn is_deletion_taint(taint: &crate::node::Taint) -> bool {
    taint.is(key::TO_BE_DELETED, Effect::NoSchedule)
}
