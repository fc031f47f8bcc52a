"""What is asked for: a batch of variants of one task, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gputune.core.dtypes import ITEM_BYTES
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
    many bytes as the output): |got - want| <= absolute + relative * max|want|. `baseline` is timed with the variants
    and never wins, unless it is one of them; without one, the first variant is what the others are compared with;
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
        """Raises ValueError when the request itself makes no sense."""
        if OUTPUT in self.buffers:
            raise ValueError(f"the buffer name {OUTPUT!r} is reserved for what the variants write")
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"outputs of dtype {self.dtype!r} are not known; there are {', '.join(ITEM_BYTES)}")
        if self.reference.nbytes % ITEM_BYTES[self.dtype]:
            raise ValueError(f"the reference has {self.reference.nbytes} bytes, which are no {self.dtype} values")

    @property
    def baseline_index(self) -> int | None:
        """That of the variant that the baseline equals, else one more than the last; None without a baseline."""
        if self.baseline is None:
            return None
        variants = list(self.variants)
        return variants.index(self.baseline) if self.baseline in variants else len(variants)

    @property
    def numbered(self) -> dict[int, Variant]:
        """All variants by index, the baseline first, because limits scale with what is known to work."""
        variants = dict(enumerate(self.variants))
        if self.baseline is None or (index := self.baseline_index) is None:
            return variants
        return {index: self.baseline} | variants
