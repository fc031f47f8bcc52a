"""Change each field of a record's validity, and show what a generation measures again (`scripts/bench validity`).

A model is tuned once. Then, for each field, the records of every other task are made to say that the field had another
value when they were measured, and the model is generated again: exactly these tasks must be measured, and the reason
must be said.

A device that reports other memory sizes than before is no change: nothing may be asked of the target then. Where there
is a PoCL device, the same is shown on it with other values of POCL_MEMORY_LIMIT.
"""

import argparse
import io
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import tool
from benchmarks.peers.comparing import Failed
from gputune.cache import Validity, canonical_json
from gputune.cache.lookup import THE_DEVICE
from gputune.client.generation.config import Config
from gputune.client.generation.generator import GenerationRequest, generate
from gputune.client.model.model_files import ModelFile
from gputune.client.progress import reporting
from gputune.client.target.client import TargetClient
from gputune.client.tuning.search.effort import EFFORTS
from gputune.runtime.devices.discovery import discover
from models import tune_models

WORK = tool.ROOT / "build" / "bench" / "validity"
MEMORY_LIMIT = "POCL_MEMORY_LIMIT"
ROOM: dict[str, Callable[[Any], Any]] = {
    "global_memory_bytes": lambda size: size // 3,
    "max_allocation_bytes": lambda size: size // 5,
    "local_memory_bytes": lambda size: 3 * size,
}
"""What a driver may report otherwise from one process to the next. Clocks, loads and free space are not in a device's
identity."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--fields", help="comma list of fields of Validity, by default all of them")
    command.add_argument("--device", default="null", help="the device to use, as gputune's --device (default: null)")
    command.add_argument(
        "--agree", action="store_true", help="check that what is said of tasks is done, on real models"
    )
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def measure(device: str, wanted: str | None) -> list[dict[str, Any]]:
    """A row for each field. Raises Failed where other tasks were measured, or the reason was not said."""
    names = [item.name for item in fields(Validity)]
    chosen = wanted.split(",") if wanted else names
    if unknown := [name for name in chosen if name not in names]:
        raise Failed(f"--fields: {unknown[0]!r} is none of {', '.join(names)}")
    shutil.rmtree(WORK, ignore_errors=True)
    tuned = WORK / "tuned"
    _generate(tuned, device)
    rows = []
    for name in chosen:
        cache = WORK / name
        shutil.copytree(tuned, cache)
        changed = _age(next(cache.glob("*.sqlite")), name)
        tasks, said, _ = _generate(cache, device)
        measured = {task["key"] for task in tasks if not task["hit"]}
        if measured != changed:
            raise Failed(f"{name}: {len(changed)} tasks were changed, {len(measured)} were measured: {said}")
        word = "elsewhere" if name in THE_DEVICE else name
        if word not in said:
            raise Failed(f"{name}: the reason was not said: {said}")
        rows.append({"field": name, "tasks": len(tasks), "measured": len(measured), "said": said})
    return rows


def measure_room(device: str) -> list[dict[str, Any]]:
    """A row for each way in which a device may report other sizes. Raises Failed where the target was asked for
    anything."""
    as_told = vars(TargetClient)["device"]
    tell: Callable[[TargetClient], dict[str, Any]] = as_told.fget

    def otherwise(client: TargetClient) -> dict[str, object]:
        return {name: ROOM.get(name, _same)(value) for name, value in tell(client).items()}

    rows = [_twice(f"{', '.join(ROOM)} of {device}", device, {}, {}, property(otherwise))]
    for report in discover():
        if report.usable and report.identity is not None and "Portable" in report.identity.platform:
            limits = ({MEMORY_LIMIT: "2"}, {MEMORY_LIMIT: "4"})
            rows.append(_twice(f"{MEMORY_LIMIT}=2, then =4", str(report.index), *limits, as_told))
    return rows


def _same(value: Any) -> Any:
    return value


def _twice(what: str, device: str, before: dict[str, str], now: dict[str, str], told: Any) -> dict[str, Any]:
    """Generates in one environment, then in another with a client that is told other things of its device."""
    cache = WORK / "room"
    shutil.rmtree(cache, ignore_errors=True)
    with mock.patch.dict(os.environ, before):
        _generate(cache, device)
    with mock.patch.dict(os.environ, now), mock.patch.object(TargetClient, "device", told):
        tasks, said, requests = _generate(cache, device)
    if requests or not all(task["hit"] for task in tasks):
        raise Failed(f"{what}: {requests} requests in the second generation: {said}")
    return {"field": what, "tasks": len(tasks), "measured": 0, "said": said}


def _generate(cache: Path, device: str) -> tuple[list[dict[str, Any]], str, int]:
    """The tasks of a generation's summary, what it said of the cache, and its profile and compile requests."""
    heard = io.StringIO()
    request = GenerationRequest(
        models=[ModelFile(tune_models.small().path)],
        binary_file=WORK / "context.bin",
        config=Config(),
        effort=EFFORTS["quick"],
        performance_cache_dir=cache,
        device=device,
    )
    with reporting(heard) as progress:
        summary = generate(request, os.environ, progress)
    said = next((line for line in heard.getvalue().splitlines() if "tasks are known" in line), "")
    totals = summary["totals"]
    return summary["tasks"], said, totals["profile_requests"] + totals["compile_requests"]


def _age(path: Path, name: str) -> set[str]:
    """Makes the records of every other task be of another value of a field; the digests of these tasks."""
    with sqlite3.connect(path) as connection:
        owners = connection.execute(
            "SELECT task.digest, validity.id, validity.key FROM winner JOIN task ON task.id = winner.task"
            " JOIN validity ON validity.id = winner.validity ORDER BY task.digest"
        ).fetchall()
        changed = set()
        for digest, number, text in owners[::2]:
            now = Validity(**json.loads(text))
            before = replace(now, **{name: _other(getattr(now, name))})
            row = (before.digest, canonical_json(before.to_dict()), number)
            connection.execute("UPDATE validity SET digest = ?, key = ? WHERE id = ?", row)
            changed.add(digest)
    connection.close()
    return changed


def _other(value: Any) -> Any:
    if isinstance(value, dict):
        return {**value, "POCL_AFFINITY": "0", "NEW": "1"}
    if isinstance(value, int):
        return value + 1
    return re.sub(r".", "f", value) if re.fullmatch(r"[0-9a-f]{64}", value) else f"{value} of before"
