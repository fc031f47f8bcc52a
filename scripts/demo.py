"""Tune the page-orientation model on an OpenCL device of this machine and show the gain.

The demo prints what the model says about a page turned clockwise by four angles, and what tuning gained per task and
end to end. It also prints the costs of a fresh process and of a second generation from the warm cache. All its files
are in build/. Times are only reported, since they depend on what else the machine does.

The exit code is 1 when a result is wrong: a label, an output, a request of the second generation, or a context that
differs from the first generation's although its choice is not open.
"""

import argparse
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import tool
from gputune.client.tuning.measuring.end_to_end import OPEN, EndToEnd
from gputune.core.errors import DeviceNotFound
from gputune.runtime.context.format import open_context
from gputune.runtime.devices.discovery import Choice, find, wanted_device
from models import material

ANGLES = tuple(material.TURNS)
WORK = tool.ROOT / "build" / "demo"
DIMENSIONS = f"{material.ORIENTATION_INPUT}={','.join(map(str, material.ORIENTATION_SHAPE))}"
LARGEST_DEVIATION = 1e-3
"""max|a-b| / max|b| against onnxruntime, as README promises."""

FloatArray = npt.NDArray[np.float32]


class Checks:
    """Prints each check as it is made and remembers the ones that failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def __call__(self, right: bool, what: str) -> None:
        print(f"  {'right' if right else 'WRONG'}  {what}")
        if not right:
            self.failed.append(what)


class Steps:
    """Prints a headline before each step, and after all of them what each has taken."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, float, float]] = []

    @contextmanager
    def __call__(self, text: str) -> Iterator[None]:
        print(f"\n== {text}", flush=True)
        wall, processor = time.perf_counter(), _processor_seconds()
        yield
        self._rows.append((text, time.perf_counter() - wall, _processor_seconds() - processor))

    def table(self) -> str:
        """The seconds of each step and of all together: wall time, and processor time of all processes."""
        total = ("all", sum(row[1] for row in self._rows), sum(row[2] for row in self._rows))
        rows = [[text, f"{wall:.1f}", f"{processor:.1f}"] for text, wall, processor in [*self._rows, total]]
        return tool.table(["step", "seconds", "processor seconds"], rows)


