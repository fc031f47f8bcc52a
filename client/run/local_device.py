"""Open a device in this process, and run graphs or write contexts with default configurations: no server, no tuning."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gputune.client.context import builder
from gputune.client.memory_types import RAW, MemoryTypes
from gputune.client.model.graph import Graph
from gputune.client.model.graphs import tasks_of
from gputune.client.model.lowering import lower
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.core.batches import Compiled
from gputune.core.version import software_version
from gputune.runtime.backends import Backend, Buffer, ProgramCache
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.measuring.launching import execute
from gputune.server.protocol import messages


class LocalDevice:
    """Makes contexts on a backend and opens them there. Only one OpenCL driver may be open in a process."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._programs = ProgramCache(backend)
        self._handles = itertools.count(1)
        self._buffers: dict[int, Buffer] = {}

    @property
    def device(self) -> dict[str, object]:
        """The device's identity."""
        return self._backend.identity.to_dict()

    def load(self, graph: Graph, memory_types: MemoryTypes = RAW) -> Executor:
        """Return an imported graph, ready to run on what memory_types say.

        Raises ModelError for what cannot be lowered, TuningError and MemoryPlanError for what does not fit on the
        device, DeviceError."""
        with tempfile.TemporaryDirectory(prefix="gputune-") as folder:
            path = Path(folder) / "context.bin"
            self.write(path, [graph], memory_types)
            with open_context(path) as file:
                return executor_on(self._backend, file, None, strict=False)

    def write(self, path: Path, graphs: Sequence[Graph], memory_types: MemoryTypes = RAW) -> None:
        """Write a context of imported graphs, whose programs are built from source when it is opened. Raises as `load`
        does."""
        identity, plans = self._backend.identity, [lower(graph) for graph in graphs]
        outcomes = {each.key: each for each in (untuned(task, device_limits(identity)) for task in tasks_of(plans))}
        built = builder.build_all([builder.Wanted(plan, outcomes) for plan in plans], self)
        context = Context(
            graphs=[memory_types.applied(graph) for graph in built.graphs],
            programs=built.programs,
            weights=built.weights,
            device=self.device,
            tier=identity.tier.name,
            configuration={},
            versions={"gputune": software_version()},
            computes=self._backend.computes,
        )
        write_context(path, context)

    # --- what builder.Maker asks for ---

    def upload(self, data: Any) -> int:
        handle = next(self._handles)
        self._buffers[handle] = self._backend.upload(np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        return handle

    def free(self, *buffers: int) -> None:
        for handle in buffers:
            del self._buffers[handle]

    def compile_kernels(
        self, requests: Sequence[messages.CompileKernel], compiled: Callable[[int, Compiled], object]
    ) -> None:
        """No binaries: the context stays in this process, where its programs are built from source when it is
        opened."""
        for place in range(len(requests)):
            compiled(place, Compiled(b"", 0, 0))

    def execute_kernel(self, request: messages.ExecuteKernel) -> Mapping[str, memoryview]:
        buffers = {name: self._buffers[handle] for name, handle in request.buffers.items()}
        results = execute(self._programs, request.launches, buffers, request.outputs)
        return {name: value.data for name, value in results.items()}
