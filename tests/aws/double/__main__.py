"""Starts the double on a free port of the loopback, and prints its address: `python -m double --region us-east-1`."""

import argparse
import os
import sys
import threading

# Before moto is imported, which reads it then.
os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true"}

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from .front import Front


class Quiet(MotoRequestHandler):
    """Logs no request: the double keeps its own list, which tests can read."""

    def log_request(self, *arguments):
        pass


def exit_with_stdin():
    """So that a test which was killed leaves nothing behind."""
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    arguments = argparse.ArgumentParser(prog="double", description=sys.modules[__package__].__doc__)
    arguments.add_argument("--region", required=True)
    region = arguments.parse_args().region

    if os.environ.get("EXIT_WITH_STDIN"):
        threading.Thread(target=exit_with_stdin, daemon=True).start()
    front = Front(DomainDispatcherApplication(create_backend_app), region)
    server = make_server("127.0.0.1", 0, front, threaded=True, request_handler=Quiet)
    front.endpoint = f"http://127.0.0.1:{server.server_port}"
    print(f"listening on {front.endpoint}", flush=True)
    server.serve_forever()


main()
