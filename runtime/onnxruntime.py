"""Make gputune an execution provider of onnxruntime: its sessions then run EPContext nodes on the OpenCL device.

    gputune.onnxruntime.register()
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(gputune.onnxruntime.devices(), {})
    session = onnxruntime.InferenceSession("model.onnx", options)

The provider is a library in C, native/onnxruntime/, which is built when it is first used.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gputune.core.errors import error_named
from gputune.core.ownership import untrusted
from gputune.core.quirks import DRIVERS, unset_defaults
from gputune.runtime.devices.drivers import opencl_library
from gputune.runtime.devices.scratch import scratch_environment
from gputune.runtime.devices.settings import variables
from gputune.runtime.native.building import NotBuilt, native_part

LIBRARY = "GPUTUNE_ONNXRUNTIME_LIBRARY"
"""The environment variable that names a library that was built before, such as for a machine without a compiler."""
OLDEST = (1, 23)
_NAME = "GputuneExecutionProvider"
_INSTALL = f"install it by: pip install 'onnxruntime>={'.'.join(map(str, OLDEST))}'"
_ERRORS_ONLY = 3
_OURS = re.compile(r"gputune: (\w+): (.*)", re.DOTALL)
"""A line of the library in an error of onnxruntime: the error's name, and what it says."""
_Result = TypeVar("_Result")
_turn = threading.Lock()


class PluginError(Exception):
    """Report that onnxruntime cannot use gputune; the message says why and what to do, in a line."""


def ep_name() -> str:
    """Return the name of the execution provider."""
    return _NAME


def library_path() -> Path:
    """Return the library for onnxruntime's `register_execution_provider_library`; build it if it is not there yet.
    Raises PluginError."""
    try:
        if not (named := os.environ.get(LIBRARY)):
            return native_part("onnxruntime")
        library = Path(named).resolve(strict=True)
        why = untrusted(library)
    except NotBuilt as error:
        raise PluginError(
            f"the library for onnxruntime cannot be built: {error}; or name a library that was built elsewhere by "
            f"{LIBRARY}"
        ) from None
    except OSError as error:
        raise PluginError(f"{LIBRARY}: {named} cannot be used: {error.strerror}") from None
    if why:
        raise PluginError(f"{LIBRARY}: {library} {why}")
    return library


def register() -> None:
    """Let onnxruntime use gputune in this process. Calling this again does nothing. Raises PluginError."""
    onnxruntime = _onnxruntime()
    with _turn:
        if _devices(onnxruntime):
            return
        library = library_path()
        os.environ.update({name: value for name, value in opencl_library().items() if name not in os.environ})
        try:
            with variables(_for_drivers()):
                onnxruntime.register_execution_provider_library(_NAME, str(library))
        except Exception as error:  # onnxruntime's errors have no class of their own
            raise PluginError(f"onnxruntime cannot load {library}: {' '.join(str(error).split())}") from error
        if not _devices(onnxruntime):
            onnxruntime.unregister_execution_provider_library(_NAME)
            raise PluginError("gputune finds no OpenCL device for onnxruntime; `gputune doctor` checks the drivers")


def devices() -> list[Any]:
    """Return gputune's devices as onnxruntime's `OrtEpDevice`, for `SessionOptions.add_provider_for_devices`; none
    before `register`. Raises PluginError."""
    return _devices(_onnxruntime())


EXACT_PRODUCTS: Mapping[str, str] = {"session.x64quantprecision": "1"}
"""The entry of onnxruntime's configuration with which products of bytes are exact: their sums saturate without it on
x86 processors without VNNI."""


def open_session(model: Path, options: Mapping[str, str], spins: bool) -> Any:
    """Return a session of onnxruntime that runs the EPContext nodes of a model on gputune's device, and all others on
    the CPU, after `register`.

    options: the provider's. spins: whether the CPU's threads wait for work by spinning, which is fastest unless the
    device is the same CPU. Raises as asked does.
    """
    onnxruntime = _onnxruntime()
    wanted = onnxruntime.SessionOptions()
    wanted.log_severity_level = _ERRORS_ONLY  # else it warns of each node that runs on the CPU
    wanted.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    wanted.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for name, value in EXACT_PRODUCTS.items():
        wanted.add_session_config_entry(name, value)
    wanted.add_provider_for_devices(_devices(onnxruntime), dict(options))
    return asked(model, lambda: onnxruntime.InferenceSession(str(model), wanted))


def run_options(entries: Mapping[str, str]) -> Any:
    """Return the options of a single inference."""
    options = _onnxruntime().RunOptions()
    options.log_severity_level = _ERRORS_ONLY
    for name, value in entries.items():
        options.add_run_config_entry(name, value)
    return options


def asked(model: Path, work: Callable[[], _Result]) -> _Result:
    """Return what a session of a model returns. Raises what it raises as an error of gputune's: ContextError,
    DeviceNotFound, DeviceError, OSError, ValueError; PluginError for what onnxruntime itself refuses."""
    try:
        return work()
    except Exception as error:  # onnxruntime's errors have no class of their own
        line = " ".join(str(error).split())
        if (ours := _OURS.search(line)) is None:
            raise PluginError(f"{model}: onnxruntime cannot run it: {line}") from error
        name, said = ours.groups()
        raise error_named(name)(f"{model}: {said}") from None


def _devices(onnxruntime: Any) -> list[Any]:
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == _NAME]


def _onnxruntime() -> Any:
    """Return the package onnxruntime. Raises PluginError."""
    try:
        import onnxruntime
    except ImportError as error:
        raise PluginError(f"onnxruntime is missing ({error}); {_INSTALL}") from None
    version = str(onnxruntime.__version__)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        raise PluginError(f"onnxruntime {version} is too old for plugins; {_INSTALL}")
    return onnxruntime


def _for_drivers() -> dict[str, str]:
    """Return the variables that drivers read at their first call, as Python sets them for its own device.
    Variables that are set stay as they are, and processes that this process starts later see none of these."""
    found = unset_defaults(os.environ)
    with variables(found):
        for compiled in filter(None, (row.compiled for row in DRIVERS)):
            found |= scratch_environment(compiled, None)
    return found
