"""Spot Fleets and EC2 Fleets: weights, both kinds of capacity, replacement, and a change that takes a while."""

from itertools import cycle, islice

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.fleets import Fleet, FleetsBackend
from moto.ec2.models.spot_requests import SpotFleetRequest, SpotRequestBackend
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.spot_fleets import SpotFleets

from .clock import CLOCK
from .instances import each, end, live

# Under which tag an instance names its fleet.
TAGS = {SpotFleetRequest: "aws:ec2spot:fleet-request-id", Fleet: "aws:ec2:fleet-id"}

ENDS_EXCESS = ("default", "termination")


def advance():
    for backend in each(ec2_backends):
        for fleet in [*backend.spot_fleet_requests.values(), *backend.fleets.values()]:
            if fleet.state == "modifying" and CLOCK.over(fleet.modified):
                fleet.state = "active"
                if fleet.excess_policy in ENDS_EXCESS:
                    trim(fleet)
            forget_the_dead(fleet)
            if fleet.state == "active" and fleet.type == "maintain":
                fill(fleet)


def forget_the_dead(fleet):
    fleet.spot_requests = [request for request in fleet.spot_requests if live(request.instance)]
    fleet.on_demand_instances = [item for item in fleet.on_demand_instances if live(item["instance"])]
    count(fleet)


def count(fleet):
    fleet.fulfilled_on_demand_capacity = sum(item["instance"].weight for item in fleet.on_demand_instances)
    fleet.fulfilled_spot_capacity = sum(request.instance.weight for request in fleet.spot_requests)
    fleet.fulfilled_capacity = fleet.fulfilled_on_demand_capacity + fleet.fulfilled_spot_capacity


def fill(fleet):
    """Launches what is missing: on-demand up to its own target, then whatever is the fleet's default."""
    while fleet.fulfilled_on_demand_capacity < fleet.on_demand_target_capacity:
        launch(fleet, spot=False)
    while fleet.fulfilled_capacity < fleet.target_capacity:
        launch(fleet, spot=fleet.default_type == "spot")


def trim(fleet):
    """Ends what is too much of either kind. The fleet chooses: the newest, which is not what a caller hopes for."""
    for item in reversed(fleet.on_demand_instances):
        if fleet.fulfilled_on_demand_capacity - item["instance"].weight >= fleet.on_demand_target_capacity:
            end_if_excess(fleet, item["instance"])
    for request in reversed(fleet.spot_requests):
        end_if_excess(fleet, request.instance)


def end_if_excess(fleet, instance):
    if fleet.fulfilled_capacity - instance.weight >= fleet.target_capacity:
        end(instance)
        forget_the_dead(fleet)


def launch(fleet, spot):
    # One specification after the other, whatever the strategy: an order that a test can rely on.
    spec = next(islice(cycle(fleet.launch_specs), fleet.launched, None))
    fleet.launched += 1
    common = {
        "count": 1,
        "image_id": spec.image_id,
        "instance_type": spec.instance_type,
        "key_name": spec.key_name,
        "user_data": spec.user_data,
        "subnet_id": spec.subnet_id,
        "tags": spec.tag_specifications,
    }
    if spot:
        request = fleet.ec2_backend.request_spot_instances(
            **common,
            price=spec.spot_price,
            spot_instance_type="one-time",
            valid_from=None,
            valid_until=None,
            launch_group=None,
            availability_zone_group=None,
            security_groups=spec.group_set,
            placement=None,
            kernel_id=None,
            ramdisk_id=None,
            monitoring_enabled=spec.monitoring_enabled,
            launch_spec=spec,
        )[0]
        instance = request.instance
        fleet.spot_requests.append(request)
    else:
        instance = fleet.ec2_backend.run_instances(
            **common, security_group_names=spec.group_set, is_instance_type_default=False
        ).instances[0]
        fleet.on_demand_instances.append({"id": None, "instance": instance, "launch_spec": spec})
    instance.weight = spec.weighted_capacity
    instance.add_tags({TAGS[type(fleet)]: fleet.id})
    count(fleet)


def modify(fleet, total, on_demand, excess_policy):
    if fleet.type != "maintain":
        raise EC2ClientError("InvalidParameterValue", f"{fleet.id} is not of type maintain, and can't be modified")
    if fleet.state != "active":
        raise EC2ClientError("FleetNotInModifiableState", f"{fleet.id} is {fleet.state}: only an active fleet can be modified")
    total = fleet.target_capacity if total is None else int(total)
    on_demand = fleet.on_demand_target_capacity if on_demand is None else int(on_demand)
    if not 0 <= on_demand <= total:
        raise EC2ClientError(
            "InvalidTargetCapacitySpecification",
            f"The on-demand target {on_demand} must be between 0 and the total target {total}",
        )
    fleet.target_capacity, fleet.on_demand_target_capacity = total, on_demand
    fleet.excess_policy = excess_policy or fleet.excess_policy
    fleet.state, fleet.modified = "modifying", CLOCK.now()


def found(fleets, identifier, code, kind):
    if identifier not in fleets:
        raise EC2ClientError(code, f"The {kind} ID '{identifier}' does not exist")
    return fleets[identifier]


def spot_fleet(backend, identifier):
    return found(backend.spot_fleet_requests, identifier, "InvalidSpotFleetRequestId.NotFound", "spot fleet request")


def ec2_fleet(backend, identifier):
    return found(backend.fleets, identifier, "InvalidFleetId.NotFound", "fleet")


def begin(fleet, kind, on_demand, default_type, excess_policy):
    fleet.fleet_type = kind
    fleet.on_demand_target_capacity, fleet.default_type = on_demand, default_type
    fleet.excess_policy = excess_policy
    fleet.on_demand_instances, fleet.launched = [], 0
    count(fleet)
    fill(fleet)


