"""EC2 instances: identifiers, images, filters, and the way an instance ends."""

import copy
import re
from datetime import timedelta

from moto.core.responses import ActionResult
from moto.ec2 import utils
from moto.ec2.exceptions import EC2ClientError, InvalidSecurityGroupNotFoundError, OperationNotPermitted4
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance, InstanceBackend, InstanceState
from moto.ec2.responses.instances import InstanceResponse

from .clock import CLOCK

# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html: for all filters of a request together.
FILTER_VALUES = 200

WELL_FORMED = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")
WELL_FORMED_IMAGE = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})")

ENDING = InstanceState("shutting-down", 32)


def live(instance):
    return instance.state in ("pending", "running")


def check_network(backend, subnet, groups):
    """Security groups are there, and of the network that the subnet is in."""
    vpc = backend.get_subnet(subnet).vpc_id if subnet else None
    for identifier in groups:
        group = backend.get_security_group_from_id(identifier)
        if group is None:
            raise InvalidSecurityGroupNotFoundError(identifier)
        if vpc and group.vpc_id != vpc:
            raise EC2ClientError(
                "InvalidParameter", f"Security group {identifier} and subnet {subnet} belong to different networks."
            )


def check_well_formed(identifiers):
    for identifier in identifiers:
        if not WELL_FORMED.fullmatch(identifier):
            raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{identifier}"')


def end(instance):
    """Begins to terminate `instance`; what has ended stays as it is."""
    before = copy.copy(instance._state)
    if instance.state not in ("shutting-down", "terminated"):
        instance._state = copy.copy(ENDING)
        instance.ending_since = CLOCK.now()
    return before


def advance():
    for backend in each(ec2_backends):
        for instance in backend.all_instances():
            if instance.state == "shutting-down" and CLOCK.over(instance.ending_since):
                instance.terminate()


def age(seconds):
    """Has all instances launched earlier."""
    for backend in each(ec2_backends):
        for instance in backend.all_instances():
            instance.launch_time -= timedelta(seconds=seconds)


def each(backends):
    """The backends of all accounts and regions that were asked for so far."""
    return [backend for account in list(backends.values()) for backend in list(account.values())]


# --- What moto does otherwise.

run = InstanceBackend.run_instances
describe_by_id = InstanceBackend.get_reservations_by_instance_ids
find = InstanceBackend.get_instance
describe = InstanceResponse.describe_instances
private_dns_name = Instance.private_dns_name


def run_instances(self, image_id, *arguments, **options):
    if image_id and not WELL_FORMED_IMAGE.fullmatch(image_id):
        raise EC2ClientError("InvalidAMIID.Malformed", f'Invalid id: "{image_id}" (expecting "ami-...")')
    if image_id and not self.describe_images(filters={"image-id": image_id}):
        raise EC2ClientError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    check_network(self, options.get("subnet_id"), [group for group in options.get("security_group_ids", []) if isinstance(group, str)])
    return run(self, image_id, *arguments, **options)


def get_reservations_by_instance_ids(self, instance_ids, filters=None):
    check_well_formed(instance_ids)
    # Each once: moto counts them.
    return describe_by_id(self, list(dict.fromkeys(instance_ids)), filters)


def get_instance(self, instance_id):
    check_well_formed([instance_id])
    return find(self, instance_id)


def terminate_instances(self, instance_ids):
    check_well_formed(instance_ids)
    instances = self.get_multi_instances_by_id(instance_ids)
    # All or nothing: a protected one among them keeps the others.
    for instance in instances:
        if instance.disable_api_termination:
            raise OperationNotPermitted4(instance.id)
    return [(instance, end(instance)) for instance in instances]


def describe_instances(self):
    filters = self._get_param("Filters", [])
    if sum(len(filter.get("Values", [])) for filter in filters) > FILTER_VALUES:
        raise EC2ClientError("FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200")
    return describe(self)


def name_of_the_living(self):
    """A terminated instance has lost its address, and its name with it."""
    return "" if self.state == "terminated" else private_dns_name.fget(self)


InstanceBackend.run_instances = run_instances
InstanceBackend.get_reservations_by_instance_ids = get_reservations_by_instance_ids
InstanceBackend.get_instance = get_instance
InstanceBackend.terminate_instances = terminate_instances
InstanceResponse.describe_instances = describe_instances
Instance.private_dns_name = property(name_of_the_living)
utils.filter_dict_attribute_mapping["instance-lifecycle"] = "lifecycle"


# --- What moto does not have.


def describe_instance_topology(self):
    """Where the network has no layers to tell: the cloud controller manager asks for them."""
    instances = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", []))
    return ActionResult({
        "Instances": [
            {
                "InstanceId": instance.id,
                "InstanceType": instance.instance_type,
                "AvailabilityZone": instance.placement.zone,
                "NetworkNodes": [],
            }
            for instance in instances
        ]
    })


InstanceResponse.describe_instance_topology = describe_instance_topology
