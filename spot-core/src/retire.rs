//! One node's retirement: claim → drain → taint → detach → delete → gone, for every purpose.
//!
//! Each step leaves a record on the node before it has an effect elsewhere, so that whoever comes next knows what to
//! finish and what to take back. Every step may be repeated.

mod detachment;
mod emptying;
mod job;
mod permit;
pub(crate) mod record;
pub(crate) mod release;
pub(crate) mod rescue;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use job::Job;
pub use permit::{DeletableNode, DoomedPod, RetiredNode};
use release::{BackingOff, Freed};

use crate::claim::{Claim, Machine, Owner};
use crate::cloud::Group;
use crate::drain::plan::{DrainRules, Force};
use crate::error::{Cause, ErrorClass, Failure, PortError, chain};
use crate::interruption::{Hold, Terms};
use crate::node::{Effect, NodeRef, NodeSnapshot, Uid, key};
use crate::ports::{Instant, Lane, Live, Ports, Write};
use crate::progress::{Halted, Progress, Step, Undo};
use crate::settle::Awaited;
use crate::stop::Stop;
use crate::wait::REQUEST;

/// How often a write that met another version is made anew at once: each time somebody else got in between.
const CONFLICTS: u32 = 8;

/// What a node is retired for.
#[derive(Clone, Debug)]
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
        /// Until when budgets are obeyed, where everything goes after that whatever holds it; none: until the end.
        force: Option<Instant>,
    },
    /// The cloud takes its machine away, or may do so soon.
    Interruption {
        /// Until when it is to be empty, and how hard that is tried.
        terms: Terms,
    },
}

impl Purpose {
    /// Who owns a claim for this purpose.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self {
            Self::Migration => Owner::Migrator,
            Self::ScaleDown { pool } | Self::Roll { pool } | Self::PoolRemoval { pool, .. } => {
                Owner::Fleet(pool.clone())
            }
            Self::Interruption { .. } => Owner::Interruption,
        }
    }

    pub(crate) fn force(&self) -> Force {
        match self {
            Self::PoolRemoval { force: Some(_), .. } => Force::Forced,
            Self::Migration | Self::ScaleDown { .. } | Self::Roll { .. } | Self::PoolRemoval { force: None, .. } => {
                Force::Planned
            }
            Self::Interruption { terms } => terms.limits().force,
        }
    }

    /// Whose work it is: a removal is a person's wish, and waits, however hard it is tried.
    fn lane(&self) -> Lane {
        match self {
            Self::Migration | Self::ScaleDown { .. } | Self::Roll { .. } | Self::PoolRemoval { .. } => Lane::Planned,
            Self::Interruption { terms } => match terms.limits().force {
                Force::Planned => Lane::Planned,
                Force::Forced => Lane::Forced,
            },
        }
    }
}

/// How a retirement goes about it.
#[derive(Clone, Debug)]
pub struct RetireSettings {
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
}

impl Default for RetireSettings {
    fn default() -> Self {
        Self {
            drain_timeout: Duration::from_hours(1),
            load_balancer: (Duration::from_mins(1), Duration::from_mins(10)),
            node_gone_timeout: Duration::from_mins(15),
            delete_node_object: true,
            back_off: (Duration::from_hours(1), Duration::from_hours(24)),
            grace_period: Duration::from_secs(30),
        }
    }
}

/// A node to retire, and the machine behind it by the cloud's word.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) node: Arc<NodeSnapshot>,
    pub(crate) machine: Machine,
    /// The group that keeps it.
    pub(crate) group: Option<Group>,
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
    /// It must not be claimed after all, and was not touched.
    Refused,
    /// Everything of ours was taken off, and nothing failed: it may go another time.
    Postponed,
    /// The same, because a person paused us.
    Paused,
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
    /// Its deletion was accepted in this retirement, or may have been.
    pub(crate) deleted: bool,
    pub(crate) evictions: usize,
    /// What has to settle; none if certainly no pod was evicted.
    pub(crate) awaited: Option<Awaited>,
}

/// Why the work on a node stops before its end.
#[derive(Debug)]
pub(crate) enum Halt {
    Failed(Step, Cause),
    /// It must not be claimed after all: what was judged has changed since.
    Refused,
    /// A person paused us.
    Paused,
    /// Spot capacity is being taken back.
    Held,
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

impl From<&Halt> for Halted {
    fn from(halt: &Halt) -> Self {
        match halt {
            Halt::Failed(..) => Self::Failed,
            Halt::Refused => Self::Refused,
            Halt::Paused => Self::Paused,
            Halt::Held => Self::Held,
            Halt::Undone(_) => Self::Undone,
            Halt::Vanished => Self::Vanished,
            Halt::Departing(_) => Self::Departing,
            Halt::Overtaken => Self::Overtaken,
            Halt::Stopped => Self::Stopped,
            Halt::NotLeader => Self::NotLeader,
        }
    }
}

/// Retires nodes.
#[derive(Clone, Copy)]
pub(crate) struct Retirer<'a> {
    pub(crate) ports: &'a Ports,
    pub(crate) live: &'a dyn Live,
    pub(crate) settings: &'a RetireSettings,
    /// Which pods may be moved.
    pub(crate) rules: &'a DrainRules,
    /// The migrator's own pod.
    pub(crate) own_pod: Option<&'a Uid>,
    /// What holds planned work back.
    pub(crate) hold: &'a Hold,
    pub(crate) stop: &'a Stop,
}

