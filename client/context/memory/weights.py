"""Collect the constants of a context, each once: as kernels read them, or as in the model with the graphs that pack
them.

A compact context holds the sources of packed constants, and packings: graphs that a device runs once when it loads the
context. Each packing makes a part of the packed constants, so that the device needs few sources at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gputune.client.errors import MemoryPlanError
from gputune.client.model.plan import Plan
from gputune.core.launches import Launch, Stage
from gputune.runtime.context.records import BufferRef, GraphRecord, LaunchRecord

LARGER = 1.3
"""Weights that take so many times the model's bytes are larger than they have to be."""
PART_BYTES = 64 << 20
"""Of what one packing makes, unless an operation needs more."""


def weight_bytes(plans: Iterable[Plan]) -> int:
    """Return the bytes of the constants of plans, each once."""
    arrays = {id(one): one for plan in plans for one in plan.constants.values()}.values()
    return sum({_content(one): int(one.nbytes) for one in arrays}.values())


def read_again(plan: Plan) -> Iterator[int]:
    """Yield for each operation the bytes of those constants that an operation before it reads, too."""
    contents = {id(one): _content(one) for one in plan.constants.values()}
    seen = set[bytes]()
    for operation in plan.operations:
        names = set(operation.inputs.values()) & plan.constants.keys()
        read = {contents[id(plan.constants[name])]: int(plan.constants[name].nbytes) for name in names}
        yield sum(nbytes for content, nbytes in read.items() if content in seen)
        seen |= read.keys()


def _content(array: Any) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()


class Weights:
    """Constant buffers laid one behind the other, aligned, in sections that the device can allocate. apart: each has a
    section of its own instead, so that launches take it as a whole."""

    def __init__(self, alignment: int, largest: int, apart: bool = False) -> None:
        self.alignment, self.largest, self.apart = alignment, largest, apart
        self._sections: list[bytearray] = []
        self._places: dict[bytes, BufferRef] = {}

    def add(self, content: Any, operation: str) -> BufferRef:
        """Return where the constant of an operation lies: where the same bytes lie already, if they do.

        Raises MemoryPlanError when no section can hold it."""
        digest = hashlib.sha256(content).digest()
        if digest not in self._places:
            self._places[digest] = self._append(content, operation)
        return self._places[digest]

    def place(self, digest: bytes) -> BufferRef | None:
        """Return where the constant with a digest lies, if it was added."""
        return self._places.get(digest)

    def aligned(self, offset: int) -> int:
        """Return the next place where a buffer may begin."""
        return -(-offset // self.alignment) * self.alignment

    def sections(self) -> tuple[bytes, ...]:
        """Return all of them."""
        return tuple(bytes(section) for section in self._sections)

    def _append(self, content: Any, operation: str) -> BufferRef:
        nbytes = len(content)
        if nbytes > self.largest:
            raise MemoryPlanError(
                f"a constant of operation {operation!r} needs {nbytes} bytes; "
                f"the device allocates at most {self.largest} bytes at once"
            )
        if self.apart or not self._sections or self.aligned(len(self._sections[-1])) + nbytes > self.largest:
            self._sections.append(bytearray())
        section = self._sections[-1]
        section.extend(bytes(self.aligned(len(section)) - len(section)))
        offset = len(section)
        section += content
        return BufferRef("weights", len(self._sections) - 1, offset, nbytes)


@dataclass(frozen=True, eq=False)
class Packing:
    """What packs the constants of an operation. task: a digest; sources, packed: by the names that launches have."""

    operation: str
    task: str
    launches: Sequence[Launch]
    sources: Mapping[str, bytes]
    packed: Mapping[str, Any]

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each buffer."""
        return {name: len(content) for name, content in (*self.sources.items(), *self.packed.items())}

    @property
    def kernels(self) -> Iterator[PackingKernel]:
        """Yield those of all launches in order."""
        return (PackingKernel(self, launch, kernel) for launch in self.launches for kernel in launch.sequence)


@dataclass(frozen=True)
class PackingKernel:
    """A kernel that packs. launch: whose program has it."""

    packing: Packing
    launch: Launch
    kernel: Stage | Launch


@dataclass
class _Part:
    """What one packing graph makes, and for whom; places: of what is packed, by name."""

    nbytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    packings: list[tuple[Packing, Mapping[str, BufferRef]]] = field(default_factory=list)


class Packings:
    """What is packed at loading. weights: of the same context."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._parts: list[_Part] = []
        self._known: dict[tuple[tuple[str, bytes], ...], dict[str, BufferRef]] = {}

    def add(self, packing: Packing) -> dict[str, BufferRef]:
        """Return where what is packed will lie, by name: where the same lies already, if it does. What is too large for
        one buffer is kept packed. Raises MemoryPlanError."""
        weights, packed = self._weights, packing.packed
        key = tuple((name, hashlib.sha256(content).digest()) for name, content in packed.items())
        if key not in self._known:
            if sum(weights.aligned(len(content)) for content in packed.values()) > weights.largest:
                return {name: weights.add(content, packing.operation) for name, content in packed.items()}
            self._known[key] = self._append(packing)
        return self._known[key]

    @property
    def kernels(self) -> list[PackingKernel]:
        """All kernels that pack."""
        return [kernel for part in self._parts for packing, _ in part.packings for kernel in packing.kernels]

    def sources(self) -> dict[bytes, bytes]:
        """Return the sections of sources by their digests, which come behind those of the weights: one for each, so
        that contexts for other devices have the same."""
        contents = (each for part in self._parts for packing, _ in part.packings for each in packing.sources.values())
        found = {hashlib.sha256(content).digest(): content for content in contents}
        return {digest: content for digest, content in found.items() if self._weights.place(digest) is None}

    def graphs(self, first: int, program: Callable[[PackingKernel], int]) -> tuple[GraphRecord, ...]:
        """Return the graphs that pack. first: the number of the first section of sources; program: the place of a
        kernel's."""
        places = {
            digest: BufferRef("weights", number, 0, len(content))
            for number, (digest, content) in enumerate(self.sources().items(), first)
        }

        def source(content: bytes) -> BufferRef:
            digest = hashlib.sha256(content).digest()
            return self._weights.place(digest) or places[digest]

        def launches(part: _Part) -> Iterator[LaunchRecord]:
            for packing, packed in part.packings:
                refs = {**packed, **{name: source(content) for name, content in packing.sources.items()}}
                for one in packing.kernels:
                    names = {"operation": packing.operation, "task": packing.task, "program": program(one)}
                    yield LaunchRecord.of(one.kernel, refs, packed, **names)

        return tuple(
            GraphRecord(part.digest.hexdigest(), (), (), tuple(launches(part)), (part.nbytes,)) for part in self._parts
        )

    def _append(self, packing: Packing) -> dict[str, BufferRef]:
        weights = self._weights
        needed = sum(weights.aligned(len(content)) for content in packing.packed.values())
        if weights.apart or not self._parts or self._parts[-1].nbytes + needed > min(PART_BYTES, weights.largest):
            self._parts.append(_Part())
        part, arena = self._parts[-1], dict[str, BufferRef]()
        for name, content in packing.packed.items():
            arena[name] = BufferRef("arena", 0, part.nbytes, len(content))
            part.digest.update(content)
            part.digest.update(bytes(weights.aligned(len(content)) - len(content)))
            part.nbytes += weights.aligned(len(content))
        part.packings.append((packing, arena))
        number = len(self._parts) - 1
        return {name: replace(ref, kind="packed", index=number) for name, ref in arena.items()}
