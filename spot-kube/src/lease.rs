//! Leader election with a `Lease`, after client-go's rules: whoever holds the lease leads, and everybody else watches
//! it.
//!
//! ```text
//! Candidate ──lead──► Term ──hold──► End::Released   after the work has ended
//!                       │      └───► End::Lost       another process leads, or may do so soon
//!                       └─leader──► Leader           asked before each request, without I/O
//! ```
//!
//! Every write is conditional on the resourceVersion that was read, so of two that try one succeeds. A holder trusts
//! its lease for `renew_deadline` from the moment in which its last successful renewal was *sent*; another process
//! takes it no sooner than `lease_duration` after it *saw* that renewal. The difference is what requests that are under
//! way have left to end, and what clocks of different speed may differ by.
//!
//! Time is that of the monotonic clock. It goes on while a process is stopped, but not while a whole machine sleeps: on
//! one that was put to sleep in mid-work, only the conditions of each write (UID, resourceVersion) protect until the
//! next renewal, `retry_period` later at most, finds the lease taken.
//!
//! # Cancel safety
//! Dropping a [`Candidate`] or a [`Term`] leaves the lease as it is: it expires by itself.

mod claim;
mod desk;

use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select};
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::ports::{Clock, Instant, Leadership};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use desk::{Desk, Kept, Tried};

/// The first wait after a renewal that failed; it doubles, up to the retry period.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// How long giving the lease back may take: it expires by itself anyway, and the process is about to end.
const LAST_WORD: Duration = Duration::from_secs(2);

/// The lease, and how it is held.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// Who we are; see [`identity`].
    pub identity: String,
    /// How long the others wait after the last renewal that they saw. Whole seconds.
    pub lease_duration: Duration,
    /// How long the holder relies on a renewal; below `lease_duration`.
    pub renew_deadline: Duration,
    /// The pause between two renewals, and between two looks; below `renew_deadline`.
    pub retry_period: Duration,
}

/// The name of a holder: the pod's UID, so that a restarted container of the same pod resumes at once; elsewhere one
/// that no other process has.
#[must_use]
pub fn identity(pod_uid: Option<&str>, host: &str) -> String {
    match pod_uid {
        Some(uid) => uid.to_owned(),
        None => format!("{host}_{:016x}", RandomState::new().hash_one(host)),
    }
}

/// Why a [`Candidate`] does not lead yet.
#[derive(Debug)]
pub enum Waits<'a> {
    /// Another process holds the lease: this one.
    HeldBy(&'a str),
    /// Another process was faster.
    Outrun,
    /// The lease could not be read or written.
    Failed(&'a PortError),
}

/// A process that wants to lead.
#[derive(Debug)]
pub struct Candidate {
    desk: Desk,
}

/// The time in which a process leads.
#[derive(Debug)]
pub struct Term {
    desk: Desk,
    until: watch::Sender<Instant>,
    last_sent: Instant,
}

/// How a [`Term`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum End {
    /// We asked for it.
    Released,
    /// The lease was lost, for this reason: all work has to end at once.
    Lost(String),
}

/// Whether this process leads. Clones tell the same.
#[derive(Clone)]
pub struct Leader {
    until: watch::Receiver<Instant>,
    clock: Arc<dyn Clock>,
}

impl Candidate {
    /// A process that wants to hold this lease. The client should be used for nothing else, so that no other request
    /// can hold up a renewal. The clock is the one of all deadlines of the work.
    #[must_use]
    pub fn new(client: kube::Client, settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { desk: Desk::new(client, settings, clock) }
    }

    /// Waits until it leads, however long that takes. `tell` hears after each try why not yet.
    pub async fn lead(mut self, mut tell: impl FnMut(&Waits<'_>)) -> Term {
        loop {
            let pause = self.desk.settings.retry_period * 2;
            let mut next = self.desk.now() + self.desk.pause(0, pause, pause);
            match self.desk.acquire().await {
                Ok(Tried::Written { sent }) => return Term::begin(self.desk, sent),
                Ok(Tried::Held { until }) => {
                    tell(&Waits::HeldBy(self.desk.holder().unwrap_or_default()));
                    next = next.min(until);
                }
                Ok(Tried::Raced) => tell(&Waits::Outrun),
                Err(error) => tell(&Waits::Failed(&error)),
            }
            self.desk.clock().sleep_until(next).await;
        }
    }
}

impl Term {
    fn begin(desk: Desk, sent: Instant) -> Self {
        let until = watch::Sender::new(sent + desk.settings.renew_deadline);
        info!(lease = %desk.settings, identity = desk.settings.identity, "holds the lease");
        Self { desk, until, last_sent: sent }
    }

