"""`scripts/bench validity`: what a change of each field of a record's validity makes a generation measure again.

A model is tuned once. Then, for each field, the records of every other task are made to say that the field had another
value when they were measured, and the model is generated again: exactly these tasks must be measured, and the reason
must be said.
"""

import argparse
import io
import json
import os
import re
import shutil
import sqlite3
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import material
import tune_models
from comparing import Failed
from gputune.cache import Validity, canonical_json
from gputune.cache.lookup import THE_DEVICE
from gputune.client.config import Config
from gputune.client.generator import GenerationRequest, generate
from gputune.client.progress import Reporter
from gputune.client.tuning.effort import EFFORTS

WORK = material.ROOT / "build" / "bench" / "validity"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--fields", help="comma list of fields of Validity, by default all of them")
    command.add_argument("--device", default="null", help="the device to use, as gputune's --device (default: null)")
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
        tasks, said = _generate(cache, device)
        measured = {task["key"] for task in tasks if not task["hit"]}
        if measured != changed:
            raise Failed(f"{name}: {len(changed)} tasks were changed, {len(measured)} were measured: {said}")
        word = "elsewhere" if name in THE_DEVICE else name
        if word not in said:
            raise Failed(f"{name}: the reason was not said: {said}")
        rows.append({"field": name, "tasks": len(tasks), "measured": len(measured), "said": said})
    return rows


def _generate(cache: Path, device: str) -> tuple[list[dict[str, Any]], str]:
    """The tasks of a generation's summary, and what it said of the cache."""
    heard = io.StringIO()
    request = GenerationRequest(
        model=tune_models.small().path,
        input_dimensions=({},),
        binary_file=WORK / "context.bin",
        config=Config(),
        effort=EFFORTS["quick"],
        performance_cache_dir=cache,
        device=device,
    )
    summary = generate(request, os.environ, Reporter(heard))
    said = next((line for line in heard.getvalue().splitlines() if "tasks are known" in line), "")
    return summary["tasks"], said


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
