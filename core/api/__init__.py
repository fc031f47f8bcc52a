"""Tune the OpenCL kernels of an ONNX model on the device that will run them.

    tuned = gputune.tune("model.onnx", shapes={"x": (1, 3, 224, 224)}, effort="quick")
    with gputune.load(tuned.path) as context:
        outputs = context.run(array)

Importing `gputune` loads nothing: each part is loaded when it is first used (PEP 562). The import therefore costs no
time in an application that needs only the runtime, and works on a device that has only core/, runtime/ and server/.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputune.client.api.checking import ModelCheck as ModelCheck
    from gputune.client.api.interface import check as check
    from gputune.client.api.interface import tune as tune
    from gputune.client.api.tuning import Gain as Gain
    from gputune.client.api.tuning import Tuned as Tuned
    from gputune.client.api.tuning import TuningProgress as TuningProgress
    from gputune.runtime import onnxruntime as onnxruntime
    from gputune.runtime.application.bench import Bench as Bench
    from gputune.runtime.application.context import Context as Context
    from gputune.runtime.application.context import load as load
    from gputune.runtime.application.states import State as State
    from gputune.runtime.devices.discovery import DeviceReport as DeviceReport
    from gputune.runtime.devices.discovery import discover as devices  # noqa: F401

_PLACES = {
    "Bench": ("runtime.application.bench", "Bench"),
    "Context": ("runtime.application.context", "Context"),
    "DeviceReport": ("runtime.devices.discovery", "DeviceReport"),
    "Gain": ("client.api.tuning", "Gain"),
    "ModelCheck": ("client.api.checking", "ModelCheck"),
    "State": ("runtime.application.states", "State"),
    "Tuned": ("client.api.tuning", "Tuned"),
    "TuningProgress": ("client.api.tuning", "TuningProgress"),
    "check": ("client.api.interface", "check"),
    "devices": ("runtime.devices.discovery", "discover"),
    "load": ("runtime.application.context", "load"),
    "onnxruntime": ("runtime.onnxruntime", ""),
    "tune": ("client.api.interface", "tune"),
}
"""Where each name is: a module below gputune, and its name there; "" for the module itself."""

__all__ = [*_PLACES, "__version__"]


def __getattr__(name: str) -> Any:
    """Load what is asked for first. `__version__` is that of the installation. Raises ImportError that says what to
    install where a name is of the host's part and that is not here; AttributeError for other names."""
    if name == "__version__":
        from importlib.metadata import version

        return version("gputune")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, inner = _PLACES[name]
    try:
        found = importlib.import_module(f"{__name__}.{module}")
        found = getattr(found, inner) if inner else found
    except ModuleNotFoundError as error:
        if not module.startswith("client."):
            raise
        raise ImportError(
            f"gputune.{name} needs all of gputune, and {error.name} is not installed here: run `pip install .` in a "
            "clone of gputune on the host that tunes; a device only needs gputune.load and gputune.devices"
        ) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
