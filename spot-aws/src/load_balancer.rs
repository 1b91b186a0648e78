//! Takes an instance out of its load balancers, and waits until they have let go of it.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_elasticloadbalancing::types as classic;
use aws_sdk_elasticloadbalancingv2::types::{self, TargetDescription, TargetHealthReasonEnum, TargetHealthStateEnum};
use aws_smithy_types::retry::RetryConfig;
use jiff::Timestamp;
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::NodeSnapshot;
use spot_core::ports::{Instant, Lane, Write};

use crate::ProviderId;
use crate::action::Action;
use crate::client::Api;
use crate::describe::more;
use crate::error::CallError;
use crate::instance::CLUSTER_TAG;
use crate::provider::{Aws, lock};

/// How often a balancer that drains is looked at.
const DRAINING: Duration = Duration::from_secs(5);
/// The largest page of balancers and target groups.
const PAGE: i32 = 400;
/// The most balancers whose tags one call tells.
const TAGGED: usize = 20;
/// The AWS Load Balancer Controller tags what it makes with the cluster's name.
const CONTROLLER_TAG: &str = "elbv2.k8s.aws/cluster";

/// Where instances may be registered.
#[derive(Debug)]
struct Balancers {
    target_groups: BTreeSet<String>,
    classic: BTreeSet<String>,
}

/// One place where an instance may be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place<'a> {
    TargetGroup(&'a str),
    Classic(&'a str),
}

impl Place<'_> {
    const fn name(&self) -> &str {
        match self {
            Self::TargetGroup(name) | Self::Classic(name) => name,
        }
    }
}

/// What a place does with an instance, by how much it is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Serving {
    /// It does not know the instance, or sends none of its traffic.
    No,
    /// It lets what is under way end.
    Draining,
    /// It sends traffic, or would.
    Yes,
}

impl Aws {
    /// Waits until the taint has been on for long enough, and the balancers have let go of the node's instance.
    ///
    /// Nothing registers an instance again: a group does that once, when it launches one. So what would refuse the
    /// deletion by now fails this, before anything is deregistered. What refuses it later leaves a node that its group's
    /// target groups send nothing to, and the error says which. Registering it again would take a right that is needed
    /// for nothing else, and might meet the next attempt's deregistration: that is left to a person.
    pub(crate) async fn take_out(
        &self,
        node: &NodeSnapshot,
        tainted_at: Option<Timestamp>,
        write: &Write,
    ) -> Result<(), PortError> {
        let clock = &self.api.clock;
        let (drain, longest) = self.load_balancer;
        let seen = clock.instant() + drain.saturating_sub(self.tainted_for(node, tainted_at));
        clock.sleep_until(seen.min(write.by)).await;
        if seen > write.by {
            let what = format!("load balancers had no time to let go of node {}", node.name);
            return Err(PortError::new(ErrorClass::Timeout, what));
        }
        let Ok(id) = ProviderId::parse(&node.provider_id) else { return Ok(()) };
        let until = (clock.instant() + longest).min(write.by);
        let balancers = loop {
            match self.allowed_out_of(node, id.instance_id(), write).await {
                Err(error) if !error.class.had_no_effect() && self.api.pause(DRAINING, write.by).await => {
                    tracing::debug!(instance = id.instance_id(), %error, "to be asked for again");
                }
                answer => break answer?,
            }
        };
        self.deregister(id.instance_id(), &balancers, until, write).await
    }

    /// How long the taint has been on. A time in the future, or none, tells nothing: such a taint counts from when it was
    /// first met, so that it is waited for once, however often this is come to.
    fn tainted_for(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>) -> Duration {
        let clock = &self.api.clock;
        let now = clock.instant();
        let told = tainted_at.and_then(|at| Duration::try_from(clock.now().duration_since(at)).ok());
        let mut met = lock(&self.met);
        let since = match met.get(&node.uid) {
            Some((at, since)) if *at == tainted_at => *since,
            Some(_) | None => now,
        };
        if told.is_none() {
            met.insert(node.uid.clone(), (tainted_at, since));
        }
        told.unwrap_or_default().max(now.since(since))
    }

    /// Where the instance may be registered, provided that nothing is known that would refuse its deletion.
    async fn allowed_out_of(&self, node: &NodeSnapshot, id: &str, write: &Write) -> Result<Balancers, PortError> {
        let balancers = self.balancers_of(id, write.by).await?;
        // What is interrupted goes whether or not we may delete it.
        if write.lane == Lane::Planned {
            self.verify(node, id, write.by).await?;
        }
        Ok(balancers)
    }

    /// The balancers that are attached to the instance's group, and those that are tagged for the cluster.
    async fn balancers_of(&self, id: &str, by: Instant) -> Result<Balancers, CallError> {
        let cluster = &self.rules.cluster_name;
        let mut balancers = Balancers {
            target_groups: self.api.target_groups_of(cluster, by).await?,
            classic: self.api.classic_of(cluster, by).await?,
        };
        if let Some(membership) = self.api.memberships(&[id], by).await?.remove(id) {
            for group in self.api.groups(&BTreeSet::from([membership.group]), by).await?.into_values() {
                balancers.target_groups.extend(group.target_groups);
                balancers.classic.extend(group.classic);
            }
        }
        Ok(balancers)
    }

