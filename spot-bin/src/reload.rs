//! The configuration file is read again while the process runs: when it changes, or a file that it names, and when the
//! process is told to.
//!
//! ```text
//! files, looked at ──► changed, and whole ──► loaded as at the start ──► only keys that may change? ──► in force
//!  SIGHUP ─────────────────────┘                     └── refused whole: what is in force stays ◄──┘
//! ```
//!
//! What is in force counts from the next run on. The content is looked at, and not the events of a file system: a
//! mounted `ConfigMap` is a link that is swapped, a folder may be replaced, and a network's file system tells nothing.
//! Files are read where one that hangs holds up nothing else.

mod change;
mod named;
mod proposal;
mod sight;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::future;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use self::change::Change;
pub(crate) use self::named::Named;
pub(crate) use self::proposal::Given;
use self::proposal::{Notifications, Proposal, Seen};
use self::sight::Sight;
use crate::config::Config;
use crate::cost::Ledger;
use crate::metrics::{Metrics, Reloaded};
use crate::notify::Audience;
use crate::telemetry::Lines;

/// How often the file is looked at. A mounted `ConfigMap` itself follows its object by a minute or more.
const LOOK: Duration = Duration::from_secs(5);
/// After how long it is said that a file system does not answer.
const SLOW: Duration = Duration::from_secs(30);

/// What a file is made a configuration with, and who goes by it at once.
pub(crate) struct Reload<'a> {
    /// The file, if there is one.
    pub(crate) path: Option<&'a Path>,
    pub(crate) given: Arc<Given>,
    pub(crate) metrics: &'a Metrics,
    pub(crate) ledger: &'a Ledger,
    pub(crate) lines: &'a Lines,
    pub(crate) audience: &'a Audience,
    /// Where the one in force is, and all others that go by it look.
    pub(crate) current: watch::Sender<Arc<Config>>,
    /// What the process has begun with.
    pub(crate) named: Named,
}

/// What was seen.
struct Past {
    sight: Sight<Seen>,
    /// What of the files that the configuration names is in force.
    named: Arc<Named>,
}

/// SIGHUP, from now on caught.
///
/// # Errors
/// When the system refuses.
pub(crate) fn hang_up() -> anyhow::Result<Signal> {
    signal(SignalKind::hangup()).context("can't catch the signal to read the configuration again")
}

impl Reload<'_> {
    /// Goes on until it is dropped; without a signal there is nobody to whom a change would matter.
    pub(crate) async fn run(&self, hang_up: Option<Signal>) -> Infallible {
        let Some(mut hang_up) = hang_up else { return future::pending().await };
        let mut past = self.past();
        loop {
            let is_told = tokio::select! {
                _ = hang_up.recv() => true,
                () = sleep(LOOK), if self.path.is_some() => false,
            };
            self.look(&mut past, is_told).await;
        }
    }

    fn past(&self) -> Past {
        Past { sight: Sight::default(), named: Arc::new(self.named.clone()) }
    }

    /// Looks at the files once.
    async fn look(&self, past: &mut Past, is_told: bool) {
        let Some(path) = self.path else {
            warn!("SIGHUP: there is no file to read again; name one with --config");
            return;
        };
        let (file, given, current) = (path.to_owned(), Arc::clone(&self.given), self.in_force());
        let seen = match aside(move || Seen::at(&file, &given, &current)).await {
            Ok(seen) => seen,
            Err(error) => return warn!(%error, "the configuration can't be looked at"),
        };
        let Some(seen) = past.sight.due(seen, is_told) else { return };
        let proposal = match &seen.file {
            Ok(text) => self.judge(path, text, &past.named).await,
            Err(why) => Err(anyhow!("{why}")),
        };
        match proposal {
            Ok(proposal) => self.take(proposal, past, is_told),
            Err(error) => {
                self.metrics.reloaded(Reloaded::Refused);
                error!(error = format_args!("{error:#}"), "configuration refused: the one in force stays");
            }
        }
    }

    fn in_force(&self) -> Arc<Config> {
        Arc::clone(&self.current.borrow())
    }

    async fn judge(&self, path: &Path, text: &str, in_force: &Arc<Named>) -> anyhow::Result<Proposal> {
        let (path, text, given) = (PathBuf::from(path), text.to_owned(), Arc::clone(&self.given));
        let (current, named) = (self.in_force(), Arc::clone(in_force));
        aside(move || Proposal::of(&path, &text, &given, &current, &named)).await?
    }

    /// Puts it in force. Nothing of it can be refused any more.
    fn take(&self, proposal: Proposal, past: &mut Past, is_told: bool) {
        let Proposal { config, change, named, prices, notifications } = proposal;
        let Change { keys } = &change;
        if keys.is_empty() {
            self.metrics.goes_by_its_file();
            if is_told {
                info!("SIGHUP: the configuration is the one in force");
            } else {
                debug!("the configuration is the one in force");
            }
            return;
        }
        if let Notifications::To(listener) = notifications {
            self.audience.renew(listener.map(|listener| *listener));
        }
        if let Some(prices) = prices {
            self.ledger.renew(prices);
        }
        self.lines.filter(config.log.level);
        if config.interruption.queue.is_some() && change::KEPT_BY_ANSWERS.iter().any(|key| change.touches(key)) {
            warn!("answers to interruptions go by what was in force when the process began to lead");
        }
        self.metrics.reloaded(Reloaded::Applied);
        info!(
            keys = keys.join(", "),
            configuration = config.to_json(),
            "configuration changed: schedule, log level, prices and notifications count at once, the rest from the \
             next run on"
        );
        past.named = Arc::new(named);
        self.current.send_replace(Arc::new(config));
    }
}

/// Does this where it holds up nobody, for as long as it takes, and says so if that is long.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    let mut work = spawn_blocking(work);
    if let Ok(done) = timeout(SLOW, &mut work).await {
        return done;
    }
    warn!(seconds = SLOW.as_secs(), "the files of the configuration can't be read: nothing answers; still waiting");
    work.await
}

#[cfg(test)]
mod tests;