# --- What moto does otherwise: its constructors launch nothing here, `begin` does.

SpotFleetRequest.create_spot_requests = lambda self, weight: None
Fleet.create_spot_requests = lambda self, weight: None
Fleet.create_on_demand_requests = lambda self, weight: None
SpotFleetRequest.type = property(lambda self: self.fleet_type)
SpotFleetRequest.terminate_instances = trim
Fleet.terminate_instances = trim

create = FleetsBackend.create_fleet
spot_fleet_config = SpotFleetRequest.spot_fleet_request_config
describe_spot_fleets = SpotRequestBackend.describe_spot_fleet_requests
describe_ec2_fleets = FleetsBackend.describe_fleets


def request_spot_fleet(self):
    config = self._get_param("SpotFleetRequestConfig", {})
    backend = self.ec2_backend
    fleet = backend.request_spot_fleet(
        spot_price=config.get("SpotPrice"),
        target_capacity=config["TargetCapacity"],
        iam_fleet_role=config["IamFleetRole"],
        allocation_strategy=config.get("AllocationStrategy", "lowestPrice"),
        launch_specs=[*config.get("LaunchSpecifications", []), *overridden(backend, config)],
        launch_template_config=None,
        instance_interruption_behaviour=config.get("InstanceInterruptionBehavior"),
        tag_specifications=config.get("TagSpecifications", []),
    )
    fleet.config = config
    begin(
        fleet,
        kind=config.get("Type", "maintain"),
        on_demand=int(config.get("OnDemandTargetCapacity", 0)),
        default_type="spot",
        excess_policy=config.get("ExcessCapacityTerminationPolicy", "default"),
    )
    return ActionResult({"SpotFleetRequestId": fleet.id})


def overridden(backend, config):
    """What the launch templates say, once for each override."""
    for template in config.get("LaunchTemplateConfigs", []):
        spec = template["LaunchTemplateSpecification"]
        if "LaunchTemplateId" in spec:
            stored = backend.get_launch_template(spec["LaunchTemplateId"])
        else:
            stored = backend.get_launch_template_by_name(spec["LaunchTemplateName"])
        data = stored.get_version(spec.get("Version", "$Default")).data
        for override in template.get("Overrides") or [{}]:
            yield data | override


def described_config(self):
    described = spot_fleet_config.fget(self) | {
        "Type": self.fleet_type,
        "OnDemandTargetCapacity": self.on_demand_target_capacity,
        "OnDemandFulfilledCapacity": self.fulfilled_on_demand_capacity,
        "ExcessCapacityTerminationPolicy": self.excess_policy,
        "LaunchTemplateConfigs": self.config.get("LaunchTemplateConfigs", []),
    }
    if described["LaunchTemplateConfigs"]:
        del described["LaunchSpecifications"]
    return described


def modify_spot_fleet_request(self):
    fleet = spot_fleet(self.ec2_backend, self._get_param("SpotFleetRequestId"))
    modify(
        fleet,
        self._get_param("TargetCapacity"),
        self._get_param("OnDemandTargetCapacity"),
        self._get_param("ExcessCapacityTerminationPolicy"),
    )
    return ActionResult({"Return": True})


def describe_spot_fleet_requests(self, spot_fleet_request_ids):
    for identifier in spot_fleet_request_ids or []:
        spot_fleet(self, identifier)
    return describe_spot_fleets(self, spot_fleet_request_ids)


def describe_spot_fleet_instances(self, spot_fleet_request_id):
    fleet = spot_fleet(self, spot_fleet_request_id)
    return [*fleet.spot_requests, *(OnDemandMember(item) for item in fleet.on_demand_instances)]


class OnDemandMember:
    """An on-demand member of a Spot Fleet, which has no request of its own."""

    def __init__(self, item):
        self.id, self.instance = None, item["instance"]


def create_fleet(self, **options):
    fleet = create(self, **options)
    wanted = fleet.target_capacity_specification
    default = wanted.get("DefaultTargetCapacityType") or "on-demand"
    on_demand = int(wanted.get("OnDemandTargetCapacity") or 0)
    spot = int(wanted.get("SpotTargetCapacity") or 0)
    if default == "on-demand":
        on_demand = fleet.target_capacity - spot
    begin(fleet, fleet.fleet_type, on_demand, default, fleet.excess_capacity_termination_policy)
    return fleet


def modify_fleet(self):
    fleet = ec2_fleet(self.ec2_backend, self._get_param("FleetId"))
    wanted = self._get_param("TargetCapacitySpecification", {})
    modify(
        fleet,
        wanted.get("TotalTargetCapacity"),
        wanted.get("OnDemandTargetCapacity"),
        self._get_param("ExcessCapacityTerminationPolicy"),
    )
    fleet.target_capacity_specification |= wanted
    fleet.excess_capacity_termination_policy = fleet.excess_policy
    return ActionResult({"Return": True})


def describe_fleets(self, fleet_ids):
    for identifier in fleet_ids or []:
        ec2_fleet(self, identifier)
    return describe_ec2_fleets(self, fleet_ids)


SpotFleets.request_spot_fleet = request_spot_fleet
SpotFleets.modify_spot_fleet_request = modify_spot_fleet_request
SpotFleetRequest.spot_fleet_request_config = property(described_config)
SpotRequestBackend.describe_spot_fleet_requests = describe_spot_fleet_requests
SpotRequestBackend.describe_spot_fleet_instances = describe_spot_fleet_instances
FleetsBackend.create_fleet = create_fleet
FleetsBackend.describe_fleets = describe_fleets
Fleets.modify_fleet = modify_fleet
