//! What the several kinds of events tell.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use spot_core::claim::InstanceId;
use spot_core::interruption::{Announcement, Ignored, MachineState, Reclaim};

use super::{
    Content, HookName, LifecycleAction, MACHINES, NAME, Transition, Unusable, instance, instance_id, mail_time, name,
    quoted, taken, text,
};

pub(super) fn interruption(kind: &str, detail: &Value, at: Timestamp) -> Result<Content, Unusable> {
    let instance = instance(kind, detail, "instance-id")?;
    let action = match text(detail, "instance-action") {
        Some("terminate") => Reclaim::Terminate,
        Some("stop") => Reclaim::Stop,
        Some("hibernate") => Reclaim::Hibernate,
        other => return Err(unknown(kind, "action", other)),
    };
    let at = taken(kind, action, at)?;
    Ok(Content::Announced(vec![instance], Announcement::Interruption { action, at }))
}

pub(super) fn rebalance(kind: &str, detail: &Value, _at: Timestamp) -> Result<Content, Unusable> {
    Ok(Content::Announced(vec![instance(kind, detail, "instance-id")?], Announcement::Rebalance))
}

pub(super) fn state_change(kind: &str, detail: &Value, _at: Timestamp) -> Result<Content, Unusable> {
    let instance = instance(kind, detail, "instance-id")?;
    let state = match text(detail, "state") {
        Some("pending" | "running") => MachineState::Up,
        Some("stopping" | "stopped" | "shutting-down" | "terminated") => MachineState::Down,
        other => return Err(unknown(kind, "state", other)),
    };
    Ok(Content::Announced(vec![instance], Announcement::StateChange(state)))
}

pub(super) fn launch(kind: &str, detail: &Value, _at: Timestamp) -> Result<Content, Unusable> {
    lifecycle(kind, detail, Transition::Launch)
}

pub(super) fn terminate(kind: &str, detail: &Value, _at: Timestamp) -> Result<Content, Unusable> {
    lifecycle(kind, detail, Transition::Terminate)
}

/// A group's own notifications have the same fields.
pub(super) fn lifecycle(kind: &str, detail: &Value, transition: Transition) -> Result<Content, Unusable> {
    let hook =
        HookName { group: name(kind, detail, "AutoScalingGroupName")?, name: name(kind, detail, "LifecycleHookName")? };
    let token = text(detail, "LifecycleActionToken").filter(|token| token.len() <= NAME).map(str::to_owned);
    let instance = instance(kind, detail, "EC2InstanceId")?;
    Ok(Content::Waiting(LifecycleAction { instance, transition, hook, token }))
}

/// Of what AWS Health tells, changes that are scheduled for instances.
pub(super) fn health(kind: &str, detail: &Value, at: Timestamp) -> Result<Content, Unusable> {
    let service = text(detail, "service");
    if service != Some("EC2") {
        return Err(unknown(kind, "service", service));
    }
    let category = text(detail, "eventTypeCategory");
    if category != Some("scheduledChange") {
        return Err(unknown(kind, "category", category));
    }
    if text(detail, "statusCode") == Some("closed") {
        return Err(Unusable::new(Ignored::NoAction, format!("{kind}: it is over")));
    }
    let begins = text(detail, "startTime").map_or(Ok(at), |time| mail_time(kind, time))?;
    let entities = detail.get("affectedEntities").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // Hosts and reservations are affected too, and are nobody's node.
    let instances: BTreeSet<InstanceId> =
        entities.iter().filter_map(|entity| instance_id(text(entity, "entityValue")?)).take(MACHINES).collect();
    if instances.is_empty() {
        return Err(Unusable::new(Ignored::NoAction, format!("{kind}: no instance is affected")));
    }
    Ok(Content::Announced(instances.into_iter().collect(), Announcement::ScheduledChange { at: begins }))
}

fn unknown(kind: &str, what: &str, found: Option<&str>) -> Unusable {
    Unusable::new(Ignored::UnknownKind, format!("{kind}: {what} {}", quoted(found.unwrap_or_default())))
}
