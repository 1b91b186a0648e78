"""Rights that a test takes from the clients: AWS refuses the calls that need them, dry or not."""

from xml.sax.saxutils import escape


class Denied:
    """The rights that nobody but the test and the world has."""

    def __init__(self):
        self.rights = set()

    def refusal(self, call):
        """The right that `call` lacks, if any."""
        return next((right for right in needed(call) if right in self.rights), None)


def needed(call):
    service, action, parameters = call["service"], call["action"], call["parameters"]
    yield f"{service}:{action}"
    if action == "RequestSpotFleet" or (action == "RunInstances" and any("IamInstanceProfile" in name for name in parameters)):
        yield "iam:PassRole"
    if service == "ec2" and any("TagSpecification" in name for name in parameters):
        yield "ec2:CreateTags"


def answer(call, right):
    """The status and the body of the refusal, as its service words it."""
    code = "UnauthorizedOperation" if call["service"] == "ec2" else "AccessDenied"
    who = f"arn:aws:iam::123456789012:user/{call['client']}"
    message = escape(
        f"You are not authorized to perform this operation. User: {who} is not authorized to perform: {right} because "
        f"no identity-based policy allows the {right} action"
    )
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if call["service"] == "ec2":
        return "403 Forbidden", f"<Response><Errors>{error}</Errors><RequestID>denied</RequestID></Response>"
    return "403 Forbidden", f"<ErrorResponse>{error}<RequestId>denied</RequestId></ErrorResponse>"


DENIED = Denied()
