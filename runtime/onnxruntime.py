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
from pathlib import Path
from typing import Any

from gputune.core.ownership import untrusted
from gputune.core.quirks import DRIVERS, unset_defaults
from gputune.runtime.devices.drivers import opencl_library
from gputune.runtime.devices.scratch import scratch_environment
from gputune.runtime.native.building import NotBuilt, native_part

LIBRARY = "GPUTUNE_ONNXRUNTIME_LIBRARY"
"""The environment variable that names a library that was built before, such as for a machine without a compiler."""
OLDEST = (1, 23)
_NAME = "GputuneExecutionProvider"
_INSTALL = f"install it by: pip install 'onnxruntime>={'.'.join(map(str, OLDEST))}'"
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
        _prepare_drivers()
        try:
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


def _prepare_drivers() -> None:
    """Set what the library reads when it opens a device, as Python's runtime does for its own device: the same OpenCL
    loader, and defaults of drivers. Variables that are set stay as they are."""
    os.environ.update(unset_defaults(os.environ))
    for compiled in filter(None, (row.compiled for row in DRIVERS)):
        os.environ.update(scratch_environment(compiled, None))
    os.environ.update({name: value for name, value in opencl_library().items() if name not in os.environ})
