//! Subnets, security groups and load balancers: that they are there, and of one VPC.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{self, Filter};
use aws_sdk_elasticloadbalancingv2::types::TargetTypeEnum;
use futures::future::{self, FutureExt as _};
use spot_core::ports::Instant;

use super::{Finding, NodePool, Trouble, each};
use crate::action::Action;
use crate::error::{CallError, Kind};
use crate::provider::describe::more;

/// The networks of things by their IDs.
type Answer<T> = Result<BTreeMap<String, T>, CallError>;

/// A subnet.
struct Subnet {
    vpc: String,
    state: String,
    is_full: bool,
}

/// A target group.
struct TargetGroup {
    vpc: Option<String>,
    /// What its targets are.
    kind: Option<TargetTypeEnum>,
}

/// The VPC of a pool, and the subnet by which it is known.
struct Home<'a> {
    subnet: &'a str,
    vpc: &'a str,
}

impl Home<'_> {
    /// That something is in the pool's VPC too.
    fn has(&self, what: &str, vpc: &str, key: &str) -> Result<(), Trouble> {
        if self.vpc == vpc {
            return Ok(());
        }
        let Self { subnet, vpc: home } = self;
        let why = format!("{what} is in {vpc}, and subnet {subnet} in {home}");
        Err(Trouble::new(why, format!("name only what is in one VPC in {key}")))
    }
}

impl NodePool {
    pub(super) async fn check_network(&self, by: Instant) -> Vec<Finding> {
        let (subnets, groups, classic, targets) = future::join4(
            self.subnets(by).boxed(),
            self.groups(by).boxed(),
            future::join_all(self.pool.load_balancers.iter().map(|name| self.classic(name, by))),
            future::join_all(self.pool.target_groups.iter().map(|arn| self.target_group(arn, by))),
        )
        .await;
        let found = subnets.as_ref().ok();
        let first = |found| self.pool.subnets.iter().find_map(|id| BTreeMap::<_, Subnet>::get_key_value(found, id));
        let home = found.and_then(first).map(|(subnet, Subnet { vpc, .. })| Home { subnet, vpc });
        let is_home = |what: &str, vpc: &str, key| home.as_ref().map_or(Ok(()), |home| home.has(what, vpc, key));
        let mut findings = each("subnet", &self.pool.subnets, &subnets, |id, subnet| {
            let Some(Subnet { vpc, state, is_full }) = subnet else {
                return Err(self.missing("subnet", id, "correct `subnets`, or `region`"));
            };
            if state != "available" {
                let remedy = "wait until it is available, or take it out of `subnets`";
                return Err(Trouble::new(format!("subnet {id} is {state}"), remedy));
            }
            if *is_full {
                let remedy = "add another subnet to `subnets`, or free some of its addresses";
                return Err(Trouble::new(format!("subnet {id} has no free addresses"), remedy));
            }
            is_home(&format!("subnet {id}"), vpc, "`subnets`")
        });
        findings.extend(each("security group", &self.pool.security_groups, &groups, |id, vpc| match vpc {
            Some(vpc) => is_home(&format!("security group {id}"), vpc, "`subnets` and `securityGroups`"),
            None => Err(self.missing("security group", id, "correct `securityGroups`, or `region`")),
        }));
        for (name, answer) in self.pool.load_balancers.iter().zip(classic) {
            findings.extend(each("load balancer", [name], &answer, |name, vpc| match vpc {
                Some(vpc) => is_home(&format!("load balancer {name}"), vpc, "`subnets` and `loadBalancers`"),
                None => Err(self.missing("classic load balancer", name, "correct `loadBalancers`, or `region`")),
            }));
        }
        for (arn, answer) in self.pool.target_groups.iter().zip(targets) {
            findings.extend(each("target group", [arn], &answer, |arn, group| {
                let Some(TargetGroup { vpc, kind }) = group else {
                    return Err(self.missing("target group", arn, "correct `targetGroups`, or `region`"));
                };
                if *kind != Some(TargetTypeEnum::Instance) {
                    let kind = kind.as_ref().map_or("unknown", TargetTypeEnum::as_str);
                    let why =
                        format!("target group {arn} is of target type {kind}, and Spot Fleet registers instances");
                    return Err(Trouble::new(why, "name one of target type instance in `targetGroups`"));
                }
                let vpc = vpc.as_deref();
                vpc.map_or(Ok(()), |vpc| is_home(&format!("target group {arn}"), vpc, "`subnets` and `targetGroups`"))
            }));
        }
        findings
    }

    /// That something is not there.
    pub(super) fn missing(&self, what: &str, name: &str, remedy: &str) -> Trouble {
        let why = format!("there is no {what} {name} for this account in region {}", self.region());
        Trouble::new(why, remedy)
    }

    async fn subnets(&self, by: Instant) -> Answer<Subnet> {
        let mut found = BTreeMap::new();
        let mut token = None;
        loop {
            let filter = filter("subnet-id", &self.pool.subnets);
            let request = self.api().ec2.describe_subnets().filters(filter).set_next_token(token);
            let page = self.api().call(Action::DescribeSubnets, by, request.send()).await?;
            found.extend(page.subnets().iter().filter_map(|one| {
                let subnet = Subnet {
                    vpc: one.vpc_id().unwrap_or_default().to_owned(),
                    state: one.state().map(types::SubnetState::as_str).unwrap_or_default().to_owned(),
                    is_full: one.available_ip_address_count() == Some(0),
                };
                Some((one.subnet_id()?.to_owned(), subnet))
            }));
            token = more(page.next_token());
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    async fn groups(&self, by: Instant) -> Answer<String> {
        let mut found = BTreeMap::new();
        let mut token = None;
        loop {
            let filter = filter("group-id", &self.pool.security_groups);
            let request = self.api().ec2.describe_security_groups().filters(filter).set_next_token(token);
            let page = self.api().call(Action::DescribeSecurityGroups, by, request.send()).await?;
            let group = |one: &types::SecurityGroup| {
                Some((one.group_id()?.to_owned(), one.vpc_id().unwrap_or_default().to_owned()))
            };
            found.extend(page.security_groups().iter().filter_map(group));
            token = more(page.next_token());
            if token.is_none() {
                return Ok(found);
            }
        }
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

/// By a filter, what is not there fails nothing.
pub(super) fn filter<'a>(name: &str, values: impl IntoIterator<Item = &'a String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().cloned().collect())).build()
}
