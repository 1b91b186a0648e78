//! Lifecycle hooks, and what waits at them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::wire::{Answer, Refusal, Request};

/// The longest that a hook waits.
const LONGEST: Duration = Duration::from_hours(48);

/// A hook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook {
    /// How long it waits for a sign of life.
    pub(crate) heartbeat: Duration,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was completed, in so many seconds since it began.
    Completed(u64),
    /// Nobody answered for so many seconds.
    TimedOut(u64),
}

#[derive(Clone, Debug)]
struct Wait {
    hook: (String, String),
    instance: String,
    since: Instant,
    last: Instant,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    /// By group and name.
    pub(crate) known: BTreeMap<(String, String), Hook>,
    waits: BTreeMap<String, Wait>,
    /// How those ended that did, by their tokens.
    pub(crate) ended: BTreeMap<String, Ended>,
}

impl Hooks {
    /// An instance waits at a hook.
    pub(crate) fn begin(&mut self, group: &str, name: &str, instance: &str, token: &str) {
        let now = Instant::now();
        let hook = (group.to_owned(), name.to_owned());
        assert!(self.known.contains_key(&hook), "there is that hook");
        let wait = Wait { hook, instance: instance.to_owned(), since: now, last: now };
        self.waits.insert(token.to_owned(), wait);
    }

    /// Ends what nobody answered.
    pub(crate) fn advance(&mut self) {
        let now = Instant::now();
        let known = &self.known;
        let ended = &mut self.ended;
        self.waits.retain(|token, wait| {
            let heartbeat = known[&wait.hook].heartbeat;
            let until = (wait.last + heartbeat).min(wait.since + (heartbeat * 100).min(LONGEST));
            if now >= until {
                ended.insert(token.clone(), Ended::TimedOut((until - wait.since).as_secs()));
            }
            now < until
        });
    }

    pub(crate) fn answer(&mut self, request: &Request) -> Result<Answer, Refusal> {
        match request.name.as_str() {
            "DescribeLifecycleHooks" => self.describe(request),
            "RecordLifecycleActionHeartbeat" => {
                let token = self.find(request)?;
                self.waits.get_mut(&token).unwrap().last = Instant::now();
                Ok(request.query(""))
            }
            "CompleteLifecycleAction" => {
                if request.get("LifecycleActionResult") != "CONTINUE" {
                    return Err(invalid("LifecycleActionResult is not what is to be asked for"));
                }
                let token = self.find(request)?;
                let wait = self.waits.remove(&token).unwrap();
                self.ended.insert(token, Ended::Completed(wait.since.elapsed().as_secs()));
                Ok(request.query(""))
            }
            other => panic!("no call of Auto Scaling: {other}"),
        }
    }

    fn describe(&self, request: &Request) -> Result<Answer, Refusal> {
        let (group, name) = (request.get("AutoScalingGroupName"), request.get("LifecycleHookNames.member.1"));
        if !self.known.keys().any(|(of, _)| of == group) {
            return Err(invalid(format!("AutoScalingGroup name not found - {group}")));
        }
        let hook = self.known.get(&(group.to_owned(), name.to_owned()));
        let described = hook.map_or_else(String::new, |hook| {
            let seconds = hook.heartbeat.as_secs();
            format!(
                "<member><LifecycleHookName>{name}</LifecycleHookName><HeartbeatTimeout>{seconds}</HeartbeatTimeout>\
                 </member>"
            )
        });
        Ok(request.query(&format!("<LifecycleHooks>{described}</LifecycleHooks>")))
    }

    fn find(&self, request: &Request) -> Result<String, Refusal> {
        let (token, instance) = (request.get("LifecycleActionToken"), request.get("InstanceId"));
        let hook = (request.get("AutoScalingGroupName").to_owned(), request.get("LifecycleHookName").to_owned());
        let is_it = |(known, wait): &(&String, &Wait)| {
            wait.hook == hook && wait.instance == instance && (token.is_empty() || *known == token)
        };
        let found = self.waits.iter().find(is_it).map(|(token, _)| token.clone());
        found.ok_or_else(|| invalid(format!("No active Lifecycle Action found with token {token}")))
    }
}

fn invalid(words: impl Into<String>) -> Refusal {
    Refusal::new(400, "ValidationError", words)
}
