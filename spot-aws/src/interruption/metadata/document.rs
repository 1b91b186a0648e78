//! The documents that announce something, and how they are read: what is not exactly an announcement is none.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use spot_core::interruption::{Announcement, Ignored, Reclaim};

/// As much of what can't be made use of is quoted.
const QUOTED: usize = 120;

/// How times are written in scheduled events: `21 Jan 2019 09:00:43 GMT`.
static TIMES: rfc2822::DateTimeParser = rfc2822::DateTimeParser::new();

/// A document that announces something, or is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Document {
    InstanceAction,
    Rebalance,
    ScheduledEvents,
}

/// An announcement, as a document has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// What tells it from others of the same document, and from itself with another time.
    pub(super) key: String,
    pub(super) announcement: Announcement,
    /// When it was made, if it says so.
    pub(super) sent: Option<Timestamp>,
}

/// What of a document can't be made use of, why, and its words.
pub(super) type Unusable = (Ignored, String);

#[derive(Deserialize)]
struct InstanceAction {
    action: String,
    #[serde(deserialize_with = "time")]
    time: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rebalance {
    #[serde(deserialize_with = "time")]
    notice_time: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScheduledEvent {
    event_id: String,
    code: String,
    state: String,
    #[serde(deserialize_with = "time_of_mail")]
    not_before: Timestamp,
}

impl Document {
    pub(super) const ALL: [Self; 3] = [Self::InstanceAction, Self::Rebalance, Self::ScheduledEvents];

    /// Where it is.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::InstanceAction => "spot/instance-action",
            Self::Rebalance => "events/recommendations/rebalance",
            Self::ScheduledEvents => "events/maintenance/scheduled",
        }
    }

    /// The pause until it is asked for again.
    pub(super) const fn pause(self) -> Duration {
        match self {
            Self::InstanceAction | Self::Rebalance => super::POLL,
            // They are announced days before.
            Self::ScheduledEvents => Duration::from_secs(30),
        }
    }

