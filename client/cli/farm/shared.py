"""Define the options that the `gputune farm` commands share."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gputune.cache import with_companions
from gputune.client.farm.certificates import Certificates
from gputune.client.farm.dask_engine import DEFAULT_PORT, SchedulerAddress
from gputune.client.farm.jobs import Journal
from gputune.client.folders import default_farm_dir
from gputune.client.options.files import SearchedFolder, files_of_command

_JOBS = "jobs.sqlite"


@dataclass(frozen=True)
class FarmFolder:
    """The folder of a user's farm."""

    path: Path

    def place(self, address: str) -> SchedulerAddress:
        """Return where a scheduler is. Raises FarmError."""
        return SchedulerAddress.parse(address, Certificates(self.path))

    @property
    def journal(self) -> Journal:
        """The jobs of this user."""
        return Journal(self.path / _JOBS)

    @property
    def files(self) -> set[Path]:
        """Certificates, those of members included, and the journal of jobs with what SQLite keeps beside it."""
        return {*self.path.rglob("*"), *with_companions(self.path / _JOBS)}


def farm_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --farm_dir; the command gets it as `farm`, a FarmFolder."""

    @functools.wraps(command)
    def with_farm(*arguments: Any, farm_dir: Path | None, **options: Any) -> Any:
        farm = FarmFolder(farm_dir or default_farm_dir())
        for path in sorted(farm.files):
            files_of_command().change(path, "a file of --farm_dir,")
        return command(*arguments, farm=farm, **options)

    option = click.option(
        "--farm_dir",
        type=SearchedFolder(),
        metavar="DIR",
        help="Folder with the certificates and the job journal, instead of your own folder.",
    )
    return option(with_farm)


def scheduler_option(text: str = "Address of the farm's scheduler") -> Callable[..., Any]:
    """--scheduler HOST:PORT, on this machine by default."""
    return click.option(
        "--scheduler",
        metavar="HOST:PORT",
        default=f"127.0.0.1:{DEFAULT_PORT}",
        show_default=True,
        help=f"{text}. A scheduler on another machine needs certificates (`gputune farm init`); tls://HOST:PORT uses "
        "them on this machine as well.",
    )
