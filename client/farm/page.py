"""Write the status page of a farm: its devices, what each is doing, and the jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gputune.client.farm.engine import Announced
from gputune.client.farm.hosts.health import Speed
from gputune.client.farm.jobs import Job
from gputune.client.html.document import document
from gputune.client.html.markup import Cell, Column, table, text, tile
from gputune.client.html.scales import time_text

_DEVICES = (
    Column("device"),
    Column("tier"),
    Column("state"),
    Column("job"),
    Column("current task"),
    Column("trials/min", "number", hint="variants measured in the last minute"),
    Column("trials", "number"),
    Column("failures", "number", hint="variants that did not work, which is normal for many configurations"),
    Column("health check", "number", hint="time of the kernel that each device builds and verifies"),
    Column("clocks, temperature, votes", wide=True),
)
_JOBS = (
    Column("job"),
    Column("owner"),
    Column("started (UTC)"),
    Column("model"),
    Column("tier"),
    Column("state"),
    Column("devices", wide=True),
    Column("result", wide=True),
)
_MOST_JOBS = 50
_SHOWN = ("mhz", "temperature", "celsius", "load_1", "throttl", "clock", "busy", "perf_profile")
"""Parts of the names of what is told of a device's state."""
_LONGEST_STATE = 300


def farm_page(devices: Mapping[str, Announced], jobs: Sequence[Job], scheduler: str, every_seconds: float) -> str:
    """Return the page as HTML. scheduler: where the farm is; every_seconds: how often it is written, 0 for once."""
    numbers = [_number(one.report.get("trials_per_minute")) for one in devices.values()]
    working = sum(bool(one.report.get("running")) for one in devices.values())
    queued = sum(part.state == "queued" for job in jobs if job.state == "running" for part in job.parts)
    tiles = (
        tile("devices", str(len(devices)), f"{working} at work"),
        tile("tiers", str(len({one.tier for one in devices.values()}))),
        tile("trials per minute", f"{sum(numbers):.0f}", "of all devices"),
        tile("queue", str(queued), "models of running jobs, for each tier"),
    )
    rows = [_device(name, one) for name, one in sorted(devices.items())]
    done = [row for job in jobs[:_MOST_JOBS] for row in _job(job)]
    content = (
        f'<dl class="tiles">{"".join(tiles)}</dl>'
        f"<section><h2>Devices</h2>{table(_DEVICES, rows)}</section>"
        f"<section><h2>Jobs</h2>{table(_JOBS, done)}</section>"
    )
    written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return document(
        "gputune farm", "Device farm", f"{scheduler}, {written}", content, "Written by gputune farm status.",
        refresh_seconds=every_seconds,
    )  # fmt: skip


def state_text(state: object) -> str:
    """Return the state of a device in one line. state: as a worker reports it, which may be anything."""
    if not isinstance(state, Mapping):
        return ""
    told = [f"{_words(name)} {_value(value)}" for name, value in sorted(state.items(), key=str) if _is_shown(str(name))]
    return ", ".join([*_votes(state.get("votes")), *told])[:_LONGEST_STATE]


def _device(name: str, one: Announced) -> list[Cell]:
    report, speed = one.report, Speed.read(one.report.get("speed"))
    problem = str(report.get("problem") or "")
    state = problem or _doing(report)
    counts = [_number(report.get(what)) for what in ("trials_per_minute", "trials", "failures")]
    return [
        *(Cell(text(value), str(value)) for value in (name, one.tier, state)),
        *(Cell(text(value), str(value)) for value in (report.get("job") or "", report.get("running") or "")),
        *(Cell(f"{count:.0f}", count) for count in counts),
        Cell("" if speed is None else text(time_text(speed.median_ns)), None if speed is None else speed.median_ns),
        Cell(text(state_text(report.get("state")))),
    ]


def _doing(report: Mapping[str, object]) -> str:
    if report.get("draining") is True:
        return "leaving"
    if report.get("running"):
        return "at work"
    return "waits for its job" if report.get("job") else "free"


def _job(job: Job) -> list[list[Cell]]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(job.began))
    first = [Cell(text(value), str(value)) for value in (job.name, job.owner, began)]
    if not job.parts:
        asked = Cell(text(json.dumps(dict(job.asked))))
        return [[*first, Cell(""), Cell(""), Cell(text(job.state), job.state), Cell(""), asked]]
    rows = []
    for part in job.parts:
        state = part.state if job.state in ("running", "done") or part.state in ("done", "failed") else job.state
        values = Path(part.model).name, part.tier, state, part.devices, part.said
        rows.append([*first, *(Cell(text(value), value) for value in values)])
    return rows


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


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
