"""Lowering of Resize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

from gputune.client.graph import Graph, Node
from gputune.kernels.ops.resize import ResizeProblem

if TYPE_CHECKING:  # operators.py has the table that names these functions
    from gputune.client.lowering.lowering import Lowering

FINEST_SCALE = 10_000
"""Scales are float32 in models: 1.2 stands for 6/5 and not for the float next to it."""


def resize(lowering: Lowering, node: Node) -> None:
    """A Resize of maps to their nearest elements."""
    if (mode := node.attributes.get("mode", "nearest")) != "nearest":
        raise node.unsupported(f"its mode is {mode!r}; nearest is supported")
    if (policy := node.attributes.get("keep_aspect_ratio_policy", "stretch")) != "stretch":
        raise node.unsupported(f"its aspect ratio policy is {policy!r}; stretch is supported")
    shape, output = lowering.graph.shape(node.inputs[0]), lowering.graph.shape(node.output)
    if len(shape) != 4 or shape[:2] != output[:2]:
        raise node.unsupported("it resizes other axes than the two of a map")
    lines = [_line(lowering.graph, node, axis) for axis in (2, 3)]
    steps, offsets, divisors = ((down, across) for down, across in zip(*lines, strict=True))
    batch, channels, height, width = shape
    problem = ResizeProblem(
        batch, height, width, channels, (output[2], output[3]), steps, divisors, offsets, epilogue=node.chain
    )
    lowering.run(node, "Resize", problem, {"input": lowering.layouts.get(node.inputs[0], on_device=True)})


def _line(graph: Graph, node: Node, axis: int) -> tuple[int, int, int]:
    """(step, offset, divisor): output element i is input element (i * step + offset) // divisor, cut to the map."""
    size, output = graph.shape(node.inputs[0])[axis], graph.shape(node.output)[axis]
    scale = _scale(graph, node, axis)
    mode = node.attributes.get("coordinate_transformation_mode", "half_pixel" if graph.opset > 10 else "asymmetric")
    slope = 1 / scale
    match mode:
        case "asymmetric":
            start = Fraction(0)
        case "half_pixel":
            start = (slope - 1) / 2
        case "pytorch_half_pixel":
            slope, start = (slope, (slope - 1) / 2) if output > 1 else (Fraction(0), Fraction(0))
        case "half_pixel_symmetric":
            start = (slope - 1) / 2 + Fraction(size, 2) * (1 - output / (scale * size))
        case "align_corners":
            slope, start = Fraction(size - 1, output - 1) if output > 1 else Fraction(0), Fraction(0)
        case _:
            raise node.unsupported(f"its coordinate transformation {mode!r} is none of those for nearest elements")
    if graph.opset > 10:
        rounding = node.attributes.get("nearest_mode", "round_prefer_floor")
    else:
        rounding = "ceil" if scale < 1 else "floor"
    divisor = lcm(slope.denominator, start.denominator)
    step, offset = int(slope * divisor), int(start * divisor)
    match rounding:
        case "floor":
            return step, offset, divisor
        case "ceil":
            return step, offset + divisor - 1, divisor
        case "round_prefer_floor":
            return 2 * step, 2 * offset + divisor - 1, 2 * divisor
        case "round_prefer_ceil":
            return 2 * step, 2 * offset + divisor, 2 * divisor
    raise node.unsupported(f"its nearest mode {rounding!r} is unknown")


def _scale(graph: Graph, node: Node, axis: int) -> Fraction:
    """By how much an axis grows: as the node says, or as its sizes do."""
    sizes = node.inputs[3] if len(node.inputs) > 3 else ""
    scales = () if sizes else graph.constants.get(node.inputs[1 if graph.opset <= 10 else 2], ())
    axes = [int(each) % 4 for each in node.attributes.get("axes", range(4))]
    if not len(scales) or axis not in axes:
        return Fraction(graph.shape(node.output)[axis], graph.shape(node.inputs[0])[axis])
    scale = float(scales[axes.index(axis)])
    if not (near := Fraction(scale).limit_denominator(FINEST_SCALE)):
        raise node.unsupported(f"its scale {scale:g} is below 1/{FINEST_SCALE}")
    return near


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Resize": resize,
}
