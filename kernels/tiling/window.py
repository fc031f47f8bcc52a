"""Describe sliding windows: how far they reach, and what each of their taps sees."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gputune.kernels.family import Array

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Rows and columns of padding: top, left, bottom, right."""


def window_positions(size: int, kernel: int, stride: int, pads: Pair, dilation: int) -> int:
    """Return how many positions a window has along one axis of `size` elements; not positive when it does not fit."""
    return (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1


def check_layout(op: str, layout: str, *known: str) -> None:
    """Raise a ValueError if an op's kernels do not know a layout of maps."""
    if layout not in known:
        raise ValueError(f"{op} knows layout {' and '.join(known)}, not {layout}")


@dataclass(frozen=True)
class Window:
    """A window over maps of `size`; pairs are (rows, columns). ValueError when nothing comes out."""

    size: Pair
    kernel: Pair
    strides: Pair
    pads: Pads
    dilations: Pair

    def __post_init__(self) -> None:
        if min(*self.size, *self.kernel, *self.strides, *self.dilations) < 1 or min(self.pads) < 0:
            raise ValueError("sizes, kernel, strides and dilations must be positive and pads not negative")
        if min(self.output) < 1:
            raise ValueError(
                f"a {self.kernel[0]}x{self.kernel[1]} window with dilations {self.dilations} does not fit"
                f" a map of {self.size[0]}x{self.size[1]} with pads {self.pads}"
            )

    @property
    def output(self) -> Pair:
        """Positions down and across."""
        top, left, bottom, right = self.pads
        (height, width), (kh, kw), (sh, sw), (dh, dw) = self.size, self.kernel, self.strides, self.dilations
        return (
            window_positions(height, kh, sh, (top, bottom), dh),
            window_positions(width, kw, sw, (left, right), dw),
        )

    def span(self, count: int, axis: int = 1) -> int:
        """Columns of the map that so many neighbours in a row of the output see; with axis 0 rows, of so many rows."""
        return (count - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1

    @property
    def macros(self) -> dict[str, int]:
        """The window's sizes under the names that the templates use."""
        names = ("HEIGHT", "WIDTH", "OUT_HEIGHT", "OUT_WIDTH", "KH", "KW", "SH", "SW", "PT", "PL", "DH", "DW")
        values = (*self.size, *self.output, *self.kernel, *self.strides, *self.pads[:2], *self.dilations)
        return dict(zip(names, values, strict=True))

    def shifted_maps(self, maps: Array) -> Iterator[tuple[int, int, Array]]:
        """For every tap (row, column) of the window: what it sees of `maps` [N, H, W, C], as [N, Ho, Wo, C].

        The maps are padded with zeros, in float64; each item is a view of them.
        """
        top, left, bottom, right = self.pads
        padded = np.pad(maps.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                yield row, column, padded[:, self._seen(0, row), self._seen(1, column), :]

    def _seen(self, axis: int, tap: int) -> slice:
        first, stride = tap * self.dilations[axis], self.strides[axis]
        return slice(first, first + (self.output[axis] - 1) * stride + 1, stride)
