"""Control clocks and power of a device, with a file for each kind of control; each takes the root of its files."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from gputune.runtime.power.actuators.base import Kind


@cache
def kinds() -> Mapping[str, Kind]:
    """Return all kinds of controls by name: every module of this folder that defines KIND."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {kind.name: kind for module in modules if (kind := getattr(module, "KIND", None)) is not None}
