"""Compare persistent kernels next to other programs with launches one by one, in turns (`scripts/bench contention`)."""

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

import tool
from benchmarks.peers.comparing import Failed
from benchmarks.tuning.tools import Ratio
from gputune import runtime
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context, ProgramRecord
from gputune.runtime.execution.breaker import ATTEMPTS_AT_MOST
from models import classic_models, tune_models
from models.tune_models import Model

WORK = tool.ROOT / "build" / "bench"
LARGEST_RATIO = 1.3  # promised, of times by persistent kernels to those by launches
LEAST_RUNS = {"small": 20_000, "large": 200}
TURNS = 200  # of each form, at most
DRAWS = 500  # of turns, for an interval
WARM_UP = 20
SPIN = "import signal, sys\nsignal.alarm(int(sys.argv[1]))\nwhile True: pass"
LONGEST_SPIN_SECONDS = 3600

Times = list[npt.NDArray[np.float64]]
"""Nanoseconds of each inference, turn by turn."""
Statistic = Callable[[npt.NDArray[np.float64]], Any]


@dataclasses.dataclass
class Measured:
    """Both forms of a model beside so many other processes."""

    model: str
    others: int
    persistent: Times
    launches: Times
    runs: runtime.Runs

    @property
    def attempts(self) -> float:
        """The share of inferences that were attempts to come back."""
        return self.runs.attempts / sum(map(len, self.persistent))

    def ratio(self, statistic: Statistic) -> Ratio:
        """A statistic of the persistent context by that of launches; the bootstrap interval is over pairs of turns."""
        numbers = np.random.default_rng(1)

        def of(turns: Sequence[int]) -> float:
            mine, other = ([form[turn] for turn in turns] for form in (self.persistent, self.launches))
            return float(statistic(np.concatenate(mine)) / statistic(np.concatenate(other)))

        count = len(self.persistent)
        drawn = [of(list(numbers.integers(0, count, count))) for _ in range(DRAWS)]
        return Ratio(of(range(count)), *map(float, np.percentile(drawn, (2.5, 97.5))))


def ten_convolutions() -> Model:
    """Ten 3x3 convolutions of 16 channels on a map of 14 x 14: a launch takes as long as its kernel."""
    numbers = np.random.default_rng(0)
    names = ["x", *(f"t{place}" for place in range(1, 10)), "y"]
    nodes = [
        onnx.helper.make_node("Conv", [names[place], f"w{place}"], [names[place + 1]], f"conv{place}", pads=[1] * 4)
        for place in range(10)
    ]
    value, shape = onnx.helper.make_tensor_value_info, [1, 16, 14, 14]
    graph = onnx.helper.make_graph(
        nodes,
        "ten",
        [value("x", onnx.TensorProto.FLOAT, shape)],
        [value("y", onnx.TensorProto.FLOAT, shape)],
        [
            onnx.numpy_helper.from_array(0.1 * numbers.standard_normal((16, 16, 3, 3), dtype=np.float32), f"w{place}")
            for place in range(10)
        ],
    )
    opset = onnx.helper.make_opsetid("", 13)
    return classic_models.saved(
        "ten convolutions",
        "ten_convolutions",
        lambda: onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8),
    )


