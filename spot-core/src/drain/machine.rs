//! The drain's next step, from what is observed: sans I/O, so that the model, the simulator and a real cluster run the
//! same drain.

mod tracked;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tracked::{FIRST_WAIT, State, Tracked, named, patience};

use super::lost::{is_lost, lost_at};
use super::plan::{self, DrainRules, Force, Loss, PodVerdict};
use crate::error::{BlockedPod, ErrorClass, Obstacle, PortError};
use crate::interruption::Limits;
use crate::node::{NodeSnapshot, Uid};
use crate::pod::{BudgetRef, PodRef, PodSnapshot};
use crate::ports::{EvictAnswer, Instant};
use crate::view::View;

/// Evictions of a planned drain that are on their way at the same time. A pod that waits holds no place among them.
const IN_FLIGHT: usize = 32;
/// How long a budget's pod waits without a sign before it is tried all the same: a view may be stale.
const BUDGET_FALLBACK: Duration = Duration::from_secs(10);
/// How long an eviction may go unanswered where blocked pods are deleted: one that hangs blocks, too.
const UNANSWERED: Duration = Duration::from_secs(5);
/// How long a forced drain that begins when its time is over, or almost, may take all the same: pods are told to stop,
/// and some are seen to go.
pub(crate) const LATE: Duration = Duration::from_secs(10);
/// What is left of a machine's last seconds when its pods are killed: they have to be seen to be gone.
const MARGIN: Duration = Duration::from_secs(1);
/// The shortest grace period that a pod's own is cut down to: none at all would take its object away before its
/// containers have ended.
const LEAST_GRACE: Duration = Duration::from_secs(1);
/// How long before the end of a forced drain the migrator's own pod is asked to go, though others are left: as long as
/// a lease takes to be given back or to run out.
const HAND_OVER: Duration = Duration::from_secs(20);

/// How a drain goes about it.
#[derive(Clone, Debug)]
pub struct DrainPolicy {
    /// Which pods may be moved.
    pub rules: DrainRules,
    /// Until when all must be gone, and how hard that is tried.
    pub limits: Limits,
    /// The migrator's own pod: it goes last.
    pub own_pod: Option<Uid>,
}

/// One eviction or deletion to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The pod.
    pub pod: PodRef,
    /// How it is to go.
    pub how: How,
    /// What is lost for good with it.
    pub loses: Option<Loss>,
}

/// How a pod is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By an eviction, with this grace period, if not its own.
    Evict(Option<Duration>),
    /// By a deletion with this grace period, past its budget: in a forced drain only.
    Delete(Duration),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Ask for these, then observe again at a change, an answer, or `wake`.
    Work {
        /// What to ask for; often nothing.
        removals: Vec<Removal>,
        /// When to look again at the latest.
        wake: Instant,
    },
    /// No pod is left that ought to go.
    Empty {
        /// All but the migrator's own pod, which nobody lets go.
        own_pod_left: bool,
    },
    /// It can't succeed; these pods stand in the way.
    Failed(Vec<BlockedPod>),
}

/// A pod that has been in the way for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Which, and what is in its way.
    pub blocked: BlockedPod,
    /// For how long.
    pub since: Duration,
}

/// The drain of one node.
#[derive(Debug)]
pub struct Machine {
    policy: DrainPolicy,
    /// What a forced drain has to the end at least, since it was first looked at under these limits.
    late: Option<Instant>,
    pods: BTreeMap<Uid, Tracked>,
    /// Evictions that each version of a budget has been asked to allow.
    asked: BTreeMap<BudgetRef, (String, i32)>,
    /// The server is overloaded until then.
    pause: Option<Instant>,
}

impl Machine {
    /// A drain that has not begun.
    #[must_use]
    pub const fn new(policy: DrainPolicy) -> Self {
        Self { policy, late: None, pods: BTreeMap::new(), asked: BTreeMap::new(), pause: None }
    }

    /// Goes on under these limits where they are stricter.
    pub fn tighten(&mut self, limits: Limits) {
        let limits = self.policy.limits.and(limits);
        if limits != self.policy.limits {
            self.policy.limits = limits;
            self.late = None;
        }
    }

