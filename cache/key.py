"""Define what a measurement belongs to (TaskKey) and what must be equal for it to count (Validity).

Validity holds everything that can change the time or the result of a kernel, and nothing that varies between processes
of one machine. Each field is one reason to measure again, and says which. docs/cache.md has the table, with the values
that were left out on purpose: memory sizes, clocks, load, which processors are used.

If you add, remove or change a field, digests change: raise KEY_VERSION. A golden test pins the digests, and a generated
test shows that each field matters.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from gputune.core.json_text import canonical_json, plain

KEY_VERSION = 1


def _digest(kind: str, values: Mapping[str, Any]) -> str:
    text = canonical_json({"key_version": KEY_VERSION, kind: values})
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class _Key:
    """Share digest, hash and checks between the two halves of a key."""

    def to_dict(self) -> dict[str, Any]:
        """Return field name -> plain JSON value."""
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    @cached_property
    def digest(self) -> str:
        """Return 64 hexadecimal digits: SHA-256 of the canonical JSON of KEY_VERSION, kind of key and all fields."""
        return _digest(type(self).__name__, self.to_dict())

    def _require(self, kind: type, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if type(value) is not kind:
                raise TypeError(f"{type(self).__name__}.{name} is {value!r}, not {kind.__name__}")

    def _freeze(self, name: str) -> None:
        """Replace a mapping by its plain copy, so that later changes to the caller's do not reach the key."""
        value = getattr(self, name)
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(self).__name__}.{name} is {value!r}, not a mapping")
        object.__setattr__(self, name, plain(value, f"{type(self).__name__}.{name}"))


@dataclass(frozen=True)
class TaskKey(_Key):
    """Identify what is computed. Raises TypeError or ValueError for values that have no canonical JSON."""

    op: str
    """The kernel family, such as "Conv", or "Conv@fast 1.2" where it is of version 1.2 of the op package fast: another
    family computes something else, or has other configurations."""
    problem: Mapping[str, Any]
    """Sizes, attributes and epilogue, as plain JSON values: another problem has another winner."""
    dtype: str = "float32"
    """Element type of the data on the device: half the bytes, other vector widths, other tolerances."""
    layout: str = ""
    """Order of the activations on the device, such as "NHWC"; empty where the op has none."""

    def __post_init__(self) -> None:
        self._require(str, "op", "dtype", "layout")
        self._freeze("problem")

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True)
class Validity(_Key):
    """Identify where and how it was measured. Raises TypeError or ValueError as TaskKey does."""

    device_name: str
    """The device as OpenCL names it: times of another model are not ours."""
    platform: str
    """The OpenCL implementation, such as "Portable Computing Language": another compiler, another winner."""
    driver_version: str
    """A driver update brings another compiler and scheduler."""
    compute_units: int
    """The same model with fewer cores enabled runs other work-group counts best."""
    source_sha256: str
    """The kernel templates: after an edit the old times describe code that no longer exists. Of the default that a
    device with room for everything would have."""
    space_sha256: str
    """Parameters and constraints: after an edit a winner may be illegal, or no longer the best. Device limits are not
    in it: whether a winner fits is asked anew each time."""
    measuring_version: int
    """The measuring protocol (warm-up, sample length, ranking): times of two protocols do not compare."""
    vendor: str = ""
    """The device's vendor: some names, such as a bare "Iris", are used by more than one."""
    platform_version: str = ""
    """Names the compiler on some implementations (PoCL: the LLVM it generates code with)."""
    device_version: str = ""
    """The OpenCL version of the device; on Adreno the only place that names the model."""
    device_type: str = ""
    """"cpu", "gpu" or "accelerator"."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that change code or time, such as POCL_AFFINITY=1, by name."""

    def __post_init__(self) -> None:
        texts = ("device_name", "platform", "driver_version", "source_sha256", "space_sha256")
        self._require(str, *texts, "vendor", "platform_version", "device_version", "device_type")
        self._require(int, "compute_units", "measuring_version")
        self._freeze("settings")
        for name, value in self.settings.items():
            if not isinstance(value, str):
                raise TypeError(f"Validity.settings.{name} is {value!r}, not str")

    def __hash__(self) -> int:
        return hash(self.digest)
