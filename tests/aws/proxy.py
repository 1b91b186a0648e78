"""Starts the fault proxy before an endpoint, on a free port of the loopback, and prints its address."""

import asyncio
import os
import sys

from aiohttp import web
from microburst.app import make_app
from microburst.core.pipeline import Microburst


async def main(upstream):
    # `resign` off: a signature is the client's, whoever it is that checks it.
    runner = web.AppRunner(make_app(Microburst(upstream, rules=[], resign=False)), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"listening on http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    if os.environ.get("EXIT_WITH_STDIN"):
        # So that a test which was killed leaves nothing behind.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        os._exit(0)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
