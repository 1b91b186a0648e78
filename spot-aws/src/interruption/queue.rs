//! The notices of an SQS queue.
//!
//! ```text
//! receive ─► read ─┬─► notice ─► the core: extend … ─► settle ─► hook completed ─► deleted · left · given back
//!                  └─► of no use: counted, told, deleted
//! ```
//!
//! A message is deleted only after it had its effect; one that names several machines, when each of them was settled.
//! What was received and is not kept comes back by itself after [`VISIBILITY`]: a future may be dropped at any time.

mod address;
mod open;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::config::StalledStreamProtectionConfig;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::{self, MessageSystemAttributeName};
use futures::future::{self, Either};
use jiff::Timestamp;
use spot_core::claim::InstanceId;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::interruption::{Announcement, Delivery, Handled, Ignored, Notice, Source, Ticket, Told};
use spot_core::ports::{Clock, Instant, NoticeSource, Observer};
use spot_core::progress::Progress;

use self::address::Address;
use self::open::Open;
use crate::ProviderId;
use crate::action::Action;
use crate::client::{self, Api, CallObserver};
use crate::error::{CallError, Kind};
use crate::interruption::hook::{self, Held, Hooks};
use crate::interruption::message::{Content, Home, HookName, Message, Transition, Unusable};
use crate::lock;

/// How long what was received is kept from others, unless it is extended.
pub const VISIBILITY: Duration = Duration::from_secs(15);
/// The longest that is waited for messages: the most that SQS offers.
const WAIT: Duration = Duration::from_secs(20);
/// How much shorter each receiver in turn waits. Not all of them begin anew at once: an endpoint that swallowed the
/// requests of some may answer the next.
const STEP: Duration = Duration::from_secs(4);
/// How long is waited while it is not known whether the queue answers: soon after it does again, one attempt succeeds.
const PROBE: Duration = Duration::from_secs(1);
/// How much longer than the wait an attempt may take.
const SLACK: Duration = Duration::from_secs(5);
/// How many wait side by side: while one has its messages read, others go on receiving.
const RECEIVERS: usize = 4;
/// The most messages in one answer, as SQS has it.
const MESSAGES: i32 = 10;
/// How long a message of no use may take to be deleted; else it comes again.
const DELETE: Duration = Duration::from_secs(5);
/// The longest that a message is left alone. SQS does not let it be away for more than twelve hours.
const AWAY: Duration = Duration::from_hours(11);

/// Which queue, and what of it is ours to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Its URL.
    pub url: String,
    /// The lifecycle hooks that get heartbeats, and are completed. Of others, a launch is ignored, and a termination has
    /// its node drained without an answer.
    pub complete_lifecycle_hooks: BTreeSet<String>,
    /// How long before a scheduled change its message is wanted again.
    pub scheduled_change_lead: Duration,
}

/// How AWS is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The region; none: as environment or profile say.
    pub region: Option<String>,
    /// Where all AWS APIs are, if not where AWS has them.
    pub endpoint_url: Option<String>,
    /// Whether the instance metadata service may be asked for region and credentials.
    pub instance_metadata: bool,
}

