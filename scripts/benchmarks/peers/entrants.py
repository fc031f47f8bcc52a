"""Make the contenders of a comparison: contexts made by the generator, and other engines."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import tool
from benchmarks.peers.comparison import DEFAULTS, MNN, PEER, PEER_MODULES, TUNED, Entry, Settings
from gputune.client.model.plan import Plan
from gputune.kernels.catalogue import family_of
from models.tune_models import Model


def entries_of(model: Model, plan: Plan, settings: Settings, work: Path, anew: bool, kernels: bool) -> list[Entry]:
    """Every contender that can run a model: its tuned context, that of its defaults, onnxruntime, and OpenVINO and MNN
    where they are installed. Makes the contexts first.

    anew: also those that are there; kernels: contexts without copies and conversions of layout, engines by their nodes'
    times, without MNN, which does not tell Python what its nodes take; else whole inferences.
    """
    device = {"device": settings.device}
    ours = [
        Entry(
            name,
            "chain" if kernels else "context",
            {"context": str(context_of(model, effort, settings, work, anew))} | device,
        )
        for name, effort in ((TUNED, settings.effort), (DEFAULTS, "none"))
    ]
    rivals = [PEER] + [
        name for name, module in PEER_MODULES.items() if find_spec(module) is not None and not (kernels and name == MNN)
    ]
    theirs = [
        Entry(
            name,
            f"{name.lower()} nodes" if kernels else name.lower(),
            {**files_of(model, plan), "threads": len(os.sched_getaffinity(0))},
            may_fail=name != PEER,
        )
        for name in rivals
    ]
    return [*ours, *theirs]


def files_of(model: Model, plan: Plan) -> dict[str, object]:
    """Return what other engines take: the model's file, and its inputs as contexts have them."""
    inputs = [{"name": spec.name, "shape": spec.shape, "dtype": spec.dtype} for spec in plan.inputs]
    return {"model": str(model.path), "inputs": inputs}


def context_of(model: Model, effort: str, settings: Settings, work: Path, anew: bool) -> Path:
    """Return the model's context, which is made unless it is there."""
    device = "".join(letter if letter.isalnum() else "_" for letter in settings.device or "default")
    folder = work / "contexts" / f"{model.path.stem}_{device}_{effort}"
    if not anew and (found := folder / "context.bin").exists():
        print(f"using {found}, as made before", flush=True)
        return found
    cache = work / "performance_cache"
    return tool.generate(folder, model.path, model.shapes, effort, device=settings.device, cache=cache).context


def flops_of(plan: Plan) -> int:
    """The floating-point operations of an inference by the definitions of its operations."""
    return sum(family_of(each.task.op).work(each.task.problem).flops for each in plan.operations)
