"""Run a context binary over an input list and write the results."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gputune.client.context.verifying.distance import Compared, allowed_for
from gputune.client.context.verifying.exactness import steps_of
from gputune.client.context.verifying.origin import Origin, tuning_of
from gputune.client.context.verifying.same_model import check_outputs, compare_lines
from gputune.client.errors import ConfigError
from gputune.client.input_lists import (
    NO_AXES,
    NO_INPUTS,
    Axes,
    InputLine,
    check_files,
    constants_in,
    read_input_list,
    read_inputs,
)
from gputune.client.outputs import file_stems, whole
from gputune.client.run.inferences import Array, Extent, Infer
from gputune.client.run.steps import Steps
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.core.dtypes import FLOAT, stored_in
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import ContextChoice
from gputune.runtime import Executor
from gputune.runtime.application.percentiles import percentiles_ns
from gputune.runtime.arrays import as_saved
from gputune.runtime.context.records import ContextHeader, GraphRecord, TensorRecord
from gputune.runtime.loading.in_parts import ModelInParts
from gputune.runtime.memory.handles import MemHandle


class TakesHandles(Protocol):
    """An executor that memory handles can be given to."""

    @property
    def graph(self) -> GraphRecord: ...
    def allocate_for(self, tensor: TensorRecord) -> MemHandle: ...
    def run_timed(
        self, inputs: Mapping[str, MemHandle], outputs: Mapping[str, MemHandle]
    ) -> tuple[dict[str, Array], int]: ...


class AnyExecutor(Protocol):
    """What runtime.Executor, RemoteExecutor and ModelInParts share."""

    @property
    def graph(self) -> GraphRecord: ...
    @property
    def header(self) -> ContextHeader: ...
    @property
    def device(self) -> DeviceIdentity: ...
    @property
    def computes(self) -> bool: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def choice(self) -> ContextChoice | None: ...
    @property
    def load_ns(self) -> int: ...
    @property
    def device_open_ns(self) -> int: ...
    def run_timed(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]: ...


@dataclass(frozen=True)
class GraphRun:
    """A loaded graph and the inferences that are asked of it: so many of them on the lines of an input list, again from
    its first line when it is used up. path: of its context; folder: of the results; keep_outputs: how many inferences
    have theirs written."""

    path: Path
    executor: AnyExecutor
    infer: Infer
    lines: list[InputLine]
    extent: Extent
    folder: Path
    keep_outputs: int

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        """Return the inputs that lines give."""
        return given_inputs(self.executor.graph, isinstance(self.infer, Steps))

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        """Return the outputs that results have."""
        graph = self.executor.graph
        return (graph.beside_state if isinstance(self.infer, Steps) else graph).outputs

    @property
    def begin(self) -> Callable[[], None] | None:
        """Return what forgets the state of steps; None without."""
        return self.infer.begin if isinstance(self.infer, Steps) else None

    @property
    def axes(self) -> Axes:
        """Return the axes of the inputs that may have any number of tokens."""
        return self.infer.axes if isinstance(self.infer, Steps) else NO_AXES

    def result_folder(self, number: int) -> Path:
        """Return where the results of an inference are written."""
        return self.folder / f"Result_{number}"


def given_inputs(graph: GraphRecord, steps: bool) -> tuple[TensorRecord, ...]:
    """Return the inputs of a graph that lines give. steps: whether they are steps of its state."""
    return (graph.beside_state if steps else graph).inputs


def lines_of(input_list: Path | None, executor: AnyExecutor, whose: str, steps: Steps | None = None) -> list[InputLine]:
    """Return the inferences that are asked for. whose: the graph in messages; steps: what runs them, if they are such.
    Raises ConfigError, also for inputs without a list, and for files of inputs that do not fit."""
    tensors = given_inputs(executor.graph, steps is not None)
    if input_list is not None:
        lines = read_input_list(input_list, tensors, constants_in(executor.header.configuration))
        check_files(lines, tensors, NO_AXES if steps is None else steps.axes)
        return lines
    if tensors:
        names = ", ".join(repr(tensor.name) for tensor in tensors)
        raise ConfigError(f"--input_list: {whose} has inputs ({names}); name their files")
    return [NO_INPUTS]


class InPlace:
    """Inferences on memory handles: inputs lie in their memory before one begins, and outputs stay in theirs until the
    next. Neither is counted. inputs, outputs: the handles by name."""

    def __init__(self, executor: TakesHandles) -> None:
        """Allocate memory for inputs and outputs. Raises DeviceError, TargetError."""
        graph = executor.graph
        self.inputs = {tensor.name: executor.allocate_for(tensor) for tensor in graph.inputs}
        self.outputs = {tensor.name: executor.allocate_for(tensor) for tensor in graph.outputs}
        self._executor = executor
        self._views = {
            tensor.name: self.inputs[tensor.name].view(tensor.dtype, tensor.shape) for tensor in graph.inputs
        }

    def fill(self, given: Mapping[str, Array]) -> None:
        """Put inputs into their memory."""
        for name, array in self._views.items():
            array[...] = given[name]

    def __call__(self, given: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """Run an inference on these inputs."""
        self.fill(given)
        return self._executor.run_timed(self.inputs, self.outputs)


def result_files(job: GraphRun, npy: bool) -> Iterator[Path]:
    """Return the files that the results of a job are written to."""
    stems = file_stems(tensor.name for tensor in job.outputs).values()
    kept = job.keep_outputs if job.extent.seconds is not None else min(job.keep_outputs, job.extent.count)
    for folder in map(job.result_folder, range(kept)):
        for stem in stems:
            yield folder / f"{stem}.raw"
            if npy:
                yield folder / f"{stem}.npy"


def write_result(folder: Path, outputs: dict[str, Array], npy: bool) -> None:
    """Write NAME.raw (and NAME.npy) of each output into a folder. Raises OutputError."""
    stems = file_stems(outputs)
    for name, value in outputs.items():
        with whole(folder / f"{stems[name]}.raw") as unfinished:
            unfinished.write_bytes(np.ascontiguousarray(value).tobytes())
        if npy:
            with whole(folder / f"{stems[name]}.npy") as unfinished, unfinished.open("wb") as file:
                np.save(file, as_saved(value), allow_pickle=False)


def compared(job: GraphRun, origin: Origin) -> dict[str, Compared]:
    """Return what comparing the outputs of all lines with a model in onnxruntime shows, by their names. Raises
    OtherModel, ConfigError for a device that computes nothing, and where onnxruntime cannot run the model."""
    executor = job.executor
    if not executor.computes:
        raise ConfigError(f"--verify: the device {executor.device.name} computes nothing; choose another")
    graph = executor.graph
    lines = (read_inputs(line, graph.inputs) for line in job.lines)
    return compare_lines(origin, graph, lambda inputs: job.infer(inputs)[0], lines, steps_of(executor))


def verified(job: GraphRun, origin: Origin, found: Mapping[str, Compared]) -> str:
    """Return how close outputs are to the model's, in words. Raises VerificationError, NothingCompared."""
    mode = FLOAT if isinstance(job.executor, ModelInParts) else job.executor.header.precision_mode
    check_outputs(origin, found, allowed_for(stored_in(mode)))
    error = max((one.error for one in found.values()), default=0.0)
    return f"{origin.words}; outputs are off by at most {error:.1e} of their largest values"


