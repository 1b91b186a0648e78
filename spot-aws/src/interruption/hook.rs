//! Lifecycle hooks: how long they wait, that they wait on, and that they need not wait any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_autoscaling::types::LifecycleHook;
use jiff::Timestamp;
use spot_core::ports::Instant;

use crate::action::Action;
use crate::client::Api;
use crate::error::{CallError, Kind};
use crate::interruption::message::{HookName, LifecycleAction};
use crate::lock;

/// How long a hook waits that does not say, and the shortest that any may wait.
/// <https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_LifecycleHook.html>
const HEARTBEAT: Duration = Duration::from_hours(1);
const SHORTEST: Duration = Duration::from_secs(30);
/// The longest that a hook waits, whatever heartbeats it gets, and how many of its time-outs that is at most.
/// <https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks.html#lifecycle-hook-considerations>
const LONGEST: Duration = Duration::from_hours(48);
const HEARTBEATS: u32 = 100;
/// How old an answer may be.
const CACHED: Duration = Duration::from_mins(10);
/// How old the want of an answer may be.
const DOUBTED: Duration = Duration::from_mins(1);
/// How long a hook may be asked for: other notices wait meanwhile.
const ASKED: Duration = Duration::from_secs(1);
/// How old a message is before a hook that does not wait is taken for one that waits no more: it may not wait yet.
const BEGINNING: Duration = Duration::from_mins(1);
/// More hooks than that are not remembered.
const HOOKS: usize = 1000;

/// What is known of hooks.
#[derive(Debug, Default)]
pub(crate) struct Hooks(Mutex<BTreeMap<HookName, Arc<futures::lock::Mutex<Known>>>>);

/// How long a hook waits, if it could be asked for, and until when that counts; none: nobody asked yet.
type Known = Option<(Option<Duration>, Instant)>;

impl Hooks {
    /// How long a hook waits for a sign of life; none: it can't be asked for.
    pub(crate) async fn heartbeat(&self, api: &Api, hook: &HookName) -> Option<Duration> {
        let known = {
            let mut hooks = lock(&self.0);
            if hooks.len() >= HOOKS && !hooks.contains_key(hook) {
                hooks.clear();
            }
            Arc::clone(hooks.entry(hook.clone()).or_default())
        };
        // Many instances may come to a hook at once: the first asks for all.
        let mut known = known.lock().await;
        let now = api.clock.instant();
        if let Some((heartbeat, until)) = *known
            && now < until
        {
            return heartbeat;
        }
        let request = api.autoscaling.describe_lifecycle_hooks();
        let request = request.auto_scaling_group_name(&hook.group).lifecycle_hook_names(&hook.name);
        let answer = api.call(Action::DescribeLifecycleHooks, now + ASKED, request.send()).await;
        let (heartbeat, age) = match answer {
            Ok(answer) => {
                let seconds = answer.lifecycle_hooks().iter().find_map(LifecycleHook::heartbeat_timeout);
                let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
                (Some(seconds.map_or(HEARTBEAT, Duration::from_secs)), CACHED)
            }
            Err(error) => {
                let HookName { group, name } = hook;
                tracing::warn!(%error, group, hook = name, "how long the hook waits is not known");
                (None, DOUBTED)
            }
        };
        *known = Some((heartbeat, now + age));
        heartbeat
    }
}

/// How long a hook waits at most, with its heartbeats or without. One that can't be asked for is taken for one that does
/// not say.
pub(crate) fn longest(heartbeat: Option<Duration>, beaten: bool) -> Duration {
    let heartbeat = heartbeat.unwrap_or(HEARTBEAT);
    if beaten { heartbeat.saturating_mul(HEARTBEATS).min(LONGEST) } else { heartbeat }
}

/// A hook of ours that waits.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) action: LifecycleAction,
    /// How long it waits for a sign of life, if that is known.
    pub(crate) heartbeat: Option<Duration>,
    /// When its message was sent.
    pub(crate) sent: Timestamp,
    /// When it last got a heartbeat; none: never.
    pub(crate) last: Option<Instant>,
    /// It does not wait any more, or has its answer.
    pub(crate) over: bool,
}

impl Held {
    /// Whether it may be about to wait, though it does not.
    pub(crate) fn may_begin(&self, now: Timestamp) -> bool {
        !self.over && now < self.sent + BEGINNING
    }

    /// Whether it is to get a heartbeat: two may be lost before it lets go.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let heartbeat = self.heartbeat.unwrap_or(SHORTEST);
        !self.over && self.last.is_none_or(|last| now.since(last) >= heartbeat / 3)
    }
}

impl Api {
    /// Has a hook wait on; whether it still did.
    pub(crate) async fn beat(&self, action: &LifecycleAction, by: Instant) -> Result<bool, CallError> {
        let LifecycleAction { instance, hook, token, .. } = action;
        let request = self
            .autoscaling
            .record_lifecycle_action_heartbeat()
            .auto_scaling_group_name(&hook.group)
            .lifecycle_hook_name(&hook.name)
            .instance_id(instance.as_str())
            .set_lifecycle_action_token(token.clone());
        let answer = self.call(Action::RecordLifecycleActionHeartbeat, by, request.send()).await;
        unless_none(answer.map(|_| ()))
    }

    /// Has a hook wait no longer; whether it still did.
    pub(crate) async fn complete(&self, action: &LifecycleAction, by: Instant) -> Result<bool, CallError> {
        let LifecycleAction { instance, hook, token, .. } = action;
        let request = self
            .autoscaling
            .complete_lifecycle_action()
            .auto_scaling_group_name(&hook.group)
            .lifecycle_hook_name(&hook.name)
            .instance_id(instance.as_str())
            .set_lifecycle_action_token(token.clone())
            .lifecycle_action_result("CONTINUE");
        let answer = self.call(Action::CompleteLifecycleAction, by, request.send()).await;
        unless_none(answer.map(|_| ()))
    }
}

/// A group that knows of no such wait says so by refusing: it was completed, given up, its machine is gone, or is not
/// where it waits yet.
fn unless_none(answer: Result<(), CallError>) -> Result<bool, CallError> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.kind == Kind::Refused && error.code == "ValidationError" => Ok(false),
        Err(error) => Err(error),
    }
}
