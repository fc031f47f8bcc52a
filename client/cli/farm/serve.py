"""Start the parts of a farm: `gputune farm init`, `scheduler` and `worker`."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gputune.client.cli.farm.shared import FarmFolder
from gputune.client.cli.say import say
from gputune.client.errors import ConfigError
from gputune.client.farm.certificates import AUTHORITY_KEY, add_member, create
from gputune.client.farm.dask_engine import serve_scheduler, serve_worker
from gputune.client.farm.hosts.hosting import hosted
from gputune.client.options.command_line import given_of
from gputune.client.progress import reporting
from gputune.client.target.connecting import asked_connection


def make_certificates(members: tuple[str, ...], farm_dir: Path | None) -> None:
    """Make this machine's certificates, or those of members. Raises FarmError."""
    farm = FarmFolder.asked(farm_dir)
    if not members:
        made = create(farm.path)
        say(f"made {made.authority}, {made.member} and {made.key}: this machine's own")
        say(f"for each other machine: gputune farm init --member NAME; keep {farm.path / AUTHORITY_KEY} here")
    for name in members:
        folder = add_member(farm.path, name).folder
        say(f"made {folder}; copy it to {name} as its farm folder, and delete it here")


def run_scheduler(host: str, port: int, tls: bool, dashboard_port: int, farm_dir: Path | None) -> None:
    """Serve until it is stopped. Raises FarmError."""

    def ready(address: str, dashboard: str) -> None:
        say(f"gputune farm scheduler listening on {address}")
        say(f"Dask's dashboard: {dashboard}")

    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    place = FarmFolder.asked(farm_dir).place(f"tls://{where}" if tls else where)
    serve_scheduler(place, ready, dashboard_port)


def run_worker(
    scheduler: str, name: str | None, device: str | None, farm_dir: Path | None, log_level: str, **connection: Any
) -> None:
    """Serve a device to a farm until it is stopped. connection: the options of one. Raises GputuneError."""
    farm, asked = FarmFolder.asked(farm_dir), asked_connection(given_of(connection))
    given = [device, asked.target, asked.adb]
    if sum(one is not None for one in given) != 1:
        raise ConfigError("a worker has exactly one device: give --device, --target or --adb")
    place = farm.place(scheduler)
    with ExitStack() as stack:
        stack.enter_context(reporting(sys.stderr, log_level))
        host = stack.enter_context(hosted(name, device, asked.target, asked.adb, asked.credentials, os.environ))
        serve_worker(place, host, lambda joined: say(f"gputune farm worker {joined} has joined {place}"))
