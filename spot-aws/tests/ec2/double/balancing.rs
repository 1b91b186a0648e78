//! Load balancers of both kinds.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::state::{Balancer, Registration, State};
use super::wire::{Answer, Refusal, Request, list, tag};

pub(crate) fn answer(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    match request.name.as_str() {
        "DescribeTargetGroups" => Ok(page(&state.target_groups, state.page, request, "TargetGroups", |arn, group| {
            let kind = if group.of_addresses { "ip" } else { "instance" };
            tag("TargetGroupArn", arn) + &tag("TargetType", kind)
        })),
        "DescribeTags" => {
            let arns = request.params.list("ResourceArns");
            tags(&state.target_groups, &arns, "ResourceArn", "TargetGroupNotFound").map(|tags| request.query(&tags))
        }
        "DescribeTargetHealth" => health(state, request),
        "DeregisterTargets" => deregister(state, request),
        other => panic!("no call of load balancing: {other}"),
    }
}

pub(crate) fn answer_classic(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    match request.name.as_str() {
        "DescribeLoadBalancers" => {
            Ok(page(&state.classic, state.page, request, "LoadBalancerDescriptions", |name, _| {
                tag("LoadBalancerName", name)
            }))
        }
        "DescribeTags" => {
            let names = request.params.list("LoadBalancerNames");
            tags(&state.classic, &names, "LoadBalancerName", "LoadBalancerNotFound").map(|tags| request.query(&tags))
        }
        "DescribeInstanceHealth" => instance_health(state, request),
        "DeregisterInstancesFromLoadBalancer" => {
            let name = request.params.get("LoadBalancerName").to_owned();
            let Some(balancer) = state.classic.get_mut(&name) else {
                return Err(Refusal::new(400, "LoadBalancerNotFound", format!("There is no load balancer {name}")));
            };
            drain(balancer, request.params.get("Instances.member.1.InstanceId"));
            Ok(request.query(&list("Instances", "member", [])))
        }
        other => panic!("no call of classic load balancing: {other}"),
    }
}

fn page(
    all: &BTreeMap<String, Balancer>,
    size: usize,
    request: &Request,
    name: &str,
    one: impl Fn(&str, &Balancer) -> String,
) -> Answer {
    let size = if size == 0 { request.params.get("PageSize").parse().unwrap_or(400) } else { size };
    let from: usize = request.params.get("Marker").parse().unwrap_or_default();
    let mut content = list(name, "member", all.iter().skip(from).take(size).map(|(key, value)| one(key, value)));
    if from + size < all.len() {
        content += &tag("NextMarker", from + size);
    }
    request.query(&content)
}

fn tags(all: &BTreeMap<String, Balancer>, asked: &[String], key: &str, code: &str) -> Result<String, Refusal> {
    if asked.is_empty() || asked.len() > 20 {
        return Err(Refusal::new(400, "ValidationError", "Between 1 and 20 resources can be asked for"));
    }
    let one = |name: &String| {
        let balancer = all.get(name).ok_or_else(|| Refusal::new(400, code, format!("{name} does not exist")))?;
        let tags = balancer.tags.iter().map(|(key, value)| tag("Key", key) + &tag("Value", value));
        Ok(tag(key, name) + &list("Tags", "member", tags))
    };
    Ok(list("TagDescriptions", "member", asked.iter().map(one).collect::<Result<Vec<_>, _>>()?))
}

fn target_group<'a>(state: &'a mut State, request: &Request) -> Result<&'a mut Balancer, Refusal> {
    let arn = request.params.get("TargetGroupArn");
    let unknown = || Refusal::new(400, "TargetGroupNotFound", "One or more target groups not found");
    state.target_groups.get_mut(arn).ok_or_else(unknown)
}

fn health(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let id = request.params.get("Targets.member.1.Id").to_owned();
    let (health, reason) = match target_group(state, request)?.registered.get(&id) {
        None => ("unused", "Target.NotRegistered"),
        Some(Registration::Serving) => ("healthy", ""),
        Some(Registration::DrainingUntil(_)) => ("draining", "Target.DeregistrationInProgress"),
    };
    let reason = if reason.is_empty() { String::new() } else { tag("Reason", reason) };
    let one = tag("Target", tag("Id", &id)) + &tag("TargetHealth", tag("State", health) + &reason);
    Ok(request.query(&list("TargetHealthDescriptions", "member", [one])))
}

fn deregister(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let id = request.params.get("Targets.member.1.Id").to_owned();
    drain(target_group(state, request)?, &id);
    Ok(request.query(""))
}

fn instance_health(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let name = request.params.get("LoadBalancerName");
    let id = request.params.get("Instances.member.1.InstanceId");
    let Some(balancer) = state.classic.get(name) else {
        return Err(Refusal::new(400, "LoadBalancerNotFound", format!("There is no load balancer {name}")));
    };
    let (health, words) = match balancer.registered.get(id) {
        None if balancer.lenient => ("Unknown", "N/A"),
        None => return Err(Refusal::new(400, "InvalidInstance", format!("Could not find EC2 instance {id}."))),
        Some(Registration::Serving) => ("InService", "N/A"),
        Some(Registration::DrainingUntil(_)) => ("InService", "Instance deregistration currently in progress."),
    };
    let one = tag("InstanceId", id) + &tag("State", health) + &tag("Description", words);
    Ok(request.query(&list("InstanceStates", "member", [one])))
}

fn drain(balancer: &mut Balancer, id: &str) {
    let until = Instant::now() + balancer.draining;
    if let Some(registration) = balancer.registered.get_mut(id)
        && matches!(registration, Registration::Serving)
    {
        *registration = Registration::DrainingUntil(until);
    }
}
