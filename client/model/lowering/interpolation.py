"""Compute what the elements of a resized axis are made of: positions among the input's elements, and weights.

The formulas are the formulas of ONNX's Resize. They are evaluated once, here; kernels get tables.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from gputune.client.model.graph import Array

REACHES = {"linear": 1, "cubic": 2}
"""How far from its place the input elements lie that an output element is made of."""

MOST_WEIGHTS = 1 << 24
"""Of one axis: a table is computed on the host."""

CROPPING = "tf_crop_and_resize"
FOR_NEAREST = "tf_half_pixel_for_nn"
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", FOR_NEAREST, CROPPING
)  # fmt: skip


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of `size` elements that becomes `output` elements, `scale` times as many before rounding.

    `start` and `end` are the part of it that tf_crop_and_resize enlarges, in fractions of the axis.
    """

    size: int
    output: int
    scale: Fraction
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Sampling:
    """How an axis is sampled: the attributes of a Resize, by ONNX's names."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_coefficient: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def sampled(axis: ResizedAxis, sampling: Sampling) -> tuple[Array, Array]:
    """(places, weights), both [output, taps], int32 and float32: output element i is the sum of weights[i, k] times
    input element places[i, k].

    Places outside of the axis are those at its ends; what tf_crop_and_resize finds outside weighs nothing. Raises
    ValueError for what Resize does not know, and for tables that are too large.
    """
    if axis.output * _taps(axis, sampling) > MOST_WEIGHTS:
        raise ValueError(f"resizing an axis from {axis.size} to {axis.output} takes over {MOST_WEIGHTS} weights")
    where = _positions(axis, sampling.coordinates)
    if sampling.mode == "nearest":
        places, weights = _rounded(where, sampling.rounding)[:, None], np.ones((axis.output, 1))
    else:
        places, weights = _kernel(where, axis, sampling)
    if sampling.exclude_outside:
        weights = np.where((places >= 0) & (places < axis.size), weights, 0)
        weights /= weights.sum(axis=1, keepdims=True)
    if sampling.coordinates == CROPPING:
        weights = np.where(((where >= 0) & (where <= axis.size - 1))[:, None], weights, 0)
    return np.clip(places, 0, axis.size - 1).astype(np.int32), weights.astype(np.float32)


def line_of(axis: ResizedAxis, mode: str) -> tuple[int, int, int]:
    """Return (step, offset, divisor): output element i lies at (i * step + offset) / divisor among those of the input.

    Every transformation of coordinates but tf_crop_and_resize is such a line. Raises ValueError for unknown ones.
    """
    slope, start, whole = 1 / axis.scale, Fraction(0), axis.scale * axis.size
    match mode:
        case "asymmetric":
            pass
        case "half_pixel":
            start = (slope - 1) / 2
        case "pytorch_half_pixel":
            slope, start = (slope, (slope - 1) / 2) if axis.output > 1 else (Fraction(0), Fraction(0))
        case "half_pixel_symmetric":
            start = (slope - 1) / 2 + Fraction(axis.size, 2) * (1 - axis.output / whole)
        case "align_corners":
            # With a scale that gives no whole size, ONNX's own implementation and its test cases take the size before
            # rounding. onnxruntime takes the rounded one: --verify reports such a node, unless it has sizes for scales.
            slope = (axis.size - 1) / (whole - 1) if whole > 1 else Fraction(0)
        case "tf_half_pixel_for_nn":
            start = slope / 2
        case _:
            raise ValueError(f"its coordinate transformation {mode!r} is unknown; known are {', '.join(COORDINATES)}")
    divisor = lcm(slope.denominator, start.denominator)
    return int(slope * divisor), int(start * divisor), divisor


def _positions(axis: ResizedAxis, mode: str) -> Array:
    """Return where each output element lies among the elements of the input."""
    index = np.arange(axis.output, dtype=np.float64)
    if mode == CROPPING:
        last = axis.size - 1
        if axis.output == 1:
            return np.full(1, (axis.start + axis.end) / 2 * last)
        return axis.start * last + index * (axis.end - axis.start) * last / (axis.output - 1)
    step, offset, divisor = map(float, line_of(axis, mode))
    return (index * step + offset) / divisor  # what is whole stays so, since it is rounded


def _rounded(where: Array, rounding: str) -> Array:
    match rounding:
        case "floor":
            return np.floor(where)
        case "ceil":
            return np.ceil(where)
        case "round_prefer_floor":
            return np.ceil(where - 0.5)
        case "round_prefer_ceil":
            return np.floor(where + 0.5)
    raise ValueError(f"its nearest mode {rounding!r} is unknown")


def _kernel(where: Array, axis: ResizedAxis, sampling: Sampling) -> tuple[Array, Array]:
    """Linear and cubic weights; antialiasing widens them where the axis shrinks."""
    reach, shrunk = REACHES[sampling.mode], _shrunk(axis, sampling)
    first = _first(reach, shrunk)
    left = np.floor(where)
    places = left[:, None] + np.arange(first, 2 - first)
    distance = abs(places - where[:, None]) * shrunk
    weights = np.clip(1 - distance, 0, 1) if reach == 1 else _cubic(distance, sampling.cubic_coefficient)
    return places, weights / weights.sum(axis=1, keepdims=True)


def _taps(axis: ResizedAxis, sampling: Sampling) -> int:
    """Return how many input elements an output element is made of."""
    if sampling.mode == "nearest":
        return 1
    if sampling.mode not in REACHES:
        raise ValueError(f"its mode {sampling.mode!r} is none of nearest, linear and cubic")
    return 2 - 2 * _first(REACHES[sampling.mode], _shrunk(axis, sampling))


def _shrunk(axis: ResizedAxis, sampling: Sampling) -> float:
    return min(float(axis.scale), 1.0) if sampling.antialias else 1.0


def _first(reach: int, shrunk: float) -> int:
    """Return the first input element that counts, from the one before the output element's place on."""
    return int(np.floor(-reach / shrunk)) + 1


def _cubic(distance: Array, a: float) -> Array:
    """Keys' cubic kernel with the coefficient a."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
