//! EC2.

use std::fmt::Write as _;

use tokio::time::Instant;

use super::pools;
use super::state::{Fleet, Instance, State, fleet_tag};
use super::wire::{Answer, Refusal, Request, list, tag};

pub(crate) fn answer(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    match request.name.as_str() {
        "DescribeInstances" => instances(state, request),
        "DescribeInstanceAttribute" => attribute(state, request),
        "TerminateInstances" => terminate(state, request),
        "DescribeFleets" => fleets(state, request),
        "DescribeFleetInstances" => members(state, request, "FleetId"),
        "ModifyFleet" => modify_fleet(state, request),
        "DescribeSpotFleetRequests" => spot_fleets(state, request),
        "DescribeSpotFleetInstances" => members(state, request, "SpotFleetRequestId"),
        "ModifySpotFleetRequest" => modify_spot_fleet(state, request),
        other => panic!("no call of EC2: {other}"),
    }
}

/// An ID as EC2 accepts it; anything else fails the whole call.
fn well_formed(id: &str) -> Result<(), Refusal> {
    let digits = id.strip_prefix("i-").unwrap_or_default();
    let sound = [8, 17].contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if sound { Ok(()) } else { Err(Refusal::new(400, "InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\""))) }
}

fn unknown(id: &str) -> Refusal {
    Refusal::new(400, "InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
}

fn instances(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let ids = request.params.list("InstanceId");
    for id in &ids {
        well_formed(id)?;
        if !state.instances.contains_key(id) {
            return Err(unknown(id));
        }
    }
    let mut filters = Vec::new();
    for at in 1.. {
        let name = request.params.get(&format!("Filter.{at}.Name"));
        if name.is_empty() {
            break;
        }
        let values = request.params.list(&format!("Filter.{at}.Value"));
        if values.len() > 200 {
            return Err(Refusal::new(400, "FilterLimitExceeded", "The maximum number of filter values is 200"));
        }
        if name == "instance-id" {
            values.iter().try_for_each(|id| well_formed(id))?;
        }
        filters.push((name, values));
    }
    let size = match (state.page, request.params.get("MaxResults").parse()) {
        (0, asked) => asked.unwrap_or(1000),
        (page, _) => page,
    };
    let from: usize = request.params.get("NextToken").parse().unwrap_or_default();
    let passes = |id: &String, instance: &Instance| {
        filters.iter().all(|(name, values)| match name.strip_prefix("tag:") {
            Some(key) => instance.tags.get(key).is_some_and(|value| values.contains(value)),
            None if *name == "instance-id" => values.contains(id),
            None if *name == "instance-state-name" => values.iter().any(|state| *state == instance.state),
            None => panic!("no filter of EC2 that is known here: {name}"),
        })
    };
    let asked = |(id, instance): &(&String, &Instance)| (ids.is_empty() || ids.contains(id)) && passes(id, instance);
    let matching: Vec<_> = state.instances.iter().filter(asked).collect();
    let page = matching.iter().skip(from).take(size);
    let reservations = page.map(|(id, instance)| list("instancesSet", "item", [described(id, instance)]));
    let mut content = list("reservationSet", "item", reservations);
    if from + size < matching.len() {
        content += &tag("nextToken", from + size);
    }
    Ok(request.ec2(&content))
}

fn described(id: &str, instance: &Instance) -> String {
    let told = match instance.before {
        Some((before, until)) if Instant::now() < until => before,
        _ => instance.state,
    };
    let mut one = tag("instanceId", id) + &tag("instanceState", tag("code", 16) + &tag("name", told));
    one += &tag("privateDnsName", &instance.dns);
    one += &tag("privateIpAddress", &instance.address);
    one += &tag("launchTime", instance.launched);
    one += &tag("instanceType", &instance.kind);
    if !instance.subnet.is_empty() {
        one += &tag("subnetId", &instance.subnet);
    }
    one += &tag("placement", tag("availabilityZone", &instance.zone));
    one += &list("tagSet", "item", instance.tags.iter().map(|(key, value)| tag("key", key) + &tag("value", value)));
    if let Some(lifecycle) = instance.lifecycle {
        one += &tag("instanceLifecycle", lifecycle);
    }
    if let Some((code, words)) = instance.reason {
        one += &tag("stateReason", tag("code", code) + &tag("message", words));
    }
    if let Some(reservation) = &instance.reservation {
        one += &tag("capacityReservationId", reservation);
    }
    one
}

fn attribute(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let id = request.params.get("InstanceId");
    well_formed(id)?;
    let instance = state.instances.get(id).ok_or_else(|| unknown(id))?;
    let value = tag("disableApiTermination", tag("value", instance.protected));
    Ok(request.ec2(&(tag("instanceId", id) + &value)))
}

/// The answer to a dry run of what would be done.
fn would() -> Refusal {
    Refusal::new(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

fn terminate(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let ids = request.params.list("InstanceId");
    for id in &ids {
        well_formed(id)?;
        let instance = state.instances.get(id).ok_or_else(|| unknown(id))?;
        if instance.protected {
            let words = format!("The instance '{id}' may not be terminated. Modify its 'disableApiTermination'");
            return Err(Refusal::new(400, "OperationNotPermitted", words));
        }
    }
    if request.params.get("DryRun") == "true" {
        return Err(would());
    }
    for id in &ids {
        state.shut_down(id);
    }
    let changes = ids.iter().map(|id| tag("instanceId", id) + &tag("currentState", tag("name", "shutting-down")));
    Ok(request.ec2(&list("instancesSet", "item", changes)))
}

fn fleet<'a>(state: &'a State, id: &str) -> Result<&'a Fleet, Refusal> {
    let unknown = || Refusal::new(400, "InvalidFleetId.NotFound", format!("The fleet ID '{id}' does not exist"));
    state.fleets.get(id).ok_or_else(unknown)
}

/// The fleets that are asked for, or a page of all of the kind but instant ones, and the token of the next.
fn asked_fleets(state: &State, request: &Request, key: &str, kind: &str) -> (Vec<String>, String) {
    let ids = request.params.list(key);
    if !ids.is_empty() {
        return (ids, String::new());
    }
    let size = if state.page == 0 { request.params.get("MaxResults").parse().unwrap_or(100) } else { state.page };
    let from: usize = request.params.get("NextToken").parse().unwrap_or_default();
    let listed = state.fleets.iter().filter(|(id, fleet)| id.starts_with(kind) && fleet.kind != "instant");
    let is_told = |fleet: &Fleet| fleet.asked.as_ref().is_none_or(|asked| Instant::now() >= asked.told_from);
    let mut listed = listed.filter(|(_, fleet)| is_told(fleet)).map(|(id, _)| id.clone()).skip(from);
    let page = listed.by_ref().take(size).collect();
    let next = if listed.next().is_some() { tag("nextToken", from + size) } else { String::new() };
    (page, next)
}

fn fleets(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let (ids, next) = asked_fleets(state, request, "FleetId", "fleet-");
    let one = |id: &String| {
        let fleet = state.late_fleets.told(id, fleet(state, id)?);
        let capacity = tag("totalTargetCapacity", fleet.target)
            + &tag("onDemandTargetCapacity", fleet.on_demand)
            + &tag("spotTargetCapacity", fleet.target - fleet.on_demand)
            + &tag("defaultTargetCapacityType", "spot");
        let offers =
            fleet.weights.iter().map(|(kind, weight)| tag("instanceType", kind) + &tag("weightedCapacity", weight));
        let configs = list("launchTemplateConfigs", "item", [list("overrides", "item", offers)]);
        let mut one = tag("fleetId", id) + &tag("fleetState", fleet.state()) + &tag("type", fleet.kind);
        one += &tag("targetCapacitySpecification", capacity);
        let policy = if fleet.terminates_excess { "termination" } else { "no-termination" };
        one += &tag("excessCapacityTerminationPolicy", policy);
        one += &configs;
        one += &list("tagSet", "item", fleet.tags.iter().map(|(key, value)| tag("key", key) + &tag("value", value)));
        Ok(one)
    };
    let fleets = ids.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(request.ec2(&(list("fleetSet", "item", fleets) + &next)))
}

fn spot_fleets(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let (ids, next) = asked_fleets(state, request, "SpotFleetRequestId", "sfr-");
    let one = |id: &String| {
        let fleet = state.late_fleets.told(id, fleet(state, id)?);
        let offers =
            fleet.weights.iter().map(|(kind, weight)| tag("instanceType", kind) + &tag("weightedCapacity", weight));
        let mut config = tag("targetCapacity", fleet.target) + &tag("onDemandTargetCapacity", fleet.on_demand);
        config += &tag("type", fleet.kind);
        let policy = if fleet.terminates_excess { "default" } else { "noTermination" };
        config += &tag("excessCapacityTerminationPolicy", policy);
        config += &fleet.asked.as_ref().map_or_else(|| list("launchSpecifications", "item", offers), pools::described);
        let (there, on_demand) = fleet.fulfilled(&state.instances);
        config += &tag("fulfilledCapacity", format!("{there}.0"));
        config += &tag("onDemandFulfilledCapacity", format!("{on_demand}.0"));
        config += &tag("loadBalancersConfig", balancers(fleet));
        let mut one = tag("spotFleetRequestId", id) + &tag("spotFleetRequestState", fleet.state());
        one += &fleet.asked.as_ref().map(pools::created).unwrap_or_default();
        one += &fleet.activity.map_or_else(String::new, |activity| tag("activityStatus", activity));
        one += &list("tagSet", "item", fleet.tags.iter().map(|(key, value)| tag("key", key) + &tag("value", value)));
        write!(one, "<spotFleetRequestConfig>{config}</spotFleetRequestConfig>").unwrap();
        Ok(one)
    };
    let fleets = ids.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(request.ec2(&(list("spotFleetRequestConfigSet", "item", fleets) + &next)))
}

/// Where a Spot Fleet registers what it launches, as far as it was asked to.
fn balancers(fleet: &Fleet) -> String {
    let some = |outer: &str, inner: &str, key: &str, names: &[String]| match names {
        [] => String::new(),
        names => tag(outer, list(inner, "item", names.iter().map(|name| tag(key, name)))),
    };
    some("classicLoadBalancersConfig", "classicLoadBalancers", "name", &fleet.classic)
        + &some("targetGroupsConfig", "targetGroups", "arn", &fleet.target_groups)
}

fn members(state: &State, request: &Request, key: &str) -> Result<Answer, Refusal> {
    let id = request.params.get(key);
    let members = fleet(state, id)?.members.iter().map(|member| tag("instanceId", member));
    Ok(request.ec2(&list("activeInstanceSet", "item", members)))
}

fn modifiable<'a>(state: &'a mut State, id: &str) -> Result<&'a mut Fleet, Refusal> {
    let fleet = state
        .fleets
        .get_mut(id)
        .ok_or_else(|| Refusal::new(400, "InvalidFleetId.NotFound", format!("The fleet ID '{id}' does not exist")))?;
    if fleet.kind != "maintain" {
        return Err(Refusal::new(400, "FleetNotModifiable", "Only fleets of type maintain can be modified"));
    }
    if fleet.state() == "modifying" {
        return Err(Refusal::new(400, "FleetNotInModifiableState", "The fleet is being modified"));
    }
    state.late_fleets.note(id, fleet, state.lag);
    Ok(fleet)
}

