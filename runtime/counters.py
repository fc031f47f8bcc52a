"""Count what inferences cost in memory operations, tensor by tensor, to prove that nothing is copied needlessly."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class TensorCounters:
    """Count the memory operations of one input or output. bytes_copied: between the application's memory and the
    device's; writes, reads: copies into the device's memory and out of it, by any means; maps: pairs of map and unmap,
    which give memory to the host and back to the device; allocations: of device memory for the tensor; reason: why the
    last copy was made."""

    bytes_copied: int = 0
    writes: int = 0
    reads: int = 0
    maps: int = 0
    allocations: int = 0
    reason: str = ""

    def copied(self, nbytes: int, reason: str) -> None:
        """Count the bytes of a copy, and record its reason."""
        self.bytes_copied += nbytes
        self.reason = reason

    def add(self, other: TensorCounters) -> None:
        """Add what the other has counted."""
        self.bytes_copied += other.bytes_copied
        self.writes += other.writes
        self.reads += other.reads
        self.maps += other.maps
        self.allocations += other.allocations
        self.reason = other.reason or self.reason


@dataclass
class MemoryCounters:
    """Count the memory operations of a loaded graph, by tensor. load: what loading did; last: what the last inference
    did; total: what all `inferences` did."""

    load: dict[str, TensorCounters] = field(default_factory=dict)
    last: dict[str, TensorCounters] = field(default_factory=dict)
    total: dict[str, TensorCounters] = field(default_factory=dict)
    inferences: int = 0

    @classmethod
    def of(cls, names: Collection[str]) -> MemoryCounters:
        """Return counters of zero for these tensors."""
        load, last, total = ({name: TensorCounters() for name in names} for _ in range(3))
        return cls(load, last, total)

    def begin(self) -> None:
        """Begin an inference."""
        for name in self.last:
            self.last[name] = TensorCounters()

    def end(self) -> None:
        """End an inference, and add its counts to the total."""
        self.inferences += 1
        for name, counted in self.last.items():
            self.total[name].add(counted)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)
