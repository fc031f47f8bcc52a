"""Measure how far apart two tensors are, where, and of how many values that says nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gputune.client.errors import NothingCompared
from gputune.client.model.graph import Array
from gputune.core.dtypes import ELEMENT_TYPES, is_float

ALLOWED = 1e-3
"""A tensor is right when it is nowhere further off than this share of its largest value."""
ALLOWED_ROUNDINGS = 20.48
"""The least that is allowed, in roundings to the type in which tensors are stored: 1e-2 with the 11 bits of float16, as
in docs/accuracy.md."""
STEPPED = 1e-3
"""This share of a quantised tensor, or one element, may be a step off where floats are rounded to its numbers: one that
is all but halfway between two of them may become either, since kernels and onnxruntime add up in other orders."""
TINY = 1e-6
"""A deviation that does not matter, however small a tensor is."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compared:
    """What comparing tensors has shown. error: the largest `distance`. values: how many were compared; blank: how many
    of them are NaN or infinite on both sides, which any broken model computes alike; stepped: how many are a step off,
    as they may be. own: how far onnxruntime's optimisations alone move a tensor that follows from roundings."""

    error: float = 0.0
    values: int = 0
    blank: int = 0
    stepped: int = 0
    own: float = 0.0

    def __add__(self, other: Compared) -> Compared:
        counts = self.values + other.values, self.blank + other.blank, self.stepped + other.stepped
        worst = max(self, other, key=lambda one: one.error - one.own)
        return Compared(worst.error, *counts, worst.own)

    def within(self, allowed: float) -> bool:
        """Return whether this is right."""
        return self.error <= max(allowed, self.own)

    def beside(self, got: Array, want: Array, own: Array) -> Compared:
        """Return the same of a tensor that follows from many roundings, each of which may move it far. own: what
        onnxruntime computes with its optimisations; whole numbers are held against these by their sizes."""
        mine, right, theirs = (each.astype(np.float64) for each in (got, want, own))
        moved = distance(theirs, right)
        return replace(self, error=distance(mine, right), own=moved) if np.isfinite(moved) else self

    @property
    def share(self) -> float:
        """Return the share of values that show nothing."""
        return self.blank / self.values if self.values else 0.0

    @property
    def shows_nothing(self) -> bool:
        """Return whether all values are NaN or infinite on both sides."""
        return 0 < self.values == self.blank


def compared(got: Array, want: Array, step: float = 0.0) -> Compared:
    """Compare a tensor with what is right. step: as for `distance`."""
    blank = 0
    if got.shape == want.shape and is_float(got.dtype.name) and is_float(want.dtype.name):
        blank = int(np.count_nonzero(~np.isfinite(got) & ~np.isfinite(want)))
    stepped = int(np.count_nonzero(_stepped(got, want, step)))
    return Compared(distance(got, want, step), want.size, blank, stepped)


def told(found: Mapping[str, Compared]) -> dict[str, dict[str, float]]:
    """Return what was found of outputs, by their names, as summaries for scripts tell it."""
    return {
        name: {"deviation": one.error, "not_compared": one.share, "one_step_off": one.stepped / max(one.values, 1)}
        for name, one in found.items()
    }


def check_compared(found: Mapping[str, Compared], remedy: str, whose: str = "") -> None:
    """Check that comparing outputs, by their names, has shown something. Warn of outputs of which a part shows nothing.
    Every comparison of outputs ends with this rule. whose: begins the message. Raises NothingCompared for an output of
    which nothing shows anything."""
    for name, one in found.items():
        why = f"{one.values} values of output {name!r} are NaN or infinite on both sides"
        if one.shows_nothing:
            raise NothingCompared(f"{whose}all {why}, so nothing was compared; {remedy}")
        if one.blank:
            log.warning(f"{whose}{one.share:.1%} of {why} and were not compared; {remedy}")


def allowed_for(dtype: str) -> float:
    """Return how far off tensors may be. dtype: the coarsest type of those that they are computed from."""
    return max(ALLOWED, ALLOWED_ROUNDINGS * ELEMENT_TYPES[dtype].resolution)


def distance(got: Array, want: Array, step: float = 0.0) -> float:
    """Return the largest difference by the largest value; infinite where shapes, types other than floats, or what is no
    number differ. Of whole numbers and bools every one counts. step: how far apart two numbers of a quantised tensor
    are that floats are rounded to; STEPPED says how many elements may be so far off."""
    if got.shape != want.shape or not _alike(got, want):
        return float("inf")
    got = np.where(_stepped(got, want, step), want, got) if step else got
    if not is_float(want.dtype.name):
        return 0.0 if np.array_equal(got, want) else float("inf")
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    difference = np.abs(got[finite].astype(np.float64) - want[finite]).max(initial=0.0)
    largest = float(np.abs(want[finite]).max(initial=0.0))
    return float(difference) / max(largest, TINY / ALLOWED)


def _a_step_off(got: Array, want: Array, step: float) -> Array:
    """Return which elements are one step off, within the rounding of floats."""
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(np.abs(got.astype(np.float64) - want.astype(np.float64)) - step)
    return np.asarray(off <= 1e-3 * step)


def _stepped(got: Array, want: Array, step: float) -> Array:
    """Return which elements are one step off, as they may be; none if they are too many."""
    if not step or got.shape != want.shape or not _alike(got, want):
        return np.zeros(want.shape, np.bool_)
    found = _a_step_off(got, want, step)
    return np.asarray(found & (np.count_nonzero(found) <= _most_stepped(want)))


def _most_stepped(want: Array) -> int:
    return max(1, int(STEPPED * want.size))


def _alike(got: Array, want: Array) -> bool:
    """Return whether both have the same type, or are floats: floats may be stored in another type than the model's."""
    return got.dtype == want.dtype or (is_float(got.dtype.name) and is_float(want.dtype.name))


def in_words(got: Array, want: Array, allowed: float = ALLOWED, step: float = 0.0) -> str:
    """Return how far off a tensor is, and where most; for one that differs. step: as for `distance`."""
    if got.shape != want.shape or not _alike(got, want):
        return f"{got.dtype.name} of shape {got.shape}, where {want.dtype.name} of {want.shape} is right"
    error = distance(got, want, step)
    place = np.unravel_index(int(_badness(got, want).argmax()), want.shape)
    where = f"{_number(got[place])} at {list(map(int, place))}, where {_number(want[place])} is right"
    if step and (count := np.count_nonzero(_a_step_off(got, want, step))) > (most := _most_stepped(want)):
        where += f"; {count} of {want.size} elements are one step off, {most} may be"
    if error == float("inf"):
        return where
    return f"off by {error:.2g} of its largest value, {allowed:g} is allowed: {where}"


def _number(value: np.generic) -> str:
    """Whole numbers with all of their digits, since one in the last is an error."""
    return f"{value:.6g}" if is_float(value.dtype.name) else str(value)


def _badness(got: Array, want: Array) -> Array:
    """For each element how wrong it is; most where one of the two is no finite number."""
    if not is_float(want.dtype.name):
        apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
        return np.asarray(np.where(got == want, 0.0, np.maximum(apart, 1.0)))  # of large ones float64 may say 0
    both = np.isfinite(got) & np.isfinite(want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(got.astype(np.float64) - want)
    return np.where(same, 0.0, np.where(both, difference, np.inf))
