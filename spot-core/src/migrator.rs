//! The run loop: recover what an earlier process left, migrate at every tick, stop when asked.
//!
//! Dropping any of these futures is a kill: nothing is cleaned up, the claims stay on the nodes, and recovery owns
//! them.

mod operator;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future;
use jiff::Timestamp;
pub use operator::{Freed, Which};

use crate::error::{RunError, chain};
use crate::interruption::Hold;
use crate::judge::{Candidates, Policy};
use crate::ports::{Instant, Live, Ports};
use crate::progress::{Outcome, Progress, Report};
use crate::retire::{Purpose, RetireSettings};
use crate::run::{self, Run, Task, Turn};
use crate::schedule::Schedule;
use crate::stop::Stop;
use crate::watched::Watched;

/// How often the wall clock is looked at while waiting for a tick: it may jump, and a machine may sleep.
const LOOK_AT_CLOCK: Duration = Duration::from_mins(1);

/// The pause after a recovery that could not read cluster or cloud, or a run that could not give a node back, doubling
/// up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause between two recoveries.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// How a migrator goes about it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When runs begin.
    pub schedule: Schedule,
    /// Who may be retired.
    pub policy: Policy,
    /// How a node is retired.
    pub retire: RetireSettings,
    /// How long evicted pods may take to run elsewhere, and transient reasons to pass.
    pub settle_timeout: Duration,
    /// How long runs wait after a shortage of spot: at first, and at most.
    pub exhaustion: (Duration, Duration),
    /// Judge and report, and write nothing.
    pub dry_run: bool,
}

impl Settings {
    /// The defaults, with this schedule.
    #[must_use]
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            policy: Policy::default(),
            retire: RetireSettings::default(),
            settle_timeout: Duration::from_mins(25),
            exhaustion: (Duration::from_hours(1), Duration::from_hours(6)),
            dry_run: false,
        }
    }
}

/// Moves workloads from on-demand to spot nodes.
#[derive(Clone, Debug)]
pub struct Migrator {
    ports: Ports,
    settings: Watched<Latest>,
    hold: Hold,
    /// The latest run left something on a node that it could not give back.
    unreleased: Arc<AtomicBool>,
}

/// Settings, equal to none that were given later.
#[derive(Clone, Debug)]
struct Latest(Arc<Settings>);

impl PartialEq for Latest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Migrator {
    /// A migrator that works through these ports.
    #[must_use]
    pub fn new(ports: Ports, settings: Settings) -> Self {
        let settings = Watched::new(Latest(Arc::new(settings)));
        Self { ports, settings, hold: Hold::default(), unreleased: Arc::default() }
    }

    /// Goes about it like this from the next run on, for all clones. A run under way ends as it began.
    pub fn renew(&self, settings: Settings) {
        let settings = Latest(Arc::new(settings));
        let _is_another = self.settings.change(|_| settings);
    }

    /// The same, which begins no node while this is on, and releases those that it is draining when it is set.
    #[must_use]
    pub fn with_hold(self, hold: Hold) -> Self {
        Self { hold, ..self }
    }

    /// Finishes what an earlier process began, then migrates at every tick until asked to stop. A run that fails is
    /// reported and does not end it; what it could not give back is tried again before the next one.
    ///
    /// # Errors
    /// When the leadership is lost: the process has to end.
    pub async fn run(&self, stop: &Stop) -> Result<(), RunError> {
        self.recover_until_done(stop).await?;
        let mut ran = self.ports.clock.now();
        let mut told = None;
        let mut pause = FIRST_PAUSE;
        loop {
            // Ticks that passed meanwhile are left out, and a clock that was set back does not bring one back.
            let chosen = self.ports.clock.now();
            let settings = self.settings.get();
            let schedule = &settings.0.schedule;
            let Some(tick) = schedule.next_after(ran.max(chosen)) else { return Ok(()) };
            if told.replace(tick) != Some(tick) {
                self.report(&Progress::NextRun { at: tick });
            }
            // What could not be given back must not stay as it is until then.
            let again = chosen.saturating_add(pause).unwrap_or(tick);
            let at = if self.unreleased.load(Ordering::Relaxed) { again.min(tick) } else { tick };
            match self.while_leading(self.wait_for(at, chosen, schedule, stop)).await? {
                Waited::Reached => {}
                Waited::Stopped => return Ok(()),
                Waited::ClockSetBack | Waited::Rescheduled => continue,
            }
            if at < tick {
                unless_lost(self.recover(stop).await)?;
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                unless_lost(self.migrate(stop).await)?;
                (ran, pause) = (tick, FIRST_PAUSE);
            }
        }
    }

    /// One run. Leftovers of an earlier process are finished or released first, and then no new node is begun.
    ///
    /// # Errors
    /// When the cluster, the cloud or the memory could not be read, or the leadership is lost.
    pub async fn once(&self, stop: &Stop) -> Result<Report, RunError> {
        self.reported(self.migrate_now(stop, Begin::UnlessLeftovers)).await
    }

    /// One run that begins new nodes even after leftovers.
    ///
    /// # Errors
    /// When the cluster, the cloud or the memory could not be read, or the leadership is lost.
    pub async fn migrate(&self, stop: &Stop) -> Result<Report, RunError> {
        self.reported(self.migrate_now(stop, Begin::New)).await
    }

