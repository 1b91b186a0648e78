//! One queue: what its messages go through.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    ACCOUNT, REGION, Shared,
    protocol::{Action, Call, Change, Refusal, Wanted},
};
use crate::wait::{PATIENCE, until};

/// For how long a received message is hidden where the receiver says nothing.
const HIDDEN_FOR: Duration = Duration::from_secs(30);

/// A queue, as whoever sends to it sees it.
#[derive(Clone)]
pub struct Queue {
    name: String,
    shared: Arc<Shared>,
}

/// Something that happened to a message, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What.
    pub what: Happened,
    /// When, by the machine's clock, which is the API server's too.
    pub at: Timestamp,
}

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It can be read.
    Sent,
    /// It was given to a receiver.
    Received,
    /// It stays hidden for so long.
    Extended(Duration),
    /// Its receiver has given it back.
    Returned,
    /// It is no more.
    Deleted,
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Queue").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(name: &str, shared: Arc<Shared>) -> Self {
        Self { name: name.to_owned(), shared }
    }

    /// Its URL, as its owner copies it from AWS.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.name)
    }

    /// Sends one message, and returns its ID.
    pub fn send(&self, body: impl ToString) -> String {
        self.send_all([body]).remove(0)
    }

    /// Sends messages that can all be read at once, and returns their IDs.
    pub fn send_all(&self, bodies: impl IntoIterator<Item = impl ToString>) -> Vec<String> {
        let bodies = bodies.into_iter().map(|body| body.to_string());
        let ids = self.of(|messages| bodies.map(|body| messages.add(body, None)).collect());
        self.shared.changed();
        ids
    }

    /// Sends a message that has been waiting since `sent`, as while nobody read the queue.
    pub fn send_dated(&self, body: &impl ToString, sent: Timestamp) -> String {
        let id = self.of(|messages| messages.add(body.to_string(), Some(sent)));
        self.shared.changed();
        id
    }

    /// Gives a message to so many more receivers, whoever has it already: SQS promises once at least.
    pub fn deliver_again(&self, id: &str, times: u32) {
        self.of(|messages| messages.find(id).copies += times);
        self.shared.changed();
    }

    /// What happened to a message, in order.
    #[must_use]
    pub fn story(&self, id: &str) -> Vec<Moment> {
        self.of(|messages| messages.find(id).story.clone())
    }

    /// When this happened to a message first.
    #[must_use]
    pub fn when(&self, id: &str, wanted: impl Fn(Happened) -> bool) -> Option<Timestamp> {
        self.story(id).into_iter().find(|moment| wanted(moment.what)).map(|moment| moment.at)
    }

    /// How often a message was given to a receiver.
    #[must_use]
    pub fn received(&self, id: &str) -> usize {
        self.story(id).iter().filter(|moment| moment.what == Happened::Received).count()
    }

    /// Waits until these messages are deleted.
    ///
    /// # Panics
    /// If they are not.
    pub async fn deleted(&self, ids: &[String], patience: Duration) {
        until("the messages to be deleted", patience, || async {
            let left: Vec<_> = ids.iter().filter(|id| self.of(|messages| !messages.find(id).deleted())).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{} are left, the first: {:?}", left.len(), left[0])) }
        })
        .await;
    }

    /// Waits until this happened to a message.
    ///
    /// # Panics
    /// If it does not happen.
    pub async fn happened(&self, id: &str, what: &str, wanted: impl Fn(Happened) -> bool) {
        until(&format!("the message to be {what}"), PATIENCE, || async {
            self.when(id, &wanted).map(drop).ok_or_else(|| format!("{:?}", self.story(id)))
        })
        .await;
    }

    fn of<T>(&self, ask: impl FnOnce(&mut Messages) -> T) -> T {
        self.shared.of(&self.name, ask)
    }
}

pub(super) fn url(name: &str) -> String {
    format!("https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}")
}

/// The messages of a queue, in the order in which they were sent, those that are deleted included.
#[derive(Debug, Default)]
pub(super) struct Messages {
    all: Vec<Message>,
    receipts: u64,
}

#[derive(Debug)]
struct Message {
    id: String,
    body: String,
    hidden_until: Instant,
    /// The last one that was given out; the others are worth nothing.
    receipt: Option<String>,
    copies: u32,
    story: Vec<Moment>,
}

impl Messages {
    fn add(&mut self, body: String, sent: Option<Timestamp>) -> String {
        let id = format!("{:08x}-0000-4000-8000-000000000000", self.all.len());
        let mut message =
            Message { id: id.clone(), body, hidden_until: Instant::now(), receipt: None, copies: 0, story: Vec::new() };
        message.note(Happened::Sent);
        message.story[0].at = sent.unwrap_or(message.story[0].at);
        self.all.push(message);
        id
    }

    fn find(&mut self, id: &str) -> &mut Message {
        self.all.iter_mut().find(|message| message.id == id).expect("it was sent")
    }

