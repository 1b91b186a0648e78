"""Spot Fleets: what a request has to be, what comes of it twice, how it ends, and what it says of its failures."""

import json
from datetime import datetime, timezone

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.spot_requests import SpotFleetRequest, SpotRequestBackend
from moto.ec2.responses.spot_fleets import SpotFleets
from moto.ec2.responses.spot_instances import SpotInstances
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends

from . import roles, targets
from .fleets import ENDS_EXCESS, begin, forget_the_dead, found, members, modify, trim
from .instances import check_network, each, end
from .market import MARKET
from .templates import check_tags, once

STRATEGIES = ("lowestPrice", "diversified", "capacityOptimized", "capacityOptimizedPrioritized", "priceCapacityOptimized")

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/fleet-quotas.html
LARGEST_TARGET = 10_000


def advance():
    for backend in each(ec2_backends):
        for fleet in backend.spot_fleet_requests.values():
            forget_the_dead(fleet)
            if fleet.state.startswith("cancelled_") and not members(fleet):
                fleet.state = "cancelled"
                fleet.tell("fleetRequestChange", "cancelled")
            register(fleet)


def register(fleet):
    """Registers members once, when they run, and deregisters those that have ended."""
    now = {instance.id: instance for instance in members(fleet)}
    wanted = fleet.config.get("LoadBalancersConfig", {})
    groups = [group["Arn"] for group in wanted.get("TargetGroupsConfig", {}).get("TargetGroups", [])]
    names = [one["Name"] for one in wanted.get("ClassicLoadBalancersConfig", {}).get("ClassicLoadBalancers", [])]
    balancers, target_groups = of_region(elb_backends, fleet), of_region(elbv2_backends, fleet)
    for identifier in now.keys() - fleet.registered:
        for arn in groups:
            if arn in target_groups.target_groups:
                targets.register(target_groups.target_groups[arn], identifier)
            else:
                fleet.tell("information", "registerWithLoadBalancersFailed", f"One or more target groups not found: {arn}")
        for name in names:
            if name in balancers.load_balancers:
                balancers.register_instances(name, [identifier])
            else:
                fleet.tell("information", "registerWithLoadBalancersFailed", f"There is no ACTIVE Load Balancer named '{name}'")
    for identifier in fleet.registered - now.keys():
        for name in names:
            if name in balancers.load_balancers:
                balancers.deregister_instances(name, [identifier])
    fleet.registered = set(now)


def of_region(backends, fleet):
    return backends[fleet.ec2_backend.account_id][fleet.ec2_backend.region_name]


def spot_fleet(backend, identifier):
    return found(backend.spot_fleet_requests, identifier, "InvalidSpotFleetRequestId.NotFound", "spot fleet request")


def invalid(message):
    return EC2ClientError("InvalidSpotFleetRequestConfig", message)


# --- What a request has to be.


def check(backend, config):
    maintain = config.get("Type", "maintain") == "maintain"
    target = int(config["TargetCapacity"])
    if not (0 if maintain else 1) <= target <= LARGEST_TARGET:
        raise invalid(f"The target capacity {target} must be between {0 if maintain else 1} and {LARGEST_TARGET}")
    if config.get("AllocationStrategy", "lowestPrice") not in STRATEGIES:
        raise EC2ClientError("InvalidParameterValue", f"Invalid value for AllocationStrategy: {config['AllocationStrategy']}")
    if config.get("ExcessCapacityTerminationPolicy", "default") not in ("default", "noTermination"):
        raise EC2ClientError("InvalidParameterValue", "Invalid value for ExcessCapacityTerminationPolicy")
    rebalance = config.get("SpotMaintenanceStrategies", {}).get("CapacityRebalance", {})
    if rebalance and not maintain:
        raise invalid("Capacity rebalancing needs a fleet of type maintain")
    delay = rebalance.get("TerminationDelay")
    if rebalance.get("ReplacementStrategy") == "launch-before-terminate":
        if delay is None or not 120 <= int(delay) <= 7200:
            raise invalid("launch-before-terminate needs a termination delay of 120 to 7200 seconds")
    elif delay is not None:
        raise invalid("A termination delay needs the replacement strategy launch-before-terminate")
    if config.get("LaunchSpecifications") and config.get("LaunchTemplateConfigs"):
        raise invalid("Launch specifications and launch template configs can't be used together")
    check_tags(config.get("TagSpecifications"))
    check_roles(backend, config["IamFleetRole"])
    running = [fleet for fleet in backend.spot_fleet_requests.values() if fleet.state != "cancelled"]
    if MARKET.fleets is not None and len(running) >= MARKET.fleets:
        raise EC2ClientError("MaxSpotFleetRequestCountExceeded", "Max Spot Fleet request count exceeded")


