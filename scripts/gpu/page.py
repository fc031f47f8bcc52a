"""docs/gpus.md from the days that are kept in docs/gpu_days: what stays of a day, and its tables."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.keeping import read

DAYS = Path(__file__).resolve().parents[2] / "docs" / "gpu_days"
HEAD = ("date", "card", "platform", "driver")
KEPT: Mapping[str, tuple[str, ...]] = {
    "facts": ("device", "probes"),
    "launches": ("launches", "gaps", "bandwidth"),
    "barrier": ("groups_at_once", "us_per_barrier"),
    "gemm": ("gemm",),
    "baselines": ("torch", "networks", "products", "convolutions", "rows", "launches", "copies"),
    "kernel_tests": ("tests",),
    "recordings": ("recordings",),
    "models": ("squeezenet", "resnet50", "mobilenet_v2"),
    "chains": ("made", "untuned", "squeezenet", "resnet50", "mobilenet_v2"),
    "crash": ("forms",),
}
"""Of each phase, what a kept day has."""
LEFT_OUT = ("said", "log", "slowest", "memory", "seen and us", "detail", "warnings", "in_chain", "inference_ns")
SIMILAR = {
    "gemm_512": ("products", "512x512x512"),
    "gemm_1024": ("products", "1024x1024x1024"),
    "skinny_1x4096x4096": ("products", "1x4096x4096"),
    "conv_56x56x64": ("convolutions", "56x56 64-64 3x3 /1 g1"),
    "conv_28x28x128": ("convolutions", "28x28 128-128 3x3 /1 g1"),
    "conv_14x14x256": ("convolutions", "14x14 256-256 3x3 /1 g1"),
    "conv_7x7x512": ("convolutions", "7x7 512-512 3x3 /1 g1"),
    "squeeze_55x55x96_16": ("convolutions", "55x55 96-16 1x1 /1 g1"),
    "depthwise_56x56x144": ("convolutions", "56x56 144-144 3x3 /1 g144"),
    "softmax_1x1000": ("rows", "softmax 1x1000"),
    "attention_12x197x64": ("rows", "attention 12x197x64"),
}
"""Our recordings, and where PyTorch's time for the same is."""
NETWORKS = {"squeezenet": "squeezenet1_0", "resnet50": "resnet50", "mobilenet_v2": "mobilenet_v2"}
WAYS = {"python": "pyopencl, with events", "c_event": "C, with events", "c": "C, without events"}
MEMORIES = {
    "whole": "buffers",
    "parts": "parts of one buffer",
    "offsets": "one buffer and offsets",
    "svm": "shared virtual memory",
    "crowded": "buffers among 2000 others",
}
NOTHING = "–"

Day = Mapping[str, Any]


# --- what is kept ---


def keep(target: Path, days: Sequence[Path]) -> int:
    """Writes what stays of one or more day.json, of which later ones count more; returns the exit code."""
    kept: dict[str, Any] = {}
    for day in map(read, days):
        for name, keys in KEPT.items():
            if name in day and day[name].get("card") and not day[name].get("rehearsal"):
                record = {key: day[name][key] for key in (*HEAD, *keys) if key in day[name]}
                kept[name] = _without(record)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(kept, separators=(",", ":")).replace("},", "},\n") + "\n", encoding="utf-8")
    return 0


def _without(value: Any) -> Any:
    """A value without what is long."""
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        return [_without(one) for one in value]
    return round(value, 4) if isinstance(value, float) and abs(value) > 1 else value


# --- the page ---


def page() -> str:
    """Return the tables of all kept days, the newest first."""
    days = [read(path) for path in sorted(DAYS.glob("*.json"), reverse=True)]
    return "\n".join(_day(day) for day in days)


def _day(day: Day) -> str:
    head = day["facts"]
    parts = [f"## {head['card']}, {head['date'][:10]}\n"]
    tables: Sequence[tuple[str, str, Callable[[Day], list[list[Any]]]]] = (
        ("Networks", "models", _networks),
        ("Kernels", "recordings", _kernels),
        ("Products that gputune does not use yet", "gemm", _products),
        ("A launch in a chain of 32", "launches", _launches),
        ("The launches of a network", "chains", _ways),
        ("What changes a chain of 32 launches", "chains", _made),
        ("A barrier between all work-groups", "barrier", _barriers),
        ("Work-groups that run at the same time", "barrier", _groups),
        ("What the driver has", "facts", _probes),
    )
    for title, phase, rows in tables:
        if phase in day and (found := rows(day)):
            record = day[phase]
            caption = f"{record['card']}, driver {record['driver']}. {CAPTIONS[title]}"
            parts.append(f"### {title}\n\n{textwrap.fill(caption, 120)}\n\n{_table(found)}")
    return "\n".join(parts)


CAPTIONS = {
    "Networks": "Milliseconds of an inference with batch 1; those of gputune include copies of inputs and outputs."
    " PyTorch's eager mode launches kernels one by one; a CUDA graph launches all at once.",
    "Kernels": "Microseconds. The best is that of the measured configurations, which are a small part of the space.",
    "Products that gputune does not use yet": "TFLOP/s of square products by the best tile, and the largest error at"
    " 1024 as a part of the largest value. `local` keeps tiles in local memory. `mma3` uses matrix units, with three"
    " TF32 products for each of float32.",
    "A launch in a chain of 32": "Microseconds of the host for a launch of a small kernel with 4 buffers.",
    "The launches of a network": "Microseconds until all launches are enqueued, and until all are done.",
    "What changes a chain of 32 launches": "Microseconds of a launch, until all are enqueued and until all are done.",
    "A barrier between all work-groups": "Microseconds of a barrier, by the way in which memory is fenced.",
    "Work-groups that run at the same time": "How many of a kernel, by its work-items and its local memory in bytes.",
    "What the driver has": "Small kernels were built, run and checked.",
}


