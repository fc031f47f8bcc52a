"""Hold the contenders that are not ours; see contenders.py."""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gputune.client.compare.engines import (
    Arrays,
    Engine,
    OnnxRuntimeEngine,
    OpenVinoRequest,
    TimedEngine,
    block,
    inputs_of,
    nanoseconds,
    onnxruntime_session,
)

CONVERSIONS = ("ReorderInput", "ReorderOutput")
"""The nodes by which onnxruntime enters its own layout and leaves it."""

Tensors = list[dict[str, Any]]
"""Names, shapes and types of inputs, of which each engine draws the same arrays."""


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


class OnnxRuntimeNodes(OnnxRuntimeEngine):
    """onnxruntime's CPU provider, of which a run takes the sum of its nodes' own times by onnxruntime's profiler, less
    its conversions of layout."""

    def __init__(self, model: str, inputs: Tensors, threads: int) -> None:
        super().__init__(model, inputs, threads)
        self._model, self._threads, self._arrays = model, threads, inputs_of(inputs, None)

    def block_ns(self, seconds: float) -> list[float]:
        """Measure in a session of this block's own, because its profile can be read only when it has ended."""
        with tempfile.TemporaryDirectory() as folder:
            session = onnxruntime_session(self._model, self._threads, str(Path(folder) / "profile"))
            samples = block(lambda: nanoseconds(lambda: session.run(None, self._arrays)), seconds)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return node_times(events)[-len(samples) :]  # less those of the warm-up


def node_share(nodes: Sequence[tuple[str, float]], whole: float) -> float:
    """Of OpenVINO's (type, mean time) of each node and its mean time for whole runs: the share that its nodes have in
    them, less those that convert layouts."""
    return sum(time for kind, time in nodes if kind != "Reorder") / whole


class OpenVinoNodes(Engine):
    """OpenVINO on the CPU, of which a run takes the share of the whole call that its nodes have by OpenVINO's profile,
    less its conversions of layout: there is a profile of the mean run only, in whole microseconds."""

    def __init__(self, model: str, inputs: Tensors, threads: int) -> None:
        self._open = partial(OpenVinoRequest, model, inputs_of(inputs, None), threads, profiling=True)
        self._request = self._open()
        self.facts: Mapping[str, Any] = {}

    def block_ns(self, seconds: float) -> list[float]:
        """Measure on a request of this block's own: a profile is of all runs since the model was compiled."""
        request, whole = self._open(), list[float]()

        def run() -> float:
            whole.append(nanoseconds(request.run))
            return whole[-1]

        samples = block(run, seconds)
        share = node_share(request.node_times_ns(), statistics.fmean(whole))
        return [sample * share for sample in samples]

    def outputs(self, draw: int = 0) -> Arrays:
        return self._request.outputs()


class MnnEngine(TimedEngine):
    """MNN on the CPU in float32, from a model that its own converter has made; inputs and outputs are copied, as by its
    users."""

    def __init__(self, model: str, inputs: Tensors, threads: int) -> None:
        self._mnn = importlib.import_module("MNN")
        interpreter = importlib.import_module("MNN.nn")
        self._expr, self._numpy = importlib.import_module("MNN.expr"), importlib.import_module("MNN.numpy")
        self._inputs = inputs_of(inputs, None)
        self._names = [output.name for output in _graph_of(model).output]
        manager = interpreter.create_runtime_manager(
            ({"backend": "CPU", "precision": "high", "numThread": threads, "memory": "normal", "power": "high"},)
        )
        self._module = interpreter.load_module_from_file(
            _converted(model), list(self._inputs), self._names, runtime_manager=manager, shape_mutable=False
        )
        self.facts: Mapping[str, Any] = {}

    def timed(self) -> float:
        return nanoseconds(self._run)

    def outputs(self, draw: int = 0) -> Arrays:
        return dict(zip(self._names, self._run(), strict=True))

    def _run(self) -> list[Any]:
        formats = self._expr.data_format.NCHW
        given = [self._expr.const(array, list(array.shape), formats) for array in self._inputs.values()]
        return [np.array(self._expr.convert(found, formats).read()) for found in self._module.onForward(given)]


def _graph_of(model: str) -> Any:
    import onnx

    return onnx.load(model, load_external_data=False).graph


def _converted(model: str) -> str:
    """The file in MNN's form beside the model; made where the model is newer. Its converter is called by itself, since
    the program around it installs a package and tells others of each use."""
    source = Path(model)
    made = source.with_suffix(".mnn")
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        arguments = ["mnnconvert", "-f", "ONNX", "--modelFile", model, "--MNNModel", str(made), "--bizCode", "bench"]
        code = f"import MNN, _tools; _tools.mnnconvert({arguments!r})"
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return str(made)


class NumpyEngine(TimedEngine):
    """A matrix product by numpy, whose OpenBLAS reads its kernels and threads from the environment."""

    def __init__(self, model: str, inputs: Tensors) -> None:
        (self._left,) = inputs_of(inputs, None).values()
        graph = _graph_of(model)
        right = importlib.import_module("onnx").numpy_helper.to_array(graph.initializer[0])
        self._right = right.copy()  # aligned, or numpy copies it each time
        self._name = graph.output[0].name
        self._result = np.empty((self._left.shape[0], self._right.shape[1]), np.float32)
        self.facts: Mapping[str, Any] = {}

    def timed(self) -> float:
        return nanoseconds(lambda: np.matmul(self._left, self._right, out=self._result))

    def outputs(self, draw: int = 0) -> Arrays:
        return {self._name: self._left @ self._right}