def check_roles(backend, fleet_role):
    role = roles.named(backend, fleet_role)
    if not fleet_role.startswith("arn:") or role is None or not roles.trusts(role, roles.FLEET_SERVICE):
        raise invalid("Parameter: SpotFleetRequestConfig.IamFleetRole is invalid.")
    for name in roles.SERVICE_ROLES:
        if roles.named(backend, name) is None:
            raise EC2ClientError(
                "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
                f"The provided credentials do not have permission to create the service-linked role {name}.",
            )


def specifications(backend, config):
    """What can be launched: each launch specification, and each override of each launch template."""
    for spec in config.get("LaunchSpecifications", []):
        groups = [group["GroupId"] for group in spec.get("SecurityGroups", []) if isinstance(group, dict)]
        yield spec | {"SecurityGroups": groups}
    for template in config.get("LaunchTemplateConfigs", []):
        named = template["LaunchTemplateSpecification"]
        if "LaunchTemplateId" in named:
            stored = backend.get_launch_template(named["LaunchTemplateId"])
        elif "LaunchTemplateName" in named:
            stored = backend.get_launch_template_by_name(named["LaunchTemplateName"])
        else:
            raise invalid("A launch template is named by its ID or its name")
        version = stored.get_version(named.get("Version", "$Default"))
        data = {"SecurityGroups": version.data.get("SecurityGroupIds", [])} | version.data
        for override in template.get("Overrides") or [{}]:
            yield data | override | {"Template": {"LaunchTemplateId": stored.id, "Version": str(version.number)}}


def check_specifications(backend, specs):
    if not specs:
        raise invalid("A fleet needs at least one launch specification")
    pools, vpcs, zones = set(), set(), {}
    for spec in specs:
        if float(spec.get("WeightedCapacity", 1)) <= 0:
            raise invalid("A weighted capacity must be greater than 0")
        if "ImageId" not in spec or "InstanceType" not in spec:
            raise invalid("A launch specification needs an image and an instance type")
        if not backend.describe_images(filters={"image-id": spec["ImageId"]}):
            raise EC2ClientError("InvalidAMIID.NotFound", f"The image id '[{spec['ImageId']}]' does not exist")
        backend.describe_instance_types([spec["InstanceType"]])
        if spec.get("KeyName"):
            backend.describe_key_pairs([spec["KeyName"]])
        wanted = spec.get("IamInstanceProfile")
        if wanted and roles.profile(backend, wanted) is None:
            raise EC2ClientError("InvalidParameterValue", f"Value ({wanted}) for parameter iamInstanceProfile is invalid.")
        check_network(backend, spec.get("SubnetId"), spec["SecurityGroups"])
        if spec.get("SubnetId"):
            subnet = backend.get_subnet(spec["SubnetId"])
            vpcs.add(subnet.vpc_id)
            zones.setdefault((subnet.vpc_id, subnet.availability_zone), set()).add(subnet.id)
            pool = (spec["InstanceType"], subnet.availability_zone, str(spec.get("Template")))
            if pool in pools:
                raise invalid(f"The fleet configuration contains duplicate instance pools: {pool[0]} in {pool[1]}")
            pools.add(pool)
    if len(vpcs) > 1:
        raise invalid(f"The subnets of a fleet must belong to one VPC, and belong to {sorted(vpcs)}")
    if any(len(subnets) > 1 for subnets in zones.values()):
        raise invalid("A Spot Fleet request can't span different subnets from the same Availability Zone")


# --- What moto does otherwise.


def request_spot_fleet(self):
    config = self._get_param("SpotFleetRequestConfig", {})
    self.error_on_dryrun()
    asked = {name: value for name, value in config.items() if name != "ClientToken"}
    fleet = once(
        self.ec2_backend, "fleet", config.get("ClientToken"), asked, lambda: requested(self.ec2_backend, config)
    )
    return ActionResult({"SpotFleetRequestId": fleet.id})


