"""gputune target-status"""

import logging
import os
import sys

import click

from gputune.client.cli.options.common import ConnectionOptions, connection_options, json_option
from gputune.client.cli.say import print_json, say
from gputune.client.progress import reporting
from gputune.client.target.connecting import VARIABLE, choose_target
from gputune.client.target.status import describe, lines_of
from gputune.server.protocol.messages import DEFAULT_PORT

log = logging.getLogger(__name__)


@click.command("target-status")
@connection_options(otherwise="else TARGET_SERVER_SOCKET, else one on 127.0.0.1:22598")
@json_option
def command(connection: ConnectionOptions, as_json: bool) -> None:
    """Say how a target server is: version, device and tier, clients and queue, restarts of its worker and why, memory,
    and what can be read of clocks, temperatures and load.

    Without --target or --adb: the server that TARGET_SERVER_SOCKET names, else the one on 127.0.0.1:22598; none is
    started. Exits with 4 when it cannot be reached.
    """
    address = connection.target
    if address is None and connection.adb is None:
        address = os.environ.get(VARIABLE, "").strip() or f"127.0.0.1:{DEFAULT_PORT}"
    with (
        reporting(sys.stderr),
        choose_target(
            address,
            os.environ,
            credentials=connection.credentials,
            adb=connection.adb,
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
