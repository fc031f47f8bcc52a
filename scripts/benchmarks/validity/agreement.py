"""Check that a generation then does with the tasks of real models what was said before (`scripts/bench validity
--agree`).

Each model is generated in several modes, one after the other, from an empty cache. Before each generation `explain`
answers for the same request; the tasks that it says will be measured must be those that are, and its summary line the
one that the generation prints.
"""

import io
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.peers.comparing import Failed
from gputune.client.errors import CacheMiss
from gputune.client.generation.config import Config
from gputune.client.generation.explaining import summary_line
from gputune.client.generation.generator import GenerationRequest, explain, generate
from gputune.client.model.graphs import Graphs, read_graphs
from gputune.client.model.model_files import ModelFile
from gputune.client.progress import reporting
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.options import TuningOptions
from gputune.client.tuning.search.task_search import task_key
from models import material, tune_models

Shapes = Mapping[str, tuple[int, ...]]
LITTLE = {name: replace(EFFORTS[name], trials=most, light_trials=most, finalists=1, contexts=1) for name, most in
          (("quick", 2), ("normal", 4))}  # fmt: skip
"""Little is measured, because only whether it is measured counts here."""

STEPS: tuple[tuple[str, str, TuningOptions], ...] = (
    ("one op is tuned", "quick", TuningOptions(only=("first op",))),
    ("the rest", "quick", TuningOptions()),
    ("nothing is left", "quick", TuningOptions()),
    ("frozen", "quick", TuningOptions(cache_mode="frozen")),
    ("no cache", "quick", TuningOptions(cache_mode="off")),
    ("failures are tried again", "quick", TuningOptions(retry_failures=("runtime", "crash"))),
    ("frozen, but more effort", "normal", TuningOptions(cache_mode="frozen")),
    ("more effort for one op", "normal", TuningOptions(only=("last op",))),
    ("refresh", "quick", TuningOptions(cache_mode="refresh")),
)


def models() -> list[tuple[str, Path, tuple[Shapes, ...]]]:
    """Titles, files and shapes: one graph, one graph, and two graphs that share tasks."""
    demo = tune_models.demo()
    return [
        ("page orientation", demo.path, (demo.dimensions,)),
        ("text line angle", material.angle_model(), ({"x": (1, 3, 48, 192)},)),
        ("text detector", material.detector_model(), ({"x": (1, 3, 96, 96)}, {"x": (1, 3, 96, 128)})),
    ]


def measure(device: str, work: Path) -> list[dict[str, Any]]:
    """A row for each model and step. Raises Failed where something else was done than was said."""
    return [row for title, path, shapes in models() for row in _steps(title, path, shapes, device, work / "agree")]


def _steps(title: str, path: Path, shapes: tuple[Shapes, ...], device: str, work: Path) -> list[dict[str, Any]]:
    shutil.rmtree(work, ignore_errors=True)
    ops = sorted({task.op for task in Graphs(read_graphs([ModelFile(path, shapes)])).tasks(fused=False)})
    names = {"first op": ops[0], "last op": ops[-1]}
    rows = []
    for step, effort, template in STEPS:
        options = replace(template, only=tuple(names[name] for name in template.only))
        request = GenerationRequest(
            models=[ModelFile(path, shapes)],
            binary_file=work / "context.bin",
            config=Config(),
            effort=LITTLE[effort],
            performance_cache_dir=work / "cache",
            device=device,
            tuning=options,
        )
        explained = explain(request, os.environ)
        said = {task_key(task).digest for task, verdict in explained.verdicts.items() if verdict.measures}
        line = summary_line(explained.verdicts.values())
        heard = io.StringIO()
        done, requests = _done(request, heard)
        where = f"{title}, {step}"
        if line not in heard.getvalue():
            raise Failed(f"{where}: explain says {line!r}, which the generation does not: {heard.getvalue()}")
        if done is None:
            if not said:
                raise Failed(f"{where}: a frozen cache lacks something of which explain does not know")
        elif done != (set() if options.cache_mode == "frozen" else said) or bool(requests) != bool(done):
            raise Failed(f"{where}: {len(said)} tasks were to be measured, {len(done)} were, in {requests} requests")
        rows.append({
            "model": title, "step": step, "tasks": len(explained.verdicts), "said": len(said),
            "measured": None if done is None else len(done), "profile_requests": requests, "line": line,
        })  # fmt: skip
        print(f"{where}: {line}; measured {'nothing, refused' if done is None else len(done)}", flush=True)
    return rows


def _done(request: GenerationRequest, heard: io.StringIO) -> tuple[set[str] | None, int]:
    """The keys of the tasks that a generation measured, None where a frozen cache refused it, and its requests."""
    try:
        with reporting(heard) as progress:
            summary = generate(request, os.environ, progress)
    except CacheMiss:
        return None, 0
    measured = {task["key"] for task in summary["tasks"] if task["measured"]}
    return measured, summary["totals"]["profile_requests"]
