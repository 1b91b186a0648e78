//! How an instance goes: through its group, with its fleet's target lowered, or by itself.
//!
//! What is to be done is found out anew before every request, by the real state of instance, group and fleet: so a
//! request whose answer was lost is repeated only if it had no effect.

mod fleet;
#[cfg(feature = "fleet")]
mod member;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_types::retry::RetryConfig;
use fleet::Lowered;
use futures::future::{self, Either};
use futures::lock::MutexGuard;
use spot_core::claim::{FleetBefore, InstanceId};
use spot_core::cloud::{CloudFact, Deletion, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::NodeSnapshot;
use spot_core::ports::{Instant, Write};
use spot_core::reason::{Reason, ReasonKind};
use spot_core::retire::RetiredNode;

use crate::action::Action;
use crate::client::once;
use crate::error::{CallError, Kind};
use crate::provider::Aws;
use crate::provider::group;
use crate::provider::instance::{FleetId, Instance};
use crate::provider::maintain::{Fleet, Target};
use crate::provider::survey::{Kept, Known, Survey};

/// The first pause before a request is repeated; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a fleet that is being modified is looked at.
const MODIFYING: Duration = Duration::from_secs(2);
/// How much of the deadline is left when a fleet was waited for in vain.
const SPARED: Duration = Duration::from_secs(10);
/// How often a group is looked at that may have been asked.
const UNSURE: Duration = Duration::from_secs(5);
/// How late a group may tell that it was asked: describes were seen to be half a minute behind. Sooner, a request whose
/// answer was lost is not made again, as each lowers the group's desired capacity once more.
const LATE: Duration = Duration::from_mins(1);
/// How long a fleet's target may be told that it no longer has, or does not have yet: after that, it is somebody else's.
pub(crate) const STALE: Duration = Duration::from_secs(20);
/// The state of a member that its group does not count.
const STANDBY: &str = "Standby";

/// What this process has asked for, of which AWS may tell late.
#[derive(Debug, Default)]
pub(crate) struct Terminated {
    /// Instances that it has terminated by EC2.
    plainly: BTreeSet<String>,
    /// Requests to groups of which it is unknown whether they had an effect, by instance.
    unanswered: BTreeMap<String, Unanswered>,
    /// Fleets whose target was lowered, by the instance for which it was.
    lowered: BTreeMap<String, Lowered>,
    /// Fleets that are as this process has left them, whatever was recorded before.
    handled: BTreeSet<FleetId>,
}

/// A request to a group.
#[derive(Debug)]
struct Unanswered {
    group: String,
    /// What the group kept before.
    desired: u32,
    /// When it was made, at the latest.
    at: Instant,
}

/// Whose machine goes.
#[derive(Clone, Copy, Debug)]
enum Leaving<'a> {
    /// That of a node, with what its fleet wanted before by the claim.
    Node(&'a Arc<NodeSnapshot>, Option<&'a FleetBefore>),
    /// A member of this fleet that no node names.
    #[cfg(feature = "fleet")]
    Member(&'a FleetId),
}

impl fmt::Display for Leaving<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node, _) => write!(f, "the machine of node {}", node.name),
            #[cfg(feature = "fleet")]
            Self::Member(fleet) => write!(f, "a member of fleet {fleet} without a node"),
        }
    }
}

/// What is to be done next.
#[derive(Debug)]
enum Next {
    /// Nothing: it is gone, or on its way.
    Nothing,
    /// Terminate it through this group, which keeps so many by its weight.
    InGroup { group: String, desired: u32, weight: u32 },
    /// Look again: this group may have been asked.
    Doubt(String),
    /// Lower this fleet's target first.
    Lower(Fleet, Target),
    /// Another process has lowered this fleet's target for it: from there.
    Lowered(Fleet, Target),
    /// Look again: this fleet is being modified.
    Await(FleetId),
    /// Look again: for this reason the fleet does not let it go now, and soon it may.
    Short(Reason),
    /// Terminate it, and this fleet keeps it no more.
    Plainly(Option<FleetId>),
}

impl Aws {
    /// Has an instance deleted, by whichever way it must go.
    pub(crate) async fn terminate(
        &self,
        retired: &RetiredNode,
        id: &InstanceId,
        write: &Write,
    ) -> Result<Deletion, PortError> {
        let leaving = Leaving::Node(retired.node(), retired.claim().fleet_before.as_ref());
        self.terminate_leaving(leaving, id.as_str(), write).await
    }