    /// Gives out what can be read.
    pub(super) fn take(&mut self, wanted: &Wanted) -> Option<Value> {
        let now = Instant::now();
        let readable = self.all.iter_mut().filter(|message| message.is_readable(now));
        let given: Vec<_> = readable
            .take(wanted.most)
            .map(|message| {
                self.receipts += 1;
                message.give(format!("receipt-{}-{}", self.receipts, message.id), wanted, now)
            })
            .collect();
        (!given.is_empty()).then(|| json!({"Messages": given}))
    }

    /// When the next hidden message can be read again.
    pub(super) fn next_readable(&self) -> Option<Instant> {
        let hidden = self.all.iter().filter(|message| !message.deleted());
        hidden.map(|message| message.hidden_until).min()
    }

    /// Deletes messages, or hides them for longer or shorter.
    pub(super) fn change(&mut self, call: &Call) -> Result<Value, Refusal> {
        let changes = call.changes()?;
        if let ([change], false) = (&changes[..], call.action.is_batch()) {
            return self.change_one(call.action, change).map(|()| json!({}));
        }
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for change in &changes {
            match self.change_one(call.action, change) {
                Ok(()) => done.push(json!({"Id": change.id})),
                Err(refusal) => failed.push(refusal.entry(&change.id)),
            }
        }
        Ok(json!({"Successful": done, "Failed": failed}))
    }

    pub(super) fn attributes(&self, call: &Call, queue: &str) -> Value {
        let left = self.all.iter().filter(|message| !message.deleted());
        let now = Instant::now();
        let (readable, hidden): (Vec<_>, Vec<_>) = left.partition(|message| message.hidden_until <= now);
        let all = [
            ("QueueArn", format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}")),
            ("ApproximateNumberOfMessages", readable.len().to_string()),
            ("ApproximateNumberOfMessagesNotVisible", hidden.len().to_string()),
            ("VisibilityTimeout", HIDDEN_FOR.as_secs().to_string()),
        ];
        let names = call.names(&["AttributeNames"]);
        json!({"Attributes": chosen(&names, all)})
    }

    fn change_one(&mut self, action: Action, change: &Change) -> Result<(), Refusal> {
        let id = change.receipt.strip_prefix("receipt-").and_then(|rest| rest.split_once('-')).map(|(_, id)| id);
        let message = self.all.iter_mut().find(|message| Some(&*message.id) == id).ok_or_else(Refusal::receipt)?;
        let current = message.receipt.as_ref() == Some(&change.receipt);
        match change.hidden_for {
            // An old receipt: it succeeds, and nothing is deleted.
            None => {
                if current && !message.deleted() {
                    message.note(Happened::Deleted);
                }
                debug_assert!(Action::DeleteMessage.is_also(action), "only a deletion says nothing of visibility");
            }
            Some(hidden_for) => {
                let now = Instant::now();
                if !current || message.deleted() || message.hidden_until <= now {
                    return Err(Refusal::not_in_flight());
                }
                message.hidden_until = now + hidden_for;
                let returned = hidden_for.is_zero();
                message.note(if returned { Happened::Returned } else { Happened::Extended(hidden_for) });
            }
        }
        Ok(())
    }
}

impl Message {
    #[expect(clippy::disallowed_methods, reason = "compared with the API server's clock, which is this machine's")]
    fn note(&mut self, what: Happened) {
        self.story.push(Moment { what, at: Timestamp::now() });
    }

    fn deleted(&self) -> bool {
        self.story.last().is_some_and(|moment| moment.what == Happened::Deleted)
    }

    fn is_readable(&self, now: Instant) -> bool {
        !self.deleted() && (self.hidden_until <= now || self.copies > 0)
    }

    fn give(&mut self, receipt: String, wanted: &Wanted, now: Instant) -> Value {
        self.copies = self.copies.saturating_sub(u32::from(self.hidden_until > now));
        self.hidden_until = now + wanted.hidden_for.unwrap_or(HIDDEN_FOR);
        self.note(Happened::Received);
        let received = self.story.iter().filter(|moment| moment.what == Happened::Received);
        let millis = |at: Timestamp| at.as_millisecond().to_string();
        let first = received.clone().map(|moment| moment.at).next().unwrap_or_default();
        let attributes = [
            ("SenderId", "AIDATEST".to_owned()),
            ("SentTimestamp", millis(self.story[0].at)),
            ("ApproximateReceiveCount", received.count().to_string()),
            ("ApproximateFirstReceiveTimestamp", millis(first)),
        ];
        let mut given = json!({"MessageId": self.id, "ReceiptHandle": receipt, "Body": self.body});
        let attributes = chosen(&wanted.attributes, attributes);
        if attributes.as_object().is_some_and(|attributes| !attributes.is_empty()) {
            given["Attributes"] = attributes;
        }
        self.receipt = Some(receipt);
        given
    }
}

/// Those attributes that were asked for.
fn chosen<const N: usize>(names: &[String], all: [(&str, String); N]) -> Value {
    let wanted = |name: &str| names.iter().any(|wanted| wanted == "All" || wanted == name);
    Value::Object(
        all.into_iter().filter(|(name, _)| wanted(name)).map(|(name, value)| (name.into(), value.into())).collect(),
    )
}
