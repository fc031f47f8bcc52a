"""Run networks as a user would: tuned with effort quick, compared with others, and profiled.

The performance cache and the summaries of all commands come back. Contexts stay, for a later phase.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpu.card import CACHE
from gpu.phases.recordings import IN_HALF
from gpu.record import Record, brief, run
from gputune.core.precision import STORED
from models import classic_models, tune_models
from models.tune_models import Model

CONTEXTS = "contexts"
"""The folder next to the records in which contexts stay."""
MODELS: dict[str, tuple[Callable[[], Model], float]] = {
    "squeezenet": (classic_models.squeezenet, 0.25),
    f"squeezenet{IN_HALF}": (classic_models.squeezenet, 0.3),
    "mobilenet_v2": (classic_models.mobilenet_v2, 0.5),
    "resnet50": (classic_models.resnet50, 1.0),
}
"""What makes each, and the part of the time that is left by which its tuning is planned."""
REHEARSED: dict[str, tuple[Callable[[], Model], float]] = {"small": (tune_models.small, 1.0)}
COMPARED_S = 12
BESIDES_TUNING_S = 40
"""What all takes but measuring of tasks: opening devices, checks, comparing, profiling."""
INFERENCES = 30


def main(record: Record) -> None:
    """Goes from model to model; what fails or takes too long costs its model."""
    if earlier := os.environ.get(CACHE):
        shutil.copytree(earlier, record.folder / "cache")
    for name, (make, part) in (REHEARSED if record.rehearse else MODELS).items():
        seconds = record.left * part
        if seconds > 5:
            record.attempt(name, functools.partial(_model, record, name, make, seconds))


def _model(record: Record, name: str, make: Callable[[], Model], seconds: float) -> dict[str, Any]:
    """Tunes, compares and profiles a model; what the summaries say in short. The whole of them are files."""
    start = time.monotonic()
    folder, contexts = record.folder / name, record.folder.parent / CONTEXTS
    folder.mkdir()
    model = make()
    found: dict[str, Any] = {"made_s": round(time.monotonic() - start, 1)}
    budget = max(4, round(seconds - found["made_s"] - BESIDES_TUNING_S))

    def step(what: str, *arguments: str | Path, summary: str = "") -> dict[str, Any]:
        told = _gputune(folder, what, record.left, *arguments, summary=summary)  # the first models matter most
        found[what] = told
        record.put(name, value=found)
        return told

    tune: list[str | Path] = [
        "--model",
        model.path,
        "--binary_file",
        name,
        "--output_dir",
        contexts,
        "--profiling_level",
        "detailed",
    ]
    tune += ["--precision_mode", STORED] if name.endswith(IN_HALF) else []
    tune += ["--tuning_effort", "none" if record.rehearse else "quick"]
    if not record.rehearse:
        tune += ["--tuning_budget", f"{budget}s", "--performance_cache_dir", record.folder / "cache"]
        tune += ["--report", folder / "report.html"]
    step("context-binary-generator", *tune, summary="tuning.json")
    context = contexts / f"{name}.bin"
    if not context.exists():
        raise RuntimeError(f"no context: {found['context-binary-generator']}")
    compare: list[str | Path] = ["--model", model.path, "--context_binary", context]
    compare += ["--compare_seconds", str(COMPARED_S)]
    step("compare", *compare, summary="compare.json")
    record.say(f"{name}: {_in_short(found['compare'])}")
    inputs = _inputs(folder, model)
    ran: list[str | Path] = ["--retrieve_context", context, "--input_list", inputs, "--num_inferences", str(INFERENCES)]
    ran += ["--output_dir", contexts / f"{name}_results", "--keep_num_outputs", "0"]
    step("net-run", *ran, "--profiling_level", "qhas", "--profile", folder / "profile.json", summary="net_run.json")
    logs = sorted((contexts / f"{name}_results").rglob("*profiling-data*.log"))
    if logs:
        shown: list[str | Path] = ["--input_log", logs[0], "--schematic", contexts / f"{name}_schematic.bin"]
        step("profile-viewer", *shown, "--output", folder / "operations.json")
    return found


def _gputune(folder: Path, what: str, seconds: float, *arguments: str | Path, summary: str) -> dict[str, Any]:
    """Runs a command for so long at most; how it ended, and the summary that it wrote, without what is long."""
    command = [sys.executable, "-m", "gputune", what, *map(str, arguments)]
    command += ["--summary_json", str(folder / summary)] if summary else []
    start, log = time.monotonic(), folder / f"{what}.log"
    code: int | str
    with log.open("wb") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=max(seconds, 0.1))
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = "no time left"
    told: dict[str, Any] = {"exit": code, "seconds": round(time.monotonic() - start, 1)}
    if code != 0:
        told["said"] = log.read_text(encoding="utf-8", errors="replace")[-600:]
    if summary and (folder / summary).exists():
        whole = json.loads((folder / summary).read_text(encoding="utf-8"))
        told["summary"] = {key: value for key, value in whole.items() if len(json.dumps(value)) < 3000}
    return told


def _in_short(compared: dict[str, Any]) -> str:
    if compared["exit"] != 0:
        return brief(RuntimeError(compared.get("said", compared["exit"])))
    contenders = compared.get("summary", {}).get("contenders", [])
    return ", ".join(f"{one['name']} {one['time_ns'] / 1e3:.0f} us" for one in contenders)


def _inputs(folder: Path, model: Model) -> Path:
    """A list with random values for each input of a model of static shapes."""
    numbers, words = np.random.default_rng(7), list[str]()
    graph = model.graph()
    for name in graph.inputs:
        path = folder.parent.parent / CONTEXTS / f"{folder.name}_{len(words)}.npy"
        np.save(path, numbers.standard_normal(graph.shape(name)).astype(np.float32))
        words.append(f"{name}:={path}")
    listed = folder / "inputs.txt"
    listed.write_text(" ".join(words) + os.linesep, encoding="utf-8")
    return listed


if __name__ == "__main__":
    run(main)
