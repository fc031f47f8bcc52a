"""Load a graph of a file in an application."""

from __future__ import annotations

import warnings
from pathlib import Path

from gputune.core.errors import DeviceNotFound, WrongDevice
from gputune.runtime.executor import Executor
from gputune.runtime.loading.checks import Compatibility
from gputune.runtime.loading.model import open_any
from gputune.runtime.power.profiles.perf_profile import PerfProfile


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
    executor = open_any(path).executor(device, cache_compatibility_mode, graph, perf_profile)
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
