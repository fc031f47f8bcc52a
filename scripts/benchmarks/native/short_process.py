"""Run a few inferences in a fresh process by the runtime of "C" or "Python" (short_process CONTEXT LANGUAGE FORM
INFERENCES), in the form "persistent", which may change to launches, or "launches". It prints JSON: what loading and
each inference took in ns, and of each whether it began by persistent kernels."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.runtime.context.format import read_header
from gputune.runtime.execution.loading import load

sys.path.append(str(Path(__file__).parents[3]))
from tests.native.binding import Native
from tests.native.compiling import library

Inputs = dict[str, npt.NDArray[Any]]
Infer = Callable[[], bool]
"""Runs an inference. Returns whether it began by persistent kernels."""


@contextmanager
def in_python(context: Path, form: str, inputs: Inputs) -> Iterator[Infer]:
    """Loads a context with Python's runtime."""
    with load(context) as executor:
        executor.persistent_kernels = form == "persistent"

        def infer() -> bool:
            executor.run(inputs)
            return executor.last_form in ("persistent", "aborted")

        yield infer


@contextmanager
def in_c(context: Path, form: str, inputs: Inputs) -> Iterator[Infer]:
    """Loads a context with the C runtime."""
    native = Native(library())
    with (
        native.open(context) as file,
        native.device(file, opencl=os.environ.get("GPUTUNE_OPENCL_LIBRARY")) as device,
        device.load(file, strict=True, one_by_one=form == "launches") as graph,
    ):
        outputs = graph.outputs()

        def infer() -> bool:
            graph.run(inputs, outputs)
            return not graph.counters()[1]["launches"]

        yield infer


def main(context: Path, language: str, form: str, inferences: int) -> None:
    """Runs the process."""
    numbers = np.random.default_rng(0)
    tensors = read_header(context).graphs[0].inputs
    inputs = {tensor.name: numbers.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in tensors}
    took_ns, persistent = [], []
    begun_ns = time.perf_counter_ns()
    with (in_c if language == "C" else in_python)(context, form, inputs) as infer:
        load_ns = time.perf_counter_ns() - begun_ns
        for _ in range(inferences):
            begun_ns = time.perf_counter_ns()
            persistent.append(infer())
            took_ns.append(time.perf_counter_ns() - begun_ns)
    print(json.dumps({"load_ns": load_ns, "took_ns": took_ns, "persistent": persistent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
