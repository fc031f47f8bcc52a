"""Open the device and do the work in a process of its own. The daemon starts it, and starts another if it dies.

    python -m gputune.server.worker --link FD --page FD --device JSON --limits JSON [--compiled FOLDER]

It sees only one driver (the daemon sets the environment for that). It ends when the daemon's end of the link closes,
even while a kernel runs.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gputune.core.decoder import decode
from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.runtime.devices.discovery import DeviceReport
from gputune.server.agent.opening import open_device
from gputune.server.protocol.errors import LocalProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Error
from gputune.server.worker.handlers import Handlers
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import WorkerLink, WorkerReady


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve one link until it closes, and return the exit code."""
    parser = argparse.ArgumentParser(prog="gputune.server.worker")
    parser.add_argument("--link", type=int, required=True, help="inherited descriptor of the link")
    parser.add_argument("--page", type=int, required=True, help="inherited descriptor of the shared page")
    parser.add_argument("--device", required=True, help="the device report as JSON")
    parser.add_argument("--limits", required=True, help="the server's limits as JSON")
    parser.add_argument("--compiled", type=Path, help="a private folder for what the driver compiles")
    options = parser.parse_args(arguments)
    _be_first_to_go()
    for descriptor in (options.link, options.page):
        os.set_inheritable(descriptor, False)  # a compiler that outlives this process must not hold its link
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which then closes the link
    _end_with_the_link(options.link)
    link, page = WorkerLink(options.link), HeartbeatPage(options.page)
    try:
        backend = open_device(DeviceReport.from_dict(json.loads(options.device)), compiled=options.compiled)
    except (DeviceNotFound, DeviceError, ValueError) as error:
        link.send(Error("device_unavailable", str(error)))
        return 1
    handlers = Handlers(backend, decode(Limits, json.loads(options.limits)), page, link.send)
    name = type(backend).__name__.removesuffix("Backend").lower()
    link.send(WorkerReady(backend.identity.to_dict(), name, backend.settings, backend.finds_compiled))
    while (request := link.receive()) is not None:
        reply = handlers.handle(request)
        try:
            link.send(reply)
        except LocalProtocolError as error:
            link.send(Error("internal_error", error.message))
    return 0


def _be_first_to_go() -> None:
    """Let the system end it first: where memory runs out, this process is to be ended, and not the daemon."""
    with suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_the_link(descriptor: int) -> None:
    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # reports only that the other end is gone
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, name="link watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
