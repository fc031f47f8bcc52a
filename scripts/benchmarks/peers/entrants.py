"""Make the contenders of a comparison: contexts made by the generator, onnxruntime, naive kernels."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import tool
from benchmarks.peers import naive
from benchmarks.peers.comparison import (
    CONTEXT_SUFFIX,
    DEFAULTS,
    NAIVE,
    PEER,
    PEER_MODULES,
    TINYGRAD,
    TUNED,
    WITHOUT_NODE_TIMES,
    Settings,
    digest_of,
    named,
)
from benchmarks.peers.turns import Entry
from gputune.client.generation.config import Config
from gputune.client.generation.generator import GenerationRequest, generate
from gputune.client.model.model_files import ModelFile
from gputune.client.model.plan import Plan
from gputune.client.progress import reporting
from gputune.client.tuning.search.effort import EFFORTS
from gputune.kernels.catalogue import family_of
from gputune.runtime.devices.discovery import find, wanted_device
from models.tune_models import Model

ROOMS = ("cache", "client", "core", "kernels", "runtime", "server")
"""The folders of gputune's own sources."""


def entries_of(model: Model, plan: Plan, settings: Settings, work: Path, kernels: bool) -> list[Entry]:
    """Every contender that can run a model: its tuned context, that of its defaults, onnxruntime, naive kernels, and
    OpenVINO, MNN and tinygrad where they are installed. Makes the contexts first.

    kernels: contexts without copies and conversions of layout, engines by their nodes' times, without those that have
    none; else whole inferences.
    Raises GputuneError, CacheError.
    """
    inputs = inputs_of(plan, work / "inputs" / f"{model.path.stem}.npz")
    files, device = {"model": str(model.path), "inputs": str(inputs)}, {"device": settings.device}
    ours = [
        Entry(
            name,
            "chain" if kernels else "context",
            {"context": str(context_of(model, effort, settings, work)), "inputs": str(inputs)} | device,
        )
        for name, effort in ((TUNED, settings.effort), (DEFAULTS, "none"))
    ]
    rivals = {PEER: "onnxruntime"} | {
        name: module.lower()
        for name, module in PEER_MODULES.items()
        if find_spec(module) is not None and not (kernels and name in WITHOUT_NODE_TIMES)
    }
    theirs = [
        Entry(
            named(name, threads),
            kind,
            files | {"threads": threads} | ({"nodes": True} if kernels else {}),
            may_fail=name != PEER,
        )
        for threads in dict.fromkeys((len(os.sched_getaffinity(0)), 1))
        for name, kind in rivals.items()
    ]
    if find_spec("tinygrad") is not None:
        theirs.append(Entry(TINYGRAD, "tinygrad", files | {"kernels": kernels}, {"DEV": "CL", "POCL_AFFINITY": "1"}))
    return [*ours, *theirs, Entry(NAIVE, "naive", {"launches": naive.launches_of(plan)} | device)]


def context_of(model: Model, effort: str, settings: Settings, work: Path) -> Path:
    """The model's context. One that was made of the same is used again; else the performance cache makes the second
    time short, and what has changed since is tuned again. Raises GputuneError, CacheError."""
    file = work / "contexts" / f"{model.path.stem}_{settings.device_stem}_{effort}{CONTEXT_SUFFIX}"
    note, made_of = file.with_suffix(".made_of"), _made_of(model, effort, settings.device)
    title = f"{model.title}, {'defaults' if effort == 'none' else f'effort {effort}'}"
    if file.exists() and note.exists() and note.read_text() == made_of:
        print(f"using {title}, as made before", flush=True)
        return file
    print(f"generating {title}", flush=True)
    request = GenerationRequest(
        models=[ModelFile(model.path, [model.dimensions])],
        binary_file=file,
        config=Config(),
        effort=EFFORTS[effort],
        performance_cache_dir=work / "performance_cache",
        device=settings.device,
    )
    note.unlink(missing_ok=True)
    with reporting(sys.stderr) as progress:
        generate(request, os.environ, progress)
    note.write_text(made_of)
    return file


def _made_of(model: Model, effort: str, device: str | None) -> str:
    """A name of what decides what is in a context: the model, the effort, the driver and gputune's own sources."""
    facts = [digest_of(model.path), sorted(model.dimensions.items()), effort, _driver(device), _sources()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@functools.cache
def _driver(device: str | None) -> list[str]:
    report = find(wanted_device(device)).report
    assert report.identity is not None
    return [report.title, report.identity.platform_version, report.identity.driver_version]


@functools.cache
def _sources() -> str:
    """A name of the programs and the templates of kernels."""
    files = sorted(path for room in ROOMS for kind in ("*.py", "*.cl") for path in (tool.ROOT / room).rglob(kind))
    return hashlib.sha256(json.dumps(list(map(digest_of, files))).encode()).hexdigest()


def inputs_of(plan: Plan, file: Path) -> Path:
    """The file, with random inputs of the model in it: normal numbers, or zeros and ones where they are whole."""
    numbers = np.random.default_rng(5)
    inputs = {
        spec.name: numbers.standard_normal(spec.shape, dtype=np.float32)
        if spec.dtype == "float32"
        else numbers.integers(2, size=spec.shape).astype(spec.dtype)
        for spec in plan.inputs
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        np.savez(stream, **inputs)  # type: ignore[arg-type]  # it takes the arrays for its own options
    return file


def flops_of(plan: Plan) -> int:
    """The floating-point operations of an inference by the definitions of its operations."""
    return sum(family_of(each.task.op).work(each.task.problem).flops for each in plan.operations)
