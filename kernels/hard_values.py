"""List large, tiny, subnormal, negative zero, infinite and NaN values, and which of them each op must survive.

Verification puts them among the random inputs of a task (KernelFamily.sample_inputs); the reference says what the op
makes of them. Each family says which kinds its op survives, and why not more: most have one of the reasons below.

A chain of elementwise steps must survive each value for which it has one result (`defined`). That result must be the
same whether or not a device has more digits than float32 inside, and whether it keeps subnormal numbers or treats them
as zero, as OpenCL allows.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputune.core.dtypes import BFLOAT, FLOAT, HALF
from gputune.kernels.chain import Chain
from gputune.kernels.chain_functions import Array

LARGE = "large"
TINY = "tiny"
SUBNORMAL = "subnormal"
NEGATIVE_ZERO = "negative zero"
INFINITE = "infinite"
NAN = "NaN"

VALUES: Mapping[str, Sequence[tuple[str, float]]] = {
    FLOAT: (
        (NAN, np.nan), (LARGE, 3.4e38), (INFINITE, -np.inf), (NEGATIVE_ZERO, -0.0), (SUBNORMAL, 1e-40), (LARGE, -1e7),
        (INFINITE, np.inf), (TINY, -1e-30), (LARGE, -2e38), (SUBNORMAL, -1e-45), (TINY, 1.2e-38), (LARGE, 1e20),
    ),
    HALF: (
        (NAN, np.nan), (LARGE, 65504), (INFINITE, -np.inf), (NEGATIVE_ZERO, -0.0), (SUBNORMAL, 2**-15), (LARGE, -65504),
        (INFINITE, np.inf), (TINY, -(2**-14)), (LARGE, -40000), (SUBNORMAL, -(2**-24)), (TINY, 2**-13), (LARGE, 2048),
    ),
    BFLOAT: (
        (NAN, np.nan), (LARGE, 255 * 2.0**120), (INFINITE, -np.inf), (NEGATIVE_ZERO, -0.0), (SUBNORMAL, 2.0**-127),
        (LARGE, -(2.0**23)), (INFINITE, np.inf), (TINY, -(2.0**-100)), (LARGE, -(2.0**127)), (SUBNORMAL, -(2.0**-133)),
        (TINY, 2.0**-126), (LARGE, 2.0**66),
    ),
}  # fmt: skip
"""Kind and value by types of floats, in an order in which the first few have most kinds. Each value is one of its type:
65504 is the largest half, 2**-14 the least that is not subnormal."""

SPARSE = 256
"""Elements of an input, and of what is computed, to each hard value. So most outputs are ordinary numbers, and what
processors take longer for, such as subnormal numbers, does not show in a time."""


MOST_TRIED = 1296
"""Ways to choose a chain's operands: all those of four."""


@dataclass(frozen=True)
class Survival:
    """The kinds of values that an op must survive, and why not the others."""

    kinds: frozenset[str]
    reason: str = ""


EVERY = frozenset(kind for kind, _ in VALUES[FLOAT])
SMALL = frozenset((TINY, SUBNORMAL, NEGATIVE_ZERO))

MOVES = Survival(EVERY)
ORDERS = Survival(EVERY - {SUBNORMAL}, "which of a zero and a subnormal number is larger depends on the device")
PRODUCTS = Survival(
    SMALL,
    "sums of products are arranged in several ways, with zeros where a tile is not full and differences in Winograd's: "
    "what is not finite reaches other outputs in each, and what is large overflows in one and not in another",
)
WEIGHTED = Survival(SMALL, "a weight of zero may be skipped or multiplied, and that of an infinity is NaN")
NORMS = Survival(SMALL | {NAN}, "a mean or square of what is large overflows in float32, and not in the reference")
SUMS = Survival(EVERY - {LARGE}, "a sum of large values overflows in float32, and not in the reference")
UNKNOWN = Survival(frozenset(), "its family does not say so")


def hard_values(survival: Survival, problem: Any, elements: int, dtype: str, exact: bool) -> Array:
    """Return the values that go among so many elements of a type: those that the op and its chains survive, and few.

    No large half goes into an op that is not exact. It is too near to ordinary numbers to be an outlier, so what is
    tolerated of all results would follow it.
    """
    kinds = survival.kinds if exact or dtype != HALF else survival.kinds - {LARGE}
    found = np.array([value for kind, value in VALUES[dtype] if kind in kinds], np.float32)
    for chain in (value for value in vars(problem).values() if isinstance(value, Chain)):
        found = found[defined(chain, found)]
    return found[: elements // SPARSE].astype(dtype)


def defined(chain: Chain, values: Array) -> Array:
    """For each value whether a chain has one result for it, with any operands that are ordinary numbers."""
    operands = _ordinary(chain)[:, :, np.newaxis]
    exact, *others = (_computed(chain, values, operands, digits, keep) for digits, keep in WAYS)
    with np.errstate(invalid="ignore"):
        near = [np.isclose(exact, other, 1e-6, 1e-7, equal_nan=True) for other in others]
    right: Array = np.logical_and.reduce(near).all(axis=0)
    return right


def _ordinary(chain: Chain) -> Array:
    """Operands of the sizes that normal numbers have, or that the chain's domain allows, each with each where these are
    not too many: one may make a product overflow that the next one makes small again. [operand, try]"""
    if chain.has_domain:
        choices = [tuple(factor * size for size in (0.5, 1.0, 1.5)) for factor in chain.factors()[1:]]
    else:
        choices = [tuple(sign * size for size in (0.01, 1.0, 5.0) for sign in (1, -1))] * chain.operands
    if math.prod(map(len, choices)) <= MOST_TRIED:
        tries = list(itertools.product(*choices))
    else:
        generator = np.random.default_rng(0)
        tries = list(zip(*(generator.choice(sizes, MOST_TRIED) for sizes in choices), strict=True))
    return np.array(tries, np.float32).reshape(len(tries), chain.operands).T


WAYS = ((np.float64, True), (np.float32, True), (np.float32, False))
"""Digits of the numbers inside a chain, and whether subnormal ones are kept."""


def _computed(chain: Chain, values: Array, operands: Array, digits: Any, keep: bool) -> Array:
    """Return what the chain makes of each value with each try's operands. [try, value]"""
    result = np.broadcast_to(values.astype(digits), (operands.shape[1], values.size))
    smallest = np.finfo(np.float32).smallest_normal
    with np.errstate(all="ignore"):
        for step in chain.steps:
            result = result if keep else np.where(np.abs(result) < smallest, np.copysign(0, result), result)
            others = step.values if step.operand is None else (operands[step.operand].astype(digits),)
            result = np.asarray(step.meaning.compute(result, *others), digits)
        return result.astype(np.float32)
