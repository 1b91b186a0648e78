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

mod change;
mod named;
mod sight;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::future;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use self::change::Change;
pub(crate) use self::named::Named;
use self::sight::{Content, Sight};
use crate::cli::Environment;
use crate::config::Config;
use crate::cost::{Ledger, PriceBook};
use crate::metrics::{Metrics, Reloaded};
use crate::notify::{Audience, Listener};
use crate::settings;
use crate::telemetry::Lines;
use crate::text;

/// How often the file is looked at. A mounted `ConfigMap` itself follows its object by a minute or more.
const LOOK: Duration = Duration::from_secs(5);

/// What is made of variables and flags beside the file, and who goes by it at once.
pub(crate) struct Reload<'a> {
    /// The file, if there is one.
    pub(crate) path: Option<&'a Path>,
    pub(crate) environment: &'a Environment,
    pub(crate) overrides: &'a BTreeMap<String, String>,
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
    named: Named,
}

/// What a look shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    file: Content,
    named: Named,
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
        Past { sight: Sight::default(), named: self.named.clone() }
    }

    /// Looks at the files once.
    async fn look(&self, past: &mut Past, is_told: bool) {
        let Some(path) = self.path else {
            warn!("SIGHUP: there is no file to read again; name one with --config");
            return;
        };
        let named = Named::files(&self.current.borrow());
        let seen = match read(path.to_owned(), named).await {
            Ok(seen) => seen,
            Err(error) => return warn!(%error, "the configuration can't be looked at"),
        };
        if let Some(Seen { file, named: _ }) = past.sight.due(seen, is_told) {
            self.take(path, file, &mut past.named, is_told);
        }
    }

    /// Puts it in force, or says why not.
    fn take(&self, path: &Path, content: &Content, in_force: &mut Named, is_told: bool) {
        let result = content.as_ref().map_err(|why| anyhow!("{why}")).and_then(|text| self.judge(path, text, in_force));
        match result {
            Ok(Change { keys }) if keys.is_empty() => {
                self.metrics.goes_by_its_file();
                if is_told {
                    info!("SIGHUP: the configuration is the one in force");
                } else {
                    debug!("the configuration is the one in force");
                }
            }
            Ok(Change { keys }) => {
                self.metrics.reloaded(Reloaded::Applied);
                let config = self.current.borrow().to_json();
                info!(
                    keys = keys.join(", "),
                    configuration = config,
                    "configuration changed: it counts from the next run on"
                );
            }
            Err(error) => {
                self.metrics.reloaded(Reloaded::Refused);
                error!(error = format_args!("{error:#}"), "configuration refused: the one in force stays");
            }
        }
    }

    /// Puts it in force if all of it may be, with what is in the files that it names, and returns what is another than
    /// before.
    fn judge(&self, path: &Path, text: &str, in_force: &mut Named) -> anyhow::Result<Change> {
        let name = path.display().to_string();
        let config = Config::load(Some((&name, text)), self.environment.all(), self.overrides)?;
        settings::supported(&config)?;
        let mut change = Change::between(&self.current.borrow(), &config)?;
        let named = Named::of(&config);
        change.keys.extend(named.changed_since(in_force));
        if change.keys.is_empty() {
            return Ok(change);
        }
        let prices = change.touches("prices").then(|| PriceBook::read(config.prices.as_deref())).transpose()?;
        let listener = change.touches("notifications").then(|| Listener::of(&config.notifications)).transpose()?;
        // From here on nothing can be refused any more.
        if let Some(listener) = listener {
            self.audience.renew(listener);
        }
        if let Some(prices) = prices {
            self.ledger.renew(prices);
        }
        self.lines.filter(config.log.level);
        if config.interruption.queue.is_some() && change::KEPT_BY_ANSWERS.iter().any(|key| change.touches(key)) {
            warn!("answers to interruptions go by what was in force when the process began to lead");
        }
        *in_force = named;
        self.current.send_replace(Arc::new(config));
        Ok(change)
    }
}

/// What is in the file, and in those that are named. A file system that hangs holds up nothing else.
async fn read(path: PathBuf, named: BTreeMap<&'static str, PathBuf>) -> Result<Seen, JoinError> {
    let read = spawn_blocking(move || {
        let file = text::read(&path);
        let file = file.map_err(|error| format!("can't read the configuration {}: {error:#}", path.display()));
        Seen { file, named: Named::read(&named) }
    });
    read.await
}

#[cfg(test)]
mod tests;
