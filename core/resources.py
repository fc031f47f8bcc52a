"""Record what compiled kernels take of a device, as trials keep it.

A trial has a record for each kernel of its main launch, in the order in which they run; the last is the launch's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gputune.core.bounds import Bytes, Count
from gputune.core.decoder import DecodeError, decode

RESOURCES = "resources"
"""The name under which `measured` of a trial has them."""


@dataclass(frozen=True)
class Resources:
    """Say what a kernel takes; None where the driver does not say it.

    registers: of a work-item; spilled_bytes: of registers that went to memory because there were too few, as the driver
    counts them; private_bytes: memory of a work-item, with what was spilled; local_bytes: memory of a work-group.
    """

    registers: Count | None = None
    spilled_bytes: Bytes | None = None
    private_bytes: Bytes | None = None
    local_bytes: Bytes | None = None

    @property
    def known(self) -> dict[str, int]:
        """Return what the driver says, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, other: Resources) -> Resources:
        """Return what either says, and what this one says where both do."""
        return Resources(**{**other.known, **self.known})


UNKNOWN = Resources()


def measured_of(kernels: Iterable[Resources]) -> dict[str, Any]:
    """Return the part of a trial's `measured` that says what its kernels take; empty if nothing is known."""
    plain = [kernel.known for kernel in kernels]
    return {RESOURCES: plain} if any(plain) else {}


def resources_in(measured: Mapping[str, Any]) -> tuple[Resources, ...]:
    """Return what `measured` of a trial says of its kernels, which may come from a disk; empty if that makes no
    sense."""
    plain = measured.get(RESOURCES)
    if not isinstance(plain, list | tuple):
        return ()
    try:
        return tuple(decode(Resources, kernel, ignore_unknown=True) for kernel in plain)
    except DecodeError:
        return ()