fn modify_fleet(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let number = |name: &str| request.params.get(&format!("TargetCapacitySpecification.{name}")).parse().unwrap();
    let (total, on_demand): (u32, u32) = (number("TotalTargetCapacity"), number("OnDemandTargetCapacity"));
    let fleet = modifiable(state, request.params.get("FleetId"))?;
    if request.params.get("DryRun") == "true" {
        return Err(would());
    }
    // Unless it is told not to, it terminates what is too much.
    fleet.terminates_excess = request.params.get("ExcessCapacityTerminationPolicy") != "no-termination";
    (fleet.target, fleet.on_demand, fleet.modified) = (total, on_demand, Some(Instant::now()));
    Ok(request.ec2(&tag("return", true)))
}

fn modify_spot_fleet(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let number = |name: &str| request.params.get(name).parse().unwrap();
    let (total, on_demand): (u32, u32) = (number("TargetCapacity"), number("OnDemandTargetCapacity"));
    let fleet = modifiable(state, request.params.get("SpotFleetRequestId"))?;
    fleet.terminates_excess = request.params.get("ExcessCapacityTerminationPolicy") != "noTermination";
    (fleet.target, fleet.on_demand, fleet.modified) = (total, on_demand, Some(Instant::now()));
    Ok(request.ec2(&tag("return", true)))
}

/// The tag by which an instance says that it is a fleet's.
pub(crate) fn tagged(fleet: &str) -> (String, String) {
    (fleet_tag(fleet).to_owned(), fleet.to_owned())
}