    async fn terminate_leaving(&self, leaving: Leaving<'_>, id: &str, write: &Write) -> Result<Deletion, PortError> {
        let mut terminated = self.alone(id, write.by).await?;
        match self.terminate_alone(leaving, id, write, &mut terminated).await {
            Err(error) if matches!(error.class, ErrorClass::Denied | ErrorClass::Permanent) => {
                Err(self.raise(id, error, write, &mut terminated).await)
            }
            ended => ended,
        }
    }

    /// What was asked for, once nobody else asks for anything.
    pub(crate) async fn alone(&self, id: &str, by: Instant) -> Result<MutexGuard<'_, Terminated>, PortError> {
        let late = pin!(self.api.clock.sleep_until(by));
        let Either::Left((terminated, _)) = future::select(self.terminated.lock(), late).await else {
            let what = format!("{id} had to wait for the deletion of another one for too long");
            return Err(PortError::new(ErrorClass::Transient, what));
        };
        Ok(terminated)
    }

    /// Finds out whether the deletion would be refused now. Nothing is changed.
    pub(crate) async fn verify(&self, node: &NodeSnapshot, id: &str, by: Instant) -> Result<(), PortError> {
        self.next_of_node(&Arc::new(node.clone()), None, id, by, &Terminated::default()).await.map(|_next| ())
    }

    async fn terminate_alone(
        &self,
        leaving: Leaving<'_>,
        id: &str,
        write: &Write,
        terminated: &mut Terminated,
    ) -> Result<Deletion, PortError> {
        let mut unsure = terminated.unanswered.contains_key(id);
        let mut tries = 0;
        loop {
            let next = match leaving {
                Leaving::Node(node, before) => self.next_of_node(node, before, id, write.by, terminated).await,
                #[cfg(feature = "fleet")]
                Leaving::Member(fleet) => self.next_of_member(fleet, id, write.by, terminated).await,
            };
            let next = match next {
                Ok(next) => next,
                Err(error) => return Err(doubted(error, unsure)),
            };
            let asked = match next {
                Next::Nothing => {
                    terminated.unanswered.remove(id);
                    terminated.used(id, None);
                    return Ok(Deletion::Accepted);
                }
                Next::InGroup { group, desired, weight } => {
                    let at = self.api.clock.instant();
                    // Before it is made: this future may be dropped.
                    terminated.unanswered.insert(id.to_owned(), Unanswered { group: group.clone(), desired, at });
                    let asked = self.terminate_in_group(&group, id, write).await;
                    terminated.answered(id, weight, &asked, self.api.clock.instant());
                    asked?
                }
                Next::Doubt(group) => {
                    if self.api.pause(UNSURE, write.by).await {
                        continue;
                    }
                    let what = format!("group {group} was asked to terminate {id}, and whether it does is unknown");
                    return Err(PortError::new(ErrorClass::Timeout, what));
                }
                Next::Lower(fleet, target) => {
                    match self.lower(fleet, target, id, write, terminated).await? {
                        // Whatever became of it, the instance was not asked for.
                        Err(error) if error.may_pass() => {
                            if self.api.pause(pause(id, tries), write.by).await {
                                tries += 1;
                                continue;
                            }
                            return Err(doubted(refused(error), unsure));
                        }
                        asked => asked,
                    }
                }
                Next::Lowered(fleet, from) => {
                    terminated.take_over(id, fleet, from);
                    continue;
                }
                Next::Await(fleet) => {
                    if self.api.pause(MODIFYING, write.by).await {
                        continue;
                    }
                    let what = format!("fleet {fleet} of {id} is still being modified");
                    return Err(PortError::new(ErrorClass::Timeout, what));
                }
                Next::Short(reason) => {
                    // With time left to raise the fleet's target again.
                    if self.api.pause(MODIFYING, Instant(write.by.0.saturating_sub(SPARED))).await {
                        continue;
                    }
                    return Err(doubted(refusal(leaving, &reason), unsure));
                }
                Next::Plainly(fleet) => self.terminate_plainly(id, fleet.as_ref(), write, terminated).await?,
            };
            let error = match asked {
                Ok(Some(deletion)) => return Ok(deletion),
                // One step nearer: what is next is found out anew.
                Ok(None) => continue,
                Err(error) => error,
            };
            unsure |= matches!(error.kind, Kind::Unavailable | Kind::Timeout);
            if !error.may_pass() && !is_stale(&error) {
                return Err(doubted(refused(error), unsure));
            }
            if !self.api.pause(pause(id, tries), write.by).await {
                return Err(doubted(refused(error), unsure));
            }
            tries += 1;
        }
    }

    /// Finds out what is to be done for a node's machine, and whether it may be.
    async fn next_of_node(
        &self,
        node: &Arc<NodeSnapshot>,
        before: Option<&FleetBefore>,
        id: &str,
        by: Instant,
        terminated: &Terminated,
    ) -> Result<Next, PortError> {
        let named = crate::ProviderId::parse(&node.provider_id).ok();
        if named.as_ref().map(crate::ProviderId::instance_id) != Some(id) {
            let what = format!("the claim on node {} names {id}, and the node {:?}", node.name, node.provider_id);
            return Err(PortError::new(ErrorClass::Permanent, what));
        }
        let nodes = std::slice::from_ref(node);
        let known = self.learn(nodes, &[node.reference()], self.api.clock.instant(), by).await?;
        let refusal = |reason: &Reason| {
            // Denied is final: the node is released, as nothing was sent.
            let denied = known.denied && is_unreachable(reason);
            let leaving = Leaving::Node(node, before);
            if denied { PortError::new(ErrorClass::Denied, reason.to_string()) } else { refusal(leaving, reason) }
        };
        let failed = known.of_instance.get(id).and_then(|reasons| reasons.iter().find(|reason| is_unreachable(reason)));
        let Some(instance) = known.instances.get(id) else {
            return failed.map_or(Ok(Next::Nothing), |reason| Err(refusal(reason)));
        };
        if instance.life() != InstanceState::Running {
            return Ok(Next::Nothing);
        }
        let membership = known.memberships.get(id);
        if membership.is_some_and(|membership| group::is_leaving(&membership.state)) {
            return Ok(Next::Nothing);
        }
        if let (Some(request), Kept::Group(group)) = (terminated.unanswered.get(id), known.keeper_of(id, instance)) {
            if group.desired < request.desired {
                return Ok(Next::Nothing);
            }
            if self.api.clock.instant() < request.at + LATE {
                return Ok(Next::Doubt(group.name.clone()));
            }
        }
        let survey = Survey::new(nodes, Some(&node.uid), &self.rules, &known);
        let facts = survey.facts(nodes, &[node.reference()]);
        let Some(fact) = facts.of(node.uid.as_str()) else { return Ok(Next::Nothing) };
        let outside = is_outside(&known, id, instance);
        // An instance that no group counts goes by itself; that it is not in service is no obstacle.
        let obstacle = fact
            .refusals
            .iter()
            .find(|reason| !(outside && reason.kind() == ReasonKind::InstanceInTransition && instance.is_running()));
        if let Some(reason) = obstacle {
            // A fleet that was lowered a moment ago, maybe by us.
            let kept = known.keeper_of(id, instance);
            return match (reason.kind(), kept) {
                (ReasonKind::GroupRefreshing, Kept::Fleet(fleet)) => Ok(Next::Await(fleet.id.clone())),
                (ReasonKind::InstanceInTransition, Kept::Fleet(_)) => Ok(Next::Short(reason.clone())),
                _ => Err(refusal(reason)),
            };
        }
        if self.is_claimed_by_another(id, &node.uid) {
            let reason = Reason::Cloud(ReasonKind::ClaimedTwice, format!("{id} is claimed by another node too"));
            return Err(refusal(&reason));
        }
        if outside {
            tracing::warn!(instance = id, node = %node.name, "the instance is not counted by its group: it is terminated by EC2");
            return Ok(Next::Plainly(None));
        }
        match known.keeper_of(id, instance) {
            Kept::Group(group) => {
                if let Some(reason) = at_minimum(fact) {
                    return Err(refusal(&reason));
                }
                let weight = group.members.get(id).map_or(1, |member| member.weight);
                Ok(Next::InGroup { group: group.name.clone(), desired: group.desired, weight })
            }
            Kept::Fleet(fleet) => self.next_of_fleet(fleet, id, before, &known, terminated),
            Kept::Nobody => Ok(Next::Plainly(None)),
            Kept::Detached(_) | Kept::Unasked => {
                let words = format!("what keeps {id} could not be told");
                Err(refusal(&Reason::Cloud(ReasonKind::CloudUnreachable, words)))
            }
        }
    }

    async fn terminate_in_group(
        &self,
        group: &str,
        id: &str,
        write: &Write,
    ) -> Result<Result<Option<Deletion>, CallError>, PortError> {
        let once = aws_sdk_autoscaling::Config::builder().retry_config(RetryConfig::disabled());
        let request = self.api.autoscaling.terminate_instance_in_auto_scaling_group();
        let request = request.instance_id(id).should_decrement_desired_capacity(true);
        let request = request.customize().config_override(once).send();
        let asked = self.api.write(Action::TerminateInstanceInAutoScalingGroup, write, request).await?;
        self.forget(id, Some(group));
        Ok(asked.map(|_activity| Some(Deletion::Accepted)))
    }

    async fn terminate_plainly(
        &self,
        id: &str,
        fleet: Option<&FleetId>,
        write: &Write,
        terminated: &mut Terminated,
    ) -> Result<Result<Option<Deletion>, CallError>, PortError> {
        let request = self.api.ec2.terminate_instances().instance_ids(id);
        let request = request.customize().config_override(once()).send();
        Ok(match self.api.write(Action::TerminateInstances, write, request).await? {
            Ok(_) => {
                terminated.plainly.insert(id.to_owned());
                terminated.used(id, fleet);
                self.forget(id, None);
                Ok(Some(Deletion::Accepted))
            }
            Err(error) if error.is_not_found() => Ok(Some(Deletion::Accepted)),
            Err(error) => Err(error),
        })
    }
}