def _table(rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(map(_shown, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def _shown(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _median(value: Any, *keys: str, scale: float = 1.0) -> float | None:
    found = _at(value, *keys)
    found = found.get("median") if isinstance(found, Mapping) else found
    return None if found is None or isinstance(found, str) else float(found) * scale


def _networks(day: Day) -> list[list[Any]]:
    rows: list[list[Any]] = [
        ["network", "untuned", "tuned, effort quick", "PyTorch eager", "CUDA graph, float32", "CUDA graph, TF32"]
    ]
    for name, torch_name in NETWORKS.items():
        model, torch = day["models"].get(name), _at(day, "baselines", "networks", torch_name)
        if not isinstance(model, Mapping):
            continue
        contenders = {one["name"]: one["time_ns"] for one in _at(model, "compare", "summary", "contenders") or []}
        tuned = contenders.get("tuned") or _at(model, "net-run", "summary", "median_inference_ns")
        end_to_end = _at(model, "context-binary-generator", "summary", "end_to_end")
        untuned = contenders.get("untuned") or _at(end_to_end, "untuned_ns")
        if tuned is not None:
            others = [_median(torch, *keys, scale=1e-3) for keys in (("eager",), ("graph", "fp32"), ("graph", "tf32"))]
            rows.append([name, *(_median(one, scale=1e-6) for one in (untuned, tuned)), *others])
    return rows if len(rows) > 1 else []


def _kernels(day: Day) -> list[list[Any]]:
    rows: list[list[Any]] = [["task", "default", "best", "measured", "PyTorch, float32", "PyTorch, TF32"]]
    for name, one in day["recordings"]["recordings"].items():
        group, key = SIMILAR.get(name, ("", ""))
        torch = _at(day, "baselines", group, key)
        float32 = _median(torch, "fp32") or _median(torch)
        measured = f"{one['rows']} of {one['space']}"
        rows.append([name, one["default_us"], one["best_us"], measured, float32, _median(torch, "tf32")])
    return rows


def _products(day: Day) -> list[list[Any]]:
    kinds = ("local", "mma3", "torch_fp32", "torch_tf32")
    rows: list[list[Any]] = [["size", "local", "mma3", "PyTorch, float32", "PyTorch, TF32"]]
    errors: list[Any] = ["error at 1024"]
    products = day["gemm"]["gemm"]
    for size in sorted(products, key=int):
        best: list[Any] = [f"{size}"]
        for kind in kinds:
            found = {name: one for name, one in products[size].items() if name.split()[0] == kind and "tflops" in one}
            name = max(found, key=lambda name: float(found[name]["tflops"]), default=None)
            best.append(None if name is None else float(found[name]["tflops"]))
            if size == "1024":
                errors.append(None if name is None else f"{found[name]['error']:.1e}")
        rows.append(best)
    return [*rows, errors]


def _launches(day: Day) -> list[list[Any]]:
    cells = day["launches"]["launches"]
    rows: list[list[Any]] = [["memory", *WAYS.values(), "C, until all are done"]]
    for memory, words in MEMORIES.items():
        whole = _median(cells, memory, "c", "4", "inference_us")
        rows.append([words, *(_median(cells, memory, way, "4", "enqueue_us") for way in WAYS), whole])
    return rows


def _ways(day: Day) -> list[list[Any]]:
    rows: list[list[Any]] = [["network", "way", "enqueued", "done"]]
    for name in ("untuned", *NETWORKS):
        for way, cell in (_at(day["chains"], name, "ways") or {}).items():
            rows.append([name, way, _median(cell, "enqueue_us"), _median(cell, "us")])
    return rows if len(rows) > 1 else []


def _made(day: Day) -> list[list[Any]]:
    made = day["chains"].get("made") or {}
    rows = [[name, _median(cell, "enqueue_us"), _median(cell, "us")] for name, cell in made.items()]
    return [["chain", "enqueued", "done"], *rows] if rows else []


def _barriers(day: Day) -> list[list[Any]]:
    table = day["barrier"]["us_per_barrier"]
    fences = [name for name in next(iter(table.values())) if _median(table, next(iter(table)), name) is not None]
    return [
        ["work-groups", *fences],
        *([groups, *(_median(one, name) for name in fences)] for groups, one in table.items()),
    ]


def _groups(day: Day) -> list[list[Any]]:
    return [["work-group", "at once"], *([name, one["most"]] for name, one in day["barrier"]["groups_at_once"].items())]


def _probes(day: Day) -> list[list[Any]]:
    works: dict[bool, list[str]] = {True: [], False: []}
    for name, probe in day["facts"]["probes"].items():
        works[bool(probe["works"])].append(f"`{name}`")
    counts = _at(day, "kernel_tests", "tests", "counts") or {}
    tests = ", ".join(f"{count} {how.lower()}" for how, count in counts.items())
    return [["what", "which"], ["works", ", ".join(works[True])], ["does not", ", ".join(works[False])]] + (
        [["tests of kernels", tests]] if tests else []
    )
