"""Control NVIDIA GPUs through NVML, if its Python binding (nvidia-ml-py) is installed; nothing requires it.

Source: docs.nvidia.com/deploy/nvml-api, device commands. Clocks are in MHz and locked to a range, which requires root.
A lock outlives the process and cannot be read, so gputune returns to the driver's own choice of clocks. The memory
clock is locked only for a bus vote, because a lock below the top costs bandwidth.
"""

# ruff: noqa: N802  the names are NVML's

from __future__ import annotations

import errno
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from gputune.runtime.power.actuators.base import NO_CONTENTS, Access, Kind, Problem, Write, advice_for
from gputune.runtime.power.actuators.controls import CLOCKS, Domain, Scale, limits, scale_of
from gputune.runtime.power.records import Corner, Vote

DEFAULT = "default"
"""The value of a clock that is not locked."""

_MHZ = 1_000_000
_GRAPHICS, _MEMORY = 0, 2  # nvmlClockType_t
_ERRNOS = {2: "EINVAL", 3: "ENOTSUP", 4: "EPERM", 15: "ENODEV"}  # nvmlReturn_t


class Library(Protocol):
    """What is used of the binding; a call that fails raises its NVMLError, which has the code as `value`."""

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...
    def nvmlDeviceGetSupportedMemoryClocks(self, handle: object) -> Sequence[int]: ...
    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: object, memory_mhz: int) -> Sequence[int]: ...
    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int: ...
    def nvmlDeviceSetGpuLockedClocks(self, handle: object, least_mhz: int, most_mhz: int) -> None: ...
    def nvmlDeviceResetGpuLockedClocks(self, handle: object) -> None: ...
    def nvmlDeviceSetMemoryLockedClocks(self, handle: object, least_mhz: int, most_mhz: int) -> None: ...
    def nvmlDeviceResetMemoryLockedClocks(self, handle: object) -> None: ...


def find(access: Access) -> list[Nvml]:
    """Return an actuator for each GPU of this machine; none below another root, or without driver or binding."""
    if access.root != Path("/"):
        return []
    try:
        library = cast(Library, importlib.import_module("pynvml"))
    except ImportError:
        return []
    return found_by(library, access)


def found_by(library: Library, access: Access) -> list[Nvml]:
    """Return an actuator for each GPU that a library shows."""
    try:
        library.nvmlInit()
        return [Nvml(library, index, access) for index in range(library.nvmlDeviceGetCount())]
    except Exception as error:
        if not _is_of_nvml(error):
            raise
        return []


class Nvml:
    """Locks the clocks of one GPU. Its `paths` are names, absolute as those of files: NVML has no files."""

    name = "nvml"
    of_this_process = False
    at: Path | None = None

    def __init__(self, library: Library, index: int, access: Access) -> None:
        """Ask the GPU for its clocks. Raises the binding's error where it cannot be asked."""
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self._access = access
        memory = library.nvmlDeviceGetSupportedMemoryClocks(self._handle)
        graphics = library.nvmlDeviceGetSupportedGraphicsClocks(self._handle, max(memory, default=0))
        scales = {"core": scale_of(graphics, _MHZ), "bus": scale_of(memory, _MHZ)}
        self._scales: dict[Domain, Scale] = {d: found for d in _DOMAINS if (found := scales[d]) is not None}
        self._files = {Path(f"/nvml/{index}/{domain}_locked_clocks"): domain for domain in self._scales}
        self.paths = tuple(self._files)
        self.honours = CLOCKS | ({"bus"} if "bus" in self._scales else set())
        self._values = dict.fromkeys(self.paths, DEFAULT)

    def read(self) -> dict[str, str]:
        return {str(path): value for path, value in self._values.items()}

    def adopt(self, originals: Mapping[str, str]) -> None:
        """Nothing to keep: a clock without a vote is not locked."""

    def plan(self, vote: Vote, after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        now = {**self._values, **after}
        wanted = [Write(path, self._value(vote, domain)) for path, domain in self._files.items()]
        return [write for write in wanted if write.value != now[write.path]]

    def plan_back(self, originals: Mapping[str, str], after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        """Whatever is known here: another process may have locked a clock."""
        return [Write(path, DEFAULT) for path in self._files if str(path) in originals]

    def write(self, writes: Sequence[Write]) -> list[Problem]:
        problems = []
        for write in writes:
            try:
                self._lock(write)
            except Exception as error:
                if not _is_of_nvml(error) and not isinstance(error, OSError):
                    raise
                name = _error_name(error)
                problems.append(Problem(self.name, write.path, name, f"{advice_for(name, write)} ({error})"))
            else:
                self._values[write.path] = write.value
        return problems

    def requested(self, vote: Vote) -> dict[str, float]:
        ends = {domain: found for domain in self._scales if (found := self._ends(vote, domain)) is not None}
        low = {f"{domain}_min_hz": float(least) for domain, (least, _) in ends.items()}
        return low | {f"{domain}_max_hz": float(most) for domain, (_, most) in ends.items()}

    def effective(self) -> dict[str, float]:
        kinds = {domain: kind for domain, kind in (("core", _GRAPHICS), ("bus", _MEMORY)) if domain in self._scales}
        try:
            clocks = {
                domain: self._library.nvmlDeviceGetClockInfo(self._handle, kind) for domain, kind in kinds.items()
            }
        except Exception as error:
            if not _is_of_nvml(error):
                raise
            return {}
        return {f"{domain}_hz": float(mhz) * _MHZ for domain, mhz in clocks.items()}

    def close(self) -> None:
        """Leave a lock as it is: it is not this process's alone."""

    def _ends(self, vote: Vote, domain: Domain) -> tuple[int, int] | None:
        corners, scale = limits(vote, domain), self._scales[domain]
        if corners.least is corners.most is Corner.DISABLE:
            return None
        low = scale.at_least(corners.least)
        high = scale.nearest(corners.most) if corners.most is not Corner.DISABLE else scale.frequencies[-1]
        return low, max(low, high)

    def _value(self, vote: Vote, domain: Domain) -> str:
        ends = self._ends(vote, domain)
        return DEFAULT if ends is None else f"{ends[0] // _MHZ} {ends[1] // _MHZ}"

    def _lock(self, write: Write) -> None:
        """Lock clocks, or reset them. Raises the binding's error, or OSError of a hook."""
        if self._access.before_write is not None:
            self._access.before_write(write)
        core = self._files[write.path] == "core"
        if write.value == DEFAULT:
            name = "nvmlDeviceResetGpuLockedClocks" if core else "nvmlDeviceResetMemoryLockedClocks"
            getattr(self._library, name)(self._handle)
            return
        name = "nvmlDeviceSetGpuLockedClocks" if core else "nvmlDeviceSetMemoryLockedClocks"
        least, most = map(int, write.value.split())
        getattr(self._library, name)(self._handle, least, most)


_DOMAINS: tuple[Domain, ...] = ("core", "bus")


def _is_of_nvml(error: Exception) -> bool:
    """Return whether NVML says no; the binding's class can only be told by its name, because the binding is no
    dependency."""
    return any(kind.__name__ == "NVMLError" for kind in type(error).__mro__)


def _error_name(error: Exception) -> str:
    """Return the name of the errno that is nearest to an error."""
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or 0, "EIO")
    return _ERRNOS.get(getattr(error, "value", 0), "EIO")


KIND = Kind("nvml", find, gpus="nvidia")
