//! What arrives in a queue, read: pure, bounded, and whatever it is, never a panic.
//!
//! Three notations are read: events of EventBridge, the notifications that an Auto Scaling group sends to the queue
//! itself, and either of them in the envelope of an SNS topic. What an answer rests on is read strictly (the form of an
//! instance ID, times, the source of an event); anything else may be as it likes.

mod detail;

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::Value;
use spot_core::claim::InstanceId;
use spot_core::interruption::{Announcement, Ignored, Reclaim};

use crate::ProviderId;

/// The longest body that is read: the most that SQS takes.
const LONGEST: usize = 1024 * 1024;
/// The most machines that one message is about. AWS Health names a hundred on a page.
const MACHINES: usize = 1000;
/// The longest name or token.
const NAME: usize = 2048;
/// How much of foreign text is repeated.
const QUOTED: usize = 80;
/// How long after its warning a machine is stopped or terminated.
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html>
const WARNING: Duration = Duration::from_mins(2);

const AUTO_SCALING: &str = "AWS Auto Scaling";

/// Where our machines are: whatever is of another region or account is foreign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The region; none: any.
    pub region: Option<String>,
    /// The account; none: any.
    pub account: Option<String>,
}

/// A message that can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// When it happened, by whoever tells it.
    pub at: Timestamp,
    /// What it is.
    pub content: Content,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The same of one machine or more.
    Announced(Vec<InstanceId>, Announcement),
    /// A group waits for an answer.
    Waiting(LifecycleAction),
}

/// A group launched a machine or terminates it, and waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleAction {
    /// The machine.
    pub instance: InstanceId,
    /// What happens to it.
    pub transition: Transition,
    /// Who waits.
    pub hook: HookName,
    /// What the group knows this wait by, if it says so.
    pub token: Option<String>,
}

/// What a group does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transition {
    /// It launched the machine.
    Launch,
    /// It terminates the machine.
    Terminate,
}

/// A lifecycle hook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookName {
    /// Its group.
    pub group: String,
    /// Its name in the group.
    pub name: String,
}

/// A message that can't be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Why.
    pub why: Ignored,
    /// What it was, in a few words.
    pub what: String,
}

impl Message {
    /// Reads a message's body.
    ///
    /// # Errors
    /// When nobody here has an answer to it.
    pub fn parse(body: &str, home: &Home) -> Result<Self, Unusable> {
        if body.len() > LONGEST {
            return Err(Unusable::new(Ignored::Unreadable, format!("a message of {} bytes", body.len())));
        }
        let read = json(body)?;
        // SNS puts what it was given into a message of its own.
        let read = match (text(&read, "Type"), text(&read, "Message")) {
            (Some("Notification"), Some(message)) => json(message)?,
            _ => read,
        };
        if let Some(kind) = text(&read, "detail-type") {
            return of_event(&read, kind, home);
        }
        if text(&read, "Service") == Some(AUTO_SCALING) || text(&read, "LifecycleTransition").is_some() {
            return of_group(&read, home);
        }
        let what = format!("neither an event nor a notification of a group: {}", quoted(body));
        Err(Unusable::new(if read.is_object() { Ignored::UnknownKind } else { Ignored::Unreadable }, what))
    }
}

impl Unusable {
    fn new(why: Ignored, what: impl Into<String>) -> Self {
        Self { why, what: what.into() }
    }

    fn unreadable(kind: &str, what: impl std::fmt::Display) -> Self {
        Self::new(Ignored::Unreadable, format!("{kind}: {what}"))
    }
}

/// An event as EventBridge passes it on.
fn of_event(event: &Value, kind: &str, home: &Home) -> Result<Message, Unusable> {
    let read: Read = match kind {
        "EC2 Spot Instance Interruption Warning" => detail::interruption,
        "EC2 Instance Rebalance Recommendation" => detail::rebalance,
        "EC2 Instance State-change Notification" => detail::state_change,
        "EC2 Instance-launch Lifecycle Action" => detail::launch,
        "EC2 Instance-terminate Lifecycle Action" => detail::terminate,
        "AWS Health Event" => detail::health,
        _ => return Err(Unusable::new(Ignored::UnknownKind, quoted(kind))),
    };
    // Only AWS can send events of such a source; anybody may send those of any other.
    let source = text(event, "source").unwrap_or_default();
    let expected = match kind {
        "AWS Health Event" => "aws.health",
        "EC2 Instance-launch Lifecycle Action" | "EC2 Instance-terminate Lifecycle Action" => "aws.autoscaling",
        _ => "aws.ec2",
    };
    if source != expected {
        return Err(Unusable::new(Ignored::Foreign, format!("{kind} from source {}", quoted(source))));
    }
    let detail = event.get("detail").unwrap_or(&Value::Null);
    // What AWS Health tells of one region or account may come by way of another.
    let region = text(detail, "eventRegion").or_else(|| text(event, "region"));
    let account = text(detail, "affectedAccount").or_else(|| text(event, "account"));
    home.owns(kind, region, account)?;
    let at = time(kind, text(event, "time"))?;
    Ok(Message { at, content: read(kind, detail, at)? })
}

