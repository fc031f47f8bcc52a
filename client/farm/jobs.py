"""Keep the journal of a farm's jobs: what was requested, by whom, and the result. Each user has one SQLite file."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from gputune.client.farm.engine import FarmError
from gputune.core.bounds import Stored
from gputune.core.decoder import record_of
from gputune.core.json_text import json_value

LOST_SECONDS = 30.0
"""A job that runs and was not heard of for so long has ended without a word."""
BUSY_SECONDS = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    name TEXT PRIMARY KEY, owner TEXT NOT NULL, asked TEXT NOT NULL, state TEXT NOT NULL,
    began REAL NOT NULL, heard REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS parts (
    job TEXT NOT NULL REFERENCES jobs (name), model TEXT NOT NULL, tier TEXT NOT NULL, state TEXT NOT NULL,
    devices TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (job, model, tier)
) STRICT;
"""
State = Literal["queued", "running", "done", "failed", "lost"]
"""The states of a job and of its parts. `lost` is never stored: a running job is lost if nothing is heard of it."""
PACKAGE = "package"
"""Instead of a tier: the part of a job that puts a model's contexts for all tiers together."""


@dataclass(frozen=True)
class JobPart:
    """Tell of a model on a tier, or its PACKAGE: its state, the names of the devices, and what there is to say of
    it."""

    model: str
    tier: str
    state: State
    devices: str = ""
    said: str = ""


def _asked(text: str) -> Mapping[str, object]:
    content = json_value(text)
    return content if isinstance(content, dict) else {}


@dataclass(frozen=True)
class FarmJob:
    """Tell what was asked, as JSON values, by whom, and how it is; began, heard: seconds since 1970."""

    name: str
    owner: str
    asked: Annotated[Mapping[str, object], Stored(str, _asked)]
    state: State
    began: float
    heard: float
    parts: tuple[JobPart, ...] = ()


class Journal:
    """Keep jobs in a file. Every method opens it, any thread may call it, and raises FarmError where the file cannot be
    used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, asked: Mapping[str, object], owner: str) -> str:
        """Return the name of a new job, which runs."""
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        now = time.time()
        with self._open() as journal:
            journal.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, 'running', ?, ?)", (name, owner, json.dumps(asked), now, now)
            )
        return name

    def again(self, name: str) -> FarmJob:
        """Return a job that has ended or was lost, which runs again: of two who ask at the same time, for one. Raises
        FarmError for a job that runs."""
        job, now = self.job(name), time.time()
        free = "(state != 'running' OR abs(? - heard) > ?)"
        with self._open() as journal:
            taken = journal.execute(
                f"UPDATE jobs SET state = 'running', heard = ? WHERE name = ? AND {free}",
                (now, name, now, LOST_SECONDS),
            ).rowcount
        if not taken:
            raise FarmError(
                f"job {name} is running and keeps its devices until it ends; a job that was killed counts as lost "
                f"after {LOST_SECONDS:g} s"
            )
        return job

    def beat(self, name: str) -> None:
        """Note that the job is heard of."""
        self._change("UPDATE jobs SET heard = ? WHERE name = ?", time.time(), name)

    def set_state(self, name: str, state: State) -> None:
        """Note that the job has come to this state."""
        self._change("UPDATE jobs SET state = ?, heard = ? WHERE name = ?", state, time.time(), name)

    def tell(self, name: str, part: JobPart) -> None:
        """Tell how a part of a job is now."""
        values = part.model, part.tier, part.state, part.devices, part.said
        self._change("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?)", name, *values)

    def job(self, name: str) -> FarmJob:
        """Return the job of that name. Raises FarmError for one that is not there."""
        found = [job for job in self.jobs() if job.name == name]
        if not found:
            raise FarmError(f"there is no job {name} in {self._path}; `gputune farm jobs` lists them")
        return found[0]

    def jobs(self) -> list[FarmJob]:
        """Return all jobs, the newest first."""
        if not self._path.exists():
            return []
        with self._open() as journal:
            parts: dict[str, list[JobPart]] = {}
            for row in journal.execute("SELECT job, model, tier, state, devices, said FROM parts ORDER BY rowid"):
                job = (told := dict(row)).pop("job")
                parts.setdefault(job, []).append(record_of(JobPart, told, f"a part of job {job}", ValueError))
            rows = journal.execute("SELECT * FROM jobs ORDER BY began DESC").fetchall()
            jobs = [record_of(FarmJob, dict(row), f"job {row['name']}", ValueError) for row in rows]
        return [replace(job, state=_state(job), parts=tuple(parts.get(job.name, ()))) for job in jobs]

    def _change(self, statement: str, *values: object) -> None:
        with self._open() as journal:
            journal.execute(statement, values)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._path.exists():
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as journal, journal:
                journal.row_factory = sqlite3.Row
                journal.executescript(_SCHEMA)
                yield journal
        except (OSError, sqlite3.Error, ValueError) as error:
            raise FarmError(f"the journal of jobs {self._path} cannot be used: {error}") from None


def _state(job: FarmJob) -> State:
    silent = abs(time.time() - job.heard) > LOST_SECONDS  # a clock may be set back
    return "lost" if job.state == "running" and silent else job.state
