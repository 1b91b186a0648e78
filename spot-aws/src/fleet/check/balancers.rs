//! Load balancers: that they are there, in the pool's VPC, and that machines may be taken out of them.

use aws_sdk_elasticloadbalancing as classic;
use aws_sdk_elasticloadbalancingv2::types::{self, TargetTypeEnum};
use futures::future;
use spot_core::ports::Instant;

use super::network::{Answer, Home};
use super::{Finding, NodePool, Trouble, each};
use crate::action::Action;
use crate::error::{CallError, Kind};
use crate::fleet::pool::Pool;
use crate::provider::is_of;

/// A target group.
struct TargetGroup {
    vpc: Option<String>,
    /// What its targets are.
    kind: Option<TargetTypeEnum>,
}

/// What was answered of a balancer: itself, and whether it is the cluster's.
type Told<T> = (Answer<T>, Result<bool, CallError>);

/// What was answered of the pool's balancers, in its order.
pub(super) struct Balancers {
    /// Their VPCs.
    classic: Vec<Told<String>>,
    target_groups: Vec<Told<TargetGroup>>,
}

impl NodePool {
    pub(super) async fn balancers(&self, by: Instant) -> Balancers {
        let Pool { load_balancers: names, target_groups: arns, .. } = &*self.pool;
        let classic = names.iter().map(|name| future::join(self.classic(name, by), self.classic_is_ours(name, by)));
        let groups =
            arns.iter().map(|arn| future::join(self.target_group(arn, by), self.target_group_is_ours(arn, by)));
        let (classic, target_groups) = future::join(future::join_all(classic), future::join_all(groups)).await;
        Balancers { classic, target_groups }
    }

    pub(super) fn judge_balancers(&self, told: &Balancers, home: Option<&Home<'_>>) -> Vec<Finding> {
        let classic = self.pool.load_balancers.iter().zip(&told.classic);
        let classic = classic.flat_map(|(name, (answer, is_ours))| {
            each("load balancer", [name], answer, |name, vpc| {
                let what = format!("load balancer {name}");
                let Some(vpc) = vpc else {
                    return Err(self.missing("classic load balancer", name, "correct `loadBalancers`, or `region`"));
                };
                home.map_or(Ok(()), |home| home.has(&what, vpc, "`subnets` and `loadBalancers`"))?;
                self.judge_rights(&what, is_ours)
            })
        });
        let groups = self.pool.target_groups.iter().zip(&told.target_groups);
        let groups = groups.flat_map(|(arn, (answer, is_ours))| {
            each("target group", [arn], answer, |arn, group| {
                let what = format!("target group {arn}");
                let Some(TargetGroup { vpc, kind }) = group else {
                    return Err(self.missing("target group", arn, "correct `targetGroups`, or `region`"));
                };
                if *kind != Some(TargetTypeEnum::Instance) {
                    let kind = kind.as_ref().map_or("unknown", TargetTypeEnum::as_str);
                    let why = format!("{what} is of target type {kind}, and Spot Fleet registers instances");
                    return Err(Trouble::new(why, "name one of target type instance in `targetGroups`"));
                }
                if let Some((home, vpc)) = home.zip(vpc.as_deref()) {
                    home.has(&what, vpc, "`subnets` and `targetGroups`")?;
                }
                self.judge_rights(&what, is_ours)
            })
        });
        classic.chain(groups).collect()
    }

    /// Whether machines may be deregistered, as far as the policy that comes with this program says.
    fn judge_rights(&self, what: &str, is_ours: &Result<bool, CallError>) -> Result<(), Trouble> {
        match is_ours {
            Ok(true) => Ok(()),
            Ok(false) => {
                let (cluster, policy) = (&self.pool.cluster, Action::DeregisterTargets.policy());
                let why = format!(
                    "{what} bears no tag of the cluster, nor does its name begin with `{cluster}-`, so that {policy} does \
                     not allow to take machines out of it before they go"
                );
                let remedy = format!(
                    "tag it `kubernetes.io/cluster/{cluster}` with `owned` or `shared`, or name it in that policy"
                );
                Err(Trouble::advice(why, remedy))
            }
            Err(error) => Err(Trouble { is_certain: false, ..Trouble::unanswered(error.clone()) }),
        }
    }

    fn is_named_for_us(&self, name: &str) -> bool {
        name.strip_prefix(&self.pool.cluster).is_some_and(|rest| rest.starts_with('-'))
    }

    async fn classic_is_ours(&self, name: &str, by: Instant) -> Result<bool, CallError> {
        if self.is_named_for_us(name) {
            return Ok(true);
        }
        let request = self.api().classic.describe_tags().load_balancer_names(name);
        let answer = if_there(self.api().call(Action::DescribeTags, by, request.send()).await)?;
        let all = answer.and_then(|answer| answer.tag_descriptions).unwrap_or_default();
        let is_ours = |tag: &classic::types::Tag| is_of(&self.pool.cluster, tag.key(), tag.value());
        Ok(all.iter().flat_map(classic::types::TagDescription::tags).any(is_ours))
    }

    async fn target_group_is_ours(&self, arn: &str, by: Instant) -> Result<bool, CallError> {
        let name = arn.split_once(":targetgroup/").map(|(_, name)| name).unwrap_or_default();
        if self.is_named_for_us(name) {
            return Ok(true);
        }
        let request = self.api().balancing.describe_tags().resource_arns(arn);
        let answer = if_there(self.api().call(Action::DescribeTags, by, request.send()).await)?;
        let all = answer.and_then(|answer| answer.tag_descriptions).unwrap_or_default();
        let is_ours = |tag: &types::Tag| is_of(&self.pool.cluster, tag.key().unwrap_or_default(), tag.value());
        Ok(all.iter().flat_map(types::TagDescription::tags).any(is_ours))
    }

    /// A classic load balancer: one that is not there fails the whole call, so that each has a call of its own.
    async fn classic(&self, name: &str, by: Instant) -> Answer<String> {
        let request = self.api().classic.describe_load_balancers().load_balancer_names(name);
        let answer = self.api().call(Action::DescribeLoadBalancers, by, request.send()).await;
        let found = if_there(answer)?.and_then(|answer| answer.load_balancer_descriptions);
        let vpc = found.into_iter().flatten().next().map(|one| one.vpc_id.unwrap_or_default());
        Ok(vpc.map(|vpc| (name.to_owned(), vpc)).into_iter().collect())
    }

    /// A target group, in the same way.
    async fn target_group(&self, arn: &str, by: Instant) -> Answer<TargetGroup> {
        let request = self.api().balancing.describe_target_groups().target_group_arns(arn);
        let answer = self.api().call(Action::DescribeTargetGroups, by, request.send()).await;
        let found = if_there(answer)?.and_then(|answer| answer.target_groups);
        let group = found.into_iter().flatten().next();
        let group = group.map(|one| TargetGroup { vpc: one.vpc_id, kind: one.target_type });
        Ok(group.map(|group| (arn.to_owned(), group)).into_iter().collect())
    }
}

/// None where what was asked for is not there, or its name can't be one.
fn if_there<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind == Kind::Refused && (error.is_not_found() || error.code == "ValidationError") => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