impl Terminated {
    /// Notes how a request to a group ended.
    fn answered(
        &mut self,
        id: &str,
        weight: u32,
        asked: &Result<Result<Option<Deletion>, CallError>, PortError>,
        now: Instant,
    ) {
        let unknown = |error: &CallError| matches!(error.kind, Kind::Unavailable | Kind::Timeout);
        if let Ok(Err(error)) = asked
            && unknown(error)
            && let Some(request) = self.unanswered.get_mut(id)
        {
            request.at = now;
            return;
        }
        let Some(Unanswered { group, .. }) = self.unanswered.remove(id) else { return };
        if matches!(asked, Ok(Ok(_))) {
            // The group is smaller for this request, which says nothing of the others.
            for other in self.unanswered.values_mut().filter(|other| other.group == group) {
                other.desired = other.desired.saturating_sub(weight);
            }
        }
    }
}

/// Whether a group keeps the instance no more, or does not count it.
fn is_outside(known: &Known, id: &str, instance: &Instance) -> bool {
    let asked = known.asked.contains(id);
    match known.memberships.get(id) {
        Some(membership) => membership.state == STANDBY,
        None => asked && matches!(known.keeper_of(id, instance), Kept::Detached(_)),
    }
}

/// The refusal of a group that has no room for one less.
fn at_minimum(fact: &CloudFact) -> Option<Reason> {
    let group = fact.group.as_ref().filter(|group| group.desired.saturating_sub(group.floor) < group.weight)?;
    let words = format!("group {} keeps {} and may not go below {}", group.id, group.desired, group.floor);
    Some(Reason::Cloud(ReasonKind::GroupAtMinimum, words))
}

