//! Subnets and security groups: that they are there, of one VPC as the load balancers are, and each subnet in a zone of
//! its own.

use std::collections::BTreeMap;

use aws_sdk_ec2::types;
use futures::future::{self, FutureExt as _};
use spot_core::ports::Instant;

use super::{Finding, NodePool, Trouble, VALUES, each, filter};
use crate::action::Action;
use crate::error::CallError;
use crate::provider::describe::more;

/// The networks of things by their IDs.
pub(super) type Answer<T> = Result<BTreeMap<String, T>, CallError>;

/// A subnet.
struct Subnet {
    vpc: String,
    zone: String,
    state: String,
    is_full: bool,
}

/// The VPC of a pool, and the subnet by which it is known.
pub(super) struct Home<'a> {
    subnet: &'a str,
    vpc: &'a str,
}

impl Home<'_> {
    /// That something is in the pool's VPC too.
    pub(super) fn has(&self, what: &str, vpc: &str, key: &str) -> Result<(), Trouble> {
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
        let (subnets, groups, balancers) =
            future::join3(self.subnets(by).boxed(), self.groups(by).boxed(), self.balancers(by).boxed()).await;
        let found = subnets.as_ref().ok();
        let first = |found| self.pool.subnets.iter().find_map(|id| BTreeMap::<_, Subnet>::get_key_value(found, id));
        let home = found.and_then(first).map(|(subnet, Subnet { vpc, .. })| Home { subnet, vpc });
        let is_home = |what: &str, vpc: &str, key| home.as_ref().map_or(Ok(()), |home| home.has(what, vpc, key));
        let mut findings = each("subnet", &self.pool.subnets, &subnets, |id, subnet| {
            let Some(subnet) = subnet else {
                return Err(self.missing("subnet", id, "correct `subnets`, or `region`"));
            };
            is_home(&format!("subnet {id}"), &subnet.vpc, "`subnets`")?;
            found.map_or(Ok(()), |found| self.judge_subnet(id, subnet, found))
        });
        findings.extend(each("security group", &self.pool.security_groups, &groups, |id, vpc| match vpc {
            Some(vpc) => is_home(&format!("security group {id}"), vpc, "`subnets` and `securityGroups`"),
            None => Err(self.missing("security group", id, "correct `securityGroups`, or `region`")),
        }));
        findings.extend(self.judge_balancers(&balancers, home.as_ref()));
        findings
    }

    /// Whether machines can be launched in a subnet, beside the others of the pool.
    fn judge_subnet(&self, id: &str, subnet: &Subnet, all: &BTreeMap<String, Subnet>) -> Result<(), Trouble> {
        let Subnet { vpc, zone, state, is_full } = subnet;
        if state != "available" {
            let remedy = "wait until it is available, or take it out of `subnets`";
            return Err(Trouble::new(format!("subnet {id} is {state}"), remedy));
        }
        // A fleet has one subnet in each zone; the same type in two is refused.
        let before = self.pool.subnets.iter().take_while(|other| *other != id);
        let is_beside = |other: &&String| all.get(*other).is_some_and(|other| (&other.vpc, &other.zone) == (vpc, zone));
        if let Some(other) = before.clone().find(is_beside) {
            let why = format!("subnets {other} and {id} are both in zone {zone}, and a fleet takes one of each zone");
            return Err(Trouble::new(why, "keep one of the two in `subnets`"));
        }
        let why = format!("subnet {id} has no free addresses");
        match is_full {
            true if self.pool.subnets.iter().all(|id| all.get(id).is_some_and(|one| one.is_full)) => {
                Err(Trouble::new(why, "free some, or add a subnet of another zone to `subnets`"))
            }
            true => Err(Trouble::advice(why, "machines are launched in the others; free some of its addresses")),
            false => Ok(()),
        }
    }

    /// That something is not there.
    pub(super) fn missing(&self, what: &str, name: &str, remedy: &str) -> Trouble {
        let why = format!("there is no {what} {name} for this account in region {}", self.region());
        Trouble::new(why, remedy)
    }

    async fn subnets(&self, by: Instant) -> Answer<Subnet> {
        let mut found = BTreeMap::new();
        for ids in self.pool.subnets.chunks(VALUES) {
            let mut token = None;
            loop {
                let request = self.api().ec2.describe_subnets().filters(filter("subnet-id", ids)).set_next_token(token);
                let page = self.api().call(Action::DescribeSubnets, by, request.send()).await?;
                found.extend(page.subnets().iter().filter_map(Subnet::of));
                token = more(page.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(found)
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
}

impl Subnet {
    fn of(described: &types::Subnet) -> Option<(String, Self)> {
        let subnet = Self {
            vpc: described.vpc_id().unwrap_or_default().to_owned(),
            zone: described.availability_zone().unwrap_or_default().to_owned(),
            state: described.state().map(types::SubnetState::as_str).unwrap_or_default().to_owned(),
            is_full: described.available_ip_address_count() == Some(0),
        };
        Some((described.subnet_id()?.to_owned(), subnet))
    }
}