    /// Tells whether we still lead, while and after the lease is held.
    #[must_use]
    pub fn leader(&self) -> Leader {
        Leader { until: self.until.subscribe(), clock: Arc::clone(self.desk.clock()) }
    }

    /// Renews the lease until it is lost, or until `done` returns: then the work has ended, and the lease is given
    /// back.
    pub async fn hold(mut self, done: impl Future<Output = ()>) -> End {
        let lost = match select(pin!(done), pin!(self.renew())).await {
            Either::Left(_) => None,
            Either::Right((why, _)) => Some(why),
        };
        // A process that was frozen may hear of the end of its work before its own timers.
        let late = self.desk.now() >= self.last_sent + self.desk.settings.renew_deadline;
        let lost = lost.or_else(|| late.then(|| too_late(self.desk.settings.renew_deadline, None)));
        self.until.send_replace(self.desk.now());
        let Some(why) = lost else {
            self.release().await;
            return End::Released;
        };
        warn!(lease = %self.desk.settings, why, "lost the lease");
        End::Lost(why)
    }

    /// Renews until that is not possible any more. Returns why.
    async fn renew(&mut self) -> String {
        let mut failures = 0;
        let mut last = None;
        loop {
            let desk = &mut self.desk;
            let Settings { renew_deadline, retry_period, .. } = desk.settings;
            let until = self.last_sent + renew_deadline;
            let next = match failures {
                0 => self.last_sent + retry_period,
                failures => desk.now() + desk.pause(failures - 1, FIRST_WAIT, retry_period),
            };
            desk.clock().sleep_until(next.min(until)).await;
            if desk.now() >= until {
                return too_late(renew_deadline, last);
            }
            match desk.renew(until).await {
                // What was lost is not found again: the work may have been dropped.
                Ok(Kept::Renewed { .. }) if desk.now() >= until => return too_late(renew_deadline, last),
                Ok(Kept::Renewed { sent }) => {
                    self.last_sent = sent;
                    self.until.send_replace(sent + renew_deadline);
                    (failures, last) = (0, None);
                }
                Ok(Kept::Lost(why)) => return why,
                Ok(Kept::Raced) => {
                    failures += 1;
                    last = Some("the lease was written by others".to_owned());
                }
                Err(error) => {
                    failures += 1;
                    let error = chain(&error);
                    warn!(lease = %desk.settings, error, "the lease is not renewed yet; trying again");
                    last = Some(error);
                }
            }
        }
    }

    /// Gives the lease back. Nobody is helped by an error: it expires by itself.
    async fn release(&mut self) {
        let desk = &mut self.desk;
        let by = desk.now() + LAST_WORD;
        let mut tries = 0;
        let failed = loop {
            match desk.release(by).await {
                Ok(Kept::Renewed { sent: _ }) => {
                    debug!(lease = %desk.settings, "gave the lease back");
                    return;
                }
                Ok(Kept::Lost(why)) => break why,
                Ok(Kept::Raced) if tries < 2 => tries += 1,
                Ok(Kept::Raced) => break "it was written by others".to_owned(),
                Err(error) => break chain(&error),
            }
        };
        warn!(lease = %desk.settings, why = failed, "the lease was not given back: it expires by itself");
    }
}

impl Leader {
    fn leads(&self) -> bool {
        self.clock.instant() < *self.until.borrow()
    }
}

#[async_trait]
impl Leadership for Leader {
    fn check(&self) -> Result<(), PortError> {
        if self.leads() {
            return Ok(());
        }
        Err(PortError::new(ErrorClass::NotLeader, "this process does not hold the lease any more"))
    }

    fn valid_until(&self) -> Option<Instant> {
        Some(*self.until.borrow())
    }

    async fn lost(&self) {
        let mut until = self.until.clone();
        loop {
            let at = *until.borrow_and_update();
            if self.clock.instant() >= at {
                return;
            }
            // Looked at whenever the task is woken: the timers of a process that was frozen fire late.
            let late = poll_fn(|_| if self.leads() { Poll::Pending } else { Poll::Ready(()) });
            let changed = async {
                // Nobody renews any more, and the lease only runs out.
                if until.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            select(late, select(pin!(changed), self.clock.sleep_until(at))).await;
        }
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").field("until", &*self.until.borrow()).finish_non_exhaustive()
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn too_late(renew_deadline: Duration, last: Option<String>) -> String {
    let why = last.unwrap_or_else(|| "the process was stopped for that long".to_owned());
    format!("not renewed within {} s: {why}", renew_deadline.as_secs_f32())
}