    /// When the drain ends, whatever is left: where little time or none is left, a forced one has some all the same.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.policy.limits.until.max(self.late.unwrap_or_default())
    }

    /// What to do next, given what is seen now.
    pub fn observe(&mut self, view: &View, node: &NodeSnapshot, now: Instant, wall: Timestamp) -> Next {
        if self.policy.limits.force == Force::Forced {
            self.late.get_or_insert(now + LATE);
        }
        let mut to_go: Vec<(&PodSnapshot, bool)> = Vec::new();
        let mut refused = Vec::new();
        // No change of the view tells that a silent node's pod counts as gone: its time has to be waited for.
        let mut lost: Option<Timestamp> = None;
        for pod in view.pods_on(&node.name) {
            match plan::verdict(pod, &self.policy.rules, self.policy.limits.force, view) {
                PodVerdict::Leave(_) => {}
                PodVerdict::Going if is_lost(pod, node, wall) => {}
                PodVerdict::Going => {
                    lost = [lost, lost_at(pod, node)].into_iter().flatten().min();
                    to_go.push((pod, true));
                }
                PodVerdict::Evict => to_go.push((pod, false)),
                PodVerdict::Refuse(reason) => refused
                    .push(BlockedPod { pod: pod.reference(), obstacle: Obstacle::NotEvictable(reason.to_string()) }),
            }
        }
        if !refused.is_empty() {
            return Next::Failed(refused);
        }
        // The view has a node's pods in the order of their UIDs.
        self.pods.retain(|uid, _| to_go.binary_search_by(|(pod, _)| pod.uid.cmp(uid)).is_ok());
        if self.is_hopeless(&to_go) {
            return Next::Failed(self.in_the_way(view, &node.name));
        }
        if to_go.is_empty() {
            return Next::Empty { own_pod_left: false };
        }
        if self.only_own_pod_blocked(&to_go) {
            return Next::Empty { own_pod_left: true };
        }
        if now >= self.end() {
            return Next::Failed(to_go.iter().map(|(pod, going)| self.blocked(view, pod, *going)).collect());
        }
        let left = lost.and_then(|at| Duration::try_from(at.duration_since(wall)).ok());
        let wake = left.map_or_else(|| self.end(), |left| self.end().min(now + left));
        self.work(view, &to_go, (now, wall), wake)
    }

    /// Whether what may not be evicted makes going on useless: one pod does in a planned drain; a forced one goes on for
    /// all others.
    fn is_hopeless(&self, to_go: &[(&PodSnapshot, bool)]) -> bool {
        let Limits { force, delete_blocked, .. } = self.policy.limits;
        let denied = |tracked: &Tracked| {
            matches!(tracked.state, State::Denied(_)) && (tracked.deleting || delete_blocked.is_none())
        };
        match force {
            Force::Planned => self.pods.values().any(denied),
            Force::Forced => {
                !to_go.is_empty() && to_go.iter().all(|(pod, _)| self.pods.get(&pod.uid).is_some_and(denied))
            }
        }
    }

    fn work(
        &mut self,
        view: &View,
        to_go: &[(&PodSnapshot, bool)],
        (now, wall): (Instant, Timestamp),
        mut wake: Instant,
    ) -> Next {
        let mut removals = Vec::new();
        let own_turn = self.own_turn(to_go.len() == 1);
        let most = match self.policy.limits.force {
            Force::Planned => IN_FLIGHT,
            // One that hangs must not hold up what can still go.
            Force::Forced => usize::MAX,
        };
        let mut in_flight = self.pods.values().filter(|pod| matches!(pod.state, State::Asked(_))).count();
        for (pod, going) in to_go {
            if self.policy.own_pod.as_ref() == Some(&pod.uid) && now < own_turn {
                wake = wake.min(own_turn);
                continue;
            }
            let ready = if *going { self.hastening(pod, now, wall) } else { self.readiness(view, pod, now) };
            match ready {
                Ready::Later(at) => wake = wake.min(at),
                Ready::Never => {}
                Ready::Now { .. } if in_flight >= most => break,
                Ready::Now { budget, delete } => {
                    in_flight += 1;
                    self.ask(pod, budget, delete, now);
                    wake = self.hanging(now).filter(|_| !delete).map_or(wake, |at| wake.min(at));
                    let grace = self.grace(pod, now);
                    let how = if delete { How::Delete(grace.unwrap_or(pod.grace)) } else { How::Evict(grace) };
                    removals.push(Removal { pod: pod.reference(), how, loses: Loss::of(pod) });
                }
            }
        }
        let next_report = self.pods.values().filter_map(Tracked::report_due).min();
        Next::Work { removals, wake: next_report.map_or(wake, |at| wake.min(at)) }
    }

    /// From when on the migrator's own pod may be asked for: at once when it is alone. Before its machine goes it has to
    /// hand over, whoever else is left.
    fn own_turn(&self, alone: bool) -> Instant {
        match self.policy.limits.force {
            Force::Planned | Force::Forced if alone => Instant::default(),
            Force::Planned => self.end(),
            Force::Forced => Instant(self.end().0.saturating_sub(HAND_OVER)),
        }
    }

    /// Whether a pod that is going is to be told once more: it has more time than there is. Its budget has no say any
    /// more.
    fn hastening(&self, pod: &PodSnapshot, now: Instant, wall: Timestamp) -> Ready {
        let limits = self.policy.limits;
        let over = wall.saturating_add(limits.until.since(now)).unwrap_or(Timestamp::MAX);
        if limits.force == Force::Planned || pod.deletion.is_none_or(|ends| ends <= over) {
            return Ready::Never;
        }
        match self.pods.get(&pod.uid).map(|tracked| (&tracked.state, tracked.under)) {
            Some((State::Asked(_) | State::Denied(_), _)) => Ready::Never,
            Some((State::Accepted, under)) if under == Some(limits) => Ready::Never,
            Some((State::Waiting { until, .. }, _)) if now < *until => Ready::Later(*until),
            Some((State::Accepted | State::Waiting { .. }, _)) | None => self.unless_paused(now, None),
        }
    }

    /// Whether a pod can be asked for now.
    fn readiness(&mut self, view: &View, pod: &PodSnapshot, now: Instant) -> Ready {
        let delete = self.policy.limits.delete_blocked.is_some_and(|at| now >= at);
        if let Some(tracked) = self.pods.get(&pod.uid) {
            match &tracked.state {
                // Perhaps we may delete what we may not evict.
                State::Denied(_) if delete && !tracked.deleting => return Ready::Now { budget: None, delete },
                State::Denied(_) if !tracked.deleting => {
                    return self.policy.limits.delete_blocked.map_or(Ready::Never, Ready::Later);
                }
                State::Asked(_) if !tracked.deleting => {
                    return match self.hanging(tracked.asked_at) {
                        Some(at) if at <= now => Ready::Now { budget: None, delete },
                        Some(at) => Ready::Later(at),
                        None => Ready::Never,
                    };
                }
                State::Asked(_) | State::Accepted | State::Denied(_) => return Ready::Never,
                // Whatever an eviction waits for, the first deletion does not.
                State::Waiting { until, .. } if delete && (!tracked.deleting || now >= *until) => {
                    return Ready::Now { budget: None, delete };
                }
                State::Waiting { until, .. } if delete => return Ready::Later(*until),
                State::Waiting { until, budget, .. } => {
                    let moved = budget.as_ref().is_some_and(|(budget, version)| {
                        view.budget(budget).is_none_or(|now| now.resource_version != *version && !now.refuses(pod))
                    });
                    if now < *until && !moved {
                        return Ready::Later(self.or_deletion(*until));
                    }
                    if now >= *until {
                        // The time is up: the server decides, whatever the view says.
                        return self.unless_paused(now, budget_version(view, pod));
                    }
                }
            }
        }
        self.allowed(view, pod, now)
    }

    /// Whether the pod's budget has room by the newest status, less what that status was already asked for.
    fn allowed(&mut self, view: &View, pod: &PodSnapshot, now: Instant) -> Ready {
        let mut budgets = view.budgets_of(pod);
        let (Some(budget), None) = (budgets.next(), budgets.next()) else {
            return self.unless_paused(now, None);
        };
        let key = budget.reference();
        let asked = self.asked.get(&key).filter(|(version, _)| *version == budget.resource_version);
        let asked = asked.map_or(0, |(_, asked)| *asked);
        let full = budget.current && pod.ready && budget.disruptions_allowed <= asked;
        // Its own pod is asked for once all the same: only the server's refusal lets the work go on without it.
        let own = self.policy.own_pod.as_ref() == Some(&pod.uid);
        if (full || budget.refuses(pod)) && !own {
            if self.policy.limits.delete_blocked.is_some_and(|at| now >= at) {
                return Ready::Now { budget: None, delete: true };
            }
            let obstacle = Obstacle::Budget(key.to_string());
            self.wait(&pod.uid, obstacle, now + BUDGET_FALLBACK, Some((key, budget.resource_version.clone())), now);
            return Ready::Later(self.or_deletion(now + BUDGET_FALLBACK));
        }
        self.unless_paused(now, Some((key, budget.resource_version.clone())))
    }

    /// That time, or the one at which blocked pods are deleted, if it comes earlier: it is still to come.
    fn or_deletion(&self, at: Instant) -> Instant {
        self.policy.limits.delete_blocked.map_or(at, |delete| at.min(delete))
    }

    /// From when on a pod is deleted whose eviction was asked for then, and is not answered; none: never.
    fn hanging(&self, asked_at: Instant) -> Option<Instant> {
        self.policy.limits.delete_blocked.map(|at| at.max(asked_at + UNANSWERED))
    }

    fn unless_paused(&self, now: Instant, budget: Option<(BudgetRef, String)>) -> Ready {
        match self.pause {
            Some(until) if now < until => Ready::Later(until),
            Some(_) | None => Ready::Now { budget, delete: false },
        }
    }

    fn ask(&mut self, pod: &PodSnapshot, budget: Option<(BudgetRef, String)>, delete: bool, now: Instant) {
        if let Some((key, version)) = &budget {
            let asked = self.asked.entry(key.clone()).or_insert_with(|| (version.clone(), 0));
            if asked.0 != *version {
                *asked = (version.clone(), 0);
            }
            asked.1 = asked.1.saturating_add(1);
        }
        let limits = self.policy.limits;
        let tracked = self.pods.entry(pod.uid.clone()).or_insert_with(|| Tracked::new(now));
        tracked.asked_at = now;
        tracked.under = Some(limits);
        // The first deletion has nothing to do with how often evictions failed.
        tracked.attempts = if delete && !tracked.deleting { 1 } else { tracked.attempts.saturating_add(1) };
        tracked.deleting = delete;
        tracked.state = State::Asked(budget);
    }

    /// Whether it was asked to be deleted, past its budget: what an eviction before was answered says nothing then.
    #[must_use]
    pub fn is_deleting(&self, pod: &PodRef) -> bool {
        self.pods.get(&pod.uid).is_some_and(|tracked| tracked.deleting)
    }

    /// Takes in the answer to an eviction.
    pub fn answered(&mut self, pod: &PodRef, answer: Result<EvictAnswer, PortError>, now: Instant) {
        let Some(tracked) = self.pods.get_mut(&pod.uid) else { return };
        let wait = patience(&pod.uid, tracked.attempts);
        let budget = match &tracked.state {
            State::Asked(budget) => budget.clone(),
            State::Accepted | State::Waiting { .. } | State::Denied(_) => None,
        };
        let (obstacle, wait, budget) = match answer {
            // Gone: the view shows it soon; until then it is neither asked for nor gone.
            Ok(EvictAnswer::Accepted | EvictAnswer::Gone) => {
                tracked.state = State::Accepted;
                return;
            }
            Ok(EvictAnswer::Budget { budget: named, retry_after }) => {
                let name = named.as_ref().or_else(|| budget.as_ref().map(|(key, _)| key));
                let name = name.map_or_else(|| "of unknown name".to_owned(), ToString::to_string);
                (Obstacle::Budget(name), retry_after.unwrap_or(BUDGET_FALLBACK).max(FIRST_WAIT), budget)
            }
            Ok(EvictAnswer::Overloaded { retry_after }) => {
                let wait = retry_after.unwrap_or(wait).max(FIRST_WAIT);
                self.pause = self.pause.max(Some(now + wait));
                (Obstacle::ServerError("overloaded".to_owned()), wait, None)
            }
            Ok(EvictAnswer::MultipleBudgets) => (Obstacle::MultipleBudgets(Vec::new()), wait, None),
            Ok(EvictAnswer::ServerError(words)) => (Obstacle::ServerError(words), wait, None),
            Ok(EvictAnswer::NamespaceTerminating) => (Obstacle::NamespaceTerminating, wait, None),
            Ok(EvictAnswer::Webhook(words) | EvictAnswer::Invalid(words)) => (Obstacle::Webhook(words), wait, None),
            Ok(EvictAnswer::Denied(words)) => {
                tracked.state = State::Denied(words);
                return;
            }
            Err(error) if error.class == ErrorClass::Denied => {
                tracked.state = State::Denied(crate::error::chain(&error));
                return;
            }
            Err(error) => (Obstacle::ServerError(crate::error::chain(&error)), wait, None),
        };
        self.wait(&pod.uid, obstacle, now + wait, budget, now);
    }

    fn wait(
        &mut self,
        pod: &Uid,
        obstacle: Obstacle,
        until: Instant,
        budget: Option<(BudgetRef, String)>,
        now: Instant,
    ) {
        let tracked = self.pods.entry(pod.clone()).or_insert_with(|| Tracked::new(now));
        tracked.blocked_since.get_or_insert(now);
        tracked.state = State::Waiting { obstacle, until, budget };
    }

    /// The pods that have been in the way for a minute or more and were not reported lately. Each call counts as a
    /// report: the first after a minute, then after twice as long each time.
    pub fn overdue(&mut self, view: &View, node: &str, now: Instant) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for pod in view.pods_on(node) {
            let Some(tracked) = self.pods.get_mut(&pod.uid) else { continue };
            let State::Waiting { obstacle, .. } = &tracked.state else { continue };
            if tracked.report_due().is_none_or(|due| now < due) {
                continue;
            }
            let since = now.since(tracked.blocked_since.unwrap_or(now));
            tracked.reported = Some(now);
            overdue.push(Overdue {
                blocked: BlockedPod { pod: pod.reference(), obstacle: named(obstacle, pod, view) },
                since,
            });
        }
        overdue
    }

    /// The pods of the node that were refused, and what stands in their way.
    #[must_use]
    pub fn in_the_way(&self, view: &View, node: &str) -> Vec<BlockedPod> {
        let obstacle = |pod: &PodSnapshot| match &self.pods.get(&pod.uid)?.state {
            State::Waiting { obstacle, .. } => Some(named(obstacle, pod, view)),
            State::Denied(words) => Some(Obstacle::Denied(words.clone())),
            State::Asked(_) | State::Accepted => None,
        };
        let blocked = |pod: &PodSnapshot| Some(BlockedPod { pod: pod.reference(), obstacle: obstacle(pod)? });
        view.pods_on(node).filter_map(|pod| blocked(pod)).collect()
    }

    fn only_own_pod_blocked(&self, to_go: &[(&PodSnapshot, bool)]) -> bool {
        // Where it may be deleted, it is: it has to hand over before its machine goes.
        let ([(pod, false)], None) = (to_go, self.policy.limits.delete_blocked) else { return false };
        let refused = self.pods.get(&pod.uid).is_some_and(|tracked| matches!(tracked.state, State::Waiting { .. }));
        refused && self.policy.own_pod.as_ref() == Some(&pod.uid)
    }

    fn blocked(&self, view: &View, pod: &PodSnapshot, going: bool) -> BlockedPod {
        let obstacle = match self.pods.get(&pod.uid).map(|tracked| &tracked.state) {
            Some(State::Waiting { obstacle, .. }) if !going => named(obstacle, pod, view),
            Some(State::Asked(_)) if !going => Obstacle::ServerError("no answer yet".to_owned()),
            None if !going => Obstacle::ServerError("never asked for: the server was overloaded".to_owned()),
            Some(State::Denied(words)) => Obstacle::Denied(words.clone()),
            Some(State::Waiting { .. } | State::Asked(_) | State::Accepted) | None => Obstacle::TerminatingStuck,
        };
        BlockedPod { pod: pod.reference(), obstacle }
    }

    /// The pod's grace period where it is not its own: the configured one, and in a forced drain never past the end.
    fn grace(&self, pod: &PodSnapshot, now: Instant) -> Option<Duration> {
        let wanted = self.policy.rules.pod_grace;
        match self.policy.limits.force {
            Force::Planned => wanted,
            Force::Forced => {
                let left = self.policy.limits.until.since(now).saturating_sub(MARGIN).as_secs();
                let most = Duration::from_secs(left).max(LEAST_GRACE);
                if wanted.unwrap_or(pod.grace) > most { Some(most) } else { wanted }
            }
        }
    }
}

enum Ready {
    Now {
        budget: Option<(BudgetRef, String)>,
        delete: bool,
    },
    Later(Instant),
    /// Nothing to ask: it was asked, or is going.
    Never,
}

fn budget_version(view: &View, pod: &PodSnapshot) -> Option<(BudgetRef, String)> {
    let mut budgets = view.budgets_of(pod);
    match (budgets.next(), budgets.next()) {
        (Some(budget), None) => Some((budget.reference(), budget.resource_version.clone())),
        (None | Some(_), _) => None,
    }
}
