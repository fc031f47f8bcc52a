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

from benchmarks.peers.inputs import Arrays, inputs_in
from gputune.client.compare.contender import block
from gputune.client.compare.engines import OpenVinoRequest, nanoseconds, onnxruntime_session, session_outputs

CAPTURES = 3
"""Calls after which tinygrad replays what it has captured."""
CONVERSIONS = ("ReorderInput", "ReorderOutput")
"""The nodes by which onnxruntime enters its own layout and leaves it."""


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
        self._session = onnxruntime_session(model, threads)
        self.facts = {"computes": True}

    def block(self, seconds: float, most: int) -> list[float]:
        if self._nodes:
            return self._node_times(seconds, most)
        return block(lambda: nanoseconds(lambda: self._session.run(None, self._inputs)), seconds, most)

    def outputs(self) -> Arrays:
        return session_outputs(self._session, self._inputs)

    def _node_times(self, seconds: float, most: int) -> list[float]:
        """Of a session of this block's own, because its profile can be read only when it has ended."""
        with tempfile.TemporaryDirectory() as folder:
            session = onnxruntime_session(self._model, self._threads, str(Path(folder) / "profile"))
            samples = block(lambda: nanoseconds(lambda: session.run(None, self._inputs)), seconds, most)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return node_times(events)[-len(samples) :]  # less those of the warm-up


def node_share(nodes: Sequence[tuple[str, float]], whole: float) -> float:
    """Of OpenVINO's (type, mean time) of each node and its mean time for whole runs: the share that its nodes have in
    them, less those that convert layouts."""
    return sum(time for kind, time in nodes if kind != "Reorder") / whole


class OpenVinoKind:
    """OpenVINO on the CPU in float32, one stream with so many threads, for the least latency.

    nodes: a run takes the share of the whole call that its nodes have by OpenVINO's profile, less its conversions of
    layout, since there is a profile of the mean run only, in whole microseconds; else it is the whole call.
    """

    def __init__(self, model: str, inputs: str, threads: int, nodes: bool = False) -> None:
        self._open = partial(OpenVinoRequest, model, inputs_in(inputs), threads, profiling=nodes)
        self._request, self._nodes = self._open(), nodes
        self.facts = {"computes": True}

    def block(self, seconds: float, most: int) -> list[float]:
        # a profile is of all runs since the model was compiled, so that of a block is of a request of its own
        request = self._open() if self._nodes else self._request
        whole: list[float] = []

        def run() -> float:
            whole.append(nanoseconds(request.run))
            return whole[-1]

        samples = block(run, seconds, most)
        if not self._nodes:
            return samples
        share = node_share(request.node_times_ns(), statistics.fmean(whole))
        return [sample * share for sample in samples]

    def outputs(self) -> Arrays:
        return self._request.outputs()


class MnnKind:
    """MNN on the CPU in float32, from a model that its own converter has made; inputs and outputs are copied, as by its
    users."""

    def __init__(self, model: str, inputs: str, threads: int) -> None:
        self._mnn = importlib.import_module("MNN")
        interpreter = importlib.import_module("MNN.nn")
        self._expr, self._numpy = importlib.import_module("MNN.expr"), importlib.import_module("MNN.numpy")
        self._inputs = inputs_in(inputs)
        self._names = [output.name for output in _graph_of(model).output]
        manager = interpreter.create_runtime_manager(
            ({"backend": "CPU", "precision": "high", "numThread": threads, "memory": "normal", "power": "high"},)
        )
        self._module = interpreter.load_module_from_file(
            _converted(model), list(self._inputs), self._names, runtime_manager=manager, shape_mutable=False
        )
        self.facts = {"computes": True}

    def block(self, seconds: float, most: int) -> list[float]:
        return block(lambda: nanoseconds(self._run), seconds, most)

    def outputs(self) -> Arrays:
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


class NumpyKind:
    """A matrix product by numpy, whose OpenBLAS reads its kernels and threads from the environment."""

    def __init__(self, model: str, inputs: str) -> None:
        import onnx

        (self._left,) = inputs_in(inputs).values()
        graph = onnx.load(model).graph
        self._right = onnx.numpy_helper.to_array(graph.initializer[0]).copy()  # aligned, or numpy copies it each time
        self._name = graph.output[0].name
        self._result = np.empty((self._left.shape[0], self._right.shape[1]), np.float32)
        self.facts = {"computes": True}

    def block(self, seconds: float, most: int) -> list[float]:
        return block(lambda: nanoseconds(lambda: np.matmul(self._left, self._right, out=self._result)), seconds, most)

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
        return block(lambda: nanoseconds(self._alone if self._kernels else self.outputs), seconds, most)

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
