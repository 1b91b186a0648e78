//! The queue.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::wire::{Answer, Refusal, Request};

/// A message.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    id: String,
    body: String,
    sent: i64,
    /// From when on it can be received.
    visible: Instant,
    /// When it was received last.
    received: Option<Instant>,
    /// How often.
    times: u32,
}

/// What is in the queue.
#[derive(Debug)]
pub(crate) struct Messages {
    /// Its URL; none: it does not exist.
    pub(crate) url: Option<String>,
    /// Its own word for where it is.
    pub(crate) arn: String,
    stored: Vec<Stored>,
    sent: u32,
    /// The bodies of those that were deleted.
    pub(crate) deleted: Vec<String>,
    /// How old a message is when it can first be received.
    pub(crate) age: Duration,
    /// For how long a message can be kept, since it was received.
    pub(crate) kept: Duration,
    began: Instant,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            url: Some(crate::support::URL.to_owned()),
            arn: "arn:aws:sqs:eu-west-1:123456789012:notices".to_owned(),
            stored: Vec::new(),
            sent: 0,
            deleted: Vec::new(),
            age: Duration::ZERO,
            kept: Duration::from_hours(12),
            began: Instant::now(),
        }
    }
}

/// What a receiver wants.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) queue: String,
    pub(crate) wait: Duration,
    most: usize,
    visibility: Duration,
    with_sent: bool,
}

fn invalid(words: impl Into<String>) -> Refusal {
    Refusal::new(400, "InvalidParameterValue", words)
}

fn number(params: &Value, name: &str, range: std::ops::RangeInclusive<u64>, default: u64) -> Result<u64, Refusal> {
    let value = if params[name].is_null() { default } else { params[name].as_u64().unwrap_or(u64::MAX) };
    if range.contains(&value) {
        return Ok(value);
    }
    Err(invalid(format!("Value {value} for parameter {name} is invalid. Reason: Must be in {range:?}, if provided.")))
}

impl Receive {
    pub(crate) fn read(params: &Value) -> Result<Self, Refusal> {
        let names = params["MessageSystemAttributeNames"].as_array();
        Ok(Self {
            queue: params["QueueUrl"].as_str().unwrap_or_default().to_owned(),
            wait: Duration::from_secs(number(params, "WaitTimeSeconds", 0..=20, 0)?),
            most: usize::try_from(number(params, "MaxNumberOfMessages", 1..=10, 1)?).unwrap(),
            visibility: Duration::from_secs(number(params, "VisibilityTimeout", 0..=43_200, 30)?),
            with_sent: names.is_some_and(|names| names.contains(&json!("SentTimestamp"))),
        })
    }
}

impl Messages {
    pub(crate) fn send(&mut self, body: &str) -> String {
        self.sent += 1;
        let id = format!("message-{}", self.sent);
        let sent = crate::support::noon() + self.began.elapsed() - self.age;
        self.stored.push(Stored {
            id: id.clone(),
            body: body.to_owned(),
            sent: sent.as_millisecond(),
            visible: Instant::now(),
            received: None,
            times: 0,
        });
        id
    }

    /// How many are there, received or not.
    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    /// Those that could be received now.
    pub(crate) fn visible(&self) -> usize {
        let now = Instant::now();
        self.stored.iter().filter(|one| one.visible <= now).count()
    }

    /// How often messages were received that are there.
    pub(crate) fn received(&self) -> u32 {
        self.stored.iter().map(|one| one.times).sum()
    }

    /// When the first of those is visible that are not.
    pub(crate) fn next_visible(&self) -> Option<Instant> {
        self.stored.iter().map(|one| one.visible).min()
    }

    pub(crate) fn find(&self, url: &str) -> Result<(), Refusal> {
        if self.url.as_deref() == Some(url) {
            return Ok(());
        }
        Err(Refusal::new(400, "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist."))
    }

    pub(crate) fn receive(&mut self, wanted: &Receive) -> Vec<Value> {
        let now = Instant::now();
        let there = self.stored.iter_mut().filter(|one| one.visible <= now).take(wanted.most);
        let received = there.map(|one| {
            one.times += 1;
            one.received = Some(now);
            one.visible = now + wanted.visibility;
            let receipt = format!("{}#{}", one.id, one.times);
            let mut message = json!({ "MessageId": one.id, "ReceiptHandle": receipt, "Body": one.body });
            if wanted.with_sent {
                message["Attributes"] = json!({ "SentTimestamp": one.sent.to_string() });
            }
            message
        });
        received.collect()
    }

    pub(crate) fn answer(&mut self, request: &Request) -> Result<Answer, Refusal> {
        self.find(request.get("QueueUrl"))?;
        let empty = || Answer::ok("{}".to_owned());
        match request.name.as_str() {
            "GetQueueAttributes" => Ok(Answer::ok(json!({ "Attributes": { "QueueArn": self.arn } }).to_string())),
            "DeleteMessage" => {
                let (at, is_newest) = self.by_receipt(request.get("ReceiptHandle"))?;
                // By an old receipt it is as if it were deleted, and it comes back.
                if let Some(at) = at.filter(|_| is_newest) {
                    let deleted = self.stored.remove(at);
                    self.deleted.push(deleted.body);
                }
                Ok(empty())
            }
            "ChangeMessageVisibility" => {
                let timeout = number(&request.params, "VisibilityTimeout", 0..=43_200, u64::MAX)?;
                let (at, is_newest) = self.by_receipt(request.get("ReceiptHandle"))?;
                let not_in_flight =
                    || Refusal::new(400, "AWS.SimpleQueueService.MessageNotInflight", "The message is not in flight.");
                let now = Instant::now();
                let message = &mut self.stored[at.ok_or_else(not_in_flight)?];
                if !is_newest {
                    let words = "Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.";
                    return Err(invalid(words));
                }
                if message.visible <= now {
                    return Err(not_in_flight());
                }
                let until = now + Duration::from_secs(timeout);
                if until > message.received.unwrap() + self.kept {
                    return Err(invalid(format!(
                        "Value {timeout} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for \
                         the message is beyond the limit [43200 seconds]."
                    )));
                }
                message.visible = until;
                Ok(empty())
            }
            other => panic!("no call of SQS: {other}"),
        }
    }

    /// Which message, if it is still there, and whether it was not received again since.
    fn by_receipt(&self, receipt: &str) -> Result<(Option<usize>, bool), Refusal> {
        let read = receipt.split_once('#').and_then(|(id, times)| Some((id, times.parse::<u32>().ok()?)));
        let Some((id, times)) = read.filter(|(id, _)| id.starts_with("message-")) else {
            let words = format!("The input receipt handle \"{receipt}\" is not a valid receipt handle.");
            return Err(Refusal::new(404, "ReceiptHandleIsInvalid", words));
        };
        let at = self.stored.iter().position(|one| one.id == id);
        Ok((at, at.is_some_and(|at| self.stored[at].times == times)))
    }
}