def summarise(executor: AnyExecutor, inference_ns: list[int], warmup: int = 0) -> dict[str, Any]:
    """Return the names of --summary_json; medians leave out the first inference when there are others, percentiles do
    not. warmup: how many inferences ran before, of which only counters of copies and of forms know. Only a context that
    runs on a target has round trips: what the same inferences took from here, and copied_bytes: of memory handles. Only
    one that runs here says how many inferences were persistent, and what was copied; only a model in parts says where
    its nodes ran. choice: of a package, which context ran, and why."""
    summary: dict[str, Any] = {
        "load_ns": executor.load_ns,
        "device_open_ns": executor.device_open_ns,
        "warmup": warmup,
        "first_inference_ns": inference_ns[0],
        "inference_ns": inference_ns,
        "median_inference_ns": median_ns(inference_ns),
        "percentiles_ns": percentiles_ns(inference_ns),
        "device": executor.device.name,
        "computes": executor.computes,
        "graph": executor.graph.name,
        "tuning": tuning_of(executor),
        "warnings": list(executor.warnings),
    }
    if executor.choice is not None:
        summary["choice"] = asdict(executor.choice) | {"fit": executor.choice.fit}
    if isinstance(executor, RemoteExecutor):
        round_trip_ns = executor.round_trip_ns[warmup:]
        summary |= {
            "target": executor.address,
            "load_round_trip_ns": executor.load_round_trip_ns,
            "round_trip_ns": round_trip_ns,
            "median_round_trip_ns": median_ns(round_trip_ns),
            "copied_bytes": executor.copied_bytes,
        }
    elif isinstance(executor, ModelInParts):
        summary |= {"parts": [part.name for part in executor.parts], "nodes": executor.nodes}
    elif isinstance(executor, Executor):
        summary["memory"] = executor.counters.to_dict()
        if executor.perf_profile is not None:
            from gputune.runtime.power.instances import live_votes

            summary["power"] = {"perf_profile": executor.perf_profile.name, "votes": live_votes()}
        if executor.warm_cpu_ns:
            summary["warm_cpu_ns"] = executor.warm_cpu_ns
        if executor.runs is not None:
            summary["runs"] = asdict(executor.runs)
    return summary


def mostly_by_launches(executor: AnyExecutor) -> str:
    """Return a warning if most inferences were not persistent; else nothing."""
    runs = executor.runs if isinstance(executor, Executor) else None
    if runs is None or not runs.persistent + runs.aborted or 2 * runs.persistent >= runs.inferences:
        return ""
    others = runs.inferences - runs.persistent
    return (
        f"{others} of {runs.inferences} inferences ran or ended by launches one by one, because persistent kernels "
        "were slower: other programs probably use the processors that they need. If this machine is always so busy, "
        'generate the context with "persistent_kernels": false in the config file'
    )


def median_ns(inference_ns: Sequence[float]) -> float:
    """Return the median without the first inference, which is slower, where there are others."""
    return statistics.median(inference_ns[1:] or inference_ns)
