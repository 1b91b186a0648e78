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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use spot_core::ports::Observer;
use spot_core::progress::Progress;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{debug, warn};

use self::endpoint::{Address, Answer, Endpoint};
use self::message::Message;
use self::template::Template;
use crate::config::Notifications;
use crate::feature::Feature;
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
    audience: Audience,
    queue: mpsc::Sender<Message>,
    metrics: Metrics,
    saved: Saved,
}

/// How much less an hour of the nodes that the last run retired costs on spot.
pub type Saved = Box<dyn Fn() -> f64 + Send + Sync>;

/// Sends what the notifier queued.
#[derive(Debug)]
pub struct Worker {
    audience: Audience,
    queue: mpsc::Receiver<Message>,
    metrics: Metrics,
}

/// Who is told now, if anybody is; all clones are one.
#[derive(Clone, Debug)]
pub struct Audience(Arc<Mutex<Option<Arc<Listener>>>>);

/// Somebody who is told.
#[derive(Debug)]
pub struct Listener {
    /// Read before each message: the secret may be replaced at any time.
    url_file: PathBuf,
    template: Template,
    endpoint: Endpoint,
}

/// What tells somebody, if there is somebody, and who that is.
#[must_use]
pub fn notifier(listener: Option<Listener>, metrics: &Metrics, saved: Saved) -> (Notifier, Worker, Audience) {
    let audience = Audience(Arc::new(Mutex::new(listener.map(Arc::new))));
    let (sender, queue) = mpsc::channel(WAITING);
    let notifier = Notifier { audience: audience.clone(), queue: sender, metrics: metrics.clone(), saved };
    let worker = Worker { audience: audience.clone(), queue, metrics: metrics.clone() };
    (notifier, worker, audience)
}

impl Listener {
    /// The one of the configuration, if somebody is to be told.
    ///
    /// # Errors
    /// When the file of the address can't be read or holds none, or the template is none of JSON.
    pub fn of(config: &Notifications) -> anyhow::Result<Option<Self>> {
        let Some(url_file) = &config.webhook_url_file else {
            let Some(template) = &config.template_file else { return Ok(None) };
            let template = template.display();
            let why = "nobody is told: set `notifications.webhookUrlFile`, too";
            return Err(anyhow!("the configuration is refused: notifications.templateFile: {template}: {why}"));
        };
        let template = Template::read(config.template_file.as_deref())?;
        let _address = endpoint::read(url_file)?;
        let endpoint = Endpoint::new().context("no certificates are found to trust a webhook by")?;
        Ok(Some(Self { url_file: url_file.clone(), template, endpoint }))
    }
}

impl Audience {
    /// Tells another from the next message on, or nobody.
    pub fn renew(&self, listener: Option<Listener>) {
        *self.lock() = listener.map(Arc::new);
    }

    fn now(&self) -> Option<Arc<Listener>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Listener>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notifier {
    /// Tells that the process goes on without this part.
    pub fn without(&self, at: Timestamp, feature: Feature, why: String) {
        self.queue(Message::without(at, feature, why));
    }

    fn queue(&self, message: Message) {
        if self.audience.now().is_some() && self.queue.try_send(message).is_err() {
            self.metrics.notified(Told::Dropped);
            debug!("a notification was dropped: too many wait");
        }
    }
}

impl Observer for Notifier {
    fn observe(&self, at: Timestamp, event: &Progress) {
        if let Some(message) = Message::of(at, event, &self.saved) {
            self.queue(message);
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
            let Some(listener) = self.audience.now() else {
                self.metrics.notified(Told::Dropped);
                continue;
            };
            let told = match listener.tell(&message).await {
                Ok(()) => Told::Sent,
                Err(why) => {
                    warn!(kind = message.kind.as_str(), why, "a notification was not sent");
                    Told::Failed
                }
            };
            self.metrics.notified(told);
        }
    }
}

impl Listener {
    /// As it is now. A file system that hangs holds up the messages, and nothing else.
    async fn address(&self) -> Result<Address, String> {
        let file = self.url_file.clone();
        let read = spawn_blocking(move || endpoint::read(&file)).await.map_err(|error| error.to_string())?;
        read.map_err(|error| format!("{error:#}"))
    }

    /// Tries it a few times. Why it failed never holds the address.
    async fn tell(&self, message: &Message) -> Result<(), String> {
        let body = self.template.render(message)?;
        let mut wait = FIRST_WAIT;
        for last in (0..TRIES).map(|tried| tried + 1 == TRIES) {
            let address = self.address().await?;
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
