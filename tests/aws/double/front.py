"""What stands before the services: one request at a time, each of them written down, and the test's own door.

The door is at `/double/`, for the test alone; whatever else comes in is a request of AWS.

```text
POST /double/call   {"service", "operation", "parameters"}: asks the double as boto3 does, answers in JSON
GET  /double/calls  what was asked for so far, by whom
PUT  /double/pace   {"seconds"}: how long transitions take from now on
PUT  /double/market {"exhausted", "prices", "instances", "fleets"}: what EC2 has to sell from now on
PUT  /double/denied {"rights"}: what nobody but the test and the world may do from now on
PUT  /double/aged   {"seconds"}: so much longer ago were all instances launched that are there
PUT  /double/held   {"action"}: calls of it that are done and not answered, until another is named or none
```
"""

import io
import json
import threading
from urllib.parse import parse_qsl

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError

from . import denied, fleets, groups, instances, spot_fleets, targets
from .clock import CLOCK
from .denied import DENIED
from .market import MARKET

# By the access key a client is told apart from the others: it is part of each signature.
HARNESS = "HARNESS"

# Whom nothing is denied: the test, and the cloud controller manager.
OF_THE_WORLD = (HARNESS, "CLOUD-CONTROLLER")


class Front:
    def __init__(self, services, region):
        self.services = services
        self.region = region
        self.lock = threading.Lock()
        self.released = threading.Condition(self.lock)
        self.held = None
        self.calls = []
        self.clients = {}
        self.endpoint = None

    def __call__(self, environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        path = environ.get("PATH_INFO", "")
        if path.startswith("/double/"):
            return self.control(environ["REQUEST_METHOD"], path.removeprefix("/double/"), body, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        with self.lock:
            call = described(environ, path, body)
            self.calls.append(call)
            advance()
            right = None if call["client"] in OF_THE_WORLD else DENIED.refusal(call)

            def answer(status, headers, exception=None):
                call["status"] = int(status.split()[0])
                return start_response(status, headers, exception)

            if right:
                status, body = denied.answer(call, right)
                answer(status, [("Content-Type", "text/xml")])
                return [body.encode()]
            answered = list(self.services(environ, answer))
            if call["client"] not in OF_THE_WORLD and call["parameters"].get("DryRun") != "true":
                # Whoever waits lets the others in meanwhile.
                self.released.wait_for(lambda: self.held != call["action"])
            return answered

    def control(self, method, what, body, start_response):
        match method, what:
            case "POST", "call":
                answer = self.call(**json.loads(body))
            case "GET", "calls":
                with self.lock:
                    answer = [dict(call) for call in self.calls]
            case "PUT", "pace":
                with self.lock:
                    CLOCK.pace = float(json.loads(body)["seconds"])
                answer = {}
            case "PUT", "market":
                with self.lock:
                    MARKET.set(**json.loads(body))
                answer = {}
            case "PUT", "denied":
                with self.lock:
                    DENIED.rights = set(json.loads(body)["rights"])
                answer = {}
            case "PUT", "aged":
                with self.lock:
                    instances.age(float(json.loads(body)["seconds"]))
                answer = {}
            case "PUT", "held":
                with self.lock:
                    self.held = json.loads(body)["action"]
                    self.released.notify_all()
                answer = {}
            case _:
                start_response("404 Not Found", [])
                return []
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer, default=str).encode()]

    def call(self, service, operation, parameters):
        try:
            answer = self.client(service)._make_api_call(operation, parameters)
        except ClientError as error:
            return {"error": {"code": error.response["Error"]["Code"], "message": error.response["Error"]["Message"]}}
        except ParamValidationError as error:
            return {"error": {"code": "ParamValidation", "message": str(error)}}
        answer.pop("ResponseMetadata", None)
        return {"answer": answer}

    def client(self, service):
        with self.lock:
            if service not in self.clients:
                self.clients[service] = boto3.client(
                    service,
                    region_name=self.region,
                    endpoint_url=self.endpoint,
                    aws_access_key_id=HARNESS,
                    aws_secret_access_key="none",
                    config=Config(retries={"total_max_attempts": 1}),
                )
            return self.clients[service]


def advance():
    """Moves on what is due: instances first, because the others look at them."""
    instances.advance()
    targets.advance()
    groups.advance()
    fleets.advance()
    spot_fleets.advance()


def described(environ, path, body):
    """Who asks for what, as far as the request tells."""
    client, service = "", ""
    authorization = environ.get("HTTP_AUTHORIZATION", "")
    if "Credential=" in authorization:
        scope = authorization.split("Credential=")[1].split(",")[0].split("/")
        client, service = scope[0], scope[3]
    form = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
    parameters = dict(parse_qsl(body.decode())) if form else {}
    action = parameters.pop("Action", None) or environ.get("HTTP_X_AMZ_TARGET") or f"{environ['REQUEST_METHOD']} {path}"
    parameters.pop("Version", None)
    # Until it is answered: what moto does not have is an internal error.
    return {"client": client, "service": service, "action": action, "parameters": parameters, "status": 500}
