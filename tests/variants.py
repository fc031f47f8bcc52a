"""Number the variants in a request that a test makes, and measure them here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Variant, Work
from gputune.runtime.backends import Buffer, ProgramCache
from gputune.runtime.measuring.building import Ahead
from gputune.runtime.measuring.measuring import measure
from gputune.runtime.measuring.watcher import UNWATCHED, Watcher

REFERENCE = 1
EXACTLY = ProfileKernel(
    task="t", buffers={}, output_bytes=0, reference=REFERENCE, relative=0.0, absolute=0.0, dtype="float32", variants=(),
    baseline=None, best_ns=0.0, work=Work(1, 1), samples=16, sample_ns=1_000_000, warm_up_ns=20_000_000, cold=False,
    together=False, harvest=True,
)  # fmt: skip
"""A batch that asks for equal outputs."""


def numbered(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    """Variants whose numbers are their places."""
    return tuple(replace(variant, number=number) for number, variant in enumerate(variants))


def baseline_beside(variants: Sequence[Variant], baseline: Variant | None) -> Variant | None:
    """The baseline with the number of the variant that it is, else the next."""
    if baseline is None:
        return None
    equal = (each for each in variants if replace(each, number=baseline.number) == baseline)
    return next(equal, replace(baseline, number=len(variants)))


def measure_on(
    programs: ProgramCache,
    variants: Sequence[Variant],
    buffers: Mapping[str, Buffer],
    reference: Buffer,
    watcher: Watcher = UNWATCHED,
    ahead: Ahead | None = None,
    **fields: Any,
) -> Profiled:
    """What is measured of these variants, on buffers instead of handles; fields: of the request."""
    given = {REFERENCE: reference, **dict(enumerate(buffers.values(), REFERENCE + 1))}
    handles = dict(zip(buffers, list(given)[1:], strict=True))
    request = replace(EXACTLY, variants=tuple(variants), buffers=handles, output_bytes=reference.nbytes, **fields)
    return measure(programs, request, given.__getitem__, watcher, ahead)
