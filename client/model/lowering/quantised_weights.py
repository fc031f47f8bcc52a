"""Find how few bits hold a constant matrix that is whole numbers, or was dequantised."""

from collections.abc import Iterator

import numpy as np

from gputune.client.model.graph import Array, Scaled, as_constant
from gputune.kernels.tiling.packing import BITS, Quantised, packed_as
from gputune.kernels.tiling.streaming import ceil_div

LEAST_BLOCK = 8
"""Scales of shorter blocks take as much as is saved."""


def quantised_matrix(scaled: Scaled) -> tuple[Quantised, dict[str, Array]] | None:
    """Return how a matrix [inputs, outputs] is stored, and its tensors by the names that products give them; None where
    it stays floats, because its scales lie otherwise or its numbers have more than 8 bits."""
    numbers = scaled.numbers
    if numbers.ndim != 2 or not numbers.size:
        return None
    inputs, outputs = numbers.shape
    whole = scaled.scales is None
    scales = np.ones((1, 1), np.float32) if scaled.scales is None else scaled.scales
    zeros = np.zeros((1, 1), np.int64) if scaled.zeros is None else scaled.zeros
    block = scaled.block
    if block == 1 and inputs in (len(scales), len(zeros)):
        block = _block_of(inputs, scales, zeros)
        scales, zeros = (each[::block] if len(each) == inputs else each for each in (scales, zeros))
    rows, columns = max(len(scales), len(zeros)), scales.shape[1]
    block = inputs if rows == 1 else block
    if rows != ceil_div(inputs, block) or columns not in (1, outputs) or (rows > 1 and block < LEAST_BLOCK):
        return None
    for bits, middle in _ranges(int(numbers.min()), int(numbers.max())):
        points = zeros - middle
        if points.min() < -128 or points.max() > 127:
            continue
        tensors = {"b": packed_as(numbers.astype(np.int16) - middle, bits)}
        if whole and not points.any():
            return Quantised(bits), tensors
        tensors["scales"] = as_constant(np.broadcast_to(scales, (rows, outputs))).copy()
        if points.any():
            tensors["zeros"] = np.broadcast_to(points, (rows, outputs)).astype(np.int8)
        return Quantised(bits, block, bool(points.any())), tensors
    return None


def _block_of(inputs: int, *each: Array) -> int:
    """Return how many neighbouring inputs have the same scales and zero points."""
    changes = [np.flatnonzero((value[1:] != value[:-1]).any(axis=1)) + 1 for value in each if len(value) == inputs]
    return int(np.gcd.reduce(np.concatenate(changes))) or inputs


def _ranges(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield into how many bits numbers from `low` to `high` fit, the fewest first, and what they are moved by then."""
    for bits in BITS:
        most = 1 << (bits - 1)
        yield from ((bits, middle) for middle in (0, most, low + most) if -most <= low - middle <= high - middle < most)


def in_bytes(numbers: Array) -> bool:
    """Return whether whole numbers are those of int8."""
    return bool(numbers.size) and numbers.min() >= -128 and numbers.max() <= 127