def requested(backend, config):
    check(backend, config)
    specs = list(specifications(backend, config))
    check_specifications(backend, specs)
    fleet = backend.request_spot_fleet(
        spot_price=config.get("SpotPrice"),
        target_capacity=config["TargetCapacity"],
        iam_fleet_role=config["IamFleetRole"],
        allocation_strategy=config.get("AllocationStrategy", "lowestPrice"),
        launch_specs=specs,
        launch_template_config=None,
        instance_interruption_behaviour=config.get("InstanceInterruptionBehavior"),
        tag_specifications=config.get("TagSpecifications", []),
    )
    for kept, spec in zip(fleet.launch_specs, specs):
        kept.data = spec
    for specification in config.get("TagSpecifications", []):
        fleet.add_tags({tag["Key"]: tag["Value"] for tag in specification["Tags"]})
    fleet.config, fleet.registered, fleet.history = config, set(), []
    fleet.created = datetime.now(timezone.utc)
    fleet.tell("fleetRequestChange", "submitted")
    fleet.tell("fleetRequestChange", "active")
    begin(
        fleet,
        kind=config.get("Type", "maintain"),
        on_demand=int(config.get("OnDemandTargetCapacity", 0)),
        default_type="spot",
        excess_policy=config.get("ExcessCapacityTerminationPolicy", "default"),
    )
    register(fleet)
    return fleet


def tell(self, kind, what, words=None, instance=None):
    """Writes into the history; what was said last is not said again."""
    event = {"EventSubType": what}
    if instance is not None:
        event["InstanceId"] = instance.id
        words = json.dumps({
            "instanceType": instance.instance_type,
            "image": instance.image_id,
            "productDescription": "Linux/UNIX",
            "availabilityZone": instance.availability_zone,
        })
    if words:
        event["EventDescription"] = words
    if kind in ("error", "information") and any(record["EventInformation"] == event for record in self.history):
        return
    self.history.append({"EventInformation": event, "EventType": kind, "Timestamp": datetime.now(timezone.utc)})


def may_launch(self):
    """Its role has a policy, or else it can do nothing, and says so."""
    role = roles.named(self.ec2_backend, self.iam_fleet_role)
    if role is not None and roles.may_launch(role):
        return True
    self.tell("error", "iamFleetRoleInvalid", f"The IAM fleet role {self.iam_fleet_role} lacks the permissions to launch instances")
    return False


def described(fleet):
    config = {name: value for name, value in fleet.config.items() if name != "TagSpecifications"}
    return {
        "SpotFleetRequestId": fleet.id,
        "SpotFleetRequestState": fleet.state,
        "ActivityStatus": activity(fleet),
        "CreateTime": fleet.created,
        "Tags": fleet.get_tags(),
        "SpotFleetRequestConfig": config
        | {
            "AllocationStrategy": fleet.allocation_strategy,
            "Type": fleet.fleet_type,
            "TargetCapacity": fleet.target_capacity,
            "FulfilledCapacity": fleet.fulfilled_capacity,
            "OnDemandTargetCapacity": fleet.on_demand_target_capacity,
            "OnDemandFulfilledCapacity": fleet.fulfilled_on_demand_capacity,
            "ExcessCapacityTerminationPolicy": fleet.excess_policy,
        },
    }


def activity(fleet):
    excess = fleet.fulfilled_capacity > fleet.target_capacity and fleet.excess_policy in ENDS_EXCESS
    if excess or fleet.state == "cancelled_terminating":
        return "pending_termination"
    if fleet.fulfilled_capacity >= fleet.target_capacity:
        return "fulfilled"
    failed = fleet.history and fleet.history[-1]["EventType"] == "error"
    return "error" if failed else "pending_fulfillment"


def describe_spot_fleet_requests(self):
    asked = self._get_param("SpotFleetRequestIds", [])
    self.error_on_dryrun()
    all_of_them = self.ec2_backend.spot_fleet_requests
    fleets = [spot_fleet(self.ec2_backend, identifier) for identifier in asked] or all_of_them.values()
    return page(self, "SpotFleetRequestConfigs", [described(fleet) for fleet in fleets])


def page(request, name, items, others=()):
    start, size = int(request._get_param("NextToken") or 0), request._get_int_param("MaxResults") or len(items)
    answer = {name: items[start : start + size]} | dict(others)
    return ActionResult(answer | ({"NextToken": str(start + size)} if start + size < len(items) else {}))


def describe_spot_fleet_instances(self, spot_fleet_request_id):
    fleet = spot_fleet(self, spot_fleet_request_id)
    return [*fleet.spot_requests, *(OnDemandMember(item) for item in fleet.on_demand_instances)]