MODELS: Mapping[str, tuple[Callable[[], Model], str]] = {
    "convolutions": (ten_convolutions, "small"),
    "orientation": (tune_models.demo, "small"),
    "densenet": (lambda: classic_models.light("DenseNet-121"), "large"),
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="(default: all)")
    command.add_argument("--runs", type=int, help="inferences of each form (default: 20000, DenseNet-121: 200)")
    command.add_argument(
        "--others", type=int, nargs="+", default=[0, 1, 3], help="busy processes beside (default: %(default)s)"
    )
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Compare persistent kernels with launches one by one, alone and next to busy processes. A context of default
    configurations runs in both forms in turns; mean and p99 must be at most 1.3 x those of launches."""
    found: list[Measured] = []
    for name in options.models:
        make, size = MODELS[name]
        contexts = contexts_of(name, make(), options.device)
        for others in options.others:
            found.append(_measured(name, contexts, others, options.runs or LEAST_RUNS[size]))
            print("\n" + tool.table(HEAD, _rows(found[-1])), flush=True)
    print("\n" + tool.table(HEAD, [row for one in found for row in _rows(one)]), flush=True)
    if options.json is not None:
        figures = [
            {"model": one.model, "others": one.others, "runs": dataclasses.asdict(one.runs)}
            | {form: [turn.tolist() for turn in getattr(one, form)] for form in ("persistent", "launches")}
            for one in found
        ]
        options.json.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    if broken := [line for one in found for line in _broken(one)]:
        raise Failed("; ".join(broken))


def contexts_of(name: str, model: Model, device: str | None) -> tuple[Path, Path]:
    """The context, and the same without persistent kernels."""
    dimensions = ";".join(f"{tensor}={','.join(map(str, shape))}" for tensor, shape in model.dimensions.items())
    arguments: list[str | Path] = ["--model", model.path, "--binary_file", "context", "--tuning_effort", "none"]
    arguments += ["--input_dimensions", dimensions] if dimensions else []
    arguments += ["--device", device] if device else []
    context = tool.gputune(WORK / f"contention_{name}", "context-binary-generator", *arguments).context
    apart = context.with_name("launches.bin")
    with open_context(context) as file:
        header = file.header
        if not any(graph.persistent for graph in header.graphs):
            raise Failed(f"{header.device.name} runs no persistent kernels: there is nothing to compare")
        contents = Context(
            graphs=[dataclasses.replace(graph, persistent=(), counter_bytes=0) for graph in header.graphs],
            programs=[
                ProgramRecord(file.binary(place), file.source(place), entry.options)
                for place, entry in enumerate(header.programs)
            ],
            weights=[bytes(file.weights(place)) for place in range(len(header.weights))],
            packing=header.packing,
            device=header.device.to_dict(),
            tier=header.tier,
            configuration=header.configuration,
            versions=header.versions,
        )
        write_context(apart, contents)
    return context, apart


def _measured(name: str, contexts: tuple[Path, Path], others: int, runs: int) -> Measured:
    executors = [runtime.load(path) for path in contexts]
    persistent, launches = executors
    if persistent.runs is None or not persistent.has_persistent:
        raise Failed(f"{name}: {'; '.join(persistent.warnings)}")
    numbers = np.random.default_rng(0)
    inputs = {t.name: numbers.standard_normal(t.shape).astype(t.dtype) for t in persistent.graph.inputs}
    want = launches.run(inputs)
    for _ in range(WARM_UP):
        for executor in executors:
            executor.run(inputs)
    times: tuple[Times, Times] = ([], [])
    turns = min(TURNS, runs)
    before = dataclasses.replace(persistent.runs)
    with busy(others):
        for turn in range(turns):
            count = runs * (turn + 1) // turns - runs * turn // turns
            for place in (0, 1) if turn % 2 else (1, 0):
                taken = []
                for _ in range(count):
                    outputs, elapsed_ns = executors[place].run_timed(inputs)
                    taken.append(elapsed_ns)
                times[place].append(np.array(taken, np.float64))
                _check(name, outputs, want)
    after, fields = persistent.runs, [field.name for field in dataclasses.fields(runtime.Runs)]
    return Measured(
        name,
        others,
        *times,
        runtime.Runs(**{field: getattr(after, field) - getattr(before, field) for field in fields}),
    )


def _check(name: str, outputs: Mapping[str, npt.NDArray[Any]], want: Mapping[str, npt.NDArray[Any]]) -> None:
    """That nothing was lost. Raises Failed."""
    for tensor, value in want.items():
        if not np.abs(outputs[tensor] - value).max() <= 1e-4 * np.abs(value).max():
            raise Failed(f"{name}: output {tensor!r} is wrong")


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute all the time; they end after LONGEST_SPIN_SECONDS whatever happens."""
    command = [sys.executable, "-c", SPIN, str(LONGEST_SPIN_SECONDS)]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _mean(times: npt.NDArray[np.float64]) -> Any:
    return times.mean()


def _p99(times: npt.NDArray[np.float64]) -> Any:
    return np.percentile(times, 99)


HEAD = (
    "model, beside",
    "form",
    "runs",
    "mean ms",
    "p50 ms",
    "p99 ms",
    "x mean",
    "x p99",
    "persistent",
    "given up",
    "attempts",
)


def _rows(one: Measured) -> list[tuple[str, ...]]:
    title = f"{one.model}, {one.others} of {len(os.sched_getaffinity(0))} cores busy"
    rows = []
    for form, turns in (("persistent", one.persistent), ("launches", one.launches)):
        times = np.concatenate(turns)
        figures = (tool.milliseconds(each) for each in (_mean(times), np.median(times), _p99(times)))
        cells = [title, form, str(len(times)), *figures]
        if form == "persistent":
            shares = [f"{count / len(times):.1%}" for count in (one.runs.persistent, one.runs.aborted)]
            cells += [str(one.ratio(_mean)), str(one.ratio(_p99)), *shares, f"{one.attempts:.2%}"]
        rows.append((*cells, *[""] * (len(HEAD) - len(cells))))
    return rows


def _broken(one: Measured) -> list[str]:
    """The promises that these figures break."""
    place = f"{one.model} beside {one.others}"
    ratios = {"mean": one.ratio(_mean).value, "p99": one.ratio(_p99).value}
    broken = [
        f"{place}: {what} {value:.2f} x launches, at most {LARGEST_RATIO} is promised"
        for what, value in ratios.items()
        if value > LARGEST_RATIO
    ]
    if one.attempts >= ATTEMPTS_AT_MOST:
        broken.append(f"{place}: {one.attempts:.2%} attempts, less than {ATTEMPTS_AT_MOST:.1%} is promised")
    return broken
