"""Represent the folder of a user's farm, which all `gputune farm` commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gputune.cache import with_companions
from gputune.client.farm.certificates import Certificates
from gputune.client.farm.dask_engine import SchedulerAddress
from gputune.client.farm.jobs import Journal
from gputune.client.folders import default_farm_dir
from gputune.client.options.files import files_of_command

_JOBS = "jobs.sqlite"


@dataclass(frozen=True)
class FarmFolder:
    """Represent the folder of a user's farm."""

    path: Path

    @classmethod
    def asked(cls, farm_dir: Path | None) -> FarmFolder:
        """Return the folder that --farm_dir says, or the user's own, and tell its files to those of the command."""
        farm = cls(farm_dir or default_farm_dir())
        for path in sorted(farm.files):
            files_of_command().change(path, "a file of --farm_dir,")
        return farm

    def place(self, address: str) -> SchedulerAddress:
        """Return where a scheduler is. Raises FarmError."""
        return SchedulerAddress.parse(address, Certificates(self.path))

    @property
    def journal(self) -> Journal:
        """Return the jobs of this user."""
        return Journal(self.path / _JOBS)

    @property
    def files(self) -> set[Path]:
        """Return certificates, those of members included, and the journal of jobs with what SQLite keeps beside it."""
        return {*self.path.rglob("*"), *with_companions(self.path / _JOBS)}
