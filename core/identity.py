"""Describe a device: which it is and what it allows; stored in contexts and caches, and sent to the host."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEVICE_TYPES = ("cpu", "gpu", "accelerator")


@dataclass(frozen=True)
class DeviceIdentity:
    """A device as its driver describes it. Sizes are in bytes; `driver` is the name of the driver's .icd
    file, empty where drivers are found in another way."""

    platform: str
    platform_version: str
    name: str
    vendor: str
    driver_version: str
    device_version: str
    device_type: str
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, int, int]
    local_memory_bytes: int
    global_memory_bytes: int
    max_allocation_bytes: int
    base_address_alignment_bytes: int
    preferred_float_width: int
    extensions: tuple[str, ...] = ()
    driver: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A dict of str, int and lists of them, as from_dict takes it."""
        fields = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> DeviceIdentity:
        """The identity that to_dict wrote. Raises ValueError that names the field which is missing or
        wrong."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(set(fields) ^ known, key=str):
            raise ValueError(f"device identity: field {name!r} is {'unknown' if name in fields else 'missing'}")
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = fields[field.name]
            if field.type == "str":
                good = is_text(value)
            elif field.type == "int":
                good = is_count(value)
            elif field.type == "tuple[str, ...]":
                good = isinstance(value, list | tuple) and all(map(is_text, value))
            else:
                good = isinstance(value, list | tuple) and len(value) == 3 and all(map(is_count, value))
            if not good:
                raise ValueError(
                    f"device identity: field {field.name!r} is {reprlib.repr(value)[:80]}, expected {field.type}"
                )
            values[field.name] = tuple(value) if isinstance(value, list) else value
        if values["device_type"] not in DEVICE_TYPES:
            raise ValueError(f"device identity: device_type is {values['device_type']!r}, expected {DEVICE_TYPES}")
        alignment = values["base_address_alignment_bytes"]
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"device identity: base_address_alignment_bytes is {alignment}, not a power of two")
        return cls(**values)

    def runs_binaries_of(self, other: DeviceIdentity) -> bool:
        """Whether a program binary that `other` made can be expected to run here unchanged."""
        names = ("platform", "platform_version", "name", "driver_version", "device_version", "compute_units")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def difference(self, other: DeviceIdentity) -> str:
        """The fields that make runs_binaries_of false, as "field: mine, not theirs"."""
        names = ("platform", "platform_version", "name", "driver_version", "device_version", "compute_units")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return "; ".join(f"{name} is {mine!r}, not {theirs!r}" for name, mine, theirs in pairs if mine != theirs)


def is_text(value: object) -> bool:
    """Whether a value read from outside is a text that programs in C can hold: none has a character 0."""
    return isinstance(value, str) and "\0" not in value


def is_count(value: object) -> bool:
    """Whether a value read from outside is an integer from 0 to 2^63-1 (and not a bool)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