type Read = fn(&str, &Value, Timestamp) -> Result<Content, Unusable>;

/// A notification that a group sends to the queue itself.
fn of_group(read: &Value, home: &Home) -> Result<Message, Unusable> {
    if text(read, "Event") == Some("autoscaling:TEST_NOTIFICATION") {
        return Err(Unusable::new(Ignored::NoAction, "test notification of a group"));
    }
    let kind = "notification of a group";
    home.owns(kind, None, text(read, "AccountId"))?;
    let transition = match text(read, "LifecycleTransition") {
        Some("autoscaling:EC2_INSTANCE_LAUNCHING") => Transition::Launch,
        Some("autoscaling:EC2_INSTANCE_TERMINATING") => Transition::Terminate,
        other => {
            let what = other.or_else(|| text(read, "Event")).unwrap_or_default();
            return Err(Unusable::new(Ignored::UnknownKind, format!("{kind}: {}", quoted(what))));
        }
    };
    let at = time(kind, text(read, "Time"))?;
    Ok(Message { at, content: detail::lifecycle(kind, read, transition)? })
}

impl Home {
    fn owns(&self, kind: &str, region: Option<&str>, account: Option<&str>) -> Result<(), Unusable> {
        let differs = |ours: &Option<String>, other: Option<&str>| {
            ours.as_deref().is_some_and(|ours| other.is_some_and(|other| other != ours))
        };
        if !differs(&self.region, region) && !differs(&self.account, account) {
            return Ok(());
        }
        let place = [region, account].into_iter().flatten().map(quoted).collect::<Vec<_>>().join(", ");
        Err(Unusable::new(Ignored::Foreign, format!("{kind} of {place}")))
    }
}

fn json(body: &str) -> Result<Value, Unusable> {
    serde_json::from_str(body)
        .map_err(|error| Unusable::new(Ignored::Unreadable, format!("no JSON ({error}): {}", quoted(body))))
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

/// A name that must be there.
fn name(kind: &str, value: &Value, key: &str) -> Result<String, Unusable> {
    match text(value, key) {
        Some(name) if !name.is_empty() && name.len() <= NAME => Ok(name.to_owned()),
        _ => Err(Unusable::unreadable(kind, format!("no {key}"))),
    }
}

fn instance(kind: &str, value: &Value, key: &str) -> Result<InstanceId, Unusable> {
    let id = text(value, key).unwrap_or_default();
    instance_id(id).ok_or_else(|| Unusable::unreadable(kind, format!("{key} {} is no instance ID", quoted(id))))
}

fn instance_id(text: &str) -> Option<InstanceId> {
    // The one place that knows the form.
    let id = ProviderId::parse(&format!("aws:////{text}")).ok()?;
    (id.instance_id() == text).then(|| InstanceId::new(text))
}

fn time(kind: &str, text: Option<&str>) -> Result<Timestamp, Unusable> {
    let text = text.unwrap_or_default();
    text.parse().map_err(|_no_time| Unusable::unreadable(kind, format!("time {} is none", quoted(text))))
}

/// A time as mail has it, which is how AWS Health writes it. Its own examples have the wrong day of the week.
fn mail_time(kind: &str, text: &str) -> Result<Timestamp, Unusable> {
    let parser = rfc2822::DateTimeParser::new().relaxed_weekday(true);
    parser.parse_timestamp(text).or_else(|_not_as_mail| time(kind, Some(text)))
}

/// When a machine that was warned of is taken.
fn taken(kind: &str, action: Reclaim, at: Timestamp) -> Result<Timestamp, Unusable> {
    match action {
        Reclaim::Terminate | Reclaim::Stop => {
            at.checked_add(WARNING).map_err(|_too_far| Unusable::unreadable(kind, format!("no time after {at}")))
        }
        // It begins at once.
        Reclaim::Hibernate => Ok(at),
    }
}

/// Foreign text, cut and escaped.
fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(QUOTED).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}
