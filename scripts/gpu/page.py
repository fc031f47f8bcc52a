"""Write docs/gpus.md from the days in docs/gpu_days: select the results to keep of a day, and make its tables."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.estimated import estimated, on_cards
from gpu.keeping import read

DAYS = Path(__file__).resolve().parents[2] / "docs" / "gpu_days"
HEAD = ("date", "card", "platform", "driver")
CHAINS = ("", ", one program", ", modules loaded at once")
KEPT: Mapping[str, tuple[str, ...]] = {
    "facts": ("device",),
    "baselines": ("torch", "networks", "products", "convolutions", "rows", "launches", "copies"),
    "clblast": ("products",),
    "kernel_tests": ("tests",),
    "recordings": ("recordings",),
    "models": ("squeezenet", "squeezenet_half", "resnet50", "mobilenet_v2"),
    "chains": (*("squeezenet", "resnet50", "mobilenet_v2"), *(f"untuned{how}" for how in CHAINS)),
}
"""The results that a kept day has of each phase."""
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
}
"""Our recordings, and the places of PyTorch's times for the same kernels. PyTorch's attention is two products and a
softmax, and ours a product alone."""
NETWORKS: Mapping[str, str] = {
    "squeezenet": "squeezenet1_1",
    "squeezenet_half": "squeezenet1_1",
    "resnet50": "resnet50",
    "mobilenet_v2": "mobilenet_v2",
}
"""Our networks, and those of torchvision that compute the same."""
NOTHING = "–"

Day = Mapping[str, Any]


# --- what is kept ---


def keep(target: Path, days: Sequence[Path]) -> int:
    """Write the results to keep of each day.json, a later day over an earlier day; return the exit code."""
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
    """Return a value without its long parts."""
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        return [_without(one) for one in value]
    return round(value, 4) if isinstance(value, float) and abs(value) > 1 else value


# --- the page ---


def page() -> str:
    """Return the tables of all kept days, the newest first."""
    days = [read(path) for path in sorted(DAYS.glob("*.json"), reverse=True)]
    caption = textwrap.fill(ON_CARDS, 120)
    return "\n".join([*map(_day, days), f"## Estimated, on four GPUs\n\n{caption}\n\n{_table(on_cards())}"])


def _day(day: Day) -> str:
    head = day["facts"]
    parts = [f"## {head['card']}, {head['date'][:10]}\n"]
    tables: Sequence[tuple[str, str, Callable[[Day], list[list[Any]]]]] = (
        ("Networks", "models", _networks),
        ("Kernels", "recordings", _kernels),
        ("Defaults of today, estimated", "facts", _estimated),
        ("Products next to CLBlast", "clblast", _clblast),
        ("Launches by the use of a program", "chains", _uses),
        ("Kernel tests", "kernel_tests", _tests),
    )
    for title, phase, rows in tables:
        if phase in day and (found := rows(day)):
            record = day[phase]
            caption = f"{record['card']}, driver {record['driver']}. {CAPTIONS[title]}"
            parts.append(f"### {title}\n\n{textwrap.fill(caption, 120)}\n\n{_table(found)}")
    return "\n".join(parts)


CAPTIONS = {
    "Networks": "Milliseconds for an inference with batch 1. The times of gputune include copies of inputs and outputs."
    " PyTorch's eager mode launches kernels one by one; a CUDA graph launches all at once.",
    "Kernels": "Microseconds. The search measured only a small part of each tuning space.",
    "Defaults of today, estimated": "Microseconds of the kernels alone. Only the times of PyTorch are measured. gputune"
    " chooses defaults by this estimate, and what a search measures first. For `local`, the table has the rows and"
    " columns of a work-group's tile, and into how many shares the reduction is split.",
    "Products next to CLBlast": "Microseconds of a call when 20 follow each other, launching included. CLBlast uses the"
    " parameters that it brings.",
    "Launches by the use of a program": "Microseconds of the host for a launch whose program is used for the first time"
    " in an inference, and for others; and until all launches are enqueued, and done.",
    "Kernel tests": "How the tests of all kernels ended on the card.",
}


ON_CARDS = (
    "Nothing of this was measured. Microseconds that a default is estimated to take, and in brackets the least that is"
    " possible: all arithmetic at the card's usual clock, or all tensors read and written once. On Adreno and Mali"
    " defaults are direct tiles. The estimate counts a line of a cache for each element of their rows, so it is far too"
    " slow there."
)


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
        [
            *("network", "untuned", "tuned, effort quick", "PyTorch eager"),
            *(f"CUDA graph, {kind}" for kind in ("float32", "TF32", "float16")),
        ]
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
            graphs = (("graph", kind) for kind in ("fp32", "tf32", "fp16"))
            others = [_median(torch, *keys, scale=1e-3) for keys in (("eager",), *graphs)]
            rows.append([name, *(_median(one, scale=1e-6) for one in (untuned, tuned)), *others])
    return rows if len(rows) > 1 else []


def _kernels(day: Day) -> list[list[Any]]:
    kinds = {"float32": "fp32", "TF32": "tf32", "float16": "fp16"}
    rows: list[list[Any]] = [["kernel", "default", "best found", "measured", *(f"PyTorch, {kind}" for kind in kinds)]]
    for name, one in day["recordings"]["recordings"].items():
        group, key = SIMILAR.get(name.removesuffix("_half"), ("", ""))
        torch = _at(day, "baselines", group, key)
        medians = [_median(torch, kind) for kind in kinds.values()]
        measured = f"{one['rows']} of {one['space']}"
        rows.append([name, one["default_us"], one["best_us"], measured, medians[0] or _median(torch), *medians[1:]])
    return rows


def _estimated(day: Day) -> list[list[Any]]:
    """Return the table of estimates; none where a day has not the facts for that."""
    if "MAX_COMPUTE_UNITS" not in day["facts"].get("device", {}):
        return []
    rows: list[list[Any]] = [["kernel", "default", "estimated", "PyTorch, float32"]]
    for one in estimated(day["facts"]["device"]):
        torch = _median(_at(day, "baselines", one.group, one.name), "fp32")
        rows.append([one.name.removesuffix(" g1"), one.way, one.us, torch])
    return rows


def _clblast(day: Day) -> list[list[Any]]:
    rows: list[list[Any]] = [["product", "CLBlast", "default", "best starter"]]
    for name, found in (day["clblast"].get("products") or {}).items():
        if isinstance(found, Mapping):
            starters = [_median(found, one) for one in found if one.startswith("starter")]
            best = min((one for one in starters if one is not None), default=None)
            rows.append([name, _median(found, "clblast"), _median(found, "default"), best])
    return rows if len(rows) > 1 else []


def _uses(day: Day) -> list[list[Any]]:
    """Return the table of launches; none for a day before a launch had a use."""
    keys = ("first use", "later use", "enqueue_us", "us")
    found = {name: [_median(day["chains"].get(name), key) for key in keys] for name in NETWORKS}
    rows: list[list[Any]] = [[name, *cells] for name, cells in found.items() if cells[0] is not None]
    return [["network", "first use", "later use", "enqueued", "done"], *rows] if rows else []


def _tests(day: Day) -> list[list[Any]]:
    counts = _at(day, "kernel_tests", "tests", "counts") or {}
    return [[how.lower() for how in counts], list(counts.values())] if counts else []
