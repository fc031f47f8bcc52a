"""Say what the status page of a farm holds: its devices, what each is doing, and the jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from gputune.client.farm.engine import Announced
from gputune.client.farm.hosts.health import Speed
from gputune.client.farm.jobs import FarmJob
from gputune.client.pages.blocks import Block, Column, card, table, tiles
from gputune.client.pages.document import page

_MOST_JOBS = 50
_SHOWN = ("mhz", "temperature", "celsius", "load_1", "throttl", "clock", "busy", "perf_profile")
"""Parts of the names of what is told of a device's state."""
_LONGEST_STATE = 300


def farm_page(devices: Mapping[str, Announced], jobs: Sequence[FarmJob], scheduler: str, every_seconds: float) -> str:
    """Return the page as HTML. scheduler: where the farm is; every_seconds: how often it is written, 0 for once."""
    numbers = [_number(one.report.get("trials_per_minute")) for one in devices.values()]
    working = sum(bool(one.report.get("running")) for one in devices.values())
    queued = sum(part.state == "queued" for job in jobs if job.state == "running" for part in job.parts)
    figures = tiles(
        ("devices", str(len(devices)), f"{working} at work"),
        ("tiers", str(len({one.tier for one in devices.values()})), ""),
        ("trials per minute", f"{sum(numbers):.0f}", "of all devices"),
        ("queue", str(queued), "models of running jobs, for each tier"),
    )
    blocks = (figures, card("Devices", devices_table(devices)), card("Jobs", jobs_table(jobs[:_MOST_JOBS])))
    written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    facts, explained = f"{scheduler}, {written}", "Written by gputune farm status."
    return page("gputune farm", "Device farm", facts, blocks, explained, refresh_seconds=every_seconds)


def devices_table(devices: Mapping[str, Announced]) -> Block:
    """Return the table of a farm's devices, for its page and for a terminal."""
    return table(_DEVICES, sorted(devices.items()))


def jobs_table(jobs: Sequence[FarmJob]) -> Block:
    """Return the table of jobs, for the page and for a terminal."""
    columns = [Column(head, itemgetter(place), wide=wide) for place, (head, wide) in enumerate(_JOBS.items())]
    return table(columns, [row for job in jobs for row in _rows(job)])


def _state_text(state: object) -> str:
    """Return the state of a device in one line. state: as a worker reports it, which may be anything."""
    if not isinstance(state, Mapping):
        return ""
    told = [f"{_words(name)} {_value(value)}" for name, value in sorted(state.items(), key=str) if _is_shown(str(name))]
    return ", ".join([*_votes(state.get("votes")), *told])[:_LONGEST_STATE]


def _doing(report: Mapping[str, object]) -> str:
    if report.get("draining") is True:
        return "leaving"
    if report.get("running"):
        return "at work"
    return "waits for its job" if report.get("job") else "free"


def _rows(job: FarmJob) -> list[list[str]]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(job.began))
    first = [job.name, job.owner, began]
    if not job.parts:
        models, tiers = (_listed(job.asked.get(name)) for name in ("models", "tiers"))
        return [[*first, ", ".join(Path(model).name for model in models), ", ".join(tiers), job.state, "", ""]]
    rows = []
    for part in job.parts:
        state = part.state if job.state in ("running", "done") or part.state in ("done", "failed") else job.state
        rows.append([*first, Path(part.model).name, part.tier, state, part.devices, part.said])
    return rows


def _listed(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _told(head: str, name: str, form: str = "", hint: str = "") -> Column:
    """Return a column of what hosts report, which may be anything."""

    def value(device: tuple[str, Announced]) -> float | str:
        told = device[1].report.get(name)
        return _number(told) if form else str(told or "")

    return Column(head, value, form, hint=hint)


def _speed_ns(device: tuple[str, Announced]) -> float | None:
    speed = Speed.read(device[1].report.get("speed"))
    return None if speed is None else speed.median_ns


def _votes(votes: object) -> Iterator[str]:
    """Yield what is asked of the controls of each device, and what they are at."""
    for device, vote in votes.items() if isinstance(votes, Mapping) else ():
        parts = vote if isinstance(vote, Mapping) else {}
        yield f"votes on {device}: {_value(parts.get('requested'))}, now {_value(parts.get('effective'))}"


def _is_shown(name: str) -> bool:
    return any(part in name for part in _SHOWN)


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(name)} {_value(each)}" for name, each in value.items()) or "nothing"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_DEVICES = (
    Column("device", lambda device: device[0]),
    Column("tier", lambda device: device[1].tier),
    Column("state", lambda device: str(device[1].report.get("problem") or _doing(device[1].report))),
    _told("job", "job"),
    _told("current task", "running"),
    _told("trials/min", "trials_per_minute", "whole", "variants measured in the last minute"),
    _told("batches", "batches", "whole"),
    _told("trials", "trials", "whole"),
    _told("failures", "failures", "whole", "variants that did not work, which is normal for many configurations"),
    Column("health check", _speed_ns, "time", True, "time of the kernel that each device builds and verifies"),
    Column("clocks, temperature, votes", lambda device: _state_text(device[1].report.get("state")), wide=True),
)
_JOBS = {
    "job": False,
    "owner": True,
    "started (UTC)": True,
    "model": False,
    "tier": False,
    "state": False,
    "devices": True,
    "result": True,
}
"""The columns of jobs, and whether narrow screens leave them out."""