    /// What it announces, and what of it can't be made use of.
    pub(super) fn read(self, text: &str) -> (Vec<Announced>, Vec<Unusable>) {
        let read = match self {
            Self::InstanceAction => parse(text).map(|action| vec![instance_action(&action)]),
            Self::Rebalance => parse(text).map(|rebalance| vec![Ok(Some(recommendation(&rebalance)))]),
            Self::ScheduledEvents => {
                parse(text).map(|events: Vec<serde_json::Value>| events.iter().map(scheduled_event).collect())
            }
        };
        let (mut announced, mut unusable) = (Vec::new(), Vec::new());
        for one in read.unwrap_or_else(|why| vec![Err(why)]) {
            match one {
                Ok(one) => announced.extend(one),
                Err(why) => unusable.push(why),
            }
        }
        (announced, unusable)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Unusable> {
    // The error may repeat a time as long as the text.
    serde_json::from_str(text).map_err(|error| {
        let error = error.to_string();
        (Ignored::Unreadable, format!("{}, in {:?}", quoted(&error), quoted(text)))
    })
}

fn instance_action(InstanceAction { action, time }: &InstanceAction) -> Result<Option<Announced>, Unusable> {
    let reclaim = match action.as_str() {
        "terminate" => Reclaim::Terminate,
        "stop" => Reclaim::Stop,
        "hibernate" => Reclaim::Hibernate,
        other => return Err((Ignored::UnknownKind, format!("the action is {:?}", quoted(other)))),
    };
    let announcement = Announcement::Interruption { action: reclaim, at: *time };
    Ok(Some(Announced { key: format!("{action} {time}"), announcement, sent: None }))
}

fn recommendation(Rebalance { notice_time }: &Rebalance) -> Announced {
    Announced { key: notice_time.to_string(), announcement: Announcement::Rebalance, sent: Some(*notice_time) }
}

/// One that is over, or was withdrawn, announces nothing.
fn scheduled_event(event: &serde_json::Value) -> Result<Option<Announced>, Unusable> {
    let ScheduledEvent { event_id, code, state, not_before: at } = parse(&event.to_string())?;
    match state.as_str() {
        "active" => {}
        "completed" | "canceled" => return Ok(None),
        other => return Err((Ignored::UnknownKind, format!("{:?} is {:?}", quoted(&event_id), quoted(other)))),
    }
    let announcement = Announcement::ScheduledChange { at };
    Ok(Some(Announced { key: format!("{event_id} {code} {at}"), announcement, sent: None }))
}

fn time<'de, D: Deserializer<'de>>(value: D) -> Result<Timestamp, D::Error> {
    String::deserialize(value)?.parse().map_err(D::Error::custom)
}

fn time_of_mail<'de, D: Deserializer<'de>>(value: D) -> Result<Timestamp, D::Error> {
    TIMES.parse_timestamp(&String::deserialize(value)?).map_err(D::Error::custom)
}

fn quoted(text: &str) -> &str {
    text.char_indices().nth(QUOTED).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn announcements(document: Document, text: &str) -> Vec<Announcement> {
        let (announced, unusable) = document.read(text);
        assert!(unusable.is_empty(), "{unusable:?}");
        announced.into_iter().map(|announced| announced.announcement).collect()
    }

    fn unusable(document: Document, text: &str) -> Vec<Ignored> {
        let (announced, unusable) = document.read(text);
        assert!(announced.is_empty(), "{announced:?}");
        unusable.into_iter().map(|(why, _)| why).collect()
    }

    #[test]
    fn each_action_on_an_instance_is_read() {
        let at = time("2026-03-01T12:02:00Z");
        for (word, action) in
            [("terminate", Reclaim::Terminate), ("stop", Reclaim::Stop), ("hibernate", Reclaim::Hibernate)]
        {
            let text = format!(r#"{{"action": "{word}", "time": "2026-03-01T12:02:00Z"}}"#);
            let expected = [Announcement::Interruption { action, at }];
            assert_eq!(announcements(Document::InstanceAction, &text), expected);
        }
    }

    #[test]
    fn a_recommendation_says_when_it_was_made() {
        let (announced, _) = Document::Rebalance.read(r#"{"noticeTime": "2026-03-01T12:00:00Z"}"#);
        assert_eq!(announced[0].announcement, Announcement::Rebalance);
        assert_eq!(announced[0].sent, Some(time("2026-03-01T12:00:00Z")));
    }

    #[test]
    fn of_scheduled_events_only_the_active_ones_announce_a_change() {
        let event = |id: &str, state: &str| {
            format!(
                r#"{{"NotBefore": "1 Mar 2026 09:00:43 GMT", "Code": "system-reboot", "Description": "reboot",
                    "EventId": "instance-event-{id}", "NotAfter": "1 Mar 2026 09:17:23 GMT", "State": "{state}"}}"#
            )
        };
        let text = format!("[{}, {}, {}]", event("0a", "completed"), event("0b", "active"), event("0c", "canceled"));
        let expected = [Announcement::ScheduledChange { at: time("2026-03-01T09:00:43Z") }];
        assert_eq!(announcements(Document::ScheduledEvents, &text), expected);
        assert!(announcements(Document::ScheduledEvents, "[]").is_empty());
    }

    #[test]
    fn one_event_that_can_not_be_read_hides_no_other() {
        let text = r#"[{"EventId": "a", "Code": "c", "State": "active", "NotBefore": "soon"}, 7,
            {"EventId": "b", "Code": "c", "State": "postponed", "NotBefore": "21 Jan 2026 09:00:43 GMT"},
            {"EventId": "d", "Code": "c", "State": "active", "NotBefore": "21 Jan 2026 09:00:43 GMT"}]"#;
        let (announced, unusable) = Document::ScheduledEvents.read(text);
        assert_eq!(announced.len(), 1);
        let why: Vec<_> = unusable.iter().map(|(why, _)| *why).collect();
        assert_eq!(why, [Ignored::Unreadable, Ignored::Unreadable, Ignored::UnknownKind]);
    }

    #[test]
    fn what_is_not_exactly_an_announcement_is_none() {
        let half = r#"{"action": "terminate", "time": "2026-03-01T12:"#;
        let odd = r#"{"action": "terminate", "time": "in two minutes"}"#;
        for text in ["", "ok", "null", "[]", "{}", "<html>", half, odd] {
            assert_eq!(unusable(Document::InstanceAction, text), [Ignored::Unreadable], "{text}");
            assert_eq!(unusable(Document::Rebalance, text), [Ignored::Unreadable], "{text}");
        }
        let unknown = r#"{"action": "explode", "time": "2026-03-01T12:02:00Z"}"#;
        assert_eq!(unusable(Document::InstanceAction, unknown), [Ignored::UnknownKind]);
        assert_eq!(unusable(Document::ScheduledEvents, "{}"), [Ignored::Unreadable]);
    }

    #[test]
    fn only_the_beginning_of_what_can_not_be_read_is_quoted() {
        let (_, unusable) = Document::InstanceAction.read(&"ä".repeat(10_000));
        assert!(unusable[0].1.chars().count() < 2 * QUOTED, "{}", unusable[0].1);
    }
}
