//! Where instances may be registered, and what is asked there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aws_sdk_elasticloadbalancing::types as classic;
use aws_sdk_elasticloadbalancingv2::types::{self, TargetDescription, TargetHealthReasonEnum, TargetHealthStateEnum};
use aws_smithy_types::retry::RetryConfig;
use spot_core::error::PortError;
use spot_core::ports::{Instant, Write};

use crate::action::Action;
use crate::client::Api;
use crate::error::CallError;
use crate::provider::describe::more;
use crate::provider::instance::CLUSTER_TAG;

/// The largest page of balancers and target groups.
const PAGE: i32 = 400;
/// The most balancers whose tags one call tells.
const TAGGED: usize = 20;
/// The AWS Load Balancer Controller tags what it makes with the cluster's name.
const CONTROLLER_TAG: &str = "elbv2.k8s.aws/cluster";

/// One place where instances may be registered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// The target group of this ARN.
    TargetGroup(String),
    /// The classic load balancer of this name.
    Classic(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TargetGroup(name) | Self::Classic(name) => f.write_str(name),
        }
    }
}

/// What a place does with an instance, by how much it is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Serving {
    /// It does not know the instance, or sends none of its traffic.
    No,
    /// It lets what is under way end.
    Draining,
    /// It sends traffic, or would.
    Yes,
}

/// An instance at a place.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) serving: Serving,
    /// Those of its targets that are served, if the place is a target group.
    pub(super) targets: Vec<TargetDescription>,
}

impl Default for Registered {
    fn default() -> Self {
        Self { serving: Serving::No, targets: Vec::new() }
    }
}

impl Api {
    /// The places that are tagged for a cluster.
    pub(super) async fn places_of_cluster(&self, cluster: &str, by: Instant) -> Result<BTreeSet<Place>, CallError> {
        let mut places = self.target_groups_of(cluster, by).await?;
        places.append(&mut self.classic_of(cluster, by).await?);
        Ok(places)
    }

