"""Run a context on a target server behind the interface of runtime.Executor."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.client.errors import DeviceOrContextError, TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_state import RemoteState
from gputune.core.bounds import Blob
from gputune.core.identity import DeviceIdentity
from gputune.runtime.arrays import array_type
from gputune.runtime.context.records import ContextHeader, GraphRecord, TensorRecord
from gputune.runtime.loading.model import open_any
from gputune.runtime.memory.handles import MemHandle, is_empty
from gputune.runtime.profiling.levels import Level
from gputune.server.protocol.messages import ProfileContext

Array = npt.NDArray[Any]
Values = Mapping[str, Array | MemHandle]
TITLE_CHARACTERS = 200
SHARE = 4
"""This part of the memories that a connection may have registered is kept for one graph that was used before."""
NOTHING: Mapping[str, MemHandle] = MappingProxyType({})


class RemoteExecutor:
    """Run a graph of a context binary, loaded on a target and ready to run there.

    address: of the target. graph, header, device, computes, warnings, load_ns: as runtime.Executor has them; load_ns is
    the target's time. copied_bytes: of memory handles, in all inferences, as far as the target's device could not use
    them as they lie. device_open_ns is 0, because a server has its device open. load_round_trip_ns: from here, the
    upload included. round_trip_ns: what each inference took from here, beside the target's own time.
    """

    device_open_ns = 0

    def __init__(self, client: TargetClient, path: Path, graph: str | None, strict: bool) -> None:
        """Check the header here, then send the context, of a package that which fits the target best. It stays in
        memory as long as this, so that it can be sent again whatever became of the file.

        Raises ContextError subclasses and OSError for the file, ValueError for an unknown graph,
        DeviceOrContextError when the target cannot run the context, TargetError.
        """
        self._client = client
        self.address = client.address
        self.device = DeviceIdentity.from_dict(client.device)
        file, self.graph = open_any(path).open_graph(graph, self.device)
        with file:
            self.choice = file.choice
            self.header: ContextHeader = file.header
            content = file.content  # the client keeps it, to send it again after a lost connection
        self.round_trip_ns: list[int] = []
        self.copied_bytes = 0
        self._registered = _Registered(client)
        start = time.perf_counter_ns()
        try:
            loaded = client.load_context(content, self.graph.name, strict)
        except TargetError as error:
            if error.name == "bad_context":
                raise DeviceOrContextError(f"{path}: {error}") from None
            raise
        self.load_round_trip_ns = time.perf_counter_ns() - start
        self._context = loaded.context
        self.computes = loaded.computes
        self.warnings = list(loaded.warnings)
        if self.warnings and self.choice is not None and self.choice.reason:
            self.warnings.insert(0, str(self.choice))
        self.load_ns = loaded.load_ns

    def state(self) -> Mapping[str, object]:
        """Return the clocks, temperatures and load of the target, as far as they can be read there. Raises
        TargetError."""
        return self._client.status().state

    def run_timed(self, inputs: Values, outputs: Mapping[str, MemHandle] = NOTHING) -> tuple[dict[str, Array], int]:
        """Run one inference; return its outputs, and its ns by the target's clock from the first input to the last
        output.

        inputs: arrays, which are sent, and memory handles, which the target's device uses as they lie; outputs: handles
        where outputs shall be, of which those returned are views. Handles need a target on a local socket; they are
        kept registered there for the next time, the last ones at least, and cannot be closed before `release` or
        `close`.

        Raises UnusableMemory for a handle without a descriptor, TargetError."""
        return self._run(self.graph, inputs, outputs)

    def open_state(self) -> RemoteState:
        """Open memory there for what this graph, and those that remember the same, keep between inferences. Raises
        TargetError."""
        return RemoteState(self._client, self._context, self.graph)

    def step_timed(
        self, state: RemoteState, inputs: Values, outputs: Mapping[str, MemHandle] = NOTHING
    ) -> tuple[dict[str, Array], int]:
        """Run an inference that moves a state on, as run_timed does with what is not the state's."""
        made = self._run(self.graph.beside_state, inputs, outputs, state.there, state.length)
        state.length += 0 if self.graph.states is None else self.graph.states.tokens
        return made

    def _run(
        self, graph: GraphRecord, inputs: Values, outputs: Mapping[str, MemHandle], *state: Any
    ) -> tuple[dict[str, Array], int]:
        """Run an inference with a state and its length, or without, on the inputs that `graph` has."""
        start = time.perf_counter_ns()
        executed = self._client.execute_context(self._context, *self._given(inputs, outputs), *state)
        self.copied_bytes += executed.copied_bytes
        self.round_trip_ns.append(time.perf_counter_ns() - start)
        wanted = {tensor.name for tensor in graph.outputs} - outputs.keys()
        if set(executed.outputs) != wanted:
            raise self._nonsense(f"outputs {sorted(executed.outputs)} instead of {sorted(wanted)}")
        results = {
            tensor.name: outputs[tensor.name].view(tensor.dtype, tensor.shape)
            if tensor.name in outputs
            else self._array(tensor, executed.outputs[tensor.name])
            for tensor in graph.outputs
        }
        return results, executed.elapsed_ns

    @property
    def shares_memory(self) -> bool:
        """Return whether memory handles can be given: the target is reached over a local socket."""
        return self._client.shares_memory

    def allocate_for(self, tensor: TensorRecord) -> MemHandle:
        """Return new memory for an input or output, that the target can be given. Raises UnusableMemory."""
        return MemHandle.allocate(tensor.nbytes)

    def release(self, handle: MemHandle) -> None:
        """Give up a handle that was given to an inference, so that it can be closed. Raises TargetError."""
        self._registered.release(handle)

    def profile(
        self,
        inputs: Values,
        inferences: int,
        level: Level = "detailed",
        compared: int = 0,
        title: str = "",
        outputs: Mapping[str, MemHandle] = NOTHING,
        state: RemoteState | None = None,
    ) -> memoryview:
        """Return the log of so many inferences on the same inputs and outputs, given as for run_timed, as the target
        has written it. level, compared, title: as of the message ProfileContext; state: is reset before each, which is
        its first step. Raises TargetError."""
        arrays, here, there = self._given(inputs, outputs)
        title = title[:TITLE_CHARACTERS]
        return self._client.profile_context(
            ProfileContext(self._context, arrays, inferences, level, compared, title, here, there),
            state=None if state is None else state.there,
        )

    def close(self) -> None:
        """Free the context on the target, which cannot be run any more, and give up all handles. Raises
        TargetError."""
        try:
            self._client.free_contexts(self._context)
        finally:
            self._registered.release_all()

    def _given(
        self, inputs: Values, outputs: Mapping[str, MemHandle]
    ) -> tuple[dict[str, Blob], dict[str, int], dict[str, int]]:
        """Return the bytes of inputs, and by the client's numbers the memories of others and of outputs."""
        known = {tensor.name for tensor in self.graph.inputs}
        inputs = {name: value for name, value in inputs.items() if name in known or not is_empty(value)}
        handles = {name: value for name, value in inputs.items() if isinstance(value, MemHandle)}
        arrays = {name: value for name, value in inputs.items() if not isinstance(value, MemHandle)}
        self._registered.know([*handles.values(), *outputs.values()])
        return _bytes_of(arrays), self._registered.numbers(handles), self._registered.numbers(outputs)

    def _array(self, tensor: TensorRecord, data: Any) -> Array:
        if len(data) != tensor.nbytes:
            raise self._nonsense(f"{len(data)} bytes for output {tensor.name!r}, which has {tensor.nbytes}")
        return np.frombuffer(data, array_type(tensor.dtype)).reshape(tensor.shape)

    def _nonsense(self, what: str) -> TargetError:
        return TargetError("bad_message", f"target {self.address} sent {what}")


