"""Loading a context in an application: find the device it was made for, or one that can stand in, and open
it.

Only one OpenCL driver may live in a process. When the driver of the context is installed, it is opened
directly: discovery, with its child process per driver, is only run when that device is not there or another
one is asked for.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from gputune.core.errors import DeviceError, DeviceNotFound, LimitExceeded, UntrustedFile, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import check_sizes
from gputune.core.ownership import untrusted
from gputune.core.statuses import ContextVerdict
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context.ep_context import ep_context_named, is_ep_context
from gputune.runtime.context.format import ContextFile, open_context
from gputune.runtime.context.records import ContextHeader, GraphRecord
from gputune.runtime.devices.discovery import (
    NULL_REPORT,
    NULL_REPORTS,
    DeviceReport,
    choose,
    discover,
    matches,
    wanted_device,
)
from gputune.runtime.devices.drivers import driver_files
from gputune.runtime.execution.executor import Executor
from gputune.runtime.execution.shared import SharedParts
from gputune.runtime.power.instances import Power
from gputune.runtime.power.profiles.perf_profile import PerfProfile

Compatibility = Literal["permissive", "strict"]


def load(
    path: Path | str,
    device: str | None = None,
    cache_compatibility_mode: Compatibility = "permissive",
    graph: str | None = None,
    perf_profile: PerfProfile | str | None = None,
) -> Executor:
    """Loads a context binary, or the one that an ONNX file (.onnx) has in EPContext nodes, and opens its device.

    device: a number or part of a name as `gputune devices` shows them, "null" or "waiting"; by default GPUTUNE_DEVICE,
    else the device the context was made for, else the best one. On another device or driver version the
    programs are built from source with a warning, unless cache_compatibility_mode is "strict". A context of the
    null device runs on no other, because nothing has rearranged its weights. graph: a name, by default the first.
    perf_profile: for which clocks and power to vote while it is loaded, around inferences and when it is closed: a
    profile, or the name of a preset; by default no vote is made.

    A device that computes nothing gives zeros that look like results, so it must be named here: neither the
    environment nor the context can choose it.

    Raises ContextError subclasses (WrongDevice in strict mode, and for a context of the null device; UntrustedFile for
    one that another user could change, see ownership.py), DeviceNotFound, BuildFailed, ValueError for an unknown graph,
    mode or perf profile, OSError when the file cannot be read, ForkedProcess where a process forked after it had opened
    a device.
    """
    executor = open_executor(path, device, cache_compatibility_mode, graph, perf_profile)
    if not executor.computes and not device:
        zeros = 'its outputs are zeros, not results; device="null" in the call to load() asks for that'
        if not executor.header.computes:
            raise WrongDevice(f"{path}: made by the null device; make it again on a real device: {zeros}")
        raise DeviceNotFound(f"GPUTUNE_DEVICE chooses {executor.device.platform!r}, which computes nothing: {zeros}")
    for reason in executor.warnings:
        warnings.warn(f"{path}: {reason}", stacklevel=2)
    return executor


def open_executor(
    path: Path | str,
    device: str | None,
    cache_compatibility_mode: Compatibility,
    graph: str | None,
    perf_profile: PerfProfile | str | None = None,
) -> Executor:
    """As load, for a caller that reads `warnings` and `computes` itself: any device will do."""
    strict = is_strict(cache_compatibility_mode)
    file, chosen = open_graph(path, graph)
    with file:
        start = time.perf_counter_ns()
        backend = open_device_for(file, device)
        device_open_ns = time.perf_counter_ns() - start
        if perf_profile is None:
            return executor_on(backend, file, chosen.name, strict, device_open_ns)
        power = Power(perf_profile, backend.identity)
        try:
            with power.phase("init"):
                executor = executor_on(backend, file, chosen.name, strict, device_open_ns)
        except BaseException:
            power.close()
            raise
        executor.power = power
        return executor


def is_strict(mode: Compatibility) -> bool:
    """Whether a context must be made for the very device. Raises ValueError for a mode that there is not."""
    if mode not in ("permissive", "strict"):
        raise ValueError(f"cache_compatibility_mode is {mode!r}, expected 'permissive' or 'strict'")
    return mode == "strict"


def open_device_for(file: ContextFile, device: str | None) -> Backend:
    """The device of a context, or that which is asked for; as load() does."""
    wanted = wanted_device(device)
    if not file.header.computes and wanted is not None and wanted not in NULL_REPORTS:
        raise WrongDevice(f"{file.path}: {_made_by_null(repr(wanted))}")
    return _open(file.header, wanted)


def open_graph(path: Path | str, graph: str | None) -> tuple[ContextFile, GraphRecord]:
    """Opens a context binary that is going to run, or the one for which an EPContext node of an ONNX file stands, and
    finds a graph in it; None is the first, of an ONNX file that of its first main node. The caller closes the file.

    Raises as open_context and ep_contexts do; UntrustedFile; ValueError for an unknown graph.
    """
    check_trusted(path)
    if is_ep_context(path):
        node = ep_context_named(path, graph)
        graph = graph or node.name or None
        if isinstance(node.content, Path):
            check_trusted(node.content)
        file = node.open()
    else:
        file = open_context(path)
    try:
        return file, graph_named(file, graph)
    except ValueError:
        file.close()
        raise


def check_trusted(path: Path | str) -> None:
    """Raises UntrustedFile for a file that another user could change."""
    if why := untrusted(path):
        raise UntrustedFile(f"{path} {why}: a context runs as a program of yours")


def executor_on(
    backend: Backend,
    file: ContextFile,
    graph: str | None,
    strict: bool,
    device_open_ns: int = 0,
    shared: SharedParts | None = None,
) -> Executor:
    """A graph of a context (None: the first) on an open device. On another device or driver version than the
    context was made for, programs are built from source, which the executor's warnings say, unless `strict`. shared:
    what it has in common with other executors on the device.

    Raises ContextError subclasses (WrongDevice when this device cannot run it), BuildFailed, ValueError for an
    unknown graph.
    """
    chosen = graph_named(file, graph)
    verdict, reason = verdict_on(file.header, [chosen], backend.identity, backend.computes)
    if verdict is ContextVerdict.UNSUPPORTED:
        raise WrongDevice(f"{file.path}: {reason}")
    recompiles = verdict is ContextVerdict.PREFER_RECOMPILATION and backend.computes
    if recompiles and strict:
        raise WrongDevice(f"{file.path}: made for another device: {reason}")
    executor = Executor(backend, file, chosen, verdict is ContextVerdict.OPTIMAL, strict, device_open_ns, shared)
    if recompiles:
        executor.warnings.insert(0, f"building from source on another device: {reason}")
    return executor


def verdict_on(
    header: ContextHeader, graphs: Iterable[GraphRecord], device: DeviceIdentity, computes: bool
) -> tuple[ContextVerdict, str]:
    """How these graphs of a context fit a device, and the reason, which is empty where they fit best.

    computes: whether the device does; one that does not stands in for any other. A driver may still refuse what this
    supports: nothing says in advance what its compiler makes of a kernel.
    """
    if computes and not header.computes:
        return ContextVerdict.UNSUPPORTED, _made_by_null(device.name)
    for graph in graphs:
        try:
            _check_limits(header, graph, device)
        except DeviceError as error:
            return ContextVerdict.UNSUPPORTED, f"{device.name} cannot run graph {graph.name!r}: {error}"
    if device.runs_binaries_of(header.device) or not header.computes:
        return ContextVerdict.OPTIMAL, ""
    return ContextVerdict.PREFER_RECOMPILATION, device.difference(header.device)


def _made_by_null(device: str) -> str:
    """Why a context of the null device cannot run on another one."""
    return (
        f"made by the null device: it holds no rearranged weights and cannot run on {device}; "
        "make it again on a real device, or ask for the device 'null'"
    )


def _check_limits(header: ContextHeader, graph: GraphRecord, device: DeviceIdentity) -> None:
    """Raises LimitExceeded for what the device's limits alone rule out."""
    for launch in graph.launches:
        check_sizes(launch.global_size, launch.local_size, device)
    refs = {ref for launch in graph.launches for ref in launch.refs}
    weights = {header.weights[ref.index] for ref in refs if ref.kind == "weights"}
    tensors = [tensor.nbytes for tensor in (*graph.inputs, *graph.outputs)]
    largest = max([*tensors, *graph.arena_bytes, *(header.sections[index].length for index in weights)], default=0)
    if largest > (limit := device.max_allocation_bytes):
        raise LimitExceeded(f"a buffer of {largest} bytes, the device's largest allocation is {limit}")
    alignment = device.base_address_alignment_bytes
    offset = next((ref.offset for ref in refs if ref.offset % alignment), None)
    if offset is not None:
        raise LimitExceeded(f"a buffer part at offset {offset}, the device aligns parts to {alignment} bytes")