    /// Finishes or releases what an earlier process claimed, one node at a time, and begins no new node.
    ///
    /// # Errors
    /// When the cluster or the cloud could not be read, or the leadership is lost.
    pub async fn recover(&self, stop: &Stop) -> Result<Report, RunError> {
        self.reported(self.recover_now(stop)).await
    }

    /// Recovers, again and again while the cluster or the cloud can't be read: a leftover must not stay as it is until
    /// the next tick, which may be a week away.
    async fn recover_until_done(&self, stop: &Stop) -> Result<(), RunError> {
        let clock = &self.ports.clock;
        let mut pause = FIRST_PAUSE;
        while unless_lost(self.recover(stop).await)?.is_none() && !stop.is_set() {
            let until = clock.instant() + pause;
            self.while_leading(future::select(pin!(clock.sleep_until(until)), pin!(stop.wait()))).await?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    async fn recover_now(&self, stop: &Stop) -> Result<Report, RunError> {
        let live = run::open(&self.ports).await?;
        let Latest(settings) = self.settings.get();
        let mut run = self.begin(&settings, &*live, stop).await?;
        let outcome = run.recover().await.map(|ended| ended.unwrap_or(Outcome::Recovered));
        self.unreleased.store(run.has_unreleased(), Ordering::Relaxed);
        run.finish(outcome).await
    }

    async fn migrate_now(&self, stop: &Stop, begin: Begin) -> Result<Report, RunError> {
        let live = run::open(&self.ports).await?;
        let Latest(settings) = self.settings.get();
        let mut run = self.begin(&settings, &*live, stop).await?;
        let outcome = match run.recover().await {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) if begin == Begin::UnlessLeftovers && run.recovered_any() => Ok(Outcome::Recovered),
            Ok(None) => retire_all(&mut run, &*live).await,
            Err(error) => Err(error),
        };
        self.unreleased.store(run.has_unreleased(), Ordering::Relaxed);
        run.finish(outcome).await
    }

    async fn begin<'a>(
        &'a self,
        settings: &'a Settings,
        live: &'a dyn Live,
        stop: &'a Stop,
    ) -> Result<Run<'a>, RunError> {
        let Settings { policy, retire, settle_timeout, exhaustion, dry_run, .. } = settings;
        let task = Task {
            purpose: Purpose::Migration,
            policy: Policy { candidates: Candidates::OnDemand, ..policy.clone() },
            retire,
            settle_timeout: *settle_timeout,
            exhaustion: *exhaustion,
            dry_run: *dry_run,
        };
        let run = Run::begin(&self.ports, task, live, &self.hold, stop).await?;
        self.report(&Progress::RunStarted { nodes: run.count() });
        Ok(run)
    }

    async fn while_leading<T>(&self, work: impl Future<Output = T>) -> Result<T, RunError> {
        run::while_leading(&self.ports, work).await
    }

    /// Makes a run, and reports how it ended, whichever way.
    async fn reported(&self, run: impl Future<Output = Result<Report, RunError>>) -> Result<Report, RunError> {
        let ended = self.while_leading(run).await.flatten();
        self.report(&match &ended {
            Ok(report) => Progress::RunEnded { report: report.clone() },
            Err(error) => Progress::RunFailed { class: error.class(), why: chain(error) },
        });
        ended
    }

    /// Waits for a time of the wall clock, which stood at `chosen` when that time was chosen by `schedule`.
    async fn wait_for(&self, tick: Timestamp, chosen: Timestamp, schedule: &Schedule, stop: &Stop) -> Waited {
        let clock = &self.ports.clock;
        loop {
            if stop.is_set() {
                return Waited::Stopped;
            }
            let settings = self.settings.get();
            if settings.0.schedule != *schedule {
                return Waited::Rescheduled;
            }
            let now = clock.now();
            if now >= tick {
                return Waited::Reached;
            }
            if now < chosen {
                return Waited::ClockSetBack;
            }
            let left = Duration::try_from(tick.duration_since(now)).unwrap_or(Duration::ZERO);
            let look: Instant = clock.instant() + left.min(LOOK_AT_CLOCK);
            let (renewed, stopped) = (pin!(self.settings.other_than(settings)), pin!(stop.wait()));
            future::select(pin!(clock.sleep_until(look)), future::select(renewed, stopped)).await;
        }
    }

    fn report(&self, event: &Progress) {
        self.ports.observer.observe(self.ports.clock.now(), event);
    }
}

/// Retires nodes until none is left that may go, or an on-demand node comes back.
async fn retire_all(run: &mut Run<'_>, live: &dyn Live) -> Result<Outcome, RunError> {
    run.announce(&live.view());
    loop {
        match run.turn().await? {
            Turn::Begun | Turn::Waited => {}
            Turn::Ended(outcome) => return Ok(outcome),
        }
    }
}

/// How waiting for a tick ended.
enum Waited {
    Reached,
    Stopped,
    /// The tick was chosen by a clock that was ahead: another one may come first.
    ClockSetBack,
    /// Another schedule counts.
    Rescheduled,
}

/// Whether a run begins new nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    New,
    UnlessLeftovers,
}

/// The end of a run among others, none if it failed: that was reported, and only a lost leadership ends them all.
fn unless_lost(ended: Result<Report, RunError>) -> Result<Option<Report>, RunError> {
    match ended {
        Ok(report) => Ok(Some(report)),
        Err(RunError::LostLeadership) => Err(RunError::LostLeadership),
        Err(RunError::Cluster(_) | RunError::Cloud(_) | RunError::Memory(_)) => Ok(None),
    }
}
