"""Build the generator's --summary_json, whose names are a contract with scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gputune.client.context.choice import Decision
from gputune.client.context.verifying.distance import Compared, check_compared
from gputune.client.errors import CacheMiss, GainTooSmall
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.generation.generation import Generation
from gputune.client.generation.request import GenerationRequest
from gputune.client.model.importer import data_files
from gputune.client.model.parts import described
from gputune.client.tuning.measuring.end_to_end import EndToEnd
from gputune.core.files import sha256_of
from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.discovery import SIMULATED

PHASES = {
    "check": "init",
    **{name: name for name in ("import", "lower", "untuned", "tune", "chain", "finalize", "write", "verify", "total")},
}
"""What the summary calls the phases of a generation, and what a Clock does."""

NAN_GAIN = (
    "contexts take turns on random inputs; look for NaN in the model's weights, or drop --fail_under and give your "
    "inputs to --verify with --input_list"
)
"""The remedy for contexts whose outputs are NaN or infinite."""


def summarise(
    request: GenerationRequest, generation: Generation, wall_seconds: Mapping[str, float], warnings: Sequence[str]
) -> dict[str, Any]:
    """Return the summary as JSON values; docs/schemas/context-binary-generator.schema.json says what each is.

    Tasks are in the order in which the graph needs them, those of weight 0 for what is not fused, or was. What is of a
    graph is that of the only one, by name if there are several.
    """
    outcomes, decisions = generation.outcomes, generation.decisions
    hits = sum(outcome.hit for outcome in outcomes)
    requests: Counter[str] = sum((client.requests for client in generation.clients), Counter())
    cache = generation.cache_file if request.keeps_measurements else None
    verified, fitted = generation.verified, generation.fitted
    return {
        "device": generation.device.name,
        "device_tier": generation.tier.name,
        "effort": request.effort.name,
        "cache_mode": request.tuning.cache_mode,
        "budget": {"seconds": request.tuning.budget_seconds, "used_up": generation.hurried},
        "models": [_file(path) | {"weights": [_file(one) for one in data_files(path)]} for path in request.model_paths],
        "context": _file(request.binary_file),
        "models_in_parts": _models_in_parts(generation.ep_context),
        "performance_cache": None if cache is None else _file(cache),
        "warnings": list(warnings),
        "shipped_gain": None if (least := least_gained(decisions)) is None else least.shipped,
        "tasks": [
            {
                **vars(outcome),
                "problem": dict(outcome.problem),
                "trials": dict(outcome.trials),
                "configuration": dict(outcome.configuration),
            }
            for outcome in outcomes
        ],
        "in_chain": _by_graph({one.plan.name: one.summary for one in decisions}),
        "verified": _by_output(verified, lambda one: one.error),
        "not_compared": _by_output(verified, lambda one: one.share),
        "end_to_end": _by_graph(
            {one.plan.name: one.end_to_end.to_dict() if one.end_to_end else None for one in decisions}
        ),
        "memory_limit": None if fitted is None else fitted.summary,
        "load": generation.quiet.record.to_dict(),
        "totals": {
            "tasks": len(outcomes),
            "cache_hits": hits,
            "cache_misses": len(outcomes) - hits,
            "profile_requests": requests["profile"],
            "compile_requests": requests["compile"],
            "wall_seconds": {name: round(wall_seconds.get(phase, 0.0), 6) for name, phase in PHASES.items()},
        },
    }


def _by_output(
    verified: Mapping[str, Mapping[str, Compared]] | None, number: Callable[[Compared], float]
) -> dict[str, dict[str, float]] | None:
    """Return a number of each output that was verified, by its graph and its name; None without --verify."""
    if verified is None:
        return None
    return {graph: {name: number(one) for name, one in found.items()} for graph, found in verified.items()}


def _models_in_parts(written: EpContextFile | None) -> list[dict[str, Any]] | None:
    """Return what the parts of each model are; None if models are refused of which only parts run."""
    if written is None or not written.cuts:
        return None
    return [
        {"model": str(cut.imported.path), "file": _file(path)} | described(cut)
        for path, cut in zip(written.paths, written.cuts, strict=True)
    ]


def least_gained(decisions: Sequence[Decision]) -> EndToEnd | None:
    """Return the record of the graph whose context gains least; None if that was not measured of all of them."""
    told = [one.end_to_end for one in decisions if one.end_to_end is not None]
    return min(told, key=lambda one: one.shipped) if told and len(told) == len(decisions) else None


def check_gain(request: GenerationRequest, decisions: Sequence[Decision], device: DeviceIdentity) -> None:
    """Check that what ships gains as much as --fail_under asks for. Raises GainTooSmall, NothingCompared if contexts
    were compared on outputs that show nothing, and CacheMiss if no gain is recorded."""
    if (least := request.tuning.fail_under) is None:
        return
    for one in decisions:
        check_compared(one.outputs, NAN_GAIN, f"--fail_under {least:g}: graph {one.plan.name!r}: ")
    told = least_gained(decisions)
    if told is None:
        why = _remedy(request, device) if decisions else "no part of the model runs on the device"
        raise CacheMiss(f"--fail_under {least:g}: no gain is recorded: {why}")
    if (gain := told.shipped) < least:
        shown = f"{gain:.4f}" if float(f"{gain:.4f}") < least else f"{gain}"
        graphs = "" if len(decisions) == 1 else f"the smallest of {len(decisions)} graphs: "
        raise GainTooSmall(
            f"--fail_under {least:g}: the recorded gain is {shown} ({graphs}{told.line}); tune longer, or lower it; "
            f"{request.binary_file} is written all the same"
        )


def _remedy(request: GenerationRequest, device: DeviceIdentity) -> str:
    """Say why there is no gain, and how to get one."""
    if device.platform in SIMULATED:
        return f"{device.name} computes nothing; choose another device"
    if request.config.memory_limit_hint:
        return "memory_limit_hint has changed the context after it was compared; drop it"
    if request.tuning.cache_mode == "frozen":
        return "the frozen performance cache has none; generate with another cache_mode first"
    return "whole contexts were not compared, a warning says why; run the same command again"


def _file(path: Path) -> dict[str, Any]:
    """Return what names a file and its content; no digest if it cannot be read any more."""
    try:
        return {"path": str(path), "sha256": sha256_of(path)}
    except OSError:
        return {"path": str(path), "sha256": None}


def _by_graph(found: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any] | None:
    plain = {name: dict(one) for name, one in found.items() if one is not None}
    return next(iter(plain.values()), None) if len(found) == 1 else plain or None