def graph_named(file: ContextFile, name: str | None) -> GraphRecord:
    """The graph of this name; None is the first. Raises ValueError when there is none."""
    graphs = file.header.graphs
    for graph in graphs:
        if name is None or graph.name == name:
            return graph
    raise ValueError(f"{file.path}: there is no graph {name!r}; the graphs are {[graph.name for graph in graphs]}")


def _open(header: ContextHeader, wanted: str | None) -> Backend:
    """Opens the device: null for a null context, the recorded device when it is there and fits `wanted`, else
    a choice among all."""
    if not header.computes or wanted in NULL_REPORTS:
        return open_backend(NULL_REPORTS.get(wanted or header.device.platform, NULL_REPORT))
    recorded = _recorded(header.device)
    # a number belongs to the list that discovery makes
    if recorded is not None and (wanted is None or (not wanted.isdecimal() and matches(recorded, wanted))):
        try:
            return open_backend(recorded, profiling=False)
        except DeviceNotFound:
            return _open_among_visible(recorded, wanted)
    return open_backend(choose(discover(), wanted).report, profiling=False)


def _recorded(made_for: DeviceIdentity) -> DeviceReport | None:
    """A report for the recorded device if its driver is installed here."""
    files = {file.name: str(file.absolute()) for file in driver_files()} or {"": ""}
    if made_for.driver not in files:
        return None
    return DeviceReport(0, made_for, files[made_for.driver], usable=True, reason="")


def _open_among_visible(recorded: DeviceReport, wanted: str | None) -> Backend:
    """The recorded driver is open in this process, but has no such device: the best of its other devices."""
    reports = [report for report in discover() if report.driver_file == recorded.driver_file]
    return open_backend(choose(reports, wanted).report, profiling=False)