def _processor_seconds() -> float:
    """User and system time of this process and of all that it has started and that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def say(what: str) -> None:
    """Prints a measured value, which is neither right nor wrong."""
    print(f"         {what}")


def write_inputs(picture: Path) -> tuple[Path, list[FloatArray]]:
    """The input list for net-run, one line per angle, and the arrays it names."""
    arrays = [material.orientation_input(picture, angle) for angle in ANGLES]
    folder = WORK / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for angle, array in zip(ANGLES, arrays, strict=True):
        path = folder / f"page_{angle}.raw"
        path.write_bytes(array.tobytes())
        lines.append(f"{material.ORIENTATION_INPUT}:={path}")
    input_list = folder / "list.txt"
    input_list.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return input_list, arrays


SIZES = ("height", "width", "channels", "in_channels", "out_channels", "m", "k", "n", "outer", "axis", "inner")


def title_of(task: dict[str, Any]) -> str:
    """A short name for a task: its op and the numbers that tell it from its neighbours."""
    problem = task["problem"]
    sizes = problem.get("shape") or [problem[name] for name in SIZES if name in problem]
    parts = [task["op"], "x".join(map(str, sizes))]
    if "kernel" in problem:
        parts.append("k" + "x".join(map(str, problem["kernel"])))
    if max(problem.get("strides", [1])) > 1:
        parts.append("s" + "x".join(map(str, problem["strides"])))
    return " ".join(parts)


def show_gains(tasks: list[dict[str, Any]]) -> None:
    """The table of per-task gains; times are medians of verified launches, alone on the device."""
    rows = [
        [
            title_of(task),
            str(task["space_size"]),
            str(task["trials"].get("ok", 0)),
            str(sum(task["trials"].values()) - task["trials"].get("ok", 0)),
            tool.milliseconds(task["default_ns"]) if task["default_ns"] else "failed",
            tool.milliseconds(task["tuned_ns"]),
            f"{task['default_ns'] / task['tuned_ns']:.2f}x" if task["default_ns"] else "-",
        ]
        for task in tasks
    ]
    print(tool.table(["task", "valid", "measured", "rejected", "default ms", "tuned ms", "gain"], rows))


def show_start(run: tool.Run) -> None:
    """What a fresh process pays before its first result, beyond a steady inference."""
    load, first, steady = (run.summary[f"{name}_ns"] for name in ("load", "first_inference", "median_inference"))
    over_ms = (load + first - steady) / 1e6
    say(f"a fresh process: load + first inference - steady inference = {over_ms:.0f} ms")


def gain_line(told: object) -> str:
    """What the generator has measured of whole inferences: untuned by tuned, with what the interval says of it."""
    found = EndToEnd.from_dict(told)
    return "whole inferences were not compared: the generator's warnings say why" if found is None else found.line


def check_outputs(check: Checks, run: tool.Run, session: Any, arrays: list[FloatArray]) -> None:
    """Four labels, and the largest deviation from onnxruntime relative to the largest output."""
    labels = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    output = session.get_outputs()[0].name
    deviation = 0.0
    for number, (angle, array) in enumerate(zip(ANGLES, arrays, strict=True)):
        got = np.frombuffer(run.result(number, output), dtype=np.float32)
        want = session.run([output], {material.ORIENTATION_INPUT: array})[0].ravel()
        label = labels[int(got.argmax())]
        check(label == str(angle), f"page turned clockwise by {angle}: label {label} with {got.max():.3f}")
        deviation = max(deviation, float(np.abs(got - want).max() / np.abs(want).max()))
    check(deviation <= LARGEST_DEVIATION, f"largest max|a-b| / max|b| against onnxruntime: {deviation:.1e}")


def same_but_for_memory(first: Path, second: Path) -> bool:
    """Whether two contexts differ in nothing but the memory that the driver says the device has: with PoCL that is what
    the machine has left, which changes from one process to the next. Headers name the digest of each section."""
    headers = []
    for path in (first, second):
        with open_context(path) as context:
            device = replace(context.header.device, global_memory_bytes=0, max_allocation_bytes=0)
            headers.append(replace(context.header, device=device))
    return headers[0] == headers[1]


def check_warm(check: Checks, first: tool.Run, second: tool.Run) -> None:
    totals = second.summary["totals"]
    profiles, compiles = totals["profile_requests"], totals["compile_requests"]
    unfinished = next((line for line in first.summary["warnings"] if "ended early" in line), "")
    if unfinished and profiles:  # on a busy machine; the second generation goes on with those tasks
        say(f"{profiles} requests to profile and {compiles} to compile, since of the first generation {unfinished}")
        return
    check(profiles == 0 and compiles == 0, f"requests: {profiles} to profile, {compiles} to compile")
    say(f"the generations took {first.seconds:.1f} s and {second.seconds:.2f} s: {first.seconds / second.seconds:.0f}x")
    if (found := EndToEnd.from_dict(first.summary["end_to_end"])) is not None and found.open:
        say(f"{OPEN}: contexts are not compared here")
        return
    configurations = [{task["key"]: task["configuration"] for task in run.summary["tasks"]} for run in (first, second)]
    check(configurations[0] == configurations[1], "the same configurations")
    if first.context.read_bytes() == second.context.read_bytes():
        check(True, "byte by byte the same context")
    else:
        check(same_but_for_memory(first.context, second.context), "the same context, but for the memory of the device")


def choose_device(wanted: str | None) -> Choice:
    """The device of this machine to use; naming it keeps a server that happens to run out of the demo."""
    try:
        choice = find(wanted_device(wanted))
    except DeviceNotFound as error:
        sys.exit(f"demo: {error}")
    if choice.report.simulated:
        sys.exit(f"demo: the device {choice.report.backend!r} computes nothing, so there is nothing to show")
    return choice


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--effort", choices=["quick", "normal", "full"], default="quick", help="tuning effort")
    parser.add_argument("--device", help="the device to use, as gputune's --device")
    options = parser.parse_args()
    os.environ.pop("TARGET_SERVER_SOCKET", None)
    identity = choose_device(options.device).report.identity
    assert identity is not None
    device = os.environ["GPUTUNE_DEVICE"] = options.device or os.environ.get("GPUTUNE_DEVICE") or identity.name

    shutil.rmtree(WORK, ignore_errors=True)
    check, step = Checks(), Steps()
    with step("the model and a page"):
        model, picture = material.orientation_model(), material.page_picture()
        input_list, arrays = write_inputs(picture)
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with step(f"tuned with effort {options.effort} from an empty cache"):
        first = tool.generate(WORK / "first", model, DIMENSIONS, options.effort, device=device, cache=WORK / "cache")
    with step("what it says about the page"):
        first_run = tool.net_run(WORK / "first_run", first.context, input_list, len(ANGLES))
        check_outputs(check, first_run, session, arrays)
    with step("what tuning gained"):
        show_gains(first.summary["tasks"])
        say(gain_line(first.summary["end_to_end"]))
        show_start(tool.net_run(WORK / "start", first.context, input_list, 40, quiet=True))
    with step("a second generation into an empty folder, from the warm cache"):
        second = tool.generate(WORK / "second", model, DIMENSIONS, options.effort, device=device, cache=WORK / "cache")
        check_warm(check, first, second)

    print(f"\n{step.table()}\n\n== {'something is wrong' if check.failed else 'all right'}")
    for what in check.failed:
        print(f"  WRONG  {what}")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
