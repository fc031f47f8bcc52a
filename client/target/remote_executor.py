"""A context that runs on a target: the face of runtime.Executor, the work of a target server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.client.errors import DeviceOrContextError, TargetError
from gputune.client.target.client import TargetClient
from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.records import ContextHeader, TensorRecord
from gputune.runtime.execution.loading import open_graph

Array = npt.NDArray[Any]


class RemoteExecutor:
    """A graph of a context binary, loaded on a target and ready to run there.

    address: of the target. graph, header, device, computes, warnings, load_ns: as runtime.Executor has them; load_ns
    is the target's time. device_open_ns is 0, because a server has its device open. load_round_trip_ns: from here,
    the upload included. round_trip_ns: what each inference took from here, beside the target's own time.
    """

    device_open_ns = 0

    def __init__(self, client: TargetClient, path: Path, graph: str | None, strict: bool) -> None:
        """Checks the header here, then sends the mapped file; nothing is read into memory for that.

        Raises ContextError subclasses and OSError for the file, ValueError for an unknown graph,
        DeviceOrContextError when the target cannot run the context, TargetError.
        """
        self._client = client
        self.address = client.address
        file, self.graph = open_graph(path, graph)
        with file:
            self.header: ContextHeader = file.header
            content = file.content  # the client keeps it, to send it again after a lost connection
        self.device = DeviceIdentity.from_dict(client.device)
        self.round_trip_ns: list[int] = []
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
        self.load_ns = loaded.load_ns

    def run_timed(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """One inference: its outputs, and its ns by the target's clock from the first input to the last output.

        Raises TargetError."""
        start = time.perf_counter_ns()
        executed = self._client.execute_context(self._context, _bytes_of(inputs))
        self.round_trip_ns.append(time.perf_counter_ns() - start)
        wanted = {tensor.name for tensor in self.graph.outputs}
        if set(executed.outputs) != wanted:
            raise self._nonsense(f"outputs {sorted(executed.outputs)} instead of {sorted(wanted)}")
        return {t.name: self._array(t, executed.outputs[t.name]) for t in self.graph.outputs}, executed.elapsed_ns

    def profile(self, inputs: Mapping[str, Array], inferences: int) -> tuple[list[float], dict[str, list[float]]]:
        """ns of whole inferences, and of each operation by the device's clock. Raises TargetError."""
        profiled = self._client.profile_context(self._context, _bytes_of(inputs), inferences)
        inference_ns = self._times(profiled.inference_ns, inferences, "inferences")
        count = len(profiled.operations) * inferences
        rows = self._times(profiled.operation_ns, count, "operations").reshape(-1, inferences)
        operation_ns = dict(zip(profiled.operations, rows.tolist(), strict=True))
        return inference_ns.tolist(), operation_ns

    def close(self) -> None:
        """Frees the context on the target; it cannot be run any more. Raises TargetError."""
        self._client.free_contexts(self._context)

    def _array(self, tensor: TensorRecord, data: Any) -> Array:
        if len(data) != tensor.nbytes:
            raise self._nonsense(f"{len(data)} bytes for output {tensor.name!r}, which has {tensor.nbytes}")
        return np.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape)

    def _times(self, data: Any, count: int, what: str) -> Array:
        """So many times in ns from a reply."""
        if len(data) != 8 * count:
            raise self._nonsense(f"{len(data)} bytes for {count} times of {what}")
        times = np.frombuffer(data, "<f8")
        if not (np.isfinite(times) & (times >= 0)).all():
            raise self._nonsense(f"times of {what} that are none")
        return times

    def _nonsense(self, what: str) -> TargetError:
        return TargetError("bad_message", f"target {self.address} sent {what}")


def _bytes_of(inputs: Mapping[str, Array]) -> dict[str, memoryview]:
    return {name: np.ascontiguousarray(value).reshape(-1).view(np.uint8).data for name, value in inputs.items()}
