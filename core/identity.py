"""Describe a device: which it is and what it allows; stored in contexts and caches, and sent to the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from gputune.core.bounds import Amount, CText, Stored, Within, in_files
from gputune.core.decoder import record_of
from gputune.core.tier import Tier, tier_of

DeviceType = Annotated[str, Stored(Literal["cpu", "gpu", "accelerator"], str)]


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError(f"{value} is not a power of two")
    return value


Alignment = Annotated[int, Stored(Annotated[int, Within(1, 2**63 - 1)], _power_of_two)]


@in_files(closed=True)
@dataclass(frozen=True)
class DeviceIdentity:
    """Hold what a driver says of its device. Sizes are in bytes; `driver` is the name of the driver's .icd file,
    empty where drivers are found in another way."""

    platform: CText
    platform_version: CText
    name: CText
    vendor: CText
    driver_version: CText
    device_version: CText
    device_type: DeviceType
    compute_units: Amount
    max_work_group_size: Amount
    max_work_item_sizes: tuple[Amount, Amount, Amount]
    local_memory_bytes: Amount
    global_memory_bytes: Amount
    max_allocation_bytes: Amount
    base_address_alignment_bytes: Alignment
    preferred_float_width: Amount
    extensions: tuple[CText, ...] = ()
    driver: CText = ""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict of str, int and lists of them, as from_dict takes it."""
        fields = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> DeviceIdentity:
        """Return the identity that to_dict wrote. Raises ValueError that names the field which is missing or
        wrong."""
        return record_of(cls, fields, "device identity", ValueError)

    @property
    def tier(self) -> Tier:
        """Return its tier."""
        return tier_of(self.name, self.compute_units, self.vendor, self.device_version)

    def runs_binaries_of(self, other: DeviceIdentity) -> bool:
        """Return whether a program binary that `other` made can be expected to run here unchanged."""
        return not self.difference(other)

    def difference(self, other: DeviceIdentity) -> str:
        """Return the fields that make runs_binaries_of false, as "field: mine, not theirs"."""
        names = ("platform", "platform_version", "name", "driver_version", "device_version", "compute_units")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return "; ".join(f"{name} is {mine!r}, not {theirs!r}" for name, mine, theirs in pairs if mine != theirs)
