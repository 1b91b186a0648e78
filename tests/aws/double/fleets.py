"""Fleets of either kind: weights, both kinds of capacity, replacement, and a change that takes a while.

What is of EC2 Fleets alone is here too; `spot_fleets` has what is of Spot Fleets alone.
"""

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.fleets import Fleet, FleetsBackend
from moto.ec2.models.spot_requests import SpotFleetRequest, SpotInstanceRequest
from moto.ec2.responses.fleets import Fleets

from .clock import CLOCK
from .instances import each, end, live
from .market import MARKET

# Under which tag an instance names its fleet.
TAGS = {SpotFleetRequest: "aws:ec2spot:fleet-request-id", Fleet: "aws:ec2:fleet-id"}

ENDS_EXCESS = ("default", "termination")


def advance():
    for backend in each(ec2_backends):
        for fleet in [*backend.spot_fleet_requests.values(), *backend.fleets.values()]:
            if fleet.state == "modifying" and CLOCK.over(fleet.modified):
                fleet.state = "active"
                fleet.tell("fleetRequestChange", "modify_succeeded")
                if fleet.excess_policy in ENDS_EXCESS:
                    trim(fleet)
            forget_the_dead(fleet)
            if fleet.state == "active" and fleet.type == "maintain":
                fill(fleet)


def members(fleet):
    return [request.instance for request in fleet.spot_requests] + [item["instance"] for item in fleet.on_demand_instances]


def forget_the_dead(fleet):
    for instance in members(fleet):
        if not live(instance):
            fleet.tell("instanceChange", "terminated", instance=instance)
    fleet.spot_requests = [request for request in fleet.spot_requests if live(request.instance)]
    fleet.on_demand_instances = [item for item in fleet.on_demand_instances if live(item["instance"])]
    count(fleet)


def count(fleet):
    fleet.fulfilled_on_demand_capacity = sum(item["instance"].weight for item in fleet.on_demand_instances)
    fleet.fulfilled_spot_capacity = sum(request.instance.weight for request in fleet.spot_requests)
    fleet.fulfilled_capacity = fleet.fulfilled_on_demand_capacity + fleet.fulfilled_spot_capacity


def fill(fleet):
    """Launches what is missing and to be had: on-demand up to its own target, then whatever is the fleet's default."""
    while fleet.fulfilled_on_demand_capacity < fleet.on_demand_target_capacity and launch(fleet, spot=False):
        pass
    while fleet.fulfilled_capacity < fleet.target_capacity and launch(fleet, spot=fleet.default_type == "spot"):
        pass


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
    """Launches one instance, and tells whether there was one to be had."""
    spec = offer(fleet, spot)
    if spec is None:
        return False
    backend, data = fleet.ec2_backend, spec.data
    request = backend.request_spot_instances(
        price=spec.spot_price,
        image_id=spec.image_id,
        count=1,
        spot_instance_type="one-time",
        valid_from=None,
        valid_until=None,
        launch_group=None,
        availability_zone_group=None,
        key_name=spec.key_name,
        security_groups=spec.group_set,
        user_data=spec.user_data,
        instance_type=spec.instance_type,
        placement=None,
        kernel_id=None,
        ramdisk_id=None,
        monitoring_enabled=spec.monitoring_enabled,
        subnet_id=spec.subnet_id,
        tags=spec.tag_specifications,
        launch_spec=spec,
    )[0]
    instance = request.instance
    if spot:
        fleet.spot_requests.append(request)
    else:
        del backend.spot_instance_requests[request.id]
        instance.lifecycle = None
        fleet.on_demand_instances.append({"id": None, "instance": instance, "launch_spec": spec})
    if data.get("IamInstanceProfile"):
        wanted = data["IamInstanceProfile"]
        backend.associate_iam_instance_profile(instance.id, wanted.get("Name"), wanted.get("Arn"))
    instance.weight = spec.weighted_capacity
    instance.add_tags({TAGS[type(fleet)]: fleet.id})
    count(fleet)
    fleet.tell("instanceChange", "launched", instance=instance)
    return True


def offer(fleet, spot):
    """What is launched next: of all that is to be had, the type and then the subnet that the fleet has least of."""
    if not fleet.may_launch():
        return None
    if MARKET.instances is not None and spot and spot_instances(fleet.ec2_backend) >= MARKET.instances:
        fleet.tell("error", "spotInstanceCountLimitExceeded", "Max spot instance count exceeded")
        return None
    usable = [spec for spec in fleet.launch_specs if to_be_had(fleet, spec, spot)]
    if not usable:
        fleet.tell("error", "allLaunchSpecsTemporarilyBlacklisted", NOTHING)
        return None
    have = members(fleet)
    return min(
        usable,
        key=lambda spec: (
            sum(instance.instance_type == spec.instance_type for instance in have),
            sum(instance.subnet_id == spec.subnet_id for instance in have),
        ),
    )


