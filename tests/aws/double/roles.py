"""IAM: the one policy of AWS' own that fleets need, roles that services make for themselves, and who may be what."""

import json
from urllib.parse import unquote

from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.exceptions import InvalidInput
from moto.iam.models import SERVICE_NAME_CONVERSION, AWSManagedPolicy, IAMBackend, iam_backends

FLEET_POLICY = "AmazonEC2SpotFleetTaggingRole"
FLEET_SERVICE = "spotfleet.amazonaws.com"

# What EC2 itself has to have before anybody's first Spot Fleet, unless the caller may make it:
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-fleet-prerequisites.html
SERVICE_ROLES = ("AWSServiceRoleForEC2Spot", "AWSServiceRoleForEC2SpotFleet")


def of(backend):
    """The IAM of the account that `backend` belongs to."""
    return iam_backends[backend.account_id]["aws"]


def named(backend, name):
    return next((role for role in of(backend).get_roles() if name in (role.name, role.arn)), None)


def trusts(role, service):
    document = role.assume_role_policy_document
    document = json.loads(unquote(document)) if isinstance(document, str) else document
    statements = document["Statement"] if isinstance(document["Statement"], list) else [document["Statement"]]
    return any(
        statement["Effect"] == "Allow" and service in several(statement.get("Principal", {}).get("Service", []))
        for statement in statements
    )


def several(one_or_more):
    return [one_or_more] if isinstance(one_or_more, str) else one_or_more


def may_launch(role):
    """Whether a fleet that acts as `role` can do anything: a role without a policy can't."""
    return any(arn.endswith("/" + FLEET_POLICY) for arn in role.managed_policies) or bool(role.policies)


def profile(backend, wanted):
    """The instance profile that a request names by name or ARN."""
    profiles = of(backend).get_instance_profiles()
    return next((one for one in profiles if wanted.get("Name") == one.name or wanted.get("Arn") == one.arn), None)


# --- What moto does otherwise.

create_linked = IAMBackend.create_service_linked_role


def aws_policies(self):
    data = json.loads(aws_managed_policies_data)[FLEET_POLICY]
    return [AWSManagedPolicy.from_data(FLEET_POLICY, self.account_id, self.region_name, data)]


def create_service_linked_role(self, service_name, description, suffix):
    """A second one is bad input, and not something that exists already, as with any other role."""
    if service_name not in NAMES:
        return create_linked(self, service_name, description, suffix)
    name = "AWSServiceRoleFor" + NAMES[service_name]
    if any(role.name == name for role in self.get_roles()):
        raise InvalidInput(f"Service role name {name} has been taken in this account, please try a different suffix.")
    return create_linked(self, service_name, description, suffix)


NAMES = {"spot.amazonaws.com": "EC2Spot", FLEET_SERVICE: "EC2SpotFleet"}
SERVICE_NAME_CONVERSION |= {name.split(".")[0]: words for name, words in NAMES.items()}
IAMBackend._init_aws_policies = aws_policies
IAMBackend.create_service_linked_role = create_service_linked_role
