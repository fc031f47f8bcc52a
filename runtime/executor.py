"""Define the executor of a loaded graph: the interface that applications use, whatever runs the graph.

Here are turns, votes for clocks, and what is refused once an executor is closed or in a fork. What runs a graph is in
the classes that extend it.
"""

from __future__ import annotations

import math
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from gputune.core.errors import CannotMark, ContextClosed, DeviceError
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing, Opened
from gputune.core.statuses import ContextChoice
from gputune.runtime.arrays import array_type
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import ContextHeader, GraphRecord, TensorRecord
from gputune.runtime.context.states import FIXED
from gputune.runtime.counters import MemoryCounters
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.profiling.levels import Level
from gputune.runtime.profiling.observers import Observer
from gputune.runtime.profiling.records import Form, LoggedInference, StateSample
from gputune.runtime.values import NOTHING, Array, Tensors, Value, Values

if TYPE_CHECKING:  # most loads do without
    from gputune.runtime.power.instances import Power
    from gputune.runtime.power.keep_warm import KeepWarm
    from gputune.runtime.power.profiles.perf_profile import PerfProfile

NO_VOTES = nullcontext()


@dataclass
class Runs:
    """Count the inferences of a context that can run in several forms, by how they ran.

    Attributes:
        persistent: run by persistent kernels to their end.
        aborted: begun by persistent kernels, given up on the way and finished by launches.
        launches: run by launches from the beginning.
        recorded: run by launches that were enqueued as a recorded queue.
        attempts: the persistent and aborted inferences that tested whether persistent kernels pay again.
    """

    persistent: int = 0
    aborted: int = 0
    launches: int = 0
    attempts: int = 0
    recorded: int = 0

    @property
    def inferences(self) -> int:
        """Return the number of all inferences."""
        return self.persistent + self.aborted + self.launches + self.recorded


