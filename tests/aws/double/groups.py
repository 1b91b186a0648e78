"""Auto Scaling groups: what a group refuses, how its members come and go, and what it buys without being asked.

```text
            hook                                              hook
Pending ─► Pending:Wait ─► InService ─► Terminating ─► Terminating:Wait ─► Terminating:Proceed ─► gone
                                             │ targets drain                      │ instance ends
                                             └────────────── no hook ─────────────┘
```
"""

from collections import Counter
from datetime import datetime, timezone
from uuid import uuid4

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import ASG_NAME_TAG, AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.autoscaling.models import TerminateInstanceActivity, autoscaling_backends
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError

from . import targets
from .clock import CLOCK
from .instances import each, end, live

# https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeAutoScalingInstances.html
INSTANCES_A_CALL = 50

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"

STAYING = ("Pending", "Pending:Wait", "InService")


def advance():
    for backend in each(autoscaling_backends):
        for group in list(backend.autoscaling_groups.values()):
            for member in list(group.instance_states):
                move_on(group, member)
            balance(group)


def move_on(group, member):
    """Moves `member` to where it should be by now."""
    match member.lifecycle_state:
        case "Pending" if CLOCK.over(member.since):
            enter(member, "Pending:Wait" if hook(group, LAUNCHING) else "InService")
        case "Pending:Wait" if released(group, member, LAUNCHING):
            enter(member, "InService")
        case "Terminating" if CLOCK.over(member.since) and not drains(group, member):
            if hook(group, TERMINATING):
                enter(member, "Terminating:Wait")
            else:
                end(member.instance)
        case "Terminating:Wait" if released(group, member, TERMINATING):
            enter(member, "Terminating:Proceed")
            end(member.instance)
    # Whoever ended it: the group notices, and looks after its number.
    if not live(member.instance) and member.instance.state != "shutting-down":
        group.instance_states.remove(member)
        leave_load_balancers(group, member)


def enter(member, state):
    member.lifecycle_state = state
    member.since = CLOCK.now()
    member.completed = None
    if state == "InService":
        join_load_balancers(member.auto_scaling_group, member)


def hook(group, transition):
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    return next((hook for hook in hooks if hook.lifecycle_transition == transition), None)


def released(group, member, transition):
    """Whether nothing holds `member` any more: its hook was completed, is over, or was taken away."""
    holding = hook(group, transition)
    return holding is None or member.completed is not None or CLOCK.over(member.since, float(holding.heartbeat_timeout))


def balance(group):
    """Gives the group the number, the mixture and the zones that it wants, unless its processes are suspended."""
    launches, ends = may(group, "Launch"), may(group, "Terminate")
    while launches and len(staying(group)) < group.desired_capacity:
        launch(group, emptiest_zone(group), spot=wants_spot(group))
    while ends and len(staying(group)) > group.desired_capacity:
        victim = surplus(group)
        if victim is None:
            break
        leave(group, victim)
    if launches and ends:
        keep_on_demand_share(group)
        if may(group, "AZRebalance"):
            rebalance_zones(group)


def keep_on_demand_share(group):
    """A group with a mixed policy buys an on-demand instance for one that was taken away, and gives a spot one back."""
    while len(on_demand(group)) < on_demand_share(group, group.desired_capacity):
        spot = [member for member in staying(group) if member not in on_demand(group)]
        if not spot:
            return
        launch(group, spot[0].availability_zone, spot=False)
        leave(group, spot[0])


def rebalance_zones(group):
    """A group with zones more than one apart buys an instance in the emptiest, and ends another in the fullest."""
    while True:
        zones = members_by_zone(group)
        if max(zones.values(), default=0) - min(zones.values(), default=0) <= 1:
            return
        victim = surplus(group)
        if victim is None or zones[victim.availability_zone] < max(zones.values()):
            return
        launch(group, emptiest_zone(group), spot=victim.instance.lifecycle == "spot")
        leave(group, victim)


def may(group, process):
    return process not in group._suspended_processes


def staying(group):
    return [member for member in group.instance_states if member.lifecycle_state in STAYING]


