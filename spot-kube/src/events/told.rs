//! What is published of the answers to notices of machines.

use std::time::Duration;

use jiff::Timestamp;
use spot_core::interruption::{NoticeKind, Told};

use super::{About, EventReason, Note};

/// The Event, where it is one of a node.
pub(super) fn note(at: Timestamp, told: &Told) -> Option<Note> {
    let (node, is_warning, reason, action, text) = match told {
        Told::Cordoned { node, kind, after } => {
            let text = format!("{}: cordoned {} after the notice", announced(*kind), seconds(*after));
            (node, true, reason(*kind), "Cordon", text)
        }
        Told::Emptied { node, kind, after } => {
            let text = format!("{}: its pods are gone, {} after the notice", announced(*kind), seconds(*after));
            (node, false, EventReason::Emptied, "Drain", text)
        }
        Told::NotEmptied { node, kind, why } => {
            let text = format!("{}: not all of its pods could be moved in time: {why}", announced(*kind));
            (node, true, EventReason::NotEmptied, "Drain", text)
        }
        Told::Softened { node } => {
            let kind = NoticeKind::Rebalance;
            let text = format!("{}: new pods are kept off it where there is other room", announced(kind));
            (node, false, reason(kind), "Taint", text)
        }
        Told::Hardened { node } => {
            let text = "nothing followed the recommendation: new pods are not kept off it any longer".to_owned();
            (node, false, EventReason::RebalanceOver, "Untaint", text)
        }
        Told::Returned { node, why } => {
            (node, false, EventReason::Returned, "Release", format!("takes pods again: {why}"))
        }
        Told::Polled { .. } | Told::Received { .. } | Told::Ignored { .. } | Told::Held { .. } => return None,
    };
    Some(Note { at, about: About::Node(node.clone()), is_warning, reason, action, text })
}

const fn reason(kind: NoticeKind) -> EventReason {
    match kind {
        NoticeKind::Interruption => EventReason::SpotInterruption,
        NoticeKind::Rebalance => EventReason::RebalanceRecommendation,
        NoticeKind::ScheduledChange => EventReason::ScheduledChange,
        NoticeKind::TerminateAction => EventReason::MachineTerminating,
        NoticeKind::LaunchAction => EventReason::MachineLaunched,
        NoticeKind::StateChange => EventReason::MachineStopping,
    }
}

const fn announced(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Interruption => "its spot machine is being taken back",
        NoticeKind::Rebalance => "its spot machine may be taken back soon",
        NoticeKind::ScheduledChange => "its machine is scheduled to be retired, rebooted or worked on",
        NoticeKind::TerminateAction => "its group terminates the machine",
        NoticeKind::LaunchAction => "its group launched the machine",
        NoticeKind::StateChange => "its machine stops, or is gone",
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