    /// Deregisters the instance wherever it is registered, and waits until none of it is left, at most until `until`.
    /// Where it could not be deregistered, or asked for, it may serve: that is tried until the very deadline, and is an
    /// error then.
    async fn deregister(
        &self,
        id: &str,
        balancers: &Balancers,
        until: Instant,
        write: &Write,
    ) -> Result<(), PortError> {
        let target_groups = balancers.target_groups.iter().map(|arn| Place::TargetGroup(arn));
        let mut left: Vec<_> = target_groups.chain(balancers.classic.iter().map(|name| Place::Classic(name))).collect();
        loop {
            let (mut serving, mut failed) = (Vec::new(), None);
            for place in left {
                match self.api.serving(place, id, write.by).await {
                    Ok((Serving::No, _)) => {}
                    Ok((Serving::Draining, _)) => serving.push(place),
                    Ok((Serving::Yes, targets)) => {
                        serving.push(place);
                        match self.api.take_out_of(place, id, targets, write).await? {
                            Ok(()) => {
                                tracing::info!(instance = id, place = place.name(), "deregistered");
                                self.taken_out(id, place.name());
                            }
                            Err(error) if error.may_pass() => failed = Some(error),
                            // The next look tells that it is gone.
                            Err(error) if error.is_not_found() => {}
                            Err(error) => return Err(error.into()),
                        }
                    }
                    Err(error) if error.is_not_found() => {}
                    Err(error) if error.may_pass() => {
                        serving.push(place);
                        failed = Some(error);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            left = serving;
            if left.is_empty() {
                return Ok(());
            }
            if let Some(error) = failed {
                if !self.api.pause(DRAINING, write.by).await {
                    return Err(error.into());
                }
                tracing::debug!(instance = id, %error, "to be tried again");
            } else if !self.api.pause(DRAINING, until).await {
                let places: Vec<_> = left.iter().map(Place::name).collect();
                tracing::warn!(instance = id, places = places.join(", "), "still draining; it is deleted all the same");
                return Ok(());
            }
        }
    }
}

impl Api {
    /// The cluster's target groups of instances; those of addresses serve pods, whose end deregisters them.
    async fn target_groups_of(&self, cluster: &str, by: Instant) -> Result<BTreeSet<String>, CallError> {
        let mut arns = Vec::new();
        let mut marker = None;
        loop {
            let request = self.balancing.describe_target_groups().page_size(PAGE).set_marker(marker);
            let page = self.call(Action::DescribeTargetGroups, by, request.send()).await?;
            let of_instances =
                |group: &&types::TargetGroup| group.target_type() == Some(&types::TargetTypeEnum::Instance);
            let groups = page.target_groups().iter().filter(of_instances);
            arns.extend(groups.filter_map(|group| group.target_group_arn().map(str::to_owned)));
            marker = more(page.next_marker());
            if marker.is_none() {
                break;
            }
        }
        let mut ours = BTreeSet::new();
        for arns in arns.chunks(TAGGED) {
            let request = self.balancing.describe_tags().set_resource_arns(Some(arns.to_vec()));
            let answer = match self.call(Action::DescribeTags, by, request.send()).await {
                Ok(answer) => answer,
                // One of them was deleted since: it serves nobody. The others are asked for one by one.
                Err(error) if error.is_not_found() => {
                    for arn in arns {
                        let request = self.balancing.describe_tags().resource_arns(arn);
                        match self.call(Action::DescribeTags, by, request.send()).await {
                            Ok(answer) => ours.extend(tagged_groups(answer.tag_descriptions(), cluster)),
                            Err(error) if error.is_not_found() => {}
                            Err(error) => return Err(error),
                        }
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            ours.extend(tagged_groups(answer.tag_descriptions(), cluster));
        }
        Ok(ours)
    }

    /// The cluster's classic load balancers.
    async fn classic_of(&self, cluster: &str, by: Instant) -> Result<BTreeSet<String>, CallError> {
        let mut names = Vec::new();
        let mut marker = None;
        loop {
            let request = self.classic.describe_load_balancers().page_size(PAGE).set_marker(marker);
            let page = self.call(Action::DescribeLoadBalancers, by, request.send()).await?;
            let balancers = page.load_balancer_descriptions().iter();
            names.extend(balancers.filter_map(|balancer| balancer.load_balancer_name().map(str::to_owned)));
            marker = more(page.next_marker());
            if marker.is_none() {
                break;
            }
        }
        let mut ours = BTreeSet::new();
        for names in names.chunks(TAGGED) {
            let request = self.classic.describe_tags().set_load_balancer_names(Some(names.to_vec()));
            let answer = match self.call(Action::DescribeTags, by, request.send()).await {
                Ok(answer) => answer,
                Err(error) if error.is_not_found() => {
                    for name in names {
                        let request = self.classic.describe_tags().load_balancer_names(name);
                        match self.call(Action::DescribeTags, by, request.send()).await {
                            Ok(answer) => ours.extend(tagged_balancers(answer.tag_descriptions(), cluster)),
                            Err(error) if error.is_not_found() => {}
                            Err(error) => return Err(error),
                        }
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            ours.extend(tagged_balancers(answer.tag_descriptions(), cluster));
        }
        Ok(ours)
    }

    /// What a place does with an instance, and the targets that it serves if it is a target group.
    async fn serving(
        &self,
        place: Place<'_>,
        id: &str,
        by: Instant,
    ) -> Result<(Serving, Vec<TargetDescription>), CallError> {
        match place {
            Place::TargetGroup(arn) => {
                // All targets: asked for by its ID alone, an instance is told of on the group's own port only.
                let request = self.balancing.describe_target_health().target_group_arn(arn);
                let answer = self.call(Action::DescribeTargetHealth, by, request.send()).await?;
                let targets = answer.target_health_descriptions().iter().filter_map(|one| {
                    let target = one.target().filter(|target| target.id() == Some(id))?;
                    Some((one.target_health().map_or(Serving::Yes, target_serving), target))
                });
                // On several ports, it serves until none of them does.
                let most = targets.clone().map(|(serving, _)| serving).max().unwrap_or(Serving::No);
                let served = targets.filter(|(serving, _)| *serving == Serving::Yes);
                Ok((most, served.map(|(_, target)| target.clone()).collect()))
            }
            Place::Classic(name) => {
                let instance = classic::Instance::builder().instance_id(id).build();
                let request = self.classic.describe_instance_health().load_balancer_name(name).instances(instance);
                let answer = self.call(Action::DescribeInstanceHealth, by, request.send()).await?;
                Ok((answer.instance_states().first().map_or(Serving::No, instance_serving), Vec::new()))
            }
        }
    }

    async fn take_out_of(
        &self,
        place: Place<'_>,
        id: &str,
        targets: Vec<TargetDescription>,
        write: &Write,
    ) -> Result<Result<(), CallError>, PortError> {
        match place {
            Place::TargetGroup(arn) => {
                let once = aws_sdk_elasticloadbalancingv2::Config::builder().retry_config(RetryConfig::disabled());
                let request = self.balancing.deregister_targets().target_group_arn(arn).set_targets(Some(targets));
                let request = request.customize().config_override(once).send();
                Ok(self.write(Action::DeregisterTargets, write, request).await?.map(|_| ()))
            }
            Place::Classic(name) => {
                let once = aws_sdk_elasticloadbalancing::Config::builder().retry_config(RetryConfig::disabled());
                let instance = classic::Instance::builder().instance_id(id).build();
                let request = self.classic.deregister_instances_from_load_balancer().load_balancer_name(name);
                let request = request.instances(instance).customize().config_override(once).send();
                Ok(self.write(Action::DeregisterInstancesFromLoadBalancer, write, request).await?.map(|_| ()))
            }
        }
    }
}

fn target_serving(health: &types::TargetHealth) -> Serving {
    match (health.state(), health.reason()) {
        (Some(TargetHealthStateEnum::Draining), _) | (_, Some(TargetHealthReasonEnum::DeregistrationInProgress)) => {
            Serving::Draining
        }
        (
            Some(TargetHealthStateEnum::Unused),
            Some(TargetHealthReasonEnum::NotRegistered | TargetHealthReasonEnum::NotInUse),
        ) => Serving::No,
        (_, _) => Serving::Yes,
    }
}

/// A classic balancer tells by its words. Of an instance that it does not know it says so, or "unknown" and no more.
fn instance_serving(state: &classic::InstanceState) -> Serving {
    let words = state.description().unwrap_or_default();
    let unknown = state.state() == Some("Unknown") && !words.contains("transient error");
    if unknown || words.contains("not currently registered") {
        Serving::No
    } else if words.contains("deregistration currently in progress") {
        Serving::Draining
    } else {
        Serving::Yes
    }
}

/// Whether a tag says that its bearer is this cluster's.
fn is_of(cluster: &str, tag: &str, value: Option<&str>) -> bool {
    let owned = tag.strip_prefix(CLUSTER_TAG) == Some(cluster) && matches!(value, Some("owned" | "shared"));
    owned || (tag == CONTROLLER_TAG && value == Some(cluster))
}

fn tagged_groups(described: &[types::TagDescription], cluster: &str) -> Vec<String> {
    let ours = |one: &&types::TagDescription| {
        one.tags().iter().any(|tag| is_of(cluster, tag.key().unwrap_or_default(), tag.value()))
    };
    described.iter().filter(ours).filter_map(|one| one.resource_arn().map(str::to_owned)).collect()
}

fn tagged_balancers(described: &[classic::TagDescription], cluster: &str) -> Vec<String> {
    let ours = |one: &&classic::TagDescription| one.tags().iter().any(|tag| is_of(cluster, tag.key(), tag.value()));
    described.iter().filter(ours).filter_map(|one| one.load_balancer_name().map(str::to_owned)).collect()
}
