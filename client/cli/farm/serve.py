"""Define `gputune farm init`, `scheduler` and `worker`, which start the parts of a farm."""

import os
import sys
from contextlib import ExitStack

import click

from gputune.client.cli.connection import connection_options
from gputune.client.cli.farm.shared import FarmFolder, farm_dir_option, scheduler_option
from gputune.client.cli.say import say
from gputune.client.errors import ConfigError
from gputune.client.farm.certificates import AUTHORITY_KEY, add_member, create
from gputune.client.farm.dask_engine import DASHBOARD_PORT, DEFAULT_PORT, serve_scheduler, serve_worker
from gputune.client.farm.hosts.hosting import hosted
from gputune.client.options.command_line import click_option
from gputune.client.options.shared import DEVICE_OPTION, LOG_LEVEL
from gputune.client.progress import reporting
from gputune.client.target.connecting import AskedConnection


@click.command("init")
@click.option("--member", "members", metavar="NAME", multiple=True, help="Create a certificate for another machine, "
    "signed by the existing authority. Repeat it for several machines.")  # fmt: skip
@farm_dir_option
def init(members: tuple[str, ...], farm: FarmFolder) -> None:
    """Create a certificate authority, and a certificate by which this machine identifies itself in a farm.

    With --member NAME, also write a folder members/NAME for another machine. Copy it there as that machine's
    --farm_dir, readable only for its user.
    """
    if not members:
        made = create(farm.path)
        say(f"made {made.authority}, {made.member} and {made.key}: this machine's own")
        say(f"for each other machine: gputune farm init --member NAME; keep {farm.path / AUTHORITY_KEY} here")
    for name in members:
        folder = add_member(farm.path, name).folder
        say(f"made {folder}; copy it to {name} as its farm folder, and delete it here")


@click.command("scheduler")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on. An address that "
    "other machines can reach needs certificates.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True,
    help="TCP port; 0 picks a free one.")  # fmt: skip
@click.option("--tls", is_flag=True, help="Use certificates on this machine's own addresses as well.")
@click.option("--dashboard_port", type=click.IntRange(0, 65535), default=DASHBOARD_PORT, show_default=True,
    help="Port of Dask's own dashboard, on 127.0.0.1 only, if bokeh is installed; 0 for no dashboard.")  # fmt: skip
@farm_dir_option
def scheduler(host: str, port: int, tls: bool, dashboard_port: int, farm: FarmFolder) -> None:
    """Run the scheduler of a farm; workers connect to it."""

    def ready(address: str, dashboard: str) -> None:
        say(f"gputune farm scheduler listening on {address}")
        say(f"Dask's dashboard: {dashboard}")

    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    place = farm.place(f"tls://{where}" if tls else where)
    serve_scheduler(place, ready, dashboard_port)


@click.command("worker")
@scheduler_option()
@click.option("--name", help="Name of the device in the farm.  [default: this machine's name and the device]")
@click_option(DEVICE_OPTION.having(help="Device of this machine, as in `gputune target-server`."))
@connection_options(otherwise="a device of this machine")
@farm_dir_option
@click_option(LOG_LEVEL)
def worker(
    scheduler: str,
    name: str | None,
    device: str | None,
    connection: AskedConnection,
    farm: FarmFolder,
    log_level: str,
) -> None:
    """Add a device to a farm: of this machine, of a target server, or of a phone over adb.

    The device is locked, so that no other farm can take it, and checked by building and running a kernel.
    """
    given = [device, connection.target, connection.adb]
    if sum(one is not None for one in given) != 1:
        raise ConfigError("a worker has exactly one device: give --device, --target or --adb")
    place = farm.place(scheduler)
    with ExitStack() as stack:
        stack.enter_context(reporting(sys.stderr, log_level))
        asked = name, device, connection.target, connection.adb, connection.credentials, os.environ
        host = stack.enter_context(hosted(*asked))
        serve_worker(place, host, lambda joined: say(f"gputune farm worker {joined} has joined {place}"))
