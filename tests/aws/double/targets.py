"""Load balancers: what is deregistered drains for as long as its target group, or its classic balancer, says."""

from moto.elb.models import ELBBackend, elb_backends
from moto.elb.responses import ELBResponse
from moto.core.responses import ActionResult
from moto.elbv2.models import ELBv2Backend, FakeHealthStatus, FakeTargetGroup, elbv2_backends

from .clock import CLOCK
from .instances import each, live

CLASSIC_TIMEOUT = 300


def register(group, target):
    """Registers `target` with `group`, unless it was there before: what was taken out stays out."""
    if target not in group.targets and target not in group.deregistered_targets:
        group.register([{"Id": target, "Port": group.port}])


def draining(group, target):
    entry = group.deregistered_targets.get(target)
    delay = float(group.attributes["deregistration_delay.timeout_seconds"])
    return entry is not None and not CLOCK.over(entry["since"], delay)


def classic_draining(balancer, target):
    # Capital letters: as the request has set them. Until one has, there is no draining.
    settings = balancer.attributes["connection_draining"]
    if not settings.get("Enabled") or target not in drains(balancer):
        return False
    return not CLOCK.over(drains(balancer)[target], float(settings.get("Timeout", CLASSIC_TIMEOUT)))


def drains(balancer):
    """The instances that were taken out of a classic balancer, and since when."""
    return balancer.__dict__.setdefault("drains", {})


def advance():
    """The targets of an instance that ends are deregistered."""
    for backend in each(elbv2_backends):
        for group in backend.target_groups.values():
            for target in list(group.targets):
                instance = backend.ec2_backend.get_instance_by_id(target)
                if instance is not None and not live(instance) and instance.state != "stopped":
                    group.deregister([{"Id": target}])


# --- What moto does otherwise.

healthy_or_not = FakeTargetGroup.health_for
describe_target_health = ELBv2Backend.describe_target_health
deregister_from_classic = ELBBackend.deregister_instances


def deregister(self, targets):
    for target in targets:
        entry = self.targets.pop(target["Id"], None)
        if entry:
            self.deregistered_targets[target["Id"]] = entry | {"since": CLOCK.now()}


def health_for(self, target, ec2_backend):
    if not draining(self, target["Id"]):
        return healthy_or_not(self, target, ec2_backend)
    return FakeHealthStatus(
        target["Id"],
        target.get("Port", self.port),
        self.health_check_port,
        "draining",
        "Target.DeregistrationInProgress",
        "Target deregistration is in progress",
    )


def health_of_all(self, target_group_arn, targets):
    """Without a list of targets, those that drain are told too."""
    group = self.target_groups.get(target_group_arn)
    if group is not None and not targets:
        targets = [*group.targets.values(), *(t for t in group.deregistered_targets.values() if draining(group, t["Id"]))]
        if not targets:
            return []
    return describe_target_health(self, target_group_arn, targets)


def deregister_instances(self, load_balancer_name, instance_ids, from_autoscaling=False):
    balancer = self.get_load_balancer(load_balancer_name)
    instance_ids = list(instance_ids)
    for instance in set(instance_ids) & set(balancer.instance_ids):
        drains(balancer)[instance] = CLOCK.now()
    # Whoever registered it: a call of the API takes out what an Auto Scaling group has put in.
    deregister_from_classic(self, load_balancer_name, instance_ids, from_autoscaling=True)
    return deregister_from_classic(self, load_balancer_name, instance_ids)


def describe_instance_health(self):
    balancer = self.elb_backend.get_load_balancer(self._get_param("LoadBalancerName"))
    asked = [instance["InstanceId"] for instance in self._get_param("Instances", [])]
    known = [*balancer.instance_ids, *(i for i in drains(balancer) if classic_draining(balancer, i))]
    return ActionResult({"InstanceStates": [classic_health(balancer, instance) for instance in asked or known]})


def classic_health(balancer, instance):
    if instance in balancer.instance_ids:
        state, code, description = "InService", "N/A", "N/A"
    elif classic_draining(balancer, instance):
        state, code, description = "InService", "N/A", "Instance deregistration currently in progress."
    else:
        state, code = "OutOfService", "Instance"
        description = "Instance is not currently registered with the LoadBalancer."
    return {"InstanceId": instance, "State": state, "ReasonCode": code, "Description": description}


FakeTargetGroup.deregister = deregister
FakeTargetGroup.health_for = health_for
ELBv2Backend.describe_target_health = health_of_all
ELBv2Backend.notify_terminate_instances = lambda self, instance_ids: None
ELBBackend.deregister_instances = deregister_instances
ELBResponse.describe_instance_health = describe_instance_health
