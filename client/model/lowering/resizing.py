"""Lower Resize and GridSample.

For nearest elements of maps, Resize copies elements by their positions. All other modes use tables of positions and
weights. GridSample gets its positions as an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.interpolation import CROPPING, FOR_NEAREST, ResizedAxis, Sampling, line_of, sampled
from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import EMPTY
from gputune.kernels.ops.grid_sample import GridSampleProblem
from gputune.kernels.ops.resample import TABLES, ResampleProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.tiling.streaming import MOST_ELEMENTS

FINEST_SCALE = 10_000
"""Scales are float32 in models: 1.2 stands for 6/5 and not for the float next to it."""


OLD_ROUNDING = "old"
"""Before operator set 11 places are rounded down where an axis grows, else up."""

STAYS = (1, 0, 1)
"""The line of an axis that is not resized."""


def resize(lowering: Lowering, node: Node) -> None:
    sampling = _sampling(lowering, node)
    shape, output = lowering.graph.shape(node.inputs[0]), lowering.graph.shape(node.output)
    scales = _scales(lowering, node)
    changed = [axis for axis, scale in scales.items() if scale != 1 or shape[axis] != output[axis]]
    if sampling.coordinates == CROPPING:
        regions = _regions(lowering, node)
        changed = [axis for axis in scales if axis in changed or regions[axis] != [0.0, 1.0]]
    elif sampling.mode == "nearest" and len(shape) == 4 and set(changed) <= {2, 3}:
        axes = {axis: ResizedAxis(shape[axis], output[axis], scales[axis]) for axis in changed}
        lines = [_nearest_line(axes[axis], sampling) if axis in axes else STAYS for axis in (2, 3)]
        if all(_fits(output[axis], *line) for axis, line in zip((2, 3), lines, strict=True)):
            _nearest(lowering, node, lines)
            return
    if not changed:  # a copy, whatever the transformation makes of an axis that is resized
        changed, sampling = [len(shape) - 1], replace(sampling, coordinates="asymmetric")
    _by_tables(lowering, node, sampling, {axis: scales[axis] for axis in changed})


def _sampling(lowering: Lowering, node: Node) -> Sampling:
    """Return how a node samples; before operator set 11 there was no choice."""
    opset = lowering.graph.opset
    old = opset <= 10
    mode = node.attributes.get("mode", "nearest")
    coordinates = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    if coordinates == FOR_NEAREST and opset > 12:
        raise node.unsupported(f"its coordinate transformation {coordinates!r} exists in operator sets 11 and 12 only")
    return Sampling(
        "linear" if mode == "bilinear" else mode,
        "asymmetric" if old else coordinates,
        OLD_ROUNDING if old else node.attributes.get("nearest_mode", "round_prefer_floor"),
        float(node.attributes.get("cubic_coeff_a", -0.75)),
        bool(node.attributes.get("exclude_outside", 0)),
        bool(node.attributes.get("antialias", 0)),
    )


def _nearest(lowering: Lowering, node: Node, lines: Sequence[tuple[int, int, int]]) -> None:
    """Lower a Resize of maps to their nearest elements, by a line for rows and one for columns. Each channel of whole
    numbers, which lie in ONNX order, is a map of its own."""
    (batch, channels, height, width), output = (lowering.graph.shape(name) for name in (node.inputs[0], node.output))
    steps, offsets, divisors = ((down, across) for down, across in zip(*lines, strict=True))
    dtype = lowering.layouts.dtype(node.output)
    on_device = dtype == FLOAT
    maps, channels = (batch, channels) if on_device else (batch * channels, 1)
    sizes = (maps, height, width, channels, (output[2], output[3]))
    problem = ResizeProblem(*sizes, steps, divisors, offsets, epilogue=node.chain, dtype=dtype)
    source = lowering.layouts.get(node.inputs[0], on_device)
    lowering.run(node, "Resize", problem, {"input": source}, on_device)


def _nearest_line(axis: ResizedAxis, sampling: Sampling) -> tuple[int, int, int]:
    """(step, offset, divisor): output element i is input element (i * step + offset) // divisor, cut to the map."""
    step, offset, divisor = line_of(axis, sampling.coordinates)
    match rounding := _rounding(sampling, axis.scale):
        case "floor":
            return step, offset, divisor
        case "ceil":
            return step, offset + divisor - 1, divisor
        case "round_prefer_floor":
            return 2 * step, 2 * offset + divisor - 1, 2 * divisor
        case "round_prefer_ceil":
            return 2 * step, 2 * offset + divisor, 2 * divisor
    raise ValueError(f"its nearest mode {rounding!r} is unknown")


def _fits(output: int, step: int, offset: int, divisor: int) -> bool:
    """Return whether the kernel, which has 32 bits for it, can compute all places of a line."""
    return max(output * step + abs(offset), divisor) <= MOST_ELEMENTS