class OnDemandMember:
    """An on-demand member of a Spot Fleet, which has no request of its own."""

    def __init__(self, item):
        self.id, self.instance = None, item["instance"]


def describe_spot_fleet_request_history(self):
    fleet = spot_fleet(self.ec2_backend, self._get_param("SpotFleetRequestId"))
    kind, since = self._get_param("EventType"), self._get_param("StartTime")
    if since is None:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter startTime")
    since = datetime.fromisoformat(since) if isinstance(since, str) else since
    since = since.replace(tzinfo=since.tzinfo or timezone.utc)
    records = [
        record for record in fleet.history if record["Timestamp"] >= since and kind in (None, record["EventType"])
    ]
    others = {"SpotFleetRequestId": fleet.id, "StartTime": since, "LastEvaluatedTime": datetime.now(timezone.utc)}
    return page(self, "HistoryRecords", records, others)


def modify_spot_fleet_request(self):
    fleet = spot_fleet(self.ec2_backend, self._get_param("SpotFleetRequestId"))
    modify(
        fleet,
        self._get_param("TargetCapacity"),
        self._get_param("OnDemandTargetCapacity"),
        self._get_param("ExcessCapacityTerminationPolicy"),
    )
    return ActionResult({"Return": True})


def cancel_spot_fleet_requests(self):
    self.error_on_dryrun()
    terminate = self._get_bool_param("TerminateInstances")
    if terminate is None:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter terminateInstances")
    done, failed = [], []
    for identifier in self._get_param("SpotFleetRequestIds", []):
        fleet = self.ec2_backend.spot_fleet_requests.get(identifier)
        if fleet is None:
            error = {"Code": "fleetRequestIdDoesNotExist", "Message": "The requested fleet does not exist"}
            failed.append({"SpotFleetRequestId": identifier, "Error": error})
            continue
        if fleet.state not in ("active", "modifying", "cancelled_running"):
            error = {"Code": "fleetRequestNotInCancellableState", "Message": f"The fleet is {fleet.state}"}
            failed.append({"SpotFleetRequestId": identifier, "Error": error})
            continue
        before, fleet.state = fleet.state, "cancelled_terminating" if terminate else "cancelled_running"
        fleet.tell("fleetRequestChange", fleet.state)
        if terminate:
            for instance in members(fleet):
                end(instance)
        done.append({
            "SpotFleetRequestId": identifier,
            "CurrentSpotFleetRequestState": fleet.state,
            "PreviousSpotFleetRequestState": before,
        })
    return ActionResult({"SuccessfulFleetRequests": done, "UnsuccessfulFleetRequests": failed})


def describe_spot_price_history(self):
    """One price for each type and zone, of a minute ago."""
    types = self._get_param("InstanceTypes", [])
    filters = {one["Name"]: one["Values"] for one in self._get_param("Filters", [])}
    known = {"instance-type", "availability-zone", "product-description"}
    if filters.keys() - known:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{min(filters.keys() - known)}' is invalid")
    products = self._get_param("ProductDescriptions", []) or filters.get("product-description", ["Linux/UNIX"])
    zone = self._get_param("AvailabilityZone")
    filters = {name: values for name, values in filters.items() if name != "product-description"}
    offered = self.ec2_backend.describe_spot_price_history(types, filters) if "Linux/UNIX" in products else []
    now = datetime.now(timezone.utc)
    prices = [
        {
            "InstanceType": one["InstanceType"],
            "AvailabilityZone": one["Location"],
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": f"{MARKET.price(one['InstanceType']):.6f}",
            "Timestamp": now,
        }
        for one in offered
        if zone in (None, one["Location"])
    ]
    return page(self, "SpotPriceHistory", prices)


SpotFleetRequest.create_spot_requests = lambda self, weight: None
SpotFleetRequest.type = property(lambda self: self.fleet_type)
SpotFleetRequest.terminate_instances = trim
SpotFleetRequest.tell = tell
SpotFleetRequest.may_launch = may_launch
SpotFleets.request_spot_fleet = request_spot_fleet
SpotFleets.modify_spot_fleet_request = modify_spot_fleet_request
SpotFleets.describe_spot_fleet_requests = describe_spot_fleet_requests
SpotFleets.describe_spot_fleet_request_history = describe_spot_fleet_request_history
SpotFleets.cancel_spot_fleet_requests = cancel_spot_fleet_requests
SpotRequestBackend.describe_spot_fleet_instances = describe_spot_fleet_instances
SpotInstances.describe_spot_price_history = describe_spot_price_history
