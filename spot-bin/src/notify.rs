//! Who is told about runs: a webhook, beside everything else. It never delays what it tells of, and its address is a
//! secret.
//!
//! ```text
//! Progress ─► Notifier ─► queue, bounded ─► Worker ─► template ─► POST, tried a few times ─► sent, failed or dropped
//! ```

mod endpoint;
mod message;
mod template;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use spot_core::ports::Observer;
use spot_core::progress::Progress;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{debug, warn};

use self::endpoint::{Answer, Endpoint};
use self::message::Message;
use self::template::Template;
use crate::config::Notifications;
use crate::exit::Fault;
use crate::metrics::{Metrics, Told};

/// Messages that wait. More are dropped and counted: what happened is in log and Events as well.
const WAITING: usize = 64;
/// How often a message is tried.
const TRIES: u32 = 4;
/// The first wait between two tries; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait that a webhook may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Tells the worker: an [`Observer`] that never blocks.
pub struct Notifier {
    queue: mpsc::Sender<Message>,
    metrics: Metrics,
}

/// Sends what the notifier queued.
#[derive(Debug)]
pub struct Worker {
    queue: mpsc::Receiver<Message>,
    /// Read before each message: the secret may be replaced at any time.
    url_file: PathBuf,
    template: Template,
    endpoint: Endpoint,
    metrics: Metrics,
}

/// Both, if somebody is to be told.
///
/// # Errors
/// When the file of the address can't be read or holds none, or the template is none of JSON.
pub fn notifier(config: &Notifications, metrics: &Metrics) -> Result<Option<(Notifier, Worker)>, Fault> {
    let Some(url_file) = &config.webhook_url_file else {
        let Some(template) = &config.template_file else { return Ok(None) };
        let template = template.display();
        let why = "nobody is told: set `notifications.webhookUrlFile`, too";
        return Err(Fault::usage(anyhow!(
            "the configuration is refused: notifications.templateFile: {template}: {why}"
        )));
    };
    let template = Template::read(config.template_file.as_deref()).map_err(Fault::usage)?;
    let _address = endpoint::read(url_file).map_err(Fault::usage)?;
    let endpoint = Endpoint::new().context("no certificates are found to trust a webhook by")?;
    let (sender, queue) = mpsc::channel(WAITING);
    let notifier = Notifier { queue: sender, metrics: metrics.clone() };
    let worker = Worker { queue, url_file: url_file.clone(), template, endpoint, metrics: metrics.clone() };
    Ok(Some((notifier, worker)))
}

impl Observer for Notifier {
    fn observe(&self, at: Timestamp, event: &Progress) {
        if let Some(message) = Message::of(at, event)
            && self.queue.try_send(message).is_err()
        {
            self.metrics.notified(Told::Dropped);
            debug!("a notification was dropped: too many wait");
        }
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

impl Worker {
    /// Sends what is queued, until the notifier is dropped and the queue is empty.
    pub async fn run(mut self) {
        while let Some(message) = self.queue.recv().await {
            let told = match self.send(&message).await {
                Ok(()) => Told::Sent,
                Err(why) => {
                    warn!(kind = message.kind.as_str(), why, "a notification was not sent");
                    Told::Failed
                }
            };
            self.metrics.notified(told);
        }
    }

    /// Tries it a few times. Why it failed never holds the address.
    async fn send(&self, message: &Message) -> Result<(), String> {
        let body = self.template.render(message)?;
        let mut wait = FIRST_WAIT;
        for last in (0..TRIES).map(|tried| tried + 1 == TRIES) {
            let address = endpoint::read(&self.url_file).map_err(|error| format!("{error:#}"))?;
            let (why, asked) = match self.endpoint.post(&address, body.clone()).await {
                Answer::Taken => return Ok(()),
                Answer::Refused(why) => return Err(why),
                Answer::MayPass(why, asked) => (why, asked),
            };
            if last {
                return Err(why);
            }
            sleep(asked.unwrap_or(wait).min(LONGEST_WAIT)).await;
            wait = wait.saturating_mul(2);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
