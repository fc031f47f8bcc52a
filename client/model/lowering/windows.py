"""Compute the sliding window of a convolution or pooling node, including its automatic parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from gputune.client.model.graph import Node
from gputune.kernels.tiling.window import Pads, Pair


@dataclass(frozen=True)
class Window:
    """(height, width) pairs; pads are (top, left, bottom, right)."""

    kernel: Pair
    strides: Pair
    pads: Pads
    dilations: Pair

    @property
    def is_point(self) -> bool:
        """Whether every output position sees the input position of the same place and nothing else."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and self.pads == (0, 0, 0, 0)


def window_of(node: Node, kernel: Pair, size: Pair, output: Pair) -> Window:
    """Return the window of a node over a map of `size` that gives a map of `output` (both height, width)."""
    strides = pair(node.attributes.get("strides", (1, 1)))
    dilations = pair(node.attributes.get("dilations", (1, 1)))
    mode = node.attributes.get("auto_pad", "NOTSET")
    top, left, bottom, right = node.attributes.get("pads", (0, 0, 0, 0)) if mode == "NOTSET" else (0, 0, 0, 0)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        spans = [(kernel[axis] - 1) * dilations[axis] + 1 for axis in (0, 1)]
        missing = [max((output[axis] - 1) * strides[axis] + spans[axis] - size[axis], 0) for axis in (0, 1)]
        less, more = [total // 2 for total in missing], [total - total // 2 for total in missing]
        (top, left), (bottom, right) = (less, more) if mode == "SAME_UPPER" else (more, less)
    elif mode not in ("NOTSET", "VALID"):
        raise node.unsupported(f"auto_pad {mode!r} is unknown")
    return Window(kernel, strides, (int(top), int(left), int(bottom), int(right)), dilations)


def pair(values: Sequence[int]) -> Pair:
    """Return two attributes of a window, (height, width). ValueError when there are not two."""
    first, second = values
    return int(first), int(second)
