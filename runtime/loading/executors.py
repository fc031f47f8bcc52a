"""Make what runs a graph on an open device: the C runtime, or a model of a device that computes nothing."""

from __future__ import annotations

from gputune.runtime.backends import Backend
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import ContextFile
from gputune.runtime.contexts.arenas import NativeArenas
from gputune.runtime.contexts.device import NativeDevice, OpenDevice, in_c
from gputune.runtime.contexts.executor import NativeExecutor
from gputune.runtime.executor import Executor
from gputune.runtime.simulated import SimulatedArenas, SimulatedExecutor


def executor_on(
    backend: Backend | NativeDevice, file: ContextFile, graph: str | None, strict: bool, device_open_ns: int = 0
) -> Executor:
    """Return an executor of a graph of a context (None: the first) on an open device. On another device or driver
    version than the context was made for, programs are built from source, which the executor's warnings say, unless
    `strict`.

    Raises ContextError subclasses (WrongDevice when this device cannot run it), BuildFailed, ValueError for an
    unknown graph.
    """
    chosen = file.graph_named(graph)
    if (native := in_c(backend)) is not None:
        return NativeExecutor(native, file, chosen, strict, device_open_ns)
    assert isinstance(backend, NullBackend)
    return SimulatedExecutor(backend, file, chosen, device_open_ns)


def arenas_on(device: OpenDevice, streams: int) -> SimulatedArenas | NativeArenas:
    """Return arenas for each of some streams, which grow with the graphs that are loaded, and whose executors have
    equal weights once. Raises DeviceError."""
    if (native := in_c(device)) is not None:
        return NativeArenas(native, streams)
    assert isinstance(device, NullBackend)
    return SimulatedArenas(device, streams)
