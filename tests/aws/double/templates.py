"""Launch templates: client tokens, versions that are deleted, and tags that can be changed."""

import json

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, InvalidLaunchTemplateVersionNotFound
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateBackend, LaunchTemplateVersion
from moto.ec2.responses.launch_templates import LaunchTemplates
from moto.ec2.utils import parse_user_data

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html, before it is encoded.
USER_DATA = 16 * 1024

TAGS_A_RESOURCE = 50


def once(backend, kind, token, parameters, make):
    """What `make` makes; with a token that was used before, what was made then, if the parameters are the same."""
    if not token:
        return make()
    asked = json.dumps(parameters, sort_keys=True, default=str)
    before = backend.__dict__.setdefault("tokens", {}).setdefault((kind, token), (asked, None))
    if before[0] != asked:
        raise EC2ClientError(
            "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
        )
    if before[1] is None:
        try:
            backend.tokens[kind, token] = (asked, make())
        except BaseException:
            del backend.tokens[kind, token]
            raise
    return backend.tokens[kind, token][1]


def check_tags(specifications):
    for specification in specifications or []:
        tags = specification.get("Tags", [])
        if len(tags) > TAGS_A_RESOURCE:
            raise EC2ClientError("TagLimitExceeded", f"The maximum number of tags for a resource is {TAGS_A_RESOURCE}")
        for tag in tags:
            if tag["Key"].lower().startswith("aws:"):
                raise EC2ClientError("InvalidParameterValue", f"Tag keys starting with 'aws:' are reserved for internal use: {tag['Key']}")
            if len(tag["Key"]) > 128 or len(tag.get("Value", "")) > 256:
                raise EC2ClientError("InvalidParameterValue", f"Tag key or value is too long: {tag['Key']}")


def data_of(request):
    """The data of a version as it is kept."""
    data = request._get_param("LaunchTemplateData", {})
    check_tags(data.get("TagSpecifications"))
    for specification in data.get("TagSpecifications", []):
        if specification["ResourceType"] not in ("instance", "volume", "network-interface", "spot-instances-request"):
            raise EC2ClientError("InvalidParameterValue", f"'{specification['ResourceType']}' is not a valid taggable resource type")
    data["UserData"] = parse_user_data(data.get("UserData"))
    if data["UserData"] is None:
        del data["UserData"]
    elif len(data["UserData"].decode().encode()) > USER_DATA:
        raise EC2ClientError("InvalidUserData.Malformed", "User data is limited to 16384 bytes")
    return data


def template_of(request):
    name, identifier = request._get_param("LaunchTemplateName"), request._get_param("LaunchTemplateId")
    if bool(name) == bool(identifier):
        raise EC2ClientError("InvalidParameterCombination", "Either a launch template ID or a launch template name must be given, not both")
    if name:
        return request.ec2_backend.get_launch_template_by_name(name)
    return request.ec2_backend.get_launch_template(identifier)


def described(template):
    return {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "CreateTime": template.create_time,
        "CreatedBy": "arn:aws:iam::123456789012:root",
        "DefaultVersionNumber": template.default_version_number,
        "LatestVersionNumber": template.latest_version_number,
        "Tags": template.tags,
    }


def described_version(version):
    return {
        "LaunchTemplateId": version.template.id,
        "LaunchTemplateName": version.template.name,
        "VersionNumber": version.number,
        "VersionDescription": version.description,
        "CreateTime": version.create_time,
        "CreatedBy": "arn:aws:iam::123456789012:root",
        "DefaultVersion": version.template.is_default(version),
        "LaunchTemplateData": version.data,
    }


# --- What moto does otherwise.

describe = LaunchTemplateBackend.describe_launch_templates


def create_launch_template(self):
    data, specifications = data_of(self), self._get_param("TagSpecifications", [])
    check_tags(specifications)
    self.error_on_dryrun()
    name, description = self._get_param("LaunchTemplateName"), self._get_param("VersionDescription")
    template = once(
        self.ec2_backend,
        "template",
        self._get_param("ClientToken"),
        [name, description, data, specifications],
        lambda: self.ec2_backend.create_launch_template(name, description, data, self._parse_tag_specification()),
    )
    return ActionResult({"LaunchTemplate": described(template)})


def create_launch_template_version(self):
    template, data = template_of(self), data_of(self)
    self.error_on_dryrun()
    description = self._get_param("VersionDescription")
    version = once(
        self.ec2_backend,
        "version",
        self._get_param("ClientToken"),
        [template.id, description, data],
        lambda: template.create_version(data, description),
    )
    return ActionResult({"LaunchTemplateVersion": described_version(version)})


def describe_launch_templates(self, template_names=None, template_ids=None, filters=None):
    for identifier in template_ids or []:
        self.get_launch_template(identifier)
    return describe(self, template_names, template_ids, filters)


def create_version(self, data, description):
    """Numbers are never given twice."""
    number = self.__dict__.get("last_number", 0) + 1
    version = LaunchTemplateVersion(self, number, data, description)
    self.last_number = number
    self.versions.append(version)
    return version


def get_version(self, number):
    match str(number).lower():
        case "$latest":
            return self.latest_version()
        case "$default":
            return self.default_version()
    for version in self.versions:
        if str(version.number) == str(number):
            return version
    raise InvalidLaunchTemplateVersionNotFound(template_id=self.id, version=number)


def delete_launch_template_versions(self):
    template = template_of(self)
    self.error_on_dryrun()
    deleted, kept = [], []
    for number in self._get_param("Versions", []):
        version = next((version for version in template.versions if str(version.number) == str(number)), None)
        told = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "VersionNumber": int(number)}
        if version is None:
            code, message = "launchTemplateVersionDoesNotExist", f"Launch template version {number} does not exist"
        elif template.is_default(version):
            code, message = "unexpectedError", "The default version of a launch template can't be deleted"
        else:
            template.versions.remove(version)
            deleted.append(told)
            continue
        kept.append(told | {"ResponseError": {"Code": code, "Message": message}})
    return ActionResult({
        "SuccessfullyDeletedLaunchTemplateVersions": deleted,
        "UnsuccessfullyDeletedLaunchTemplateVersions": kept,
    })



LaunchTemplate.tags = property(lambda self: self.get_tags(), lambda self, tags: None)
LaunchTemplate.create_version = create_version
LaunchTemplate.get_version = get_version
LaunchTemplate.default_version = lambda self: get_version(self, self.default_version_number)
LaunchTemplateBackend.describe_launch_templates = describe_launch_templates
LaunchTemplates.create_launch_template = create_launch_template
LaunchTemplates.create_launch_template_version = create_launch_template_version
LaunchTemplates.delete_launch_template_versions = delete_launch_template_versions
