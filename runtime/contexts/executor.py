"""Run one graph of a context by the C runtime, with the interface of every executor."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable
from typing import Any, cast

from gputune.core.errors import BuildFailed, ContextError, DeviceError, ForkedProcess, WrongDevice
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.contexts.device import NativeDevice, named_in, opened_file
from gputune.runtime.contexts.needs import proved_needs
from gputune.runtime.contexts.recording import NativeMarks, NativeRecorder
from gputune.runtime.contexts.tensors import NativeTensors
from gputune.runtime.counters import MemoryCounters
from gputune.runtime.executor import Executor, Runs, StateMemory
from gputune.runtime.native.binding import Graph, Group
from gputune.runtime.native.states import State, use_state
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.observers import Observer
from gputune.runtime.profiling.records import Form, LoggedInference, StateSample
from gputune.runtime.values import NOTHING, Array, Value, Values

_RUNS = ("persistent", "aborted", "launches", "attempts", "recorded")
"""The counters that Runs has."""


class NativeExecutor(Executor):
    """Run a graph on an OpenCL device by the C runtime."""

    computes = True
    _tensors: NativeTensors

    def __init__(
        self,
        device: NativeDevice,
        file: ContextFile,
        graph: GraphRecord,
        strict: bool,
        device_open_ns: int = 0,
        place: tuple[Group | None, int] = (None, 0),
    ) -> None:
        """Load a graph of a file. place: the group whose arenas it uses, and its stream. Raises WrongDevice if the
        device cannot run it, BuildFailed, ContextError."""
        begun_ns = time.perf_counter_ns()
        super().__init__(device.identity, file, graph, device_open_ns)
        self._device = device
        self._graph = _loaded(device, file, graph, strict, *place)
        self._counted = self._graph.counted
        self._chosen = True
        self._told = 0
        self._tensors = NativeTensors(device, self._graph, graph, self._warn)
        self._state: Callable[[], State | None] = lambda: None
        self._collect_warnings()
        if file.choice is not None and file.choice.verdict is ContextVerdict.PREFER_RECOMPILATION:
            self.warnings.insert(0, f"{file.choice}; make one for this device and add it: gputune package --add")
        self.load_ns = time.perf_counter_ns() - begun_ns
        self._warn.loading = False

    # --- an inference ----------------------------------------------------------------------------------

    def _infer(self, inputs: dict[str, Value], outputs: dict[str, Value]) -> tuple[dict[str, Array], int]:
        self._use(None)
        return self._infer_on(self._tensors, inputs, outputs)

    def _infer_in_place(self) -> int:
        self._use(None)
        self._tensors.give_shared()
        return self._recorded(self._tensors)

    def _infer_on(
        self, tensors: NativeTensors, inputs: dict[str, Value], outputs: dict[str, Value]
    ) -> tuple[dict[str, Array], int]:
        tensors.give(inputs, outputs)
        elapsed_ns = self._recorded(tensors)
        return tensors.taken(outputs), elapsed_ns

    def _recorded(self, tensors: NativeTensors) -> int:
        """Run an inference on the values that tensors were given, and record it if that is asked for; return its ns."""
        if self.recorder is None:
            return self._run(tensors)
        return int(self.recorder.infer(functools.partial(self._run, tensors)))

    def _run(self, tensors: NativeTensors) -> int:
        if self.persistent_kernels != self._chosen:
            self._graph.set_one_by_one(not self.persistent_kernels)
            self._chosen = self.persistent_kernels
        tensors.run()
        total, last = self._counted
        if total.warnings != self._told:
            self._collect_warnings()
        return int(last.elapsed_ns)

    def _collect_warnings(self) -> None:
        """Add what C has found since the last time."""
        while (text := self._graph.warning(self._told)) is not None:
            self._told += 1
            if text not in self.warnings:  # of memory that is copied Python has told already
                self._warn(text)

    @property
    def runs(self) -> Runs | None:
        """Return how many inferences ran in which form; None if they all ran by launches one by one."""
        total = self._graph.counters()[0]
        if not self.has_persistent and not total["recorded"]:
            return None
        return Runs(**{name: total[name] for name in _RUNS})

    @functools.cached_property
    def has_persistent(self) -> bool:
        """Return whether inferences may run by persistent kernels here."""
        return self._graph.has_persistent

    @property
    def last_form(self) -> Form:
        """Return how the last inference ran that was not recorded launch by launch."""
        return cast(Form, self._graph.last_form)

    @property
    def counters(self) -> MemoryCounters:
        """Return what loading, the last inference and all inferences have copied, mapped and allocated, tensor by
        tensor."""
        return self._tensors.counted()

    # --- what it remembers -----------------------------------------------------------------------------

    def open_state(self) -> State:
        """Open memory for what this graph, and those that remember the same, keep between inferences. Raises ValueError
        for a graph that remembers nothing, DeviceError."""
        self._check()
        return State.of(self._graph, self._device.device)

    def step_timed(
        self, state: StateMemory, inputs: Values = NOTHING, outputs: Values = NOTHING
    ) -> tuple[dict[str, Array], int]:
        """Run an inference that moves a state on, as run_timed does with what is not the state's."""
        self._check()
        assert isinstance(state, State)
        tensors = self._beside_state
        ready, into = tensors.checked_inputs(inputs), tensors.checked_outputs(outputs)
        with self._shared_turn, self._voted():
            self._check_open()
            self._use(state)
            return self._infer_on(tensors, ready, into)

    @functools.cached_property
    def _beside_state(self) -> NativeTensors:
        """Return the tensors that a state leaves to the application. Of their counters those of all tensors know."""
        return NativeTensors(self._device, self._graph, self.graph.beside_state, self._warn)

    def _use(self, state: State | None) -> None:
        """Have inferences use a state from now on. Raises ContextClosed for one that was closed, ValueError for one
        that does not fit."""
        if state is not None:
            _ = state.pointer
        if self._state() is not state:
            use_state(self._graph, state)
            self._state = (lambda: None) if state is None else weakref.ref(state)

    # --- the device ------------------------------------------------------------------------------------

    @property
    def backend(self) -> Any:
        """Return the open device."""
        return self._device

    def join_output(self, output: str, other: Executor, name: str) -> None:
        """Join an output of this graph and an input of another graph on the same device in one new buffer that only the
        device uses; from now on neither takes or returns it. For pipelines, before the first inference."""
        self._check()
        assert isinstance(other, NativeExecutor)
        self._graph.link(output, other._graph, name)
        self._tensors.link("output", output)
        other._tensors.link("input", name)

    def _empty_launch(self) -> Callable[[], None] | None:
        """Return what launches an empty kernel and waits for it; None on a processor."""
        return None if self.device.device_type == "cpu" else self._device.device.touch

    def _free(self) -> None:
        self._tensors.counted()
        self._graph.close()
        self._tensors.close()
        if "_beside_state" in vars(self):
            self._beside_state.close()

    # --- profiling -------------------------------------------------------------------------------------

    def make_recorder(
        self, level: Level, observer: Observer, write: Callable[[LoggedInference | StateSample], None]
    ) -> NativeRecorder:
        """Return what records inferences launch by launch; at level basic, as they usually run."""
        return NativeRecorder(self._device.device, self._graph, level, observer, write)

    def marked(self) -> NativeMarks:
        """Return what records inferences by persistent kernels with marks of their launches. Raises CannotMark,
        DeviceError."""
        with self._turn():
            return NativeMarks(self._device.device, self._graph)


def _loaded(
    device: NativeDevice, file: ContextFile, graph: GraphRecord, strict: bool, group: Group | None, stream: int
) -> Graph:
    """Load a graph in C. Raises WrongDevice, BuildFailed, ContextError."""
    features = proved_needs(file, graph, device)
    try:
        with opened_file(file) as opened:
            return device.device.load(opened, graph.name, strict=strict, group=group, stream=stream, features=features)
    except (BuildFailed, ForkedProcess):
        raise
    except ContextError as error:
        raise type(error)(named_in(str(error), file)) from None
    except DeviceError as error:
        name = device.identity.name
        raise WrongDevice(f"{file.path}: {name} cannot run graph {graph.name!r}: {error}") from None
