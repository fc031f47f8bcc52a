"""Generate contexts of whole models from empty caches, for the tools of `scripts/bench tune`."""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tuning.tools import device_of
from gputune.client.generation.config import Config
from gputune.client.generation.generator import GenerationRequest, generate
from gputune.client.model.model_files import ModelFile
from gputune.client.progress import reporting
from gputune.client.tuning.search.effort import EFFORTS
from gputune.kernels.space import Configuration
from models import tune_models
from models.tune_models import Model


@dataclass(frozen=True)
class Generated:
    """A context binary and what its tasks became, by their keys. winners: what was fastest alone, which whole contexts
    may have spoken against."""

    context: Path
    tasks: Mapping[str, Mapping[str, Any]]
    winners: Mapping[str, Configuration]
    seconds: float


def generated(model: Model, effort: str, name: str, options: argparse.Namespace) -> Generated:
    """Generates a model with a cache of its own, which is emptied first unless the options ask for what an earlier run
    has measured. Raises GputuneError, CacheError."""
    folder = options.work / "generated" / f"{model.path.stem}_{name}"
    if not options.warm:
        shutil.rmtree(folder, ignore_errors=True)
    found = "what an earlier run has measured" if options.warm and folder.exists() else "an empty cache"
    print(f"generating {model.title}, effort {effort}, from {found}", flush=True)
    request = GenerationRequest(
        models=[ModelFile(model.path, [model.dimensions])],
        binary_file=folder / "context.bin",
        config=Config(),
        effort=EFFORTS[effort],
        performance_cache_dir=folder / "cache",
        device=device_of(options),
    )
    with reporting(sys.stderr) as progress:
        summary = generate(request, os.environ, progress)
    tasks = {task["key"]: task for task in summary["tasks"]}
    changed = {one["key"]: one["winner"] for one in (summary["in_chain"] or {}).get("changed", [])}
    winners = {key: changed.get(key, task["configuration"]) for key, task in tasks.items()}
    return Generated(request.binary_file, tasks, winners, summary["totals"]["wall_seconds"]["total"])


def add_arguments(parser: argparse.ArgumentParser, models: str) -> None:
    """--models and --effort."""
    names = ", ".join(tune_models.MODELS)
    parser.add_argument("--models", default=models, help=f"comma list of {names} (default: %(default)s)")
    parser.add_argument("--effort", choices=["quick", "normal", "full"], default="normal")
    parser.add_argument("--warm", action="store_true", help="go on from the caches of an earlier run")


def chosen(options: argparse.Namespace) -> tuple[list[Model], str]:
    """Models and effort that the options ask for."""
    if options.quick:
        return [tune_models.small()], "quick"
    names = options.models.split(",")
    if unknown := [name for name in names if name not in tune_models.MODELS]:
        sys.exit(f"--models: {unknown[0]!r} is none of {', '.join(tune_models.MODELS)}")
    return [tune_models.MODELS[name]() for name in names], options.effort
