"""Sliding windows: how far they reach, and how a padded map looks one tap at a time."""

from collections.abc import Iterator

import numpy as np

from gputune.kernels.family import Array

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Rows and columns of padding: top, left, bottom, right."""


def window_positions(size: int, kernel: int, stride: int, pads: Pair, dilation: int) -> int:
    """How many positions a window has along one axis of `size` elements; not positive when it does not fit."""
    return (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1


def shifted_maps(
    maps: Array, kernel: Pair, strides: Pair, pads: Pads, dilations: Pair, output: Pair
) -> Iterator[tuple[int, int, Array]]:
    """For every tap (row, column) of the window: what it sees of `maps` [N, H, W, C], as [N, Ho, Wo, C].

    The map is padded with zeros, in float64; each item is a view of it.
    """
    top, left, bottom, right = pads
    padded = np.pad(maps.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            first = (row * dilations[0], column * dilations[1])
            rows = slice(first[0], first[0] + (output[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(first[1], first[1] + (output[1] - 1) * strides[1] + 1, strides[1])
            yield row, column, padded[:, rows, columns, :]


def check_window(
    size: Pair, kernel: Pair, strides: Pair, pads: Pads, dilations: Pair, output: Pair
) -> None:
    """ValueError when a field of a windowed problem has no meaning, or nothing comes out."""
    if min(*size, *kernel, *strides, *dilations) < 1 or min(pads) < 0:
        raise ValueError("sizes, kernel, strides and dilations must be positive and pads not negative")
    if min(output) < 1:
        raise ValueError(f"a {kernel[0]}x{kernel[1]} window does not fit a padded map of {size[0]}x{size[1]}")
