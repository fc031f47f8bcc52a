"""Replace the file of a context in place at random moments, while programs in C and in Python open, load and run it.

    scripts/stress/native/replaced [--moments 1000] [--seed N]

The file is cut short, filled with zeros in part or as a whole, or overwritten with another context. Then it is
restored, all in place. Meanwhile a C process and a Python process open, load and run it, with persistent kernels and
launch by launch. Each step must give right results or an error with a name. The exit code is 1 if a result is wrong, if
an error has an unexpected name, or if a process ends by a signal.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, numpy_helper

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.core.errors import ContextError
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import open_context
from gputune.runtime.devices.discovery import choose, discover
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import executor_on
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import save
from tests.native.compiling import INCLUDE, OPTIMISED, SOURCES, compiled, environment, opencl_library
from tests.opencl.contexts import contexts
from tests.waiting import becomes

PROGRAM = Path(__file__).parent / "replacing.c"
CHANGES = ("cut short", "nothing left", "zeros", "zeros at the end", "another")
PAUSE_S = 0.005
"""Of a process after a failure."""
CLOSE = 1e-3
CHILD = "--child"
NAMES = {"ok", "one", "other", "file_changed", "not_a_context", "truncated", "malformed_header", "checksum_mismatch"}
"""What a step may lead to. checksum_mismatch: of a file that was opened while it was being written."""
NEEDED = {"turn ok", "output one", "load file_changed"}

Array = npt.NDArray[np.float32]


def main() -> int:
    if sys.argv[1:2] == [CHILD]:
        return go_on(Path(sys.argv[2]), Path(sys.argv[3]))
    parser = argparse.ArgumentParser(prog="scripts/stress/native/replaced", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--moments", type=int, default=1000, help="at which the file is changed (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, other = made(folder)
        children = {language: Child(language, folder) for language in ("C", "Python")}
        disturb(folder / "model.bin", one, other, options.moments, random.Random(options.seed), list(children.values()))
        print(f"{options.moments} moments")
        return max(child.end() for child in children.values())


def made(folder: Path) -> tuple[bytes, bytes]:
    """Two contexts of one model, the second with larger weights, and what they make of one input. The first lies in
    model.bin."""
    backend = open_backend(choose(discover(), None).report)
    whole = []
    for name, scale in (("one", 1.0), ("other", 1.2)):
        (folder / name).mkdir()
        plan = lower(read_model(save(scaled(two_blocks(), scale), folder / name)))
        path = contexts(backend, plan, folder / f"{name}.bin")
        whole.append(path.read_bytes())
        with open_context(path) as file:
            executor = executor_on(backend, file, None, strict=True)
        (x,) = executor.graph.inputs
        data = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
        data.tofile(folder / "input.raw")
        (result,) = executor.run({x.name: data}).values()
        result.tofile(folder / f"{name}.raw")
        executor.close()
    (folder / "model.bin").write_bytes(whole[0])
    return whole[0], whole[1]


def scaled(model: ModelProto, scale: float) -> ModelProto:
    """A model whose weights are so many times as large."""
    for weights in model.graph.initializer:
        values = numpy_helper.to_array(weights)
        if values.dtype == np.float32:
            weights.CopyFrom(numpy_helper.from_array(values * np.float32(scale), weights.name))
    return model


class Child:
    """A process that opens, loads and runs model.bin of a folder until its input ends. ended: its steps so far."""

    def __init__(self, language: str, folder: Path) -> None:
        self.language, self.ended, self._line = language, Counter[str](), ""
        variables = {"POCL_AFFINITY": "1", "POCL_KERNEL_CACHE": "0", "PYTHONUNBUFFERED": "1"}
        command: list[str | Path] = [sys.executable, "-m", "stress.native.replaced", CHILD]
        if language == "C":
            command = [compiled("replacing", [PROGRAM, *SOURCES], (*OPTIMISED, f"-I{INCLUDE}"))]
        path = folder / f"{language}.txt"
        with path.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, folder / "model.bin", folder],
                stdin=subprocess.PIPE,
                stdout=said,
                env=variables | opencl_library() | environment(),
            )
        self._said = path.open("rb")

    def has(self, step: str, count: int) -> bool:
        """Whether a step was made so often, or the process has ended."""
        ended = self._process.poll() is not None
        *lines, self._line = (self._line + self._said.read().decode()).split("\n")
        self.ended.update(lines)
        return ended or self.ended[step] >= count

    def end(self) -> int:
        """Prints what its steps have led to, and returns 1 where that must not be."""
        self._process.communicate()
        code = self._process.returncode
        self.has("", 0)
        wrong = {step: count for step, count in self.ended.items() if step.split(" ")[-1] not in NAMES}
        print(f"{self.language}: exit code {code}, {dict(sorted(self.ended.items()))}")
        if code or wrong:
            print(f"{self.language}: exit code {code}, and steps that led to {wrong}")
        if missing := NEEDED - self.ended.keys():
            print(f"{self.language}: nothing led to {missing}, so this says little")
        return 1 if code or wrong or missing else 0


def disturb(path: Path, one: bytes, other: bytes, moments: int, chance: random.Random, children: list[Child]) -> None:
    """Changes the file while a process uses it and puts it back, so many times."""
    assert all(becomes(partial(child.has, "turn ok", 1)) for child in children)
    begun_s = time.perf_counter()
    assert all(becomes(partial(child.has, "turn ok", child.ended["turn ok"] + 2)) for child in children)
    turn_s = time.perf_counter() - begun_s
    for moment in range(moments):
        child = children[moment % len(children)]
        child.has("", 0)
        becomes(partial(child.has, "open ok", child.ended["open ok"] + 1))
        time.sleep(chance.uniform(0, turn_s))
        change, place = chance.choice(CHANGES), chance.randrange(len(one))
        with path.open("r+b", buffering=0) as file:
            match change:
                case "cut short":
                    file.truncate(place)
                case "nothing left":
                    file.truncate(0)
                case "zeros":
                    file.write(bytes(len(one)))
                case "zeros at the end":
                    file.seek(place)
                    file.write(bytes(len(one) - place))
                case _:
                    file.write(other)
            time.sleep(chance.uniform(0, turn_s))
            file.seek(0)
            file.write(one)
            file.truncate(len(one))


# --- the process of Python ---


def go_on(path: Path, folder: Path) -> int:
    """Opens, loads and runs a context until the input ends, and prints a line for each step as replacing.c does."""
    data = np.fromfile(folder / "input.raw", np.float32)
    expected = {name: np.fromfile(folder / f"{name}.raw", np.float32) for name in ("one", "other")}
    backend = open_backend(choose(discover(), None).report)
    while not select.select([sys.stdin], [], [], 0)[0]:
        step = "open"
        try:
            with open_context(path) as file:
                print("open ok")
                for _ in range(2):
                    step = "load"
                    executor = executor_on(backend, file, None, strict=True)
                    print("load ok")
                    step = "run"
                    run_both(executor, data, expected)
                    executor.close()
            print("turn ok")
        except ContextError as error:
            print(step, error.name)
            time.sleep(PAUSE_S)
    os._exit(0)  # drivers take their time


def run_both(executor: Executor, data: Array, expected: dict[str, Array]) -> None:
    """Runs a graph in both forms, of which one may be loaded now."""
    (x,) = executor.graph.inputs
    for persistent in (True, False):
        executor.persistent_kernels = persistent
        (found,) = executor.run({x.name: data.reshape(x.shape)}).values()
        print("run ok")
        close = (name for name, wanted in expected.items() if is_close(found.ravel(), wanted))
        print("output", next(close, "wrong"))


def is_close(found: Array, wanted: Array) -> bool:
    """Whether outputs are what they should be, but for the order of sums."""
    return bool(np.abs(found - wanted).max() <= CLOSE * np.abs(wanted).max())


if __name__ == "__main__":
    sys.exit(main())
