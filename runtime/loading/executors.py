"""Make what runs a graph on an open device: the C runtime, or a model of a device that computes nothing."""

from __future__ import annotations

from gputune.core.errors import WrongDevice
from gputune.core.statuses import ContextVerdict
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.contexts.device import NativeDevice, OpenDevice, in_c
from gputune.runtime.contexts.executor import NativeExecutor
from gputune.runtime.executor import Executor
from gputune.runtime.loading.checks import graph_named
from gputune.runtime.loading.verdict import verdict_on
from gputune.runtime.power.instances import Power
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.sharing import SharedParts
from gputune.runtime.simulated import SimulatedExecutor


def executor_on(
    backend: OpenDevice,
    file: ContextFile,
    graph: str | None,
    strict: bool,
    device_open_ns: int = 0,
    shared: SharedParts | None = None,
) -> Executor:
    """Return an executor of a graph of a context (None: the first) on an open device. On another device or driver
    version than the context was made for, programs are built from source, which the executor's warnings say, unless
    `strict`. shared: what it has in common with other executors on the device.

    Raises ContextError subclasses (WrongDevice when this device cannot run it), BuildFailed, ValueError for an
    unknown graph.
    """
    chosen = graph_named(file, graph)
    if (native := in_c(backend)) is not None:
        return _native_executor(native, file, chosen, strict, device_open_ns, shared)
    assert isinstance(backend, NullBackend)
    verdict, reason = verdict_on(file.header, [chosen], backend.identity, computes=False)
    if verdict is ContextVerdict.UNSUPPORTED:
        raise WrongDevice(f"{file.path}: {reason}")
    binaries = verdict is ContextVerdict.OPTIMAL
    return SimulatedExecutor(backend, file, chosen, binaries, strict, device_open_ns, shared)


def _native_executor(
    device: NativeDevice,
    file: ContextFile,
    graph: GraphRecord,
    strict: bool,
    device_open_ns: int,
    shared: SharedParts | None,
) -> Executor:
    """Return an executor by the C runtime, which judges the context itself."""
    executor = NativeExecutor(device, file, graph, strict, device_open_ns)
    executor.persistent_kernels = shared is None or shared.persistent
    return executor


def voted_executor(
    backend: OpenDevice,
    file: ContextFile,
    graph: str | None,
    strict: bool,
    device_open_ns: int,
    perf_profile: PerfProfile | str | None,
) -> Executor:
    """Return an executor, made and run with the votes of a profile, if any."""
    if perf_profile is None:
        return executor_on(backend, file, graph, strict, device_open_ns)
    power = Power(perf_profile, backend.identity)
    try:
        with power.phase("init"):
            executor = executor_on(backend, file, graph, strict, device_open_ns)
    except BaseException:
        power.close()
        raise
    executor.power = power
    return executor
