"""Represent a request: a batch of variants of one task, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gputune.core.dtypes import ELEMENT_TYPES
from gputune.core.launches import OUTPUT, Variant, Work
from gputune.runtime.backends import Buffer
from gputune.runtime.measuring.timing import Protocol


@dataclass(frozen=True)
class Ahead:
    """Another process that compiles the variants from `first` on, where this one finds what is compiled. `wait` returns
    when it does not any more, so that nothing is measured beside it."""

    first: int
    wait: Callable[[], None]


@dataclass(frozen=True)
class MeasureRequest:
    """A batch of variants of one task. All read the same `buffers`; `reference` holds the right output (of `dtype`, as
    many bytes as the output): |got - want| <= absolute + relative * max|want|. Each variant has a number of its own.
    `baseline` is timed with them and never wins, unless it has the number of one and is that; without one, the variant
    of the lowest number is what the others are compared with;
    `best_ns` is the fastest launch known before, 0 when none is. `together`: variants may share a program where that
    saves time. `ahead`: another process that compiles some of them meanwhile. `harvest`: the best variant's binary is
    wanted, for which some drivers compile once more."""

    task: str
    variants: Sequence[Variant]
    buffers: Mapping[str, Buffer]
    reference: Buffer
    relative: float
    absolute: float
    work: Work
    protocol: Protocol = field(default_factory=Protocol)
    baseline: Variant | None = None
    best_ns: float = 0.0
    together: bool = False
    ahead: Ahead | None = None
    harvest: bool = True
    dtype: str = "float32"

    def check(self) -> None:
        """Raise ValueError when the request itself makes no sense."""
        if OUTPUT in self.buffers:
            raise ValueError(f"the buffer name {OUTPUT!r} is reserved for what the variants write")
        if self.dtype not in ELEMENT_TYPES:
            raise ValueError(f"outputs of dtype {self.dtype!r} are not known; there are {', '.join(ELEMENT_TYPES)}")
        if self.reference.nbytes % ELEMENT_TYPES[self.dtype].nbytes:
            raise ValueError(f"the reference has {self.reference.nbytes} bytes, which are no {self.dtype} values")
        if len(self.numbers) < len(self.variants):
            raise ValueError("two variants have the same number")
        if self.baseline is not None and self.numbered[self.baseline.number] != self.baseline:
            raise ValueError(f"the baseline has the number of variant {self.baseline.number} and is another one")

    @property
    def numbers(self) -> set[int]:
        """Of the variants, without that of a baseline that is none of them."""
        return {variant.number for variant in self.variants}

    @property
    def baseline_number(self) -> int | None:
        """None without a baseline."""
        return None if self.baseline is None else self.baseline.number

    @property
    def numbered(self) -> dict[int, Variant]:
        """All variants by number, the baseline first, because limits scale with what is known to work."""
        first = () if self.baseline is None else (self.baseline,)
        return {variant.number: variant for variant in (*first, *self.variants)}
