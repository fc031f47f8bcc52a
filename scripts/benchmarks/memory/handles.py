"""Measure tensors without copies, and arenas that contexts share (`scripts/bench memory`)."""

import argparse
import io
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tool
from benchmarks.memory import made, server
from gputune.runtime import Executor, MemHandle, load, load_group
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import find, wanted_device
from gputune.runtime.profiling.log import read_log_of
from gputune.runtime.profiling.profiler import Profiler
from gputune.runtime.profiling.records import LoggedInference

WORK = tool.ROOT / "build" / "bench" / "memory"
LARGE_ELEMENTS = 16 << 20  # 64 MiB
SMALL_ELEMENTS = 1024
ARENA_BYTES = 200 << 20
MEMBERS = 5
MOST_OVERHEAD, MOST_NEW_US, MOST_KNOWN_US, MOST_RSS, LEAST_SPEED = 0.02, 50.0, 5.0, 1.05, 0.97

GROUP = """
import sys
import numpy as np
from pathlib import Path
import gputune.runtime
device, shared, *paths = sys.argv[1:]
if shared == "shared":
    group = gputune.runtime.load_group(paths, device)
    executors = [group[Path(path).stem] for path in paths]
else:
    executors = [gputune.runtime.load(path, device) for path in paths]
x = np.ones(executors[0].graph.inputs[0].shape, np.float32)
for _ in range(3):
    for executor in executors:
        assert (executor.run({"x": x})["y"] == 3).all()
for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith("VmRSS:"):
        print(line.split()[1])
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=40, help="inferences of each kind (default: %(default)s)")
    command.add_argument(
        "--frames", type=int, default=1000, help="that pass through three processes (default: %(default)s)"
    )
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Measure what memory handles save in copies, here and to a server, and what a group of contexts saves in memory
    and costs in time."""
    WORK.mkdir(parents=True, exist_ok=True)
    report = find(wanted_device(options.device)).report
    assert report.identity is not None
    device = options.device or report.identity.name
    backend = open_backend(report)
    large = made.write(WORK / "large.bin", backend, LARGE_ELEMENTS, 4 * LARGE_ELEMENTS, "memhandle")
    small = made.write(WORK / "small.bin", backend, SMALL_ELEMENTS, 4096, "memhandle")
    groups = {
        kind: [made.write(WORK / f"{kind}_{n}.bin", backend, SMALL_ELEMENTS, nbytes) for n in range(MEMBERS)]
        for kind, nbytes in (("arena", ARENA_BYTES), ("none", 4096))
    }
    del backend
    result: dict[str, Any] = {"device": report.title}
    rows = [("device", report.title, "")]
    result["overhead"] = overhead(large, device, options.rounds)
    rows += overhead_rows(result["overhead"])
    result["binding_us"] = binding(small, device, 50 * options.rounds)
    for kind, most in (("new", MOST_NEW_US), ("known", MOST_KNOWN_US)):
        rows.append((f"binding two {kind} handles", f"{result['binding_us'][kind]:.1f} us", f"at most {most:.0f} us"))
    result["group_kib"] = resident(groups, device)
    rows += resident_rows(result["group_kib"])
    result["turns"] = turns([small, *groups["none"][:3]], device, options.rounds)
    low, median, high = result["turns"]
    rows.append(
        ("a group's speed in turn", f"{median:.3f} ({low:.3f}-{high:.3f}) of private", f"at least {LEAST_SPEED}")
    )
    print("\n" + tool.table(["what", "result", "mark"], rows), flush=True)
    result["server"], served = server.measure(WORK, options.rounds, options.frames, options.device)
    print("\n" + tool.table(["what", "memory", "TCP", "factor", "mark"], served), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def overhead(path: Path, device: str, rounds: int) -> dict[str, Any]:
    """By form, the ns of inferences beyond what their kernels take by the device's clock, and the bytes copied."""
    with load(path, device) as executor:
        (tensor,) = executor.graph.inputs
        x = np.random.default_rng(1).random(tensor.shape, np.float32)
        memfds = MemHandle.allocate(tensor.nbytes), MemHandle.allocate(tensor.nbytes)
        best = executor.allocate_for(tensor), executor.allocate_for(tensor)
        forms: dict[str, Callable[[], LoggedInference]] = {
            "arrays": lambda: _profiled(executor, None, x),
            "memfd": lambda: _profiled(executor, memfds, x),
            "device's own": lambda: _profiled(executor, best, x),
        }
        found: dict[str, Any] = {form: {"overhead_ns": [], "copied": 0} for form in forms}
        for number in range(rounds + 2):
            for form, one in forms.items():
                inference = one()
                if number >= 2:  # the first allocate, and touch pages that nothing has touched
                    beyond = inference.elapsed_ns - int(inference.took_ns().sum())
                    found[form]["overhead_ns"].append(beyond)
                    found[form]["copied"] = sum(one.bytes_copied for one in executor.counters.last.values())
        for form, one in found.items():
            one["kind"] = {"memfd": memfds[0].kind, "device's own": best[0].kind}.get(form, "array")
            one["median_ns"] = statistics.median(one["overhead_ns"])
        return found


def _profiled(executor: Executor, handles: tuple[MemHandle, MemHandle] | None, x: np.ndarray) -> LoggedInference:
    given = {"x": x} if handles is None else {}
    if handles is None:
        executor.unregister("x")
        executor.unregister("y")
    for name, handle in zip("xy", handles or (), strict=handles is not None):
        executor.register(name, handle)
    log = io.BytesIO()
    with Profiler(log) as profiler:
        profiler.profile(executor, lambda: executor.run_timed(given)[1], 1)
    return read_log_of(io.BytesIO(log.getvalue()), "the log").inferences[0]


def overhead_rows(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """A line for each form."""
    base = found["arrays"]["median_ns"]
    rows = []
    for form, one in found.items():
        quarter = statistics.quantiles(one["overhead_ns"], n=4)
        share = "" if form == "arrays" else f", {one['median_ns'] / base:.2%} of arrays'"
        what = f"{one['median_ns'] / 1e3:.0f} us ({quarter[0] / 1e3:.0f}-{quarter[2] / 1e3:.0f}){share}"
        mark = "" if form == "arrays" else f"at most {MOST_OVERHEAD:.0%}"
        rows.append(
            (f"host overhead, 64 MiB in and out, {form} ({one['kind']})", f"{what}, {one['copied']} B copied", mark)
        )
    return rows


def binding(path: Path, device: str, rounds: int) -> dict[str, float]:
    """Median us that an inference takes longer with two handles that are new, and with two that are known but were not
    those of the inference before, than with the same two."""
    with load(path, device) as executor:
        (tensor,) = executor.graph.inputs
        pairs = [tuple(executor.allocate_for(tensor) for _ in "xy") for _ in range(2)]
        times: dict[str, list[int]] = {"same": [], "known": [], "new": []}

        def timed(kind: str, pair: Sequence[MemHandle]) -> None:
            begun = time.perf_counter_ns()
            executor.run({"x": pair[0]}, {"y": pair[1]})
            times[kind].append(time.perf_counter_ns() - begun)

        for number in range(rounds):
            timed("known", pairs[number % 2])
            timed("same", pairs[number % 2])
            fresh = [executor.allocate_for(tensor) for _ in "xy"]
            timed("new", fresh)
            for handle in fresh:
                executor.release(handle)
                handle.close()
        middle = {kind: statistics.median(each[rounds // 10 :]) for kind, each in times.items()}
    return {kind: (middle[kind] - middle["same"]) / 1e3 for kind in ("known", "new")}


def resident(groups: Mapping[str, Sequence[Path]], device: str) -> dict[str, dict[str, int]]:
    """KiB of fresh processes that have loaded and run these contexts, in a group and alone."""

    def of(paths: Sequence[Path], how: str) -> int:
        words = [sys.executable, "-c", GROUP, device, how, *map(str, paths)]
        return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    return {
        how: {kind: statistics.median_low([of(paths, how) for _ in range(3)]) for kind, paths in groups.items()}
        for how in ("shared", "alone")
    }


def resident_rows(kib: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, str]]:
    """A line for contexts in a group, and one for contexts alone."""
    rows = []
    for how, mark in (("shared", f"at most {MOST_RSS}"), ("alone", "")):
        extra = (kib[how]["arena"] - kib[how]["none"]) * 1024
        title = f"{MEMBERS} contexts with arenas of {ARENA_BYTES >> 20} MiB, {how}"
        rows.append(
            (title, f"{extra / 2**20:.1f} MiB more resident than with 4 KiB: {extra / ARENA_BYTES:.3f} arenas", mark)
        )
    return rows


def turns(paths: Sequence[Path], device: str, rounds: int) -> tuple[float, float, float]:
    """The speed of a group's contexts in turn, by that of contexts with arenas of their own: lower quartile, median and
    upper quartile of pairs of blocks."""
    names = [str(number) for number in range(len(paths))]
    with load_group(paths, device, names) as group:
        private = [load(path, device) for path in paths]
        (tensor,) = private[0].graph.inputs
        x = np.ones(tensor.shape, np.float32)

        def block(executors: Sequence[Executor]) -> int:
            begun = time.perf_counter_ns()
            for _ in range(50):
                for executor in executors:
                    executor.run({"x": x})
            return time.perf_counter_ns() - begun

        shared = [group[name] for name in names]
        block(shared), block(private)
        pairs = [(block(shared), block(private)) for _ in range(rounds)]
        ratios = sorted(alone / together for together, alone in pairs)
    low, median, high = statistics.quantiles(ratios, n=4)
    return low, median, high
