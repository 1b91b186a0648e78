//! Auto Scaling.

use std::fmt::Write as _;

use super::state::{Group, Member, State};
use super::wire::{Answer, Refusal, Request, list, tag};

pub(crate) fn answer(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    match request.name.as_str() {
        "DescribeAutoScalingGroups" => groups(state, request),
        "DescribeAutoScalingInstances" => instances(state, request),
        "DescribeInstanceRefreshes" => refreshes(state, request),
        "DescribeLifecycleHooks" => hooks(state, request),
        "TerminateInstanceInAutoScalingGroup" => terminate(state, request),
        other => panic!("no call of Auto Scaling: {other}"),
    }
}

fn invalid(words: impl Into<String>) -> Refusal {
    Refusal::new(400, "ValidationError", words)
}

fn groups(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let names = request.params.list("AutoScalingGroupNames");
    if names.len() > 50 {
        return Err(invalid("Too many group names"));
    }
    let size = match (state.page, request.params.get("MaxRecords").parse()) {
        (0, asked) => asked.unwrap_or(50),
        (page, _) => page,
    };
    let matching: Vec<_> = state.groups.iter().filter(|(name, _)| names.is_empty() || names.contains(name)).collect();
    let from: usize = request.params.get("NextToken").parse().unwrap_or_default();
    let page = matching.iter().skip(from).take(size);
    let mut content = list(
        "AutoScalingGroups",
        "member",
        page.map(|(name, group)| described(state, name, state.late_groups.told(name, group))),
    );
    if from + size < matching.len() {
        content += &tag("NextToken", from + size);
    }
    Ok(request.query(&content))
}

fn described(state: &State, name: &str, group: &Group) -> String {
    let members = group.members.iter().map(|(id, member)| {
        let zone = state.instances.get(id).map(|instance| instance.zone.clone()).unwrap_or_default();
        let mut one = tag("InstanceId", id) + &tag("AvailabilityZone", zone) + &tag("LifecycleState", member.state);
        one += &tag("ProtectedFromScaleIn", member.protected);
        one += &tag("HealthStatus", "Healthy");
        one + &member.weight.map(|weight| tag("WeightedCapacity", weight)).unwrap_or_default()
    });
    let mut one = tag("AutoScalingGroupName", name) + &tag("MinSize", group.min) + &tag("MaxSize", 100);
    one += &(tag("DesiredCapacity", group.desired) + &tag("CapacityRebalance", group.capacity_rebalance));
    one += &list("AvailabilityZones", "member", group.zones.iter().cloned());
    one += &list("Instances", "member", members);
    one += &list("TargetGroupARNs", "member", group.target_groups.iter().cloned());
    one += &list("LoadBalancerNames", "member", group.classic.iter().cloned());
    one += &list("SuspendedProcesses", "member", group.suspended.iter().map(|process| tag("ProcessName", process)));
    one += &list("Tags", "member", group.tags.iter().map(|(key, value)| tag("Key", key) + &tag("Value", value)));
    if let Some(unit) = &group.unit {
        one += &tag("DesiredCapacityType", unit);
    }
    if let Some((base, percentage)) = group.mix {
        let spread = tag("OnDemandBaseCapacity", base) + &tag("OnDemandPercentageAboveBaseCapacity", percentage);
        write!(one, "<MixedInstancesPolicy>{}</MixedInstancesPolicy>", tag("InstancesDistribution", spread)).unwrap();
    }
    one
}

fn instances(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let ids = request.params.list("InstanceIds");
    if ids.len() > 50 {
        return Err(invalid("The number of instance ids exceeds the maximum of 50"));
    }
    let groups = state.groups.iter().map(|(name, group)| (name, state.late_groups.told(name, group)));
    let members = groups.flat_map(|(name, group)| group.members.iter().map(move |member| (name, member)));
    let asked = members.filter(|(_, (id, _))| ids.contains(id)).map(|(name, (id, member))| {
        let one = tag("InstanceId", id) + &tag("AutoScalingGroupName", name);
        one + &tag("LifecycleState", member.state) + &tag("ProtectedFromScaleIn", member.protected)
    });
    Ok(request.query(&list("AutoScalingInstances", "member", asked)))
}

fn refreshes(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let group = group(state, request)?;
    let refreshes = group.refresh.iter().map(|status| tag("InstanceRefreshId", "r") + &tag("Status", status));
    Ok(request.query(&list("InstanceRefreshes", "member", refreshes)))
}

fn hooks(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let group = group(state, request)?;
    let hooks = group.hooks.iter().map(|hook| {
        tag("LifecycleHookName", hook) + &tag("LifecycleTransition", "autoscaling:EC2_INSTANCE_TERMINATING")
    });
    Ok(request.query(&list("LifecycleHooks", "member", hooks)))
}

fn group<'a>(state: &'a State, request: &Request) -> Result<&'a Group, Refusal> {
    let name = request.params.get("AutoScalingGroupName");
    state.groups.get(name).ok_or_else(|| invalid(format!("AutoScalingGroup name not found - {name}")))
}

fn terminate(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let id = request.params.get("InstanceId");
    let unknown = || invalid(format!("Instance Id not found - No managed instance found for instance ID: {id}"));
    let decrement = match request.params.get("ShouldDecrementDesiredCapacity") {
        "true" => true,
        "false" => false,
        _ => return Err(invalid("ShouldDecrementDesiredCapacity is required")),
    };
    let alive = state.instances.get(id).is_some_and(super::state::Instance::is_alive);
    let Some((name, group)) = state.groups.iter_mut().find(|(_, group)| group.members.contains_key(id)) else {
        return Err(unknown());
    };
    let Some(Member { state: at, protected, weight }) = group.members.get(id).cloned() else { return Err(unknown()) };
    let leaving = at.starts_with("Terminating");
    if !leaving && (at != "InService" || !alive) {
        return Err(unknown());
    }
    if protected {
        return Err(invalid("This instance is protected from scale in"));
    }
    let weight = weight.unwrap_or(1);
    if decrement {
        if group.desired < group.min + weight {
            return Err(invalid(format!(
                "Currently, desiredSize equals minSize ({}). Terminating instance without replacement will violate \
                 group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's \
                 min size.",
                group.min
            )));
        }
        state.late_groups.note(name, group, state.lag);
        // As often as it is asked for, though the member can leave only once.
        group.desired -= weight;
        state.decrements += 1;
    }
    let held = !group.hooks.is_empty();
    group.members.get_mut(id).unwrap().state = if held { "Terminating:Wait" } else { "Terminating" };
    if !held {
        let id = id.to_owned();
        state.shut_down(&id);
    }
    Ok(request.query(&tag("Activity", tag("ActivityId", "a") + &tag("StatusCode", "InProgress"))))
}