def on_demand(group):
    return [member for member in staying(group) if member.instance.lifecycle != "spot"]


def members_by_zone(group):
    zones = Counter({zone: 0 for zone in group.availability_zones})
    zones.update(member.availability_zone for member in staying(group))
    return zones


def emptiest_zone(group):
    zones = members_by_zone(group)
    return min(group.availability_zones, key=lambda zone: zones[zone])


def surplus(group):
    """Whom the group gives up when it chooses: the oldest where most are, of those that are not protected."""
    zones = members_by_zone(group)
    unprotected = [member for member in staying(group) if not member.protected_from_scale_in]
    return max(unprotected, key=lambda member: zones[member.availability_zone], default=None)


def on_demand_share(group, capacity):
    """How many of `capacity` instances are on-demand. What is left of a percentage is rounded up, to on-demand."""
    if not group.mixed_instances_policy:
        return 0
    distribution = group.mixed_instances_policy.get("InstancesDistribution", {})
    base = min(capacity, int(distribution.get("OnDemandBaseCapacity", 0)))
    percentage = int(distribution.get("OnDemandPercentageAboveBaseCapacity", 100))
    return base - (-(capacity - base) * percentage // 100)


def wants_spot(group):
    if group.mixed_instances_policy:
        return len(on_demand(group)) >= on_demand_share(group, group.desired_capacity)
    if group.ec2_launch_template:
        data = group.ec2_launch_template.get_version(group.launch_template_version).data
        return (data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
    return bool(group.launch_config.spot_price)


def launch(group, zone, spot):
    backend = group.ec2_backend
    template = None
    if group.ec2_launch_template:
        template = {"LaunchTemplateId": group.ec2_launch_template.id, "Version": group.launch_template_version}
    try:
        reservation = backend.run_instances(
            group.image_id,
            1,
            group.user_data,
            group.security_groups,
            instance_type=instance_type(group),
            is_instance_type_default=False,
            tags={"instance": group.instance_tags | group.get_propagated_tags() | {ASG_NAME_TAG: group.name}},
            placement=zone,
            subnet_id=subnet(group, zone),
            launch_config=group.launch_config,
            launch_template=template,
            lifecycle="spot" if spot else None,
        )
    except EC2ClientError as error:
        raise ValidationError(f"You must use a valid fully-formed launch template. {error.description}") from error
    instance = reservation.instances[0]
    instance.autoscaling_group = group
    member = InstanceState(instance, protected_from_scale_in=group.new_instances_protected_from_scale_in)
    group.instance_states.append(member)
    enter(member, "Pending")


def instance_type(group):
    policy = group.mixed_instances_policy or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides", [])
    return next((override["InstanceType"] for override in overrides if "InstanceType" in override), group.instance_type)


def subnet(group, zone):
    if not group.vpc_zone_identifier:
        return None
    subnets = group.ec2_backend.describe_subnets(subnet_ids=group.vpc_zone_identifier.split(","))
    return next(subnet.id for subnet in subnets if subnet.availability_zone == zone)


def leave(group, member):
    """Begins the end of `member`: out of the load balancers first."""
    if member.lifecycle_state in (*STAYING, "Standby"):
        enter(member, "Terminating")
        leave_load_balancers(group, member)


def join_load_balancers(group, member):
    backend = group.autoscaling_backend
    for arn in group.target_group_arns:
        targets.register(backend.elbv2_backend.target_groups[arn], member.instance_id)
    for name in group.load_balancer_names:
        balancer = backend.elb_backend.get_load_balancer(name)
        if member.instance_id not in {*balancer.instance_ids, *targets.drains(balancer)}:
            backend.elb_backend.register_instances(name, [member.instance_id], from_autoscaling=True)


def leave_load_balancers(group, member):
    backend = group.autoscaling_backend
    for arn in group.target_group_arns:
        if arn in backend.elbv2_backend.target_groups:
            backend.elbv2_backend.target_groups[arn].deregister([{"Id": member.instance_id}])
    for name in group.load_balancer_names:
        if name in backend.elb_backend.load_balancers:
            backend.elb_backend.deregister_instances(name, [member.instance_id])


def drains(group, member):
    backend = group.autoscaling_backend
    groups = (backend.elbv2_backend.target_groups.get(arn) for arn in group.target_group_arns)
    balancers = (backend.elb_backend.load_balancers.get(name) for name in group.load_balancer_names)
    return any(targets.draining(target_group, member.instance_id) for target_group in groups if target_group) or any(
        targets.classic_draining(balancer, member.instance_id) for balancer in balancers if balancer
    )


def member_of(backend, instance_id):
    for group in backend.autoscaling_groups.values():
        for member in group.instance_states:
            if member.instance_id == instance_id:
                return group, member
    raise ValidationError(
        f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
    )


# --- What moto does otherwise.

update_group = FakeAutoScalingGroup.update
detach = AutoScalingBackend.detach_instances
describe_members = AutoScalingBackend.describe_auto_scaling_instances


def set_capacity_of_group(self, new_capacity):
    self.desired_capacity = self.min_size if new_capacity is None else new_capacity
    balance(self)


def update(self, *arguments, mixed_instances_policy=None, launch_template=None, desired_capacity=None, **others):
    """An update without a policy keeps the one there is, and no limit leaves the desired capacity outside."""
    low, high = (others.get("min_size"), self.min_size), (others.get("max_size"), self.max_size)
    low, high = (new if new is not None else old for new, old in (low, high))
    wanted = self.desired_capacity if desired_capacity is None else desired_capacity
    if low > high:
        raise ValidationError(f"Max bound, {high}, must be greater than or equal to min bound, {low}")
    if desired_capacity is not None and not low <= desired_capacity <= high:
        raise ValidationError(f"Desired capacity:{desired_capacity} must be between the specified min size:{low} and max size:{high}")
    policy = self.mixed_instances_policy
    update_group(
        self,
        *arguments,
        mixed_instances_policy=mixed_instances_policy,
        launch_template=launch_template,
        desired_capacity=None,
        **others | {"min_size": None, "max_size": None},
    )
    if not mixed_instances_policy and not launch_template:
        self.mixed_instances_policy = policy
    self.min_size, self.max_size = low, high
    self.set_desired_capacity(min(max(wanted, low), high))


def set_desired_capacity(self, group_name, desired_capacity):
    group = self.autoscaling_groups.get(group_name)
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    for broken, word, bound in (
        (desired_capacity < group.min_size, "below min", group.min_size),
        (desired_capacity > group.max_size, "above max", group.max_size),
    ):
        if broken:
            raise ValidationError(
                f"New SetDesiredCapacity value {desired_capacity} is {word} value {bound} for the AutoScalingGroup."
            )
    group.set_desired_capacity(desired_capacity)


def delete_auto_scaling_group(self, group_name):
    group = self.autoscaling_groups.pop(group_name, None)
    if group is None:
        raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup '{group_name}' not found")
    for member in group.instance_states:
        leave_load_balancers(group, member)
        end(member.instance)


def check_decrement(group):
    if group.desired_capacity <= group.min_size:
        raise ValidationError(
            f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement will "
            "violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower "
            "group's min size."
        )


def terminate_instance(self, instance_id, should_decrement):
    group, member = member_of(self, instance_id)
    # In doubt the stricter of the two: AWS may honour the protection only when it scales in by itself.
    if member.protected_from_scale_in:
        raise ValidationError(f"The instance {instance_id} is protected from scale in.")
    size = group.desired_capacity
    # In doubt the stricter of the two: a second call for a member that leaves already lowers the number once more.
    if should_decrement:
        check_decrement(group)
        group.desired_capacity -= 1
    leave(group, member)
    balance(group)
    return TerminateInstanceActivity(member.instance, size)


def detach_instances(self, group_name, instance_ids, should_decrement):
    if should_decrement and instance_ids:
        check_decrement(self.autoscaling_groups[group_name])
    return detach(self, group_name, instance_ids, should_decrement)


def describe_auto_scaling_instances(self, instance_ids):
    if len(instance_ids) > INSTANCES_A_CALL:
        raise ValidationError(
            f"The number of instance ids that may be passed in is limited to {INSTANCES_A_CALL}"
        )
    return describe_members(self, instance_ids)


def update_attached(self, group_name):
    """Members join when they come into service; here those that were in service before a balancer was attached."""
    group = self.autoscaling_groups[group_name]
    for member in group.active_instances():
        join_load_balancers(group, member)


FakeAutoScalingGroup.set_desired_capacity = set_capacity_of_group
FakeAutoScalingGroup.update = update
AutoScalingBackend.set_desired_capacity = set_desired_capacity
AutoScalingBackend.delete_auto_scaling_group = delete_auto_scaling_group
AutoScalingBackend.terminate_instance = terminate_instance
AutoScalingBackend.detach_instances = detach_instances
AutoScalingBackend.describe_auto_scaling_instances = describe_auto_scaling_instances
AutoScalingBackend.update_attached_elbs = update_attached
AutoScalingBackend.update_attached_target_groups = update_attached
AutoScalingBackend.notify_terminate_instances = lambda self, instance_ids: None


# --- What moto does not have.


def complete_lifecycle_action(self):
    group, member = held_by(self)
    if self._get_param("LifecycleActionResult") not in ("CONTINUE", "ABANDON"):
        raise ValidationError("LifecycleActionResult must be CONTINUE or ABANDON")
    member.completed = self._get_param("LifecycleActionResult")
    move_on(group, member)
    return EmptyResult()


def record_lifecycle_action_heartbeat(self):
    _, member = held_by(self)
    member.since = CLOCK.now()
    return EmptyResult()


def held_by(response):
    name, hook_name = response._get_param("AutoScalingGroupName"), response._get_param("LifecycleHookName")
    group, member = member_of(response.autoscaling_backend, response._get_param("InstanceId"))
    held = {"Pending:Wait": LAUNCHING, "Terminating:Wait": TERMINATING}.get(member.lifecycle_state)
    holding = held and hook(group, held)
    if group.name != name or not holding or holding.name != hook_name:
        raise ValidationError(f"No active Lifecycle Action found with instance ID {member.instance_id}")
    return group, member


def start_instance_refresh(self):
    group = self.autoscaling_backend.autoscaling_groups.get(self._get_param("AutoScalingGroupName"))
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    if any(refresh["Status"] == "InProgress" for refresh in refreshes(group)):
        raise AutoscalingClientError("InstanceRefreshInProgress", "An Instance Refresh is already in progress")
    refresh = {
        "InstanceRefreshId": str(uuid4()),
        "AutoScalingGroupName": group.name,
        "Status": "InProgress",
        "StartTime": datetime.now(timezone.utc),
        "PercentageComplete": 0,
        "InstancesToUpdate": len(group.instance_states),
    }
    refreshes(group).insert(0, refresh)
    return ActionResult({"InstanceRefreshId": refresh["InstanceRefreshId"]})


def describe_instance_refreshes(self):
    group = self.autoscaling_backend.autoscaling_groups.get(self._get_param("AutoScalingGroupName"))
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    return ActionResult({"InstanceRefreshes": refreshes(group)})


def cancel_instance_refresh(self):
    group = self.autoscaling_backend.autoscaling_groups.get(self._get_param("AutoScalingGroupName"))
    for refresh in refreshes(group) if group else []:
        if refresh["Status"] == "InProgress":
            refresh["Status"] = "Cancelled"
            return ActionResult({"InstanceRefreshId": refresh["InstanceRefreshId"]})
    raise AutoscalingClientError("ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found")


def refreshes(group):
    """The newest first. Here they change no instance: a test starts one so that it runs, and cancels it."""
    return group.__dict__.setdefault("refreshes", [])


for action in (
    complete_lifecycle_action,
    record_lifecycle_action_heartbeat,
    start_instance_refresh,
    describe_instance_refreshes,
    cancel_instance_refresh,
):
    setattr(AutoScalingResponse, action.__name__, action)