impl Retirer<'_> {
    /// Retires one node, from wherever its claim says it is. Whatever happens, the node is afterwards gone, departing,
    /// released, or (stopped, not leading) in a state that the next process takes up.
    pub(crate) async fn retire(&self, target: Target, purpose: &Purpose) -> Retirement {
        let mut job = Job::new(*self, target, purpose);
        let worked = job.work().await;
        self.ended(job, worked).await
    }

    /// Awaits the end of a node whose deletion was accepted, or may have been.
    pub(crate) async fn follow(&self, target: Target, purpose: &Purpose) -> Retirement {
        let mut job = Job::new(*self, target, purpose);
        let followed = job.follow().await;
        self.ended(job, followed).await
    }

    async fn ended(&self, job: Job<'_>, worked: Result<(), Halt>) -> Retirement {
        let node = job.node().reference();
        let end = match worked {
            Ok(()) => {
                self.report(&Progress::Retired { node: node.clone() });
                End::Retired
            }
            Err(halt) => self.halted(&node, halt, &job.owner(), job.claimed()).await,
        };
        let stays = matches!(end, End::Released(_) | End::Undone | End::Postponed | End::Paused);
        let lowered = job.claimed().is_some_and(|claim| claim.fleet_before.is_some());
        if stays && (job.was_detached() || lowered) {
            self.attach(job.node(), Lane::Planned).await;
        }
        let deleted = match end {
            // Counted even if an earlier process may have counted it: rather one too many than a limit that a kill voids.
            End::Retired => true,
            End::Departing => job.asked_for_deletion(),
            End::Vanished
            | End::Released(_)
            | End::Undone
            | End::Refused
            | End::Postponed
            | End::Paused
            | End::Overtaken
            | End::Stopped
            | End::NotLeader => false,
        };
        let (evictions, awaited) = job.into_disturbed();
        Retirement { node, end, deleted, evictions, awaited }
    }

    async fn halted(&self, node: &NodeRef, halt: Halt, owner: &Owner, known: Option<&Claim>) -> End {
        let (end, told, backing_off) = match halt {
            Halt::Failed(step, cause) => {
                let failure = Failure { node: node.clone(), step, cause };
                let why = chain(&failure);
                let told = Some(Progress::Released { node: node.clone(), step, why });
                (End::Released(failure), told, BackingOff::Yes)
            }
            Halt::Undone(undo) => (End::Undone, Some(Progress::Undone { node: node.clone(), undo }), BackingOff::Yes),
            Halt::Paused => (End::Paused, None, BackingOff::No),
            Halt::Held => {
                let why = "spot capacity is being taken back".to_owned();
                (End::Postponed, Some(Progress::Postponed { node: node.clone(), why }), BackingOff::No)
            }
            Halt::Departing(why) => {
                self.report(&Progress::Departing { node: node.clone(), why });
                return End::Departing;
            }
            Halt::Refused => return End::Refused,
            Halt::Vanished => return End::Vanished,
            Halt::Overtaken => return End::Overtaken,
            Halt::Stopped => return End::Stopped,
            Halt::NotLeader => return End::NotLeader,
        };
        match self.release(node, owner, known, backing_off).await {
            Freed::Done => {
                if let Some(told) = told {
                    self.report(&told);
                }
            }
            // Whatever went wrong, its node was taken over meanwhile.
            Freed::Overtaken => return End::Overtaken,
            Freed::NotDone => {}
        }
        end
    }

    /// What a retirement of this node is about to disturb, and what an earlier process that claimed it has disturbed.
    pub(crate) fn awaited(&self, node: &NodeSnapshot, claim: Option<&Claim>, force: Force) -> Awaited {
        let mut awaited = Awaited::of(&self.live.view(), &node.name, self.rules, force);
        if let Some(claim) = claim {
            awaited.since(claim.since);
        }
        awaited
    }

    /// Works on a step, and reports its beginning and its end, whichever that is.
    pub(crate) async fn timed<T>(
        &self,
        node: &NodeRef,
        step: Step,
        work: impl Future<Output = T>,
        halted: impl FnOnce(&T) -> Option<Halted>,
    ) -> T {
        let node = node.clone();
        let clock = &self.ports.clock;
        let began = clock.instant();
        self.report(&Progress::StepStarted { node: node.clone(), step });
        let done = work.await;
        let took = clock.instant().since(began);
        self.report(&match halted(&done) {
            None => Progress::StepDone { node, step, took },
            Some(halted) => Progress::StepHalted { node, step, halted, took },
        });
        done
    }

    pub(crate) fn report(&self, event: &Progress) {
        self.ports.observer.observe(self.ports.clock.now(), event);
    }

    pub(crate) fn write(&self, lane: Lane) -> (Instant, Write) {
        let by = self.ports.clock.instant() + REQUEST;
        (by, Write::new(by, lane, Arc::clone(&self.ports.leadership)))
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
