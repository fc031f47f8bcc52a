"""Number the variants in a request that a test makes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputune.core.launches import Variant


def numbered(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    """Variants whose numbers are their places."""
    return tuple(replace(variant, number=number) for number, variant in enumerate(variants))


def baseline_beside(variants: Sequence[Variant], baseline: Variant | None) -> Variant | None:
    """The baseline with the number of the variant that it is, else the next."""
    if baseline is None:
        return None
    equal = (each for each in variants if replace(each, number=baseline.number) == baseline)
    return next(equal, replace(baseline, number=len(variants)))
