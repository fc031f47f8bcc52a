"""Open the engines that take part in a comparison, once each, and run the same inputs repeatedly.

Only this module uses OpenVINO, and it uses onnxruntime to measure its speed.
"""

from __future__ import annotations

import functools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.client.context.verifying.exactness import quantised_graphs, steps_of
from gputune.client.context.verifying.origin import tuning_of
from gputune.core.dtypes import FLOAT
from gputune.runtime.application.made_up_inputs import random_inputs
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.executor import Executor
from gputune.runtime.loading.model import open_any
from gputune.runtime.onnxruntime import EXACT_PRODUCTS

Arrays = dict[str, Any]
"""By name, numpy arrays."""

WARM_UP_S = 0.1
LEAST, MOST = 3, 500
"""Inferences of a block."""


class Engine(ABC):
    """Run a model in an engine. facts: what the comparison has to know of it, as JSON has that."""

    facts: Mapping[str, Any]

    @abstractmethod
    def block_ns(self, seconds: float) -> list[float]:
        """Return what each inference takes in a block of so many seconds, after a warm-up."""

    def outputs(self, draw: int = 0) -> Arrays:
        """Return the outputs of one inference by name, on random inputs; those of draw 0 are timed. An engine that
        computes nothing has none."""
        return {}

    def close(self) -> None:  # noqa: B027  # most engines hold nothing
        """Free what it holds. It is not used afterwards."""


class TimedEngine(Engine):
    """Time each inference by itself."""

    @abstractmethod
    def timed(self) -> float:
        """Return what one inference takes, in ns, with its inputs and outputs in the application's memory."""

    def block_ns(self, seconds: float) -> list[float]:
        return block(self.timed, seconds)


def block(run: Callable[[], float], seconds: float) -> list[float]:
    """Return the nanoseconds that `run` says it has taken, again and again for so long, after a warm-up."""
    warm_s = time.perf_counter() + min(WARM_UP_S, seconds)
    run()
    while time.perf_counter() < warm_s:
        run()
    samples_ns: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(samples_ns) < LEAST or (len(samples_ns) < MOST and time.perf_counter() < end_s):
        samples_ns.append(run())
    return samples_ns


class ContextEngine(TimedEngine):
    """The first graph of a context binary on an OpenCL device, or a model in parts, as an application runs it."""

    def __init__(self, context: str, device: str | None) -> None:
        """Open the context. Raises as gputune.load does, but for devices that compute nothing."""
        self._executor = open_any(context).load(device)
        self._inputs = random_inputs(self._executor.graph.inputs)
        on = self._executor.device
        self.facts: Mapping[str, Any] = {
            "inputs": [asdict(tensor) for tensor in self._executor.graph.inputs],
            "outputs": [asdict(tensor) for tensor in self._executor.graph.outputs],
            "graph": self._executor.graph.name,
            "tuning": tuning_of(self._executor),
            "computes": self._executor.computes,
            "device": on.name,
            "warnings": list(self._executor.warnings),
            "threads": on.compute_units if on.device_type == "cpu" else None,
            "precision_mode": self._precision_mode,
            "steps": steps_of(self._executor),
            "quantised": bool(quantised_graphs(self._executor.header)),
        }

    @property
    def _precision_mode(self) -> str:
        """Return the mode of the context; float32 for a model in parts, since only parts may have another mode."""
        return self._executor.header.precision_mode if isinstance(self._executor, Executor) else FLOAT

    def timed(self) -> float:
        return self._executor.run_timed(self._inputs)[1]

    def outputs(self, draw: int = 0) -> Arrays:
        return self._executor.run(random_inputs(self._executor.graph.inputs, draw))

    def close(self) -> None:
        self._executor.close()


class OnnxRuntimeEngine(TimedEngine):
    """onnxruntime's CPU provider, as `onnxruntime_session` opens it. entries: of its configuration."""

    def __init__(
        self,
        model: str,
        inputs: list[dict[str, Any]],
        threads: int,
        constants: Mapping[str, Any] | None = None,
        entries: Mapping[str, str] = EXACT_PRODUCTS,
    ) -> None:
        self._drawn = partial(inputs_of, inputs, constants)
        self._inputs = self._drawn()
        self._session = onnxruntime_session(model, threads, entries=entries)
        self.facts: Mapping[str, Any] = {"entries": dict(entries)}

    def timed(self) -> float:
        return nanoseconds(lambda: self._session.run(None, self._inputs))

    def outputs(self, draw: int = 0) -> Arrays:
        return session_outputs(self._session, self._drawn(draw))

    def close(self) -> None:
        del self._session


