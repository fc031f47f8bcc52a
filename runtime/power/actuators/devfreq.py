"""Control GPUs and memory under the kernel's devfreq framework, Mali among them.

Source: docs.kernel.org, ABI sysfs-class-devfreq. Frequencies are in Hz.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from gputune.runtime.power.actuators.base import Access, Kind, numbers_of
from gputune.runtime.power.actuators.controls import CLOCKS, Control, Domain, FileActuator, Range, governor, scale_of

_GPUS = re.compile(r"gpu|mali|bifrost|midgard|panfrost|panthor|adreno|kgsl|g3d|powervr|pvr", re.IGNORECASE)
_MEMORY = re.compile(r"dmc|ddr|mem|mif|emi|noc|bimc|(?:^|[-_.:])bus|bw(?:mon)?(?:$|[-_.:0-9])", re.IGNORECASE)


def find(access: Access) -> list[FileActuator]:
    """Return all GPUs and memories that the framework steers, kgsl's own GPU left out."""
    controls: list[Control] = []
    honours: set[str] = set()
    for folder in access.found("sys/class/devfreq/*"):
        domain = domain_of(folder.name)
        if domain is None or "kgsl-3d0" in folder.name:
            continue
        found = list(_controls(folder, domain))
        controls += found
        honours |= ({"bus"} if domain == "bus" else set(CLOCKS)) if found else set()
    return [FileActuator("devfreq", access, controls, frozenset(honours))] if controls else []


def domain_of(name: str) -> Domain | None:
    """Return what a device of the framework is, by its name: `13000000.mali`, `soc:qcom,gpubw`, `dmc`; None for another
    kind of device."""
    if _MEMORY.search(name):
        return "bus"
    return "core" if _GPUS.search(name) else None


def _controls(folder: Path, domain: Domain) -> Iterable[Control]:
    """Yield the governor and the range of one device; nothing where it does not list its frequencies."""
    scale = scale_of(numbers_of(folder / "available_frequencies"))
    if scale is None or not (folder / "min_freq").exists():
        return
    if (switch := governor(folder, "governor", domain)) is not None:
        yield switch
    yield Range(folder.name, domain, folder / "min_freq", folder / "max_freq", scale, folder / "cur_freq")


KIND = Kind("devfreq", find)