    /// The cluster's target groups of instances; those of addresses serve pods, whose end deregisters them.
    async fn target_groups_of(&self, cluster: &str, by: Instant) -> Result<BTreeSet<Place>, CallError> {
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
            let tags = those_there(arns, |arns| async {
                let request = self.balancing.describe_tags().set_resource_arns(Some(arns));
                let answer = self.call(Action::DescribeTags, by, request.send()).await?;
                Ok(answer.tag_descriptions.unwrap_or_default())
            });
            let is_ours = |one: &types::TagDescription| {
                one.tags().iter().any(|tag| is_of(cluster, tag.key().unwrap_or_default(), tag.value()))
            };
            let tagged = tags.await?.into_iter().filter(is_ours);
            ours.extend(tagged.filter_map(|one| one.resource_arn).map(Place::TargetGroup));
        }
        Ok(ours)
    }

    /// The cluster's classic load balancers.
    async fn classic_of(&self, cluster: &str, by: Instant) -> Result<BTreeSet<Place>, CallError> {
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
            let tags = those_there(names, |names| async {
                let request = self.classic.describe_tags().set_load_balancer_names(Some(names));
                let answer = self.call(Action::DescribeTags, by, request.send()).await?;
                Ok(answer.tag_descriptions.unwrap_or_default())
            });
            let is_ours =
                |one: &classic::TagDescription| one.tags().iter().any(|tag| is_of(cluster, tag.key(), tag.value()));
            let tagged = tags.await?.into_iter().filter(is_ours);
            ours.extend(tagged.filter_map(|one| one.load_balancer_name).map(Place::Classic));
        }
        Ok(ours)
    }

    /// The instances at a place. One of `missing`, which were deregistered there, may be draining though it is not listed
    /// any more.
    pub(super) async fn registered(
        &self,
        place: &Place,
        missing: &BTreeSet<String>,
        by: Instant,
    ) -> Result<BTreeMap<String, Registered>, CallError> {
        let mut registered: BTreeMap<String, Registered> = BTreeMap::new();
        match place {
            Place::TargetGroup(arn) => {
                // All targets: asked for by its ID alone, an instance is told of on the group's own port only.
                let request = self.balancing.describe_target_health().target_group_arn(arn);
                let answer = self.call(Action::DescribeTargetHealth, by, request.send()).await?;
                for one in answer.target_health_descriptions() {
                    let Some((id, target)) = one.target().and_then(|target| Some((target.id()?, target))) else {
                        continue;
                    };
                    let serving = one.target_health().map_or(Serving::Yes, target_serving);
                    // On several ports, it serves until none of them does.
                    let known = registered.entry(id.to_owned()).or_default();
                    known.serving = known.serving.max(serving);
                    known.targets.extend((serving == Serving::Yes).then(|| target.clone()));
                }
            }
            Place::Classic(name) => {
                let mut states = self.health_of(name, Vec::new(), by).await?;
                let is_listed = |id: &&String| states.iter().any(|state| state.instance_id() == Some(id.as_str()));
                let unlisted: Vec<_> = missing.iter().filter(|id| !is_listed(id)).cloned().collect();
                if !unlisted.is_empty() {
                    states.extend(those_there(&unlisted, |ids| self.health_of(name, ids, by)).await?);
                }
                for state in states {
                    let serving = instance_serving(&state);
                    registered.extend(state.instance_id.map(|id| (id, Registered { serving, targets: Vec::new() })));
                }
            }
        }
        Ok(registered)
    }

    /// The states of these instances of a classic load balancer, or of all if none is named.
    async fn health_of(
        &self,
        name: &str,
        ids: Vec<String>,
        by: Instant,
    ) -> Result<Vec<classic::InstanceState>, CallError> {
        let named = (!ids.is_empty()).then(|| ids.iter().map(|id| instance(id)).collect());
        let request = self.classic.describe_instance_health().load_balancer_name(name).set_instances(named);
        let answer = self.call(Action::DescribeInstanceHealth, by, request.send()).await?;
        Ok(answer.instance_states.unwrap_or_default())
    }

    /// Deregisters instances, each with its targets, at a place where they are registered.
    pub(super) async fn take_out_of(
        &self,
        place: &Place,
        instances: &[(&str, &[TargetDescription])],
        write: &Write,
    ) -> Result<Result<(), CallError>, PortError> {
        match place {
            Place::TargetGroup(arn) => {
                let once = aws_sdk_elasticloadbalancingv2::Config::builder().retry_config(RetryConfig::disabled());
                let targets = instances.iter().flat_map(|(_, targets)| targets.iter().cloned()).collect();
                let request = self.balancing.deregister_targets().target_group_arn(arn).set_targets(Some(targets));
                let request = request.customize().config_override(once).send();
                Ok(self.write(Action::DeregisterTargets, write, request).await?.map(|_| ()))
            }
            Place::Classic(name) => {
                let once = aws_sdk_elasticloadbalancing::Config::builder().retry_config(RetryConfig::disabled());
                let request = self.classic.deregister_instances_from_load_balancer().load_balancer_name(name);
                let request = request.set_instances(Some(instances.iter().map(|(id, _)| instance(id)).collect()));
                let request = request.customize().config_override(once).send();
                Ok(self.write(Action::DeregisterInstancesFromLoadBalancer, write, request).await?.map(|_| ()))
            }
        }
    }

    /// Registers an instance at a place again, as the targets that it was there.
    pub(super) async fn register(
        &self,
        place: &Place,
        id: &str,
        targets: &[TargetDescription],
        write: &Write,
    ) -> Result<Result<(), CallError>, PortError> {
        match place {
            Place::TargetGroup(arn) => {
                let once = aws_sdk_elasticloadbalancingv2::Config::builder().retry_config(RetryConfig::disabled());
                let request = self.balancing.register_targets().target_group_arn(arn);
                let request = request.set_targets(Some(targets.to_vec())).customize().config_override(once).send();
                Ok(self.write(Action::RegisterTargets, write, request).await?.map(|_| ()))
            }
            Place::Classic(name) => {
                let once = aws_sdk_elasticloadbalancing::Config::builder().retry_config(RetryConfig::disabled());
                let request = self.classic.register_instances_with_load_balancer().load_balancer_name(name);
                let request = request.instances(instance(id)).customize().config_override(once).send();
                Ok(self.write(Action::RegisterInstancesWithLoadBalancer, write, request).await?.map(|_| ()))
            }
        }
    }
}

/// Asks about all of these; where one of them is not there, which fails the whole call, about each: one that was
/// deleted since serves nobody.
async fn those_there<T, A: Future<Output = Result<Vec<T>, CallError>>>(
    names: &[String],
    ask: impl Fn(Vec<String>) -> A,
) -> Result<Vec<T>, CallError> {
    match ask(names.to_vec()).await {
        Err(error) if error.is_not_found() => {}
        answer => return answer,
    }
    let mut answers = Vec::new();
    for name in names {
        match ask(vec![name.clone()]).await {
            Ok(answer) => answers.extend(answer),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answers)
}

fn instance(id: &str) -> classic::Instance {
    classic::Instance::builder().instance_id(id).build()
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
pub(crate) fn is_of(cluster: &str, tag: &str, value: Option<&str>) -> bool {
    let owned = tag.strip_prefix(CLUSTER_TAG) == Some(cluster) && matches!(value, Some("owned" | "shared"));
    owned || (tag == CONTROLLER_TAG && value == Some(cluster))
}