/// An SQS queue into which EventBridge, or Auto Scaling groups themselves, put what happens to machines.
pub struct Queue {
    pub(crate) api: Arc<Api>,
    pub(crate) url: String,
    pub(crate) home: Home,
    pub(crate) named: BTreeSet<String>,
    lead: Duration,
    observer: Arc<dyn Observer>,
    hooks: Hooks,
    /// Messages that the core has, by their IDs.
    open: Mutex<BTreeMap<Arc<str>, Open>>,
    /// Receipts of messages that are of no use.
    useless: Mutex<Vec<String>>,
    /// Whether the last attempt was answered.
    answers: AtomicBool,
    turn: AtomicUsize,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Queue {
    /// One with region and credentials as the provider `aws` finds them, for a process without that provider. No AWS API
    /// is called.
    ///
    /// # Errors
    /// When no region is found, the URL is none of a queue, or the queue is in another region.
    pub async fn connect(
        settings: QueueSettings,
        connection: &Connection,
        clock: Arc<dyn Clock>,
        calls: Option<CallObserver>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, PortError> {
        let Connection { region, endpoint_url, instance_metadata } = connection;
        let config = client::discover(region.clone(), endpoint_url.as_deref(), *instance_metadata, &clock).await;
        let config =
            config.map_err(|error| PortError::new(error.class, "set `cloudProvider.aws.region`").caused_by(error))?;
        Self::new(settings, &config, clock, calls, observer)
    }

    /// One with region, credentials, endpoint and HTTP client of `config`.
    ///
    /// # Errors
    /// When the URL is none of a queue, or the queue is in another region.
    pub fn new(
        settings: QueueSettings,
        config: &SdkConfig,
        clock: Arc<dyn Clock>,
        calls: Option<CallObserver>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, PortError> {
        Self::over(settings, Arc::new(Api::new(config, clock, calls)), observer)
    }

    /// One with the clients of somebody else.
    pub(crate) fn over(settings: QueueSettings, api: Arc<Api>, observer: Arc<dyn Observer>) -> Result<Self, PortError> {
        let QueueSettings { url, complete_lifecycle_hooks, scheduled_change_lead } = settings;
        let refused = |what: String| PortError::new(ErrorClass::Permanent, what);
        let Some(Address { region, account }) = Address::parse(&url) else {
            return Err(refused(format!("{url:?} is not the URL of a queue: look at `interruption.queueUrl`")));
        };
        let ours = api.sqs.config().region().map(ToString::to_string);
        if let (Some(region), Some(ours)) = (region, &ours)
            && region != ours
        {
            return Err(elsewhere(&url, region, ours));
        }
        let home = Home { region: ours, account: account.map(str::to_owned) };
        Ok(Self {
            api,
            home,
            url,
            named: complete_lifecycle_hooks,
            lead: scheduled_change_lead,
            observer,
            hooks: Hooks::default(),
            open: Mutex::default(),
            useless: Mutex::default(),
            answers: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
        })
    }

    /// Waits for messages, once.
    async fn receive(&self) -> Result<Vec<types::Message>, CallError> {
        let wait = if self.answers.load(Ordering::Relaxed) {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % RECEIVERS;
            WAIT.saturating_sub(STEP.saturating_mul(u32::try_from(turn).unwrap_or_default()))
        } else {
            PROBE
        };
        // One attempt: that it failed is to be known, and whoever wants more messages asks again.
        let attempt = TimeoutConfig::builder().operation_attempt_timeout(wait + SLACK).build();
        let once = aws_sdk_sqs::config::Builder::new()
            .timeout_config(attempt)
            .retry_config(RetryConfig::disabled())
            // Silence is what an empty queue answers.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        let request = self
            .api
            .sqs
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(MESSAGES)
            .wait_time_seconds(seconds(wait))
            .visibility_timeout(seconds(VISIBILITY))
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .customize()
            .config_override(once);
        let by = self.api.clock.instant() + wait + SLACK;
        let answer = self.api.call(Action::ReceiveMessage, by, request.send()).await;
        self.answers.store(answer.is_ok(), Ordering::Relaxed);
        Ok(answer?.messages.unwrap_or_default())
    }

    /// Reads a message; what is of no use is noted as that.
    async fn take_in(&self, message: types::Message) -> Vec<Delivery> {
        let types::Message { message_id, receipt_handle: Some(receipt), body, attributes, .. } = message else {
            // Nothing can be done about it, not even that.
            self.tell(Unusable { why: Ignored::Unreadable, what: "a message without a receipt".to_owned() });
            return Vec::new();
        };
        let now = self.api.clock.now();
        let sent = attributes.as_ref().and_then(|all| all.get(&MessageSystemAttributeName::SentTimestamp));
        let sent = sent.and_then(|sent| Timestamp::from_millisecond(sent.parse().ok()?).ok());
        let sent = |at: Timestamp| sent.unwrap_or(at).min(now);
        let read = Message::parse(body.as_deref().unwrap_or_default(), &self.home);
        let (instances, announcement, held, at) = match read {
            Ok(Message { at, content: Content::Announced(instances, announcement) }) => {
                (instances, announcement, None, at)
            }
            Ok(Message { at, content: Content::Waiting(action) }) => {
                let named = self.named.contains(&action.hook.name);
                if !named && action.transition == Transition::Launch {
                    let what = format!("launch action of hook {:?}, which is not ours to complete", action.hook.name);
                    self.tell(Unusable { why: Ignored::NoAction, what });
                    lock(&self.useless).push(receipt);
                    return Vec::new();
                }
                let heartbeat = self.hooks.heartbeat(&self.api, &action.hook).await;
                let until = at.checked_add(hook::longest(heartbeat, named)).unwrap_or(Timestamp::MAX);
                let announcement = match action.transition {
                    Transition::Launch => Announcement::LaunchAction { until },
                    Transition::Terminate => Announcement::TerminateAction { until },
                };
                let instances = vec![action.instance.clone()];
                let held = named.then(|| Held { action, heartbeat, sent: sent(at), last: None, over: false });
                (instances, announcement, held, at)
            }
            Err(unusable) => {
                self.tell(unusable);
                lock(&self.useless).push(receipt);
                return Vec::new();
            }
        };
        let sent = sent(at);
        let id: Arc<str> = message_id.unwrap_or_else(|| receipt.clone()).into();
        let receipt: Arc<str> = receipt.into();
        let several = instances.len() > 1;
        let mut open = lock(&self.open);
        let instant = self.api.clock.instant();
        open.retain(|_, open| !open.is_forgotten(instant));
        let wanted = open.entry(Arc::clone(&id)).or_default().delivered(instances, held, instant);
        let deliver = |instance: InstanceId| {
            // To the core each notice is a message of its own.
            let message = if several { format!("{id} {instance}").into() } else { Arc::clone(&id) };
            let ticket = Ticket { message, receipt: Arc::clone(&receipt) };
            Delivery { notice: Notice { instance, announcement: announcement.clone(), sent }, ticket }
        };
        wanted.into_iter().map(deliver).collect()
    }

    /// Tells of a message that is of no use.
    fn tell(&self, Unusable { why, what }: Unusable) {
        let told = Told::Ignored { source: Source::Queue, why, what };
        self.observer.observe(self.api.clock.now(), &Progress::Interruption(told));
    }

    /// Deletes what is of no use. What is not deleted comes again.
    async fn delete_useless(&self) {
        let by = self.api.clock.instant() + DELETE;
        loop {
            let batch: Vec<_> = {
                let mut useless = lock(&self.useless);
                let some = useless.len().min(MESSAGES as usize);
                useless.drain(..some).collect()
            };
            if batch.is_empty() {
                return;
            }
            for answer in future::join_all(batch.iter().map(|receipt| self.delete(receipt, by))).await {
                if let Err(error) = answer {
                    tracing::debug!(%error, "a message of no use was not deleted: it comes again");
                }
            }
        }
    }

    async fn delete(&self, receipt: &str, by: Instant) -> Result<(), CallError> {
        let request = self.api.sqs.delete_message().queue_url(&self.url).receipt_handle(receipt);
        unless_unknown(self.api.call(Action::DeleteMessage, by, request.send()).await.map(|_| ()))
    }

    /// Has a message come again after so long, unless it is extended or settled.
    async fn away(&self, receipt: &str, after: Duration, by: Instant) -> Result<(), CallError> {
        let request = self.api.sqs.change_message_visibility().queue_url(&self.url).receipt_handle(receipt);
        let request = request.visibility_timeout(seconds(after));
        self.api.call(Action::ChangeMessageVisibility, by, request.send()).await.map(|_| ())
    }

    /// Gives a heartbeat to the hook that waits for a message's answer, if one does and it is time.
    async fn beat(&self, message: &str, by: Instant) -> Result<(), CallError> {
        let now = self.api.clock.instant();
        let due = {
            let mut open = lock(&self.open);
            let Some(open) = open.get_mut(message) else { return Ok(()) };
            open.touched = now;
            open.held.as_ref().filter(|held| held.is_due(now)).map(|held| held.action.clone())
        };
        let Some(action) = due else { return Ok(()) };
        let waits = self.api.beat(&action, by).await?;
        if let Some(held) = lock(&self.open).get_mut(message).and_then(|open| open.held.as_mut()) {
            held.last = Some(now);
            held.over = !waits && !held.may_begin(self.api.clock.now());
        }
        Ok(())
    }

    /// How long a message is left alone that is wanted later.
    fn later(&self, announcement: &Announcement) -> Duration {
        let Announcement::ScheduledChange { at } = announcement else { return VISIBILITY };
        let until = at.duration_since(self.api.clock.now());
        Duration::try_from(until).unwrap_or_default().saturating_sub(self.lead).clamp(VISIBILITY, AWAY)
    }
}

#[async_trait]
impl NoticeSource for Queue {
    fn kind(&self) -> Source {
        Source::Queue
    }

    fn receivers(&self) -> usize {
        RECEIVERS
    }

    fn instance_of(&self, provider_id: &str) -> Option<InstanceId> {
        // One that names no instance is nobody's of whom a queue could tell.
        Some(InstanceId::new(ProviderId::parse(provider_id).ok()?.instance_id()))
    }

    async fn next(&self) -> Result<Vec<Delivery>, PortError> {
        // What is of no use is deleted when nothing else is to be done: it never keeps a notice waiting.
        let (receive, delete) = (Box::pin(self.receive()), Box::pin(self.delete_useless()));
        let received = match future::select(receive, delete).await {
            Either::Left((received, _deleting)) => received,
            Either::Right(((), receive)) => receive.await,
        };
        let received = received.map_err(|error| self.explained(error))?;
        let read = future::join_all(received.into_iter().map(|message| self.take_in(message))).await;
        let deliveries = read.concat();
        if deliveries.is_empty() {
            self.delete_useless().await;
        }
        Ok(deliveries)
    }

    async fn extend(&self, delivery: &Delivery, by: Instant) -> Result<(), PortError> {
        let Ticket { message, receipt } = &delivery.ticket;
        let message = whole(message);
        let (kept, beaten) = future::join(self.away(receipt, VISIBILITY, by), self.beat(message, by)).await;
        beaten.map_err(|error| self.explained(error))?;
        kept.map_err(|error| match error.kind {
            // It is kept for somebody else by now, or was for twelve hours: it comes again.
            Kind::Refused if !is_missing(&error) => {
                PortError::new(ErrorClass::Transient, "the message is not kept for us any more").caused_by(error)
            }
            _ => self.explained(error),
        })
    }

    async fn settle(&self, delivery: &Delivery, handled: Handled, by: Instant) -> Result<(), PortError> {
        let Ticket { message, receipt } = &delivery.ticket;
        let message = whole(message);
        let (whole, held) = {
            let mut open = lock(&self.open);
            match open.get_mut(message) {
                Some(open) => (open.answered(&delivery.notice.instance, handled), open.held.clone()),
                None => (Some(handled), None),
            }
        };
        let settled = match whole {
            None => return Ok(()),
            Some(Handled::Done) => self.done(message, held.as_ref(), receipt, by).await,
            Some(Handled::Ignored) => self.delete(receipt, by).await,
            Some(Handled::Returned) => unless_unknown(self.away(receipt, Duration::ZERO, by).await),
            Some(Handled::Later) => {
                // Whoever waits for the answer is to wait until then.
                let away = self.away(receipt, self.later(&delivery.notice.announcement), by);
                let (away, beaten) = future::join(away, self.beat(message, by)).await;
                unless_unknown(away).and(beaten)
            }
        };
        settled.map_err(|error| self.explained(error))?;
        let mut open = lock(&self.open);
        if open.get(message).is_some_and(Open::is_done) {
            open.remove(message);
        }
        Ok(())
    }
}

impl Queue {
    /// Whoever waits for the answer gets it, then the message goes. One that may begin to wait is tried again when the
    /// message comes again.
    async fn done(&self, message: &str, held: Option<&Held>, receipt: &str, by: Instant) -> Result<(), CallError> {
        if let Some(held) = held {
            match self.api.complete(&held.action, by).await {
                Ok(true) => {
                    if let Some(held) = lock(&self.open).get_mut(message).and_then(|open| open.held.as_mut()) {
                        held.over = true;
                    }
                }
                Ok(false) if held.may_begin(self.api.clock.now()) => {
                    return unless_unknown(self.away(receipt, VISIBILITY, by).await);
                }
                Ok(false) => tracing::debug!(hook = held.action.hook.name, "the hook did not wait any more"),
                // A hook of this name in a group that is not ours, perhaps: it would be denied for as long as the message
                // came again.
                Err(error) if error.kind == Kind::Denied => self.tell_unanswered(held, error),
                Err(error) => return Err(error),
            }
        }
        self.delete(receipt, by).await
    }

    /// Tells of a hook that waits on, though its message goes.
    fn tell_unanswered(&self, held: &Held, error: CallError) {
        let HookName { group, name } = &held.action.hook;
        let error = PortError::from(error);
        let what = format!("hook {name} of group {group} waits until its time is over: {}", chain(&error));
        let problem = Progress::Problem { node: None, class: error.class, what };
        self.observer.observe(self.api.clock.now(), &problem);
    }

    /// An error, with where to look.
    pub(crate) fn explained(&self, error: CallError) -> PortError {
        let missing = is_missing(&error);
        let error = PortError::from(error);
        if !missing {
            return error;
        }
        let region = self.home.region.as_deref().unwrap_or("none");
        let what = format!("there is no queue {} in region {region}: look at `interruption.queueUrl`", self.url);
        PortError::new(ErrorClass::Permanent, what).caused_by(error)
    }
}

pub(crate) fn elsewhere(url: &str, region: &str, ours: &str) -> PortError {
    let what = format!(
        "queue {url} is in region {region}, the machines are in {ours}: look at `interruption.queueUrl` and \
         `cloudProvider.aws.region`"
    );
    PortError::new(ErrorClass::Permanent, what)
}

fn is_missing(error: &CallError) -> bool {
    error.kind == Kind::Refused
        && matches!(
            error.code.as_str(),
            "QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue" | "InvalidAddress"
        )
}

/// A receipt that is not known any more has nothing to be settled.
pub(crate) fn unless_unknown(answer: Result<(), CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if is_receipt_unknown(&error) => Ok(()),
        answer => answer,
    }
}

fn is_receipt_unknown(error: &CallError) -> bool {
    let codes = ["ReceiptHandleIsInvalid", "AWS.SimpleQueueService.MessageNotInflight", "MessageNotInflight"];
    error.kind == Kind::Refused && (codes.contains(&error.code.as_str()) || error.words.contains("receipt handle"))
}

/// The ID of the message that a notice is of.
fn whole(message: &str) -> &str {
    message.split_once(' ').map_or(message, |(id, _instance)| id)
}

/// Whole seconds, as SQS counts.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