fn is_unreachable(reason: &Reason) -> bool {
    reason.kind() == ReasonKind::CloudUnreachable
}

/// A refusal as an error: nothing happened. What could not be asked may be asked again.
fn refusal(leaving: Leaving<'_>, reason: &Reason) -> PortError {
    let class = if is_unreachable(reason) { ErrorClass::Transient } else { ErrorClass::Permanent };
    PortError::new(class, format!("{leaving} may not be deleted: {reason}"))
}

/// AWS' own refusal. Its code for "below the minimum" is the one for everything else too, so the words tell.
fn refused(error: CallError) -> PortError {
    let words = error.words.to_lowercase();
    let at_minimum = words.contains("min size") || words.contains("minsize");
    let kind = if at_minimum { Some(ReasonKind::GroupAtMinimum) } else { protection(&error) };
    match kind {
        Some(kind) if error.kind == Kind::Refused => {
            let reason = Reason::Cloud(kind, error.words);
            PortError::new(ErrorClass::Permanent, format!("{} is refused: {reason}", error.action))
        }
        Some(_) | None => error.into(),
    }
}

fn protection(error: &CallError) -> Option<ReasonKind> {
    (error.code == "OperationNotPermitted").then_some(ReasonKind::TerminationProtected)
}

/// Whether Auto Scaling knows the instance no more, though it said that it did: it is looked at again.
fn is_stale(error: &CallError) -> bool {
    error.kind == Kind::Refused && error.words.to_lowercase().contains("managed instance")
}

/// An error after a request whose effect is unknown: nothing that comes after it makes it known.
fn doubted(error: PortError, unsure: bool) -> PortError {
    if unsure && error.class.had_no_effect() && error.class != ErrorClass::NotLeader {
        return PortError::new(ErrorClass::Timeout, "whether the deletion was accepted is unknown").caused_by(error);
    }
    error
}

/// The pause before a repetition: no two instances wait for the same time.
fn pause(id: &str, tries: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(tries.min(10))).min(LONGEST_PAUSE);
    let mut hasher = DefaultHasher::new();
    (id, tries).hash(&mut hasher);
    let jitter = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    longest / 2 + longest / 2000 * jitter
}
