//! The configuration file is read again while the process runs: when it changes, and when the process is told to.
//!
//! ```text
//!  file, looked at ──► changed, and whole ──► loaded as at the start ──► only keys that may change? ──► in force
//!  SIGHUP ─────────────────────┘                     └── refused whole: what is in force stays ◄──┘
//! ```
//!
//! What is in force counts from the next run on. The content is looked at, and not the events of a file system: a
//! mounted `ConfigMap` is a link that is swapped, a folder may be replaced, and a network's file system tells nothing.

mod change;
mod sight;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::future;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use self::change::Change;
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
        let mut sight = Sight::default();
        loop {
            let is_told = tokio::select! {
                _ = hang_up.recv() => true,
                () = sleep(LOOK), if self.path.is_some() => false,
            };
            self.look(&mut sight, is_told).await;
        }
    }

    /// Looks at the file once.
    async fn look(&self, sight: &mut Sight, is_told: bool) {
        let Some(path) = self.path else {
            warn!("SIGHUP: there is no file to read again; name one with --config");
            return;
        };
        if let Some(content) = sight.due(read(path).await, is_told) {
            self.take(path, content, is_told);
        }
    }

    /// Puts it in force, or says why not.
    fn take(&self, path: &Path, content: &Content, is_told: bool) {
        let result = content.as_ref().map_err(|why| anyhow!("{why}")).and_then(|text| self.judge(path, text));
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

    /// Puts it in force if all of it may be, and returns what is another than before.
    fn judge(&self, path: &Path, text: &str) -> anyhow::Result<Change> {
        let name = path.display().to_string();
        let config = Config::load(Some((&name, text)), self.environment.all(), self.overrides)?;
        settings::supported(&config)?;
        let change = Change::between(&self.current.borrow(), &config)?;
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
        self.current.send_replace(Arc::new(config));
        Ok(change)
    }
}

/// What is in the file. A file system that hangs holds up nothing else.
async fn read(path: &Path) -> Content {
    let path = path.to_owned();
    let read = spawn_blocking(move || {
        text::read(&path).map_err(|error| format!("can't read the configuration {}: {error:#}", path.display()))
    });
    read.await.unwrap_or_else(|error| Err(format!("can't read the configuration: {error}")))
}

#[cfg(test)]
mod tests;