class OpenVinoEngine(TimedEngine):
    """OpenVINO on the CPU in float32, one stream, for the least latency; inputs and outputs are the application's."""

    def __init__(
        self, model: str, inputs: list[dict[str, Any]], threads: int, constants: Mapping[str, Any] | None = None
    ) -> None:
        self._drawn = partial(inputs_of, inputs, constants)
        self._request = OpenVinoRequest(model, self._drawn(), threads)
        self.facts: Mapping[str, Any] = {}

    def timed(self) -> float:
        return nanoseconds(self._request.run)

    def outputs(self, draw: int = 0) -> Arrays:
        return self._request.outputs(self._drawn(draw))

    def close(self) -> None:
        del self._request


def onnxruntime_session(
    model: str, threads: int, profile: str = "", entries: Mapping[str, str] = EXACT_PRODUCTS
) -> Any:
    """With all optimisations, a thread on each core as far as there are cores; pins this thread to the first of them.
    profile: where a profile is written, if any; what its name begins with. entries: of its configuration."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # errors only
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    cores = _cores()
    if threads <= len(cores):
        os.sched_setaffinity(0, {cores[0]})  # this thread works along; processors count from 1 for the others
    if 1 < threads <= len(cores):
        others = ";".join(str(core + 1) for core in cores[1:threads])
        options.add_session_config_entry("session.intra_op_thread_affinities", others)
    options.enable_profiling, options.profile_file_prefix = bool(profile), profile
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def session_outputs(session: Any, inputs: Mapping[str, Any]) -> Arrays:
    """Return what a session of onnxruntime computes, by name."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


class OpenVinoRequest:
    """An inference request of OpenVINO on given inputs. profiling: it keeps what its nodes take."""

    def __init__(self, model: str, inputs: Mapping[str, Any], threads: int, profiling: bool = False) -> None:
        import openvino

        self._inputs = dict(inputs)
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # else products with int8 weights compute in int8
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": threads,
            "ENABLE_CPU_PINNING": True,
            "PERF_COUNT": profiling,
        }
        core = openvino.Core()
        read = core.read_model(model)
        read.reshape({name: list(array.shape) for name, array in self._inputs.items()})
        compiled = core.compile_model(read, "CPU", settings)
        self._request = compiled.create_infer_request()
        self._names = [output.get_any_name() for output in compiled.outputs]

    def run(self) -> None:
        """One inference."""
        self._request.infer(self._inputs, share_inputs=True)

    def node_times_ns(self) -> list[tuple[str, float]]:
        """Type and mean time of each node, in whole microseconds, over all runs so far; of a request with profiling."""
        return [(node.node_type, node.real_time.total_seconds() * 1e9) for node in self._request.profiling_info]

    def outputs(self, inputs: Mapping[str, Any] | None = None) -> Arrays:
        """Return the outputs of one inference by name. inputs: others than its own."""
        self._request.infer(self._inputs if inputs is None else dict(inputs), share_inputs=True)
        return {name: self._request.get_tensor(name).data.copy() for name in self._names}


ENGINES: Mapping[str, Callable[..., Engine]] = {
    "context": ContextEngine,
    "onnxruntime": OnnxRuntimeEngine,
    "openvino": OpenVinoEngine,
}


def plain_array(value: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array as an engine takes a constant, as JSON values."""
    return {"dtype": value.dtype.name, "shape": list(value.shape), "numbers": value.ravel().tolist()}


def inputs_of(tensors: list[dict[str, Any]], constants: Mapping[str, Any] | None, draw: int = 0) -> Arrays:
    """Return the same arrays in every process. constants: by name, as `plain_array` gives them."""
    found = random_inputs([TensorRecord(one["name"], tuple(one["shape"]), one["dtype"]) for one in tensors], draw)
    for name, one in (constants or {}).items():
        found[name] = np.array(one["numbers"], one["dtype"]).reshape(one["shape"])
    return found


def nanoseconds(run: Callable[[], object]) -> float:
    """Return what one call takes."""
    begin = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin


@functools.cache
def _cores() -> list[int]:
    """Return those that this process had at first: a session pins its thread to one of them."""
    return sorted(os.sched_getaffinity(0))
