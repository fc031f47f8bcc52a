"""What takes part in `scripts/bench kernels` and `scripts/bench models`, each in a process of its own (see turns.py):

    python contenders.py KIND ARGUMENTS     reads questions from its input and answers each, line by line, in JSON

The first line it writes, when it is ready, holds facts about itself.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

WARM_UP_SECONDS = 0.1
LEAST = 3
"""Runs of a block, whatever they take, where so many are allowed."""
BATCH_NS = 20e6
"""How long a batch of launches lasts that is timed as a whole."""
CAPTURES = 3
"""Calls after which tinygrad replays what it has captured."""
CONVERSIONS = ("ReorderInput", "ReorderOutput")
"""The nodes by which onnxruntime enters its own layout and leaves it."""
Arrays = Mapping[str, npt.NDArray[Any]]


class Kind(Protocol):
    """A contender: made from its arguments, it runs the same thing over and over."""

    facts: dict[str, Any]

    def block(self, seconds: float, most: int) -> list[float]:
        """Nanoseconds of each run, after a warm-up."""

    def outputs(self) -> Arrays:
        """What it computes."""


def inputs_in(file: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file by name."""
    with np.load(file) as arrays:
        return dict(arrays)


def repeated(run: Callable[[], float], seconds: float, most: int) -> list[float]:
    """The nanoseconds that `run` says it has taken, again and again for so long, after a warm-up."""
    warm = time.perf_counter() + min(WARM_UP_SECONDS, seconds)
    run()
    while time.perf_counter() < warm:
        run()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < min(LEAST, most) or (len(samples) < most and time.perf_counter() < end):
        samples.append(run())
    return samples


def timed(run: Callable[[], object]) -> float:
    """Nanoseconds of one call."""
    begin = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin


class ContextKind:
    """A context binary in its executor, as an application runs it: inputs and outputs are copied."""

    def __init__(self, context: str, inputs: str, device: str | None) -> None:
        from gputune import runtime

        self._executor = runtime.load(context, device)
        self._inputs = inputs_in(inputs)
        self.facts = {"computes": self._executor.computes}

    def block(self, seconds: float, most: int) -> list[float]:
        return repeated(lambda: self._executor.run_timed(self._inputs)[1], seconds, most)

    def outputs(self) -> Arrays:
        return self._executor.run(self._inputs)


class ChainKind:
    """A context's launches alone, less conversions of layout: the host's clock over a batch of them, gaps included."""

    def __init__(self, context: str, inputs: str, device: str | None) -> None:
        from chain import Chain
        from gputune.runtime.backends import open_backend
        from gputune.runtime.context_format import open_context
        from gputune.runtime.devices import choose, discover, wanted_device

        backend = open_backend(choose(discover(), wanted_device(device)).report, profiling=False)
        self._inputs = inputs_in(inputs)
        self._chain = Chain(backend, open_context(context))
        self._chain.run(self._inputs)
        self._repeated = self._chain.repeated(BATCH_NS)
        self.facts = {"computes": backend.computes}

    def block(self, seconds: float, most: int) -> list[float]:
        return repeated(self._repeated, seconds, most)

    def outputs(self) -> Arrays:
        return self._chain.run(self._inputs)


class NaiveKind:
    """Naive kernels one after the other."""

    def __init__(self, launches: list[tuple[str, dict[str, int]]], device: str | None) -> None:
        import naive
        from gputune.runtime.backends import open_backend
        from gputune.runtime.devices import choose, discover, wanted_device

        self._backend = open_backend(choose(discover(), wanted_device(device)).report)
        self._bound = naive.bound(self._backend, launches)
        self.facts = {"computes": False}

    def block(self, seconds: float, most: int) -> list[float]:
        return repeated(lambda: self._backend.time(self._bound, 1).wall_ns, seconds, most)

    def outputs(self) -> Arrays:
        return {}


class LimitKind:
    """What the device can reach: a question for "limits" is answered with both."""

    def __init__(self, device: str | None) -> None:
        import limits
        from gputune.runtime.backends import open_backend
        from gputune.runtime.devices import choose, discover, wanted_device

        backend = open_backend(choose(discover(), wanted_device(device)).report)
        self._fma, self._bandwidth = limits.FmaLimit.calibrated(backend), limits.Bandwidth(backend)
        self.facts = {"computes": False}

    def limit(self, bandwidth: bool) -> dict[str, float]:
        """GFLOP/s, and gigabytes a second where that is asked."""
        found = {"fma_gflops": self._fma.gflops()}
        return found | ({"gigabytes": self._bandwidth.gigabytes()} if bandwidth else {})


def node_times(events: Sequence[Mapping[str, Any]]) -> list[float]:
    """From the events of onnxruntime's profiler, in the order in which they ended: of each run the nanoseconds of its
    nodes, less those that convert layouts."""
    runs = [0.0]
    for event in events:
        if event["name"].endswith("_kernel_time") and event["args"]["op_name"] not in CONVERSIONS:
            runs[-1] += 1000 * event["dur"]
        elif event["name"] == "model_run":
            runs.append(0.0)
    return runs[:-1]


