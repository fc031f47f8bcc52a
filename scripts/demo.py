"""Tunes the page-orientation model on an OpenCL device of this machine and checks what gputune promises.

Prints what the model says about a page turned clockwise by four angles, what tuning gained per task and end
to end, how close the outputs are to onnxruntime's, and what a second generation from the warm cache costs.
Everything it writes lies in build/. Ends with exit code 1 when anything is not as it should be.
"""

import argparse
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import material
import tool
from gputune.client.importer import read_model
from gputune.client.lowering import lower
from gputune.client.plan import Task
from gputune.client.tuning.task_search import device_limits, task_key
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits
from gputune.runtime.devices import NULL, Choice, choose, discover, wanted_device
from gputune.runtime.errors import DeviceNotFound

ANGLES = tuple(material.TURNS)
WORK = material.ROOT / "build" / "demo"
DIMENSIONS = f"{material.ORIENTATION_INPUT}={','.join(map(str, material.ORIENTATION_SHAPE))}"
TUNED_OPS = {"Conv", "DepthwiseConv", "MatMul"}
# What is promised, see README.md.
LARGEST_DEVIATION = 1e-3
SMALLEST_SPACE = 200
FEWEST_SHAPES = 2
FEWEST_TRIALS = 20
WARM_SPEED_UP = 20
LARGEST_START_MS = 150

FloatArray = npt.NDArray[np.float32]


class Checks:
    """Prints each check as it is made and remembers the ones that failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def __call__(self, right: bool, what: str) -> None:
        print(f"  {'right' if right else 'WRONG'}  {what}")
        if not right:
            self.failed.append(what)


def headline(text: str) -> None:
    print(f"\n== {text}", flush=True)


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


def tile_shapes(task: Task, limits: DeviceLimits, enough: int) -> set[tuple[int, int]]:
    """Tile shapes (rows, columns) among a task's valid configurations; the search ends when there are enough."""
    shapes: set[tuple[int, int]] = set()
    for configuration in family_of(task.op).space(task.problem, limits).configurations():
        shapes.add((configuration["MR"], configuration.get("NV", 1) * configuration["VW"]))
        if len(shapes) >= enough:
            break
    return shapes


def check_spaces(check: Checks, model: Path, limits: DeviceLimits, tasks: list[dict[str, Any]]) -> None:
    plan = lower(read_model(model, {material.ORIENTATION_INPUT: material.ORIENTATION_SHAPE}))
    known = {task_key(task).digest: task for task in plan.tasks}
    searched = [known[task["key"]] for task in tasks if task["op"] in TUNED_OPS]
    fewest = min(len(tile_shapes(task, limits, FEWEST_SHAPES)) for task in searched)
    check(fewest >= FEWEST_SHAPES, f"the spaces of all {len(searched)} of them have at least {fewest} tile shapes")


def check_start(check: Checks, run: tool.Run) -> None:
    """What a fresh process pays before its first result, beyond a steady inference."""
    load, first, steady = (run.summary[f"{name}_ns"] for name in ("load", "first_inference", "median_inference"))
    over_ms = (load + first - steady) / 1e6
    check(over_ms <= LARGEST_START_MS, f"load + first - steady inference in a fresh process: {over_ms:.0f} ms")


def check_tasks(check: Checks, tasks: list[dict[str, Any]]) -> None:
    searched = [task for task in tasks if task["op"] in TUNED_OPS]
    smallest = min(task["space_size"] for task in searched)
    fewest = min(task["trials"].get("ok", 0) for task in searched)
    check(
        smallest >= SMALLEST_SPACE,
        f"smallest space of a convolution or gemm: {smallest} valid configurations",
    )
    check(fewest >= FEWEST_TRIALS, f"fewest configurations measured for one of them: {fewest}")
    slower = [title_of(task) for task in tasks if task["tuned_ns"] > (task["default_ns"] or math.inf)]
    check(not slower, f"tasks that tuning made slower: {', '.join(slower) or 'none'}")


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


def check_warm(check: Checks, first: tool.Run, second: tool.Run, outputs_equal: bool) -> None:
    totals = second.summary["totals"]
    profiles, compiles = totals["profile_requests"], totals["compile_requests"]
    check(profiles == 0 and compiles == 0, f"requests: {profiles} to profile, {compiles} to compile")
    configurations = [{task["key"]: task["configuration"] for task in run.summary["tasks"]} for run in (first, second)]
    check(configurations[0] == configurations[1], "the same configurations")
    check(outputs_equal, "bitwise the same outputs")
    ratio = first.seconds / second.seconds
    times = f"{first.seconds:.1f} s and {second.seconds:.2f} s"
    check(ratio >= WARM_SPEED_UP, f"the two generations took {times}: the second is {ratio:.0f} times faster")


def choose_device(wanted: str | None) -> Choice:
    """The device of this machine to use; naming it keeps a server that happens to run out of the demo."""
    try:
        choice = choose(discover(), wanted_device(wanted))
    except DeviceNotFound as error:
        sys.exit(f"demo: {error}")
    if choice.report.is_null:
        sys.exit(f"demo: the device {NULL!r} computes nothing, so there is nothing to show")
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

    started = time.perf_counter()
    shutil.rmtree(WORK, ignore_errors=True)
    check = Checks()
    model, picture = material.orientation_model(), material.page_picture()
    input_list, arrays = write_inputs(picture)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    output = session.get_outputs()[0].name

    headline(f"the model with default configurations, then tuned with effort {options.effort} from an empty cache")
    default = tool.generate(WORK / "default", model, DIMENSIONS, "none", None, device)
    first = tool.generate(WORK / "first", model, DIMENSIONS, options.effort, WORK / "cache", device)

    headline("what it says about a page")
    first_run = tool.net_run(WORK / "first_run", first.context, input_list, len(ANGLES))
    check_outputs(check, first_run, session, arrays)

    headline("what tuning gained, per task")
    show_gains(first.summary["tasks"])
    check_tasks(check, first.summary["tasks"])
    check_spaces(check, model, device_limits(identity), first.summary["tasks"])

    headline("what tuning gained, end to end")
    slow, fast = tool.interleaved_median_ns(WORK / "timing", [default.context, first.context], input_list)
    times = f"{tool.milliseconds(slow)} ms with defaults, {tool.milliseconds(fast)} ms tuned"
    check(fast <= slow, f"median inference: {times}, {slow / fast:.2f} times faster")
    check_start(check, tool.net_run(WORK / "start", first.context, input_list, 40, quiet=True))

    headline("a second generation into an empty folder, from the warm cache")
    second = tool.generate(WORK / "second", model, DIMENSIONS, options.effort, WORK / "cache", device)
    second_run = tool.net_run(WORK / "second_run", second.context, input_list, len(ANGLES))
    numbers = range(len(ANGLES))
    equal = all(first_run.result(number, output) == second_run.result(number, output) for number in numbers)
    check_warm(check, first, second, equal)

    headline(f"{'something is wrong' if check.failed else 'all right'} after {time.perf_counter() - started:.0f} s")
    for what in check.failed:
        print(f"  WRONG  {what}")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