class _Registered:
    """Keep handles that the target knows, those used longest ago first."""

    def __init__(self, client: TargetClient) -> None:
        self._client = client
        self._numbers: OrderedDict[int, tuple[MemHandle, int]] = OrderedDict()  # by id of a handle that is held here

    def know(self, handles: Sequence[MemHandle]) -> None:
        """Register those that are not, and give others up where there would be too many. Raises TargetError."""
        used = {id(handle): handle for handle in handles}
        others = [key for key in self._numbers if key not in used]
        most = max(self._client.limits.registered // SHARE, len(used))
        for key in others[: max(0, len(others) + len(used) - most)]:
            self._client.unregister_memory(self._numbers.pop(key)[1])
        for key, handle in used.items():
            if key not in self._numbers:
                self._numbers[key] = handle, self._client.register_memory(handle)
            self._numbers.move_to_end(key)

    def numbers(self, handles: Mapping[str, MemHandle]) -> dict[str, int]:
        """Return the client's numbers of handles that are known, by the same names."""
        return {name: self._numbers[id(handle)][1] for name, handle in handles.items()}

    def release(self, handle: MemHandle) -> None:
        """Give one up."""
        if (known := self._numbers.pop(id(handle), None)) is not None:
            self._client.unregister_memory(known[1])

    def release_all(self) -> None:
        """Give all up."""
        while self._numbers:
            self._client.unregister_memory(self._numbers.popitem()[1][1])


def _bytes_of(inputs: Mapping[str, Array]) -> dict[str, Blob]:
    return {name: np.ascontiguousarray(value).reshape(-1).view(np.uint8).data for name, value in inputs.items()}
