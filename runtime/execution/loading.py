"""Load a context in an application: find the device for which it was made, or a substitute, and open it.

Only one OpenCL driver may live in a process. When the context's driver is installed, it is opened directly. Discovery,
with a child process for each driver, runs only if that device is missing or another device is requested.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from gputune.core.errors import DeviceNotFound, UnknownGraph, UntrustedFile, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.core.ownership import untrusted
from gputune.core.statuses import ContextVerdict
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context.ep_context import ep_context_named, is_ep_context
from gputune.runtime.context.format import ContextFile, open_context
from gputune.runtime.context.package import Package, PackageEntry, is_package, open_package
from gputune.runtime.context.records import ContextHeader, GraphRecord
from gputune.runtime.contexts.device import NativeDevice, OpenDevice, beside, open_report
from gputune.runtime.contexts.executor import NativeExecutor
from gputune.runtime.devices.discovery import (
    NULL_REPORT,
    NULL_REPORTS,
    OPENCL,
    SIMULATED,
    DeviceReport,
    choose,
    discover,
    matches,
    wanted_device,
)
from gputune.runtime.devices.drivers import driver_files
from gputune.runtime.execution.executor import PythonExecutor
from gputune.runtime.execution.verdict import lacking_features, made_by_null, open_chosen, verdict_on
from gputune.runtime.executor import Executor
from gputune.runtime.power.instances import Power
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.sharing import SharedParts
from gputune.runtime.simulated import SimulatedExecutor

Compatibility = Literal["permissive", "strict"]
RUNTIME = "GPUTUNE_RUNTIME"
"""The environment variable that says which runtime runs contexts on OpenCL devices: "python", the default, or "c"."""


def load(
    path: Path | str,
    device: str | None = None,
    cache_compatibility_mode: Compatibility = "permissive",
    graph: str | None = None,
    perf_profile: PerfProfile | str | None = None,
) -> Executor:
    """Load a context binary and open its device.

    The file may also be an ONNX file (.onnx) with EPContext nodes, or a package. From a package, the context that fits
    best is loaded; `choice` of the executor says which and why. On another device or driver version, the programs are
    built from source with a warning, unless cache_compatibility_mode is "strict". A context of the null device runs on
    no other device, because nothing has rearranged its weights.

    A device that computes nothing gives zeros that look like results. It must therefore be named in this call: neither
    the environment nor the context can choose it.

    Args:
        path: the file.
        device: a number or part of a name from `gputune devices`, "null" or "waiting"; by default GPUTUNE_DEVICE, else
            the device for which the context was made, else the best device. For a package, a device for which one of
            its contexts was made, if there is any.
        cache_compatibility_mode: "permissive", or "strict" to refuse another device or driver version.
        graph: a name; by default the first graph.
        perf_profile: a profile or the name of a preset: the clocks and power to vote for while the context is loaded,
            around inferences and when it is closed. By default no vote is made.

    Raises:
        ContextError: its subclasses, such as WrongDevice in strict mode and for a context of the null device, or
            UntrustedFile for a file that another user could change (see ownership.py).
        DeviceNotFound: no usable device matches.
        BuildFailed: the driver refuses the source.
        ValueError: the graph, mode or perf profile is unknown.
        OSError: the file cannot be read.
        ForkedProcess: the process forked after it had opened a device.
    """
    executor = open_executor(path, device, cache_compatibility_mode, graph, perf_profile)
    refuse_zeros(path, executor, device)
    for reason in executor.warnings:
        warnings.warn(f"{path}: {reason}", stacklevel=2)
    return executor


def refuse_zeros(path: Path | str, executor: Executor, device: str | None) -> None:
    """Raise WrongDevice or DeviceNotFound if outputs are zeros that the call, which says `device`, did not request."""
    if executor.computes or device:
        return
    zeros = 'its outputs are zeros, not results; device="null" in the call to load() asks for that'
    if not executor.header.computes:
        raise WrongDevice(f"{path}: made by the null device; make it again on a real device: {zeros}")
    raise DeviceNotFound(f"GPUTUNE_DEVICE chooses {executor.device.platform!r}, which computes nothing: {zeros}")


def open_executor(
    path: Path | str,
    device: str | None,
    cache_compatibility_mode: Compatibility,
    graph: str | None,
    perf_profile: PerfProfile | str | None = None,
) -> Executor:
    """Load as load does, for a caller that reads `warnings` and `computes` itself: any device is accepted."""
    strict = is_strict(cache_compatibility_mode)
    if is_package(path):
        check_trusted(path)
        with open_package(path) as package:
            backend, device_open_ns = open_timed(package, device)
            file = open_chosen(package, backend.identity, backend.computes, graph)
        with file:
            return _voted(backend, file, graph, strict, device_open_ns, perf_profile)
    file, chosen = open_graph(path, graph)
    with file:
        backend, device_open_ns = open_timed(file, device)
        return _voted(backend, file, chosen.name, strict, device_open_ns, perf_profile)


def runs_in_c() -> bool:
    """Return whether contexts on OpenCL devices run by the C runtime. Raises ValueError for an unknown runtime."""
    named = os.environ.get(RUNTIME) or "python"
    if named not in ("python", "c"):
        raise ValueError(f"{RUNTIME} is {named!r}, expected 'python' or 'c'")
    return named == "c"


def _voted(
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


def is_strict(mode: Compatibility) -> bool:
    """Return whether a context must be made for exactly this device. Raises ValueError for an unknown mode."""
    if mode not in ("permissive", "strict"):
        raise ValueError(f"cache_compatibility_mode is {mode!r}, expected 'permissive' or 'strict'")
    return mode == "strict"


def open_device_for(file: ContextFile | Package, device: str | None) -> OpenDevice:
    """Return the device of a context, or of one of a package, or that which is asked for; as load() does."""
    wanted = wanted_device(device)
    made: Sequence[ContextHeader | PackageEntry] = file.contexts if isinstance(file, Package) else [file.header]
    devices = [each.device for each in made if each.computes]
    if not devices and wanted is not None and wanted not in NULL_REPORTS:
        raise WrongDevice(f"{file.path}: {made_by_null(repr(wanted))}")
    if not devices or wanted in NULL_REPORTS:
        return open_backend(NULL_REPORTS.get(wanted or made[0].device.platform, NULL_REPORT))
    return _open(devices, wanted)


def open_timed(file: ContextFile | Package, device: str | None) -> tuple[OpenDevice, int]:
    """Return the same with the ns that it took."""
    start = time.perf_counter_ns()
    backend = open_device_for(file, device)
    return backend, time.perf_counter_ns() - start


def open_graph(
    path: Path | str, graph: str | None, device: DeviceIdentity | None = None
) -> tuple[ContextFile, GraphRecord]:
    """Open a context binary that is going to run, or the one for which an EPContext node of an ONNX file stands. Find a
    graph in it; None is the first, of an ONNX file that of its first main node. device: on which it is going to run;
    only with one a package may stand for the context of it that fits best. The caller closes the file.

    Raises as open_context and ep_contexts do; UntrustedFile; ValueError for an unknown graph.
    """
    check_trusted(path)
    if is_ep_context(path):
        node = ep_context_named(path, graph)
        graph = graph or node.name or None
        if isinstance(node.content, Path):
            check_trusted(node.content)
        file = node.open()
    elif device is not None and is_package(path):
        with open_package(path) as package:
            file = open_chosen(package, device, device.platform not in SIMULATED, graph)
    else:
        file = open_context(path)
    try:
        return file, graph_named(file, graph)
    except ValueError:
        file.close()
        raise


def check_trusted(path: Path | str) -> None:
    """Raise UntrustedFile for a file that another user could change."""
    if why := untrusted(path):
        raise UntrustedFile(f"{path} {why}: a context runs as a program of yours")


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
    assert isinstance(backend, Backend)
    verdict, reason = verdict_on(file.header, [chosen], backend.identity, backend.computes)
    if verdict is ContextVerdict.UNSUPPORTED:
        raise WrongDevice(f"{file.path}: {reason}")
    if lacking := lacking_features(file.header, chosen, backend):
        name = backend.identity.name
        raise WrongDevice(f"{file.path}: graph {chosen.name!r} needs features that {name} does not prove: {lacking}")
    recompiles = verdict is ContextVerdict.PREFER_RECOMPILATION and backend.computes
    if recompiles and strict:
        raise WrongDevice(f"{file.path}: made for another device: {reason}")
    executor = make_executor(backend, file, chosen, verdict is ContextVerdict.OPTIMAL, strict, device_open_ns, shared)
    if recompiles:
        executor.warnings.insert(0, f"building from source on another device: {reason}")
        if file.choice is not None:
            executor.warnings.insert(0, f"{file.choice}; make one for this device and add it: gputune package --add")
    return executor


def in_c(backend: OpenDevice) -> NativeDevice | None:
    """Return the device in the C runtime, in the same cl_context, if contexts on it run there. Raises DeviceError."""
    if isinstance(backend, NativeDevice):
        return backend
    return beside(backend) if backend.device_pointer and runs_in_c() else None


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
    if file.choice is not None and file.choice.verdict is ContextVerdict.PREFER_RECOMPILATION:
        executor.warnings.insert(0, f"{file.choice}; make one for this device and add it: gputune package --add")
    return executor


def make_executor(
    backend: Backend,
    file: ContextFile,
    graph: GraphRecord,
    binaries: bool,
    strict: bool,
    device_open_ns: int = 0,
    shared: SharedParts | None = None,
) -> Executor:
    """Return what runs a graph on an open device: from the context's binaries, or from source if `binaries` is False or
    (unless `strict`) the driver refuses one. Raises WrongDevice if the device cannot run it, BuildFailed,
    ContextError."""
    make = PythonExecutor if backend.computes else SimulatedExecutor
    return make(backend, file, graph, binaries, strict, device_open_ns, shared)


def graph_named(file: ContextFile, name: str | None) -> GraphRecord:
    """Return the graph of this name; None is the first. Raises UnknownGraph when there is none."""
    graphs = file.header.graphs
    for graph in graphs:
        if name is None or graph.name == name:
            return graph
    raise UnknownGraph(f"{file.path}: there is no graph {name!r}; the graphs are {[graph.name for graph in graphs]}")


def _open(made_for: Sequence[DeviceIdentity], wanted: str | None) -> OpenDevice:
    """Open the best of the recorded devices that is there and fits `wanted`, else a choice among all."""
    found = [report for report in map(recorded_report, made_for) if report is not None]
    # a number belongs to the list that discovery makes
    recorded = [one for one in found if wanted is None or (not wanted.isdecimal() and matches(one, wanted))]
    if not recorded:
        return _opened(choose(discover(), wanted).report)
    if len({report.driver_file for report in recorded}) > 1:  # which only their own processes can try
        reports = discover()
        devices = {(device.platform, device.name) for device in made_for}
        present = [one for one in reports if one.identity and (one.identity.platform, one.identity.name) in devices]
        usable = any(one.usable and (wanted is None or matches(one, wanted)) for one in present)
        return _opened(choose(present if usable else reports, wanted).report)
    for report in recorded:
        try:
            return _opened(report)
        except DeviceNotFound:
            continue
    return _open_among_visible(recorded[0], wanted)


def recorded_report(made_for: DeviceIdentity) -> DeviceReport | None:
    """Return a report for the recorded device, untested, if its driver is installed here."""
    files = {file.name: str(file.absolute()) for file in driver_files()} or {"": ""}
    if made_for.driver not in files:
        return None
    return DeviceReport(0, made_for, files[made_for.driver], usable=True, reason="")


def _open_among_visible(recorded: DeviceReport, wanted: str | None) -> OpenDevice:
    """Open the best of the other devices of the recorded driver, which is open in this process but has no such
    device."""
    reports = [report for report in discover() if report.driver_file == recorded.driver_file]
    return _opened(choose(reports, wanted).report)


def _opened(report: DeviceReport) -> OpenDevice:
    """Open a device in the runtime that runs contexts."""
    if report.backend == OPENCL and runs_in_c():
        return open_report(report)
    return open_backend(report, profiling=False)
