//! Load balancers of both kinds.

use std::collections::BTreeMap;

use super::state::{Balancer, Registration, State};
use super::wire::{Answer, Refusal, Request, list, tag};

/// The port of every target group.
const PORT: u16 = 80;

pub(crate) fn answer(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    match request.name.as_str() {
        "DescribeTargetGroups" => {
            let asked = request.params.list("TargetGroupArns");
            let all = named(&state.target_groups, &asked, "TargetGroupNotFound")?;
            Ok(page(&all, state.page, request, "TargetGroups", |arn, group| {
                let kind = if group.of_addresses { "ip" } else { "instance" };
                tag("TargetGroupArn", arn) + &tag("TargetType", kind) + &vpc("VpcId", group)
            }))
        }
        "DescribeTags" => {
            let arns = request.params.list("ResourceArns");
            tags(&state.target_groups, &arns, "ResourceArn", "TargetGroupNotFound").map(|tags| request.query(&tags))
        }
        "DescribeTargetHealth" => health(state, request),
        "DeregisterTargets" => deregister(state, request),
        "RegisterTargets" => register(state, request),
        other => panic!("no call of load balancing: {other}"),
    }
}

pub(crate) fn answer_classic(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    match request.name.as_str() {
        "DescribeLoadBalancers" => {
            let all = named(&state.classic, &request.params.list("LoadBalancerNames"), "LoadBalancerNotFound")?;
            Ok(page(&all, state.page, request, "LoadBalancerDescriptions", |name, balancer| {
                tag("LoadBalancerName", name) + &vpc("VPCId", balancer)
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
            for id in instances(request) {
                if let Some(registration) = balancer.registered.get_mut(&id) {
                    registration.drain(balancer.draining);
                }
            }
            Ok(request.query(&list("Instances", "member", [])))
        }
        "RegisterInstancesWithLoadBalancer" => {
            let name = request.params.get("LoadBalancerName").to_owned();
            let Some(balancer) = state.classic.get_mut(&name) else {
                return Err(Refusal::new(400, "LoadBalancerNotFound", format!("There is no load balancer {name}")));
            };
            balancer.registered.extend(instances(request).into_iter().map(|id| (id, Registration::Serving)));
            Ok(request.query(&list("Instances", "member", [])))
        }
        other => panic!("no call of classic load balancing: {other}"),
    }
}

/// Those that are named, or all. One that is not there fails the whole call.
fn named<'a>(
    all: &'a BTreeMap<String, Balancer>,
    names: &[String],
    code: &str,
) -> Result<BTreeMap<&'a String, &'a Balancer>, Refusal> {
    if let Some(unknown) = names.iter().find(|name| !all.contains_key(*name)) {
        return Err(Refusal::new(400, code, format!("{unknown} does not exist")));
    }
    Ok(all.iter().filter(|(name, _)| names.is_empty() || names.contains(name)).collect())
}

fn vpc(key: &str, balancer: &Balancer) -> String {
    if balancer.vpc.is_empty() { String::new() } else { tag(key, &balancer.vpc) }
}

fn page(
    all: &BTreeMap<&String, &Balancer>,
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

/// Targets that are asked for are told of on the port that is said, or else the group's own; without, all are.
fn health(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let asked = targets(request);
    let group = target_group(state, request)?;
    let own = group.registered.iter().map(|(id, registration)| ((id.clone(), PORT), registration));
    let elsewhere = group.elsewhere.iter().map(|(target, registration)| (target.clone(), registration));
    let all: BTreeMap<_, _> = own.chain(elsewhere).collect();
    let asked = if asked.is_empty() { all.keys().cloned().collect() } else { asked };
    let one = |target: (String, u16)| {
        let (health, reason) = match all.get(&target) {
            None => ("unused", "Target.NotRegistered"),
            Some(Registration::Serving) => ("healthy", ""),
            Some(Registration::DrainingUntil(_)) => ("draining", "Target.DeregistrationInProgress"),
        };
        let reason = if reason.is_empty() { String::new() } else { tag("Reason", reason) };
        let target = tag("Target", tag("Id", target.0) + &tag("Port", target.1));
        target + &tag("TargetHealth", tag("State", health) + &reason)
    };
    Ok(request.query(&list("TargetHealthDescriptions", "member", asked.into_iter().map(one))))
}

fn deregister(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let targets = targets(request);
    if targets.is_empty() {
        return Err(Refusal::new(400, "ValidationError", "At least one target must be specified"));
    }
    let group = target_group(state, request)?;
    for (id, port) in targets {
        let draining = group.draining;
        let registration =
            if port == PORT { group.registered.get_mut(&id) } else { group.elsewhere.get_mut(&(id, port)) };
        if let Some(registration) = registration {
            registration.drain(draining);
        }
    }
    Ok(request.query(""))
}

fn register(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let targets = targets(request);
    if targets.is_empty() {
        return Err(Refusal::new(400, "ValidationError", "At least one target must be specified"));
    }
    let group = target_group(state, request)?;
    for (id, port) in targets {
        if port == PORT {
            group.registered.insert(id, Registration::Serving);
        } else {
            group.elsewhere.insert((id, port), Registration::Serving);
        }
    }
    Ok(request.query(""))
}

/// The instances that are named to a classic load balancer.
fn instances(request: &Request) -> Vec<String> {
    let id = |at: u32| request.params.get(&format!("Instances.member.{at}.InstanceId")).to_owned();
    (1..).map_while(|at| Some(id(at)).filter(|id| !id.is_empty())).collect()
}

/// The targets that are named; one without a port is on the group's own.
fn targets(request: &Request) -> Vec<(String, u16)> {
    let field = |at: u32, name: &str| request.params.get(&format!("Targets.member.{at}.{name}")).to_owned();
    let target =
        |at| Some((field(at, "Id"), field(at, "Port").parse().unwrap_or(PORT))).filter(|(id, _)| !id.is_empty());
    (1..).map_while(target).collect()
}

/// One that drains is told of only when it is asked for. One that is not there fails the whole call, unless the balancer
/// is lenient.
fn instance_health(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let name = request.params.get("LoadBalancerName");
    let Some(balancer) = state.classic.get(name) else {
        return Err(Refusal::new(400, "LoadBalancerNotFound", format!("There is no load balancer {name}")));
    };
    let mut asked = instances(request);
    if asked.is_empty() {
        let serving = balancer.registered.iter().filter(|(_, one)| matches!(one, Registration::Serving));
        asked = serving.map(|(id, _)| id.clone()).collect();
    }
    let one = |id: &String| {
        let (health, words) = match balancer.registered.get(id) {
            None if balancer.lenient => ("Unknown", "N/A"),
            None => return Err(Refusal::new(400, "InvalidInstance", format!("Could not find EC2 instance {id}."))),
            Some(Registration::Serving) => ("InService", "N/A"),
            Some(Registration::DrainingUntil(_)) => ("InService", "Instance deregistration currently in progress."),
        };
        Ok(tag("InstanceId", id) + &tag("State", health) + &tag("Description", words))
    };
    let states: Vec<_> = asked.iter().map(one).collect::<Result<_, _>>()?;
    Ok(request.query(&list("InstanceStates", "member", states)))
}