NOTHING = (
    "Several attempts to launch instances have failed. Either the request could not be satisfied or the configuration is "
    "not valid. We will retry the request again later."
)


def spot_instances(backend):
    return sum(live(instance) and instance.lifecycle == "spot" for instance in backend.all_instances())


def to_be_had(fleet, spec, spot):
    where = f"{spec.instance_type}, {spec.image_id}, Linux/UNIX (Amazon VPC), {spec.subnet_id}"
    if spec.instance_type in MARKET.exhausted:
        fleet.tell(
            "information",
            "launchSpecTemporarilyBlacklisted",
            f'Repeated errors have occurred processing the launch specification "{where}". It will not be retried for at '
            "least 13 minutes. Error message: There is no Spot capacity available that matches your request. (Service: "
            "AmazonEC2; Status Code: 500; Error Code: InsufficientInstanceCapacity)",
        )
        return False
    if spot and spec.spot_price and MARKET.price(spec.instance_type) / spec.weighted_capacity > float(spec.spot_price):
        fleet.tell("information", "launchSpecUnusable", f"{where}, Spot bid price is less than Spot market price")
        return False
    return True


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
    fleet.tell("fleetRequestChange", "modify_in_progress")


def found(fleets, identifier, code, kind):
    if identifier not in fleets:
        raise EC2ClientError(code, f"The {kind} ID '{identifier}' does not exist")
    return fleets[identifier]


def begin(fleet, kind, on_demand, default_type, excess_policy):
    fleet.fleet_type = kind
    fleet.on_demand_target_capacity, fleet.default_type = on_demand, default_type
    fleet.excess_policy = excess_policy
    fleet.on_demand_instances = []
    count(fleet)
    fill(fleet)


# --- What moto does otherwise: its constructors launch nothing here, `begin` does.

Fleet.create_spot_requests = lambda self, weight: None
Fleet.create_on_demand_requests = lambda self, weight: None
Fleet.terminate_instances = trim
# Nobody here asks for the history of an EC2 Fleet, which acts by no role of the user's.
Fleet.tell = lambda self, *event, **about: None
Fleet.may_launch = lambda self: True

create = FleetsBackend.create_fleet
describe_ec2_fleets = FleetsBackend.describe_fleets


def launch_instance(self):
    """As its specification says, and its launch template where it has one."""
    spec, data = self.launch_spec, self.launch_spec.data if self.launch_spec else {}
    options = {}
    if data.get("Template"):
        options["launch_template"] = data["Template"]
    if data.get("BlockDeviceMappings"):
        options["block_device_mappings"] = data["BlockDeviceMappings"]
    if data.get("MetadataOptions"):
        options["metadata_options"] = data["MetadataOptions"]
    groups = spec.group_set if spec else []
    reservation = self.ec2_backend.run_instances(
        image_id=self.launch_specification.image_id,
        count=1,
        user_data=self.user_data,
        security_group_names=[],
        security_group_ids=groups or self.launch_specification.groups,
        instance_type=self.launch_specification.instance_type,
        is_instance_type_default=not self.launch_specification.instance_type,
        region_name=self.ec2_backend.region_name,
        subnet_id=self.launch_specification.subnet_id,
        key_name=self.launch_specification.key_name,
        spot_fleet_id=self.spot_fleet_id,
        tags=self.all_tags,
        lifecycle="spot",
        **options,
    )
    return reservation.instances[0]


def create_fleet(self, **options):
    fleet = create(self, **options)
    for spec in fleet.launch_specs:
        spec.data = {}
    wanted = fleet.target_capacity_specification
    default = wanted.get("DefaultTargetCapacityType") or "on-demand"
    on_demand = int(wanted.get("OnDemandTargetCapacity") or 0)
    spot = int(wanted.get("SpotTargetCapacity") or 0)
    if default == "on-demand":
        on_demand = fleet.target_capacity - spot
    begin(fleet, fleet.fleet_type, on_demand, default, fleet.excess_capacity_termination_policy)
    return fleet


def ec2_fleet(backend, identifier):
    return found(backend.fleets, identifier, "InvalidFleetId.NotFound", "fleet")


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


SpotInstanceRequest.launch_instance = launch_instance
FleetsBackend.create_fleet = create_fleet
FleetsBackend.describe_fleets = describe_fleets
Fleets.modify_fleet = modify_fleet
