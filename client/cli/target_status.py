"""Define the command `gputune target-status`."""

import logging
import os
import sys
from typing import Any

import click

from gputune.client.cli.say import print_json, say
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.shared import JSON, connection

log = logging.getLogger(__name__)


@click.command("target-status", cls=Grouped)
@with_options(*connection(otherwise="TARGET_SERVER_SOCKET, else a server on 127.0.0.1:22598"), JSON)
def command(as_json: bool, **connection: Any) -> None:
    """Show the state of a target server.

    The output has its version, device and tier, its clients and queue, restarts of its worker with their reasons,
    memory, and the clocks, temperatures and load that can be read.

    Only for a phone or an agent, a server is started. The exit code is 4 if the server cannot be reached.
    """
    from gputune.client.progress import reporting
    from gputune.client.target.connecting import VARIABLE, asked_connection, choose_target
    from gputune.client.target.status import describe, lines_of
    from gputune.server.protocol.messages import DEFAULT_PORT

    asked = asked_connection(given_of(connection))
    address = asked.target
    if address is None and asked.adb is None:
        address = os.environ.get(VARIABLE, "").strip() or f"127.0.0.1:{DEFAULT_PORT}"
    with (
        reporting(sys.stderr),
        choose_target(
            address,
            os.environ,
            credentials=asked.credentials,
            adb=asked.adb,
            notice=log.warning,
        ) as target,
        target.connect() as client,
    ):
        status = describe(client)
    if as_json:
        print_json(status)
    else:
        for line in lines_of(status):
            say(line)