class OnnxRuntimeKind:
    """onnxruntime's CPU provider with all graph optimisations, threads pinned one to a core as PoCL's are.

    nodes: a run takes the sum of its nodes' own times by onnxruntime's profiler, less its conversions of layout; else
    it is the whole call.
    """

    def __init__(self, model: str, inputs: str, threads: int, nodes: bool = False) -> None:
        self._model, self._threads, self._nodes = model, threads, nodes
        self._inputs = inputs_in(inputs)
        self._cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {self._cores[0]})  # this thread, which works along; the others' cores are set below
        self._session = self._opened()
        self.facts = {"computes": True}

    def block(self, seconds: float, most: int) -> list[float]:
        if self._nodes:
            return self._node_times(seconds, most)
        return repeated(lambda: timed(lambda: self._session.run(None, self._inputs)), seconds, most)

    def outputs(self) -> Arrays:
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, self._inputs), strict=True))

    def _opened(self, profile: str = "") -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        if self._threads > 1:  # of all but the calling thread; processors count from 1
            others = ";".join(str(core + 1) for core in self._cores[1 : self._threads])
            options.add_session_config_entry("session.intra_op_thread_affinities", others)
        options.enable_profiling, options.profile_file_prefix = bool(profile), profile
        return onnxruntime.InferenceSession(self._model, options, providers=["CPUExecutionProvider"])

    def _node_times(self, seconds: float, most: int) -> list[float]:
        """Of a session of this block's own, because its profile can be read only when it has ended."""
        with tempfile.TemporaryDirectory() as folder:
            session = self._opened(str(Path(folder) / "profile"))
            samples = repeated(lambda: timed(lambda: session.run(None, self._inputs)), seconds, most)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return node_times(events)[-len(samples) :]  # less those of the warm-up


class NumpyKind:
    """A matrix product by numpy, whose OpenBLAS reads its kernels and threads from the environment."""

    def __init__(self, model: str, inputs: str) -> None:
        import onnx

        (self._left,) = inputs_in(inputs).values()
        graph = onnx.load(model).graph
        self._right = onnx.numpy_helper.to_array(graph.initializer[0])
        self._name = graph.output[0].name
        self._result = np.empty((self._left.shape[0], self._right.shape[1]), np.float32)
        self.facts = {"computes": True}

    def block(self, seconds: float, most: int) -> list[float]:
        return repeated(lambda: timed(lambda: np.matmul(self._left, self._right, out=self._result)), seconds, most)

    def outputs(self) -> Arrays:
        return {self._name: self._left @ self._right}


class TinygradKind:
    """tinygrad on its OpenCL device, captured once and replayed, without its search: with copies, or without where only
    `kernels` are compared."""

    def __init__(self, model: str, inputs: str, kernels: bool) -> None:
        tinygrad, onnx = (importlib.import_module(name) for name in ("tinygrad", "tinygrad.nn.onnx"))
        runner, self._tensor = onnx.OnnxRunner(model), tinygrad.Tensor
        self._inputs, self._kernels = inputs_in(inputs), kernels
        self._device = tinygrad.Device[tinygrad.Device.DEFAULT]
        self._resident = self._copied()

        def inference(**tensors: Any) -> dict[str, Any]:
            return {name: tensor.realize() for name, tensor in runner(self._named(tensors)).items()}

        self._inference = tinygrad.TinyJit(inference)
        for _ in range(CAPTURES):
            self.outputs()
        self.facts = {"computes": True}

    def block(self, seconds: float, most: int) -> list[float]:
        return repeated(lambda: timed(self._alone if self._kernels else self.outputs), seconds, most)

    def outputs(self) -> Arrays:
        return {name: tensor.numpy() for name, tensor in self._inference(**self._copied()).items()}

    def _alone(self) -> None:
        self._inference(**self._resident)
        self._device.synchronize()

    def _copied(self) -> dict[str, Any]:
        """The inputs on the device, by names that are Python's."""
        return {f"input{place}": self._tensor(array).realize() for place, array in enumerate(self._inputs.values())}

    def _named(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(self._inputs, tensors.values(), strict=True))


KINDS: Mapping[str, Callable[..., Any]] = {
    "chain": ChainKind,
    "context": ContextKind,
    "limit": LimitKind,
    "naive": NaiveKind,
    "numpy": NumpyKind,
    "onnxruntime": OnnxRuntimeKind,
    "tinygrad": TinygradKind,
}


def answer(contender: Any, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to {"do": "block", "seconds", "most"}, {"do": "outputs", "file"} or {"do": "limit", "bandwidth"}."""
    match question.pop("do"):
        case "block":
            return {"samples_ns": [round(sample) for sample in contender.block(**question)]}
        case "outputs":
            np.savez(question["file"], **contender.outputs())
            return {}
        case "limit":
            found: dict[str, float] = contender.limit(**question)
            return found
        case other:
            raise ValueError(f"there is no answer to {other!r}")


def main() -> None:
    # Libraries write where they like: what this process has to say goes out by a way of its own.
    with os.fdopen(os.dup(1), "w") as out, suppress(BrokenPipeError):
        os.dup2(2, 1)

        def say(facts: Mapping[str, Any]) -> None:
            out.write(json.dumps(facts) + "\n")
            out.flush()

        contender = KINDS[sys.argv[1]](**json.loads(sys.argv[2]))
        say(contender.facts)
        for line in sys.stdin:
            say(answer(contender, json.loads(line)))


if __name__ == "__main__":
    main()