class StateMemory(Protocol):
    """Hold what graphs remember between inferences, on a device. length: rows; capacity: rows that there is room for,
    0 if it does not grow; nbytes: of device memory."""

    @property
    def length(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def rewind(self, length: int) -> None: ...
    def reset(self) -> None: ...
    def copy(self) -> Self: ...
    def read(self, name: str, dtype: str, shape: Sequence[int]) -> Array: ...
    def close(self) -> None: ...


class DistantState(Closing):
    """Hold a state that another process has, as a StateMemory. Each step is told behind how many rows it comes, so that
    a rewind, and a step whose end was not heard of, need no message."""

    def __init__(self, graph: GraphRecord) -> None:
        """Begin with nothing remembered for a graph."""
        assert graph.states is not None
        self._graph, self._states = graph, graph.states
        self.length, self.capacity, self.nbytes = 0, graph.states.capacity, graph.states.nbytes(graph.inputs)

    def rewind(self, length: int) -> None:
        """Forget rows behind the first ones. Raises ValueError for more rows than there are, and if it cannot."""
        if fixed := [pair.input for pair in self._states.pairs if pair.axis == FIXED]:
            raise ValueError(
                f"a state with {fixed[0]!r}, which does not grow, cannot be rewound: copy it before, or reset it"
            )
        if length > self.length:
            raise ValueError(f"a state of {self.length} rows cannot be rewound to {length}")
        self.length = length

    def reset(self) -> None:
        """Forget everything."""
        self._reset()
        self.length = 0

    def read(self, name: str, dtype: str, shape: Sequence[int]) -> Array:
        """Return what is remembered for an input, of this dtype and shape."""
        kind = np.dtype(array_type(dtype))
        return np.frombuffer(self._content(name, math.prod(shape) * kind.itemsize), kind).reshape(shape)

    @abstractmethod
    def _reset(self) -> None:
        """Have the other process forget everything."""

    @abstractmethod
    def _content(self, name: str, nbytes: int) -> Any:
        """Return so many bytes from the other process."""


class Executor(Closing):
    """Run a loaded graph.

    If the context has persistent kernels and the device is the context's own, inferences run by persistent kernels as
    long as they pay (`runs` counts them) and persistent_kernels is True. Otherwise they run launch by launch, or as a
    recorded queue if the first inferences were faster so.

    Several threads may use an executor, one inference at a time. close() frees its device memory; so does `with`.

    Attributes:
        graph: its name, inputs and outputs (names, shapes, dtypes).
        header: the whole context's header.
        device: the identity of the open device.
        computes: False if outputs stay zero because the device is the null device.
        warnings: causes of unexpected cost, such as programs that were built from source, or memory that has to be
            copied.
        load_ns: the time to make this object, without the time to open the device.
        device_open_ns: the time to open the device.
        choice: for a package, which context it is, how that fits the device, and why.
        recorder: if set, inferences are recorded; Profiler.watch sets it.
        persistent_kernels: whether inferences may run by persistent kernels.
        power: what votes for clocks around inferences and at the end, None for no votes; set_perf_profile sets it.
    """

    def __init__(
        self,
        device: DeviceIdentity,
        file: ContextFile,
        graph: GraphRecord,
        device_open_ns: int,
        turn: threading.Lock | None = None,
    ) -> None:
        """Begin to load a graph of a file on an open device. turn: held during an inference, where executors take
        turns."""
        self._opened = Opened(f"a context on {device.name}")
        self._closed = False
        self._shared_turn = threading.Lock() if turn is None else turn
        self.graph = graph
        self.header: ContextHeader = file.header
        self.choice: ContextChoice | None = file.choice
        self.device = device
        self.warnings: list[str] = []
        self.recorder: Any = None
        self.power: Power | None = None
        self._warm: KeepWarm | None = None
        self.persistent_kernels = True
        self.load_ns = 0
        self.device_open_ns = device_open_ns
        self._warn = Warnings(graph.name, self.warnings)

    # --- what runs a graph defines ----------------------------------------------------------------------

    computes: bool
    _tensors: Tensors[Any, Any]

    @abstractmethod
    def _infer(self, inputs: dict[str, Value], outputs: dict[str, Value]) -> tuple[dict[str, Array], int]:
        """Run and record an inference on checked values; return its outputs and its ns. Its turn has come."""

    @abstractmethod
    def _infer_in_place(self) -> int:
        """Run and record one on registered and shared memory; return its ns. Its turn has come. Raises ValueError for a
        tensor that is in neither."""

    @abstractmethod
    def _free(self) -> None:
        """Wait for what runs, and give back what is held."""

    def _empty_launch(self) -> Callable[[], None] | None:
        """Return what launches an empty kernel and waits for it; None on a processor, which is kept awake by what runs
        on it."""
        return None

    @property
    @abstractmethod
    def backend(self) -> Any:
        """Return the open device: a NativeDevice, or a NullBackend that simulates one."""

    @property
    def device_bytes(self) -> int:
        """Return the bytes of device memory that all contexts on the open device hold now."""
        return int(self.backend.allocated_bytes)

    @abstractmethod
    def make_recorder(
        self, level: Level, observer: Observer, write: Callable[[LoggedInference | StateSample], None]
    ) -> Any:
        """Return a recorder, which gives each record to `write`; its `graph` is a place in a log. observer: is called
        around each inference."""

    def marked(self) -> Any:
        """Return the persistent form with marks of its launches, built when it is first requested. For recorders.
        Raises CannotMark, DeviceError."""
        raise CannotMark("persistent kernels do not run here")

    # --- running --------------------------------------------------------------------------------------

    def run(self, inputs: Values = NOTHING, outputs: Values = NOTHING) -> dict[str, Array]:
        """Run one inference.

        Args:
            inputs: by name, an array of exactly the input's shape and dtype, or a memory handle. Every input without a
                registered handle needs a value. Arrays are copied, or read in place until this returns
                (docs/memory.md). Handles are used in place.
            outputs: by name, arrays into which outputs are copied, or memory handles, which are used in place; new
                arrays by default.

        Returns an array by each output's name: a new array, the given array, or a view of a handle, to which the next
        inference writes again. Outputs in memory that the host cannot see are omitted. A value given for one inference
        leaves registered handles as they are. A given handle is kept ready for the next time: `release` gives it up.

        Raises ValueError that names the input or output that is missing, unknown or does not fit; DeviceError, also in
        a fork of the process that loaded the context.
        """
        return self.run_timed(inputs, outputs)[0]

    def run_timed(self, inputs: Values = NOTHING, outputs: Values = NOTHING) -> tuple[dict[str, Array], int]:
        """Run as run does, and also return the ns of the host's clock from before the first input is written until the
        last output is read."""
        self._check()
        ready, into = self._tensors.checked_inputs(inputs), self._tensors.checked_outputs(outputs)
        with self._shared_turn, self._voted():  # _turn, but for what is checked already
            self._check_open()
            return self._infer(ready, into)

    def run_in_place(self) -> int:
        """Run one inference on what registered handles and shared_inputs hold now, and leave its results in the handles
        and shared_outputs of the outputs. Nothing is copied.

        Returns its ns by the host's clock. Raises ValueError if a tensor is in neither; DeviceError.
        """
        self._opened.check()
        with self._shared_turn, self._voted():  # _turn, in less time
            self._check_open()
            return self._infer_in_place()

    def open_state(self) -> StateMemory:
        """Open memory for what this graph, and those that remember the same, keep between inferences. Raises ValueError
        for a graph that remembers nothing, DeviceError where memory cannot be kept so."""
        raise self._no_states()

    def step_timed(
        self, state: StateMemory, inputs: Values = NOTHING, outputs: Values = NOTHING
    ) -> tuple[dict[str, Array], int]:
        """Run an inference that moves a state on, as run_timed does with what is not the state's."""
        raise self._no_states()

    @property
    def runs(self) -> Runs | None:
        """Return how many inferences ran in which form; None if they all ran by launches one by one."""
        return None

    @property
    def has_persistent(self) -> bool:
        """Return whether inferences may run by persistent kernels here."""
        return False

    @property
    def last_form(self) -> Form:
        """Return how the last inference ran that was not recorded launch by launch."""
        return "launches"

    # --- clocks and power -----------------------------------------------------------------------------

    @property
    def perf_profile(self) -> PerfProfile | None:
        """Return a copy of the perf profile in force; None if none was ever set."""
        return None if self.power is None else self.power.profile.copy()

    def set_perf_profile(self, profile: PerfProfile | str) -> None:
        """Make inferences from now on vote for clocks and power as a perf profile, or the preset of that name, says.
        Raises ValueError for an unknown name, and for corners that are out of order."""
        from gputune.runtime.power.instances import Power

        with self._turn():
            if self.power is None:
                self.power = Power(profile, self.device)
            else:
                self.power.set_profile(profile)

    def keep_warm(self, on: bool = True) -> None:
        """Keep the device awake between inferences, for at most a second after each: by empty launches, or on a CPU by
        a thread that spins, which takes the processor from other programs (`warm_cpu_ns`). on=False ends that. Raises
        DeviceError."""
        with self._turn():
            if self._warm is not None:
                self._warm.close()
            self._warm = None
            if on:
                from gputune.runtime.power.keep_warm import KeepWarm

                self._warm = KeepWarm(self._empty_launch())

    @property
    def warm_cpu_ns(self) -> int:
        """Return the processor time that keeping warm has taken."""
        return 0 if self._warm is None else self._warm.cpu_ns

    def _voted(self) -> AbstractContextManager[None]:
        return NO_VOTES if self.power is None and self._warm is None else self._awake()

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """Hold the votes for an inference, and pause what keeps the device warm between inferences."""
        if self._warm is not None:
            self._warm.pause()
        try:
            with NO_VOTES if self.power is None else self.power.phase("execute"):
                yield
        finally:
            if self._warm is not None:
                self._warm.resume()

    # --- memory ---------------------------------------------------------------------------------------

    @property
    def counters(self) -> MemoryCounters:
        """Return what loading, the last inference and all inferences have copied, mapped and allocated, tensor by
        tensor."""
        return self._tensors.counters

    def allocate_for(self, tensor: TensorRecord) -> MemHandle:
        """Allocate memory for one of the graph's inputs or outputs, of the kind that host and device share best; it is
        not registered yet. Raises DeviceError."""
        self._check()
        handle: MemHandle = self.backend.allocate_handle(tensor.nbytes)
        return handle

    def register(self, name: str, handle: MemHandle) -> None:
        """Use a handle's memory for an input or output in every inference that is given no other value for it. Memory
        that the device cannot use in place is copied; `warnings` and the counters report that. An output with the name
        of an input is called "output NAME".

        Raises ValueError for an unknown name, for memory that is too small, and for an output whose memory another
        tensor uses; CannotImport for memory that can neither be used nor copied; DeviceError.
        """
        with self._turn():
            self._tensors.register(name, handle)

    def unregister(self, name: str) -> None:
        """End a registration, and give the handle up unless another tensor uses it. Raises ValueError for an unknown
        name."""
        with self._turn():
            self._tensors.unregister(name)

    def release(self, handle: MemHandle) -> None:
        """Give up a handle that was passed to `run`, so that it can be closed; a registered handle stays."""
        with self._turn():
            self._tensors.release(handle)

    @property
    def shared_inputs(self) -> dict[str, Array]:
        """Return, by name, arrays in the memory that the device itself reads, if it shares the host's memory and no
        handle is registered: for run_in_place. An inference on arrays may write there, too."""
        with self._turn():
            return self._tensors.host_arrays("input")

    @property
    def shared_outputs(self) -> dict[str, Array]:
        """Return, by name, arrays in the memory that the device itself writes, as shared_inputs does."""
        with self._turn():
            return self._tensors.host_arrays("output")

    @abstractmethod
    def join_output(self, output: str, other: Executor, name: str) -> None:
        """Join an output of this graph and an input of another graph on the same device in one new buffer that only the
        device uses; from now on neither takes or returns it. For pipelines, before the first inference."""

    def close(self) -> None:
        """Free its memory and release registered handles. What it shares with others stays theirs. A second call does
        nothing."""
        with self._shared_turn:
            if self._closed:
                return
            self._closed = True
            with NO_VOTES if self.power is None else self.power.phase("deinit"):
                self._free()
            if self.power is not None:
                self.power.close()
            if self._warm is not None:
                self._warm.close()

    def __enter__(self) -> Self:
        self._check()
        return super().__enter__()

    # --- inside ---------------------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the turn of an executor that is open."""
        self._opened.check()  # a fork would wait for ever
        with self._shared_turn:
            self._check_open()
            yield

    def _check(self) -> None:
        self._opened.check()
        self._check_open()

    def _no_states(self) -> DeviceError:
        return DeviceError(f"{self.device.name} keeps no states: give and take what is remembered as arrays")

    def _check_open(self) -> None:
        if self._closed:
            raise ContextClosed(f"graph {self.graph.name!r} on {self.device.name} was closed")


class Warnings:
    """Adds to an executor's warnings, without holding it; those of loading are told by what loads."""

    def __init__(self, graph: str, texts: list[str]) -> None:
        self._graph, self._texts = graph, texts
        self.loading = True

    def __call__(self, text: str) -> None:
        self._texts.append(text)
        if not self.loading:
            warnings.warn(f"graph {self._graph!r}: {text}", stacklevel=2)