def _by_tables(lowering: Lowering, node: Node, sampling: Sampling, scales: Mapping[int, Fraction]) -> None:
    """Resamples some axes in the order in which the input lies, two at once where they are neighbours in memory."""
    layouts = lowering.layouts
    source, on_device = node.inputs[0], layouts.lies_on_device(node.inputs[0])
    order = layouts.order(source, on_device)
    tensor = layouts.get(source, on_device)
    sizes = [lowering.graph.shape(source)[axis] for axis in order]
    regions = _regions(lowering, node)
    passes = _passes([place for place, axis in enumerate(order) if axis in scales], pairs=not sampling.antialias)
    outside = float(node.attributes.get("extrapolation_value", 0)) if regions else 0.0
    for number, places in enumerate(passes, start=1):
        before = [1, 1]  # a line is a map of height 1
        tables = [sampled(ResizedAxis(1, 1, Fraction(1)), Sampling())] * 2
        for which, place in zip((-2, -1) if len(places) == 2 else (-1,), places, strict=True):
            axis = order[place]
            before[which], scale = sizes[place], scales[axis]
            sizes[place] = lowering.graph.shape(node.output)[axis]
            resized = ResizedAxis(before[which], sizes[place], scale, *regions.get(axis, [0.0, 1.0]))
            tables[which] = sampled(resized, replace(sampling, rounding=_rounding(sampling, scale)))
        final = number == len(passes)
        (rows, _), (columns, _) = tables
        problem = ResampleProblem(
            prod(sizes[: places[0]]), before[0], before[1], prod(sizes[places[-1] + 1 :]),
            (len(rows), len(columns)), (rows.shape[1], columns.shape[1]), outside, node.chain if final else EMPTY,
        )  # fmt: skip
        values = zip(TABLES, (value for pair in tables for value in pair), strict=True)
        inputs = {"input": tensor, **{name: layouts.constant(f"{node.output}/{name}", value) for name, value in values}}
        if final:
            lowering.run(node, "Resample", problem, inputs, on_device)
        else:
            tensor = layouts.temporary(f"{node.output}/{number}", problem.output_shape)
            lowering.emit(node.name, "Resample", problem, inputs, tensor, node.stands_for)


def _passes(places: Sequence[int], pairs: bool) -> list[tuple[int, ...]]:
    """Places one by one, or with a neighbour."""
    passes: list[tuple[int, ...]] = []
    for place in places:
        if pairs and passes and passes[-1] == (place - 1,):
            passes[-1] = (place - 1, place)
        else:
            passes.append((place,))
    return passes


def _rounding(sampling: Sampling, scale: Fraction) -> str:
    if sampling.rounding == OLD_ROUNDING:
        return "ceil" if scale < 1 else "floor"
    return sampling.rounding


def _axes(lowering: Lowering, node: Node) -> list[int]:
    """Return the axes that scales, sizes and regions are given for."""
    rank = len(lowering.graph.shape(node.inputs[0]))
    return [int(axis) % rank for axis in node.attributes.get("axes", range(rank))]


def _scales(lowering: Lowering, node: Node) -> dict[int, Fraction]:
    """By how much each axis grows: as the node says, or as its sizes do."""
    shape, output = lowering.graph.shape(node.inputs[0]), lowering.graph.shape(node.output)
    axes = _axes(lowering, node)
    if len(node.inputs) > 3 and node.inputs[3]:
        policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            return {axis: Fraction(output[axis], shape[axis]) for axis in axes}
        sizes = lowering.value(node, 3, "list of sizes")
        grown = [
            Fraction(int(size), shape[axis]) for axis, size in zip(axes, () if sizes is None else sizes, strict=True)
        ]
        return dict.fromkeys(axes, min(grown) if policy == "not_larger" else max(grown))
    given = node.attributes.get("scales")  # of an Upsample before operator set 9
    if given is None:
        given = lowering.value(node, 1 if lowering.graph.opset <= 10 else 2, "list of scales")
    scales = {}
    for axis, number in zip(axes, () if given is None else given, strict=True):
        scales[axis] = Fraction(float(number)).limit_denominator(FINEST_SCALE)
        if not scales[axis]:
            raise node.unsupported(f"its scale {float(number):g} is below 1/{FINEST_SCALE}")
    return scales


def _regions(lowering: Lowering, node: Node) -> dict[int, list[float]]:
    """Return the part of each axis that tf_crop_and_resize enlarges; empty for every other mode."""
    if node.attributes.get("coordinate_transformation_mode") != CROPPING:
        return {}
    axes, region = _axes(lowering, node), lowering.value(node, 1, "region")
    if region is None or region.size != 2 * len(axes):
        raise node.unsupported("it has no region (roi) to cut out")
    return dict(zip(axes, region.astype(float).reshape(2, -1).T.tolist(), strict=True))


def grid_sample(lowering: Lowering, node: Node) -> None:
    if (rank := len(lowering.graph.shape(node.output))) != 4:
        raise node.unsupported(f"it has {rank - 2} spatial dimensions; 2 are supported")
    batch, channels, size, output = lowering.maps(node)
    mode = node.attributes.get("mode", "linear")
    problem = GridSampleProblem(
        batch, *size, channels, output, {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        node.attributes.get("padding_mode", "zeros"), bool(node.attributes.get("align_corners", 0)),
    )  # fmt: skip
    source, grid = (
        lowering.layouts.get(name, on_device) for name, on_device in zip(node.inputs, (True, False), strict=True)
    )
    lowering.run(node, "GridSample", problem, {"input": source, "grid": grid})


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "GridSample": grid_sample,
    "Resize": resize,
    "Upsample": resize,
}
