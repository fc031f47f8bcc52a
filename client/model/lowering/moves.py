"""Lower operators that move elements, each into one Move; Concat, which joins tensors; and Reshape, which moves
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.layouts import TO_DEVICE, device_shape
from gputune.client.model.lowering.rearranging import Along, Border, rearrange
from gputune.kernels.ops.concat import ConcatProblem


def transpose(lowering: Lowering, node: Node) -> None:
    shape = lowering.graph.shape(node.inputs[0])
    order = node.attributes.get("perm", range(len(shape))[::-1])
    rearrange(lowering, node, [[Along(shape[axis], axis)] for axis in order])


def slice_(lowering: Lowering, node: Node) -> None:
    """Lower a Slice; its bounds are attributes or, since operator set 10, inputs."""
    shape = lowering.graph.shape(node.inputs[0])
    given = _given(lowering, node, ("starts", "ends", "axes", "steps"))
    starts, ends = given["starts"], given["ends"]
    ranges = {axis: range(size) for axis, size in enumerate(shape)}
    axes, steps = given["axes"] or range(len(starts)), given["steps"] or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = shape[axis % len(shape)]
        ranges[axis % len(shape)] = range(*slice(start, end, step).indices(size))
    rearrange(
        lowering,
        node,
        [[Along(len(kept), axis, kept.step)] for axis, kept in ranges.items()],
        {axis: kept.start for axis, kept in ranges.items()},
    )


def split(lowering: Lowering, node: Node) -> None:
    axis = int(node.attributes.get("axis", 0)) % len(lowering.graph.shape(node.inputs[0]))
    start = 0
    for output in node.outputs:
        shape = lowering.graph.shape(output)
        if lowering.uses[output] and lowering.graph.tensors[output].size:
            rearrange(lowering, node, _plain(shape), {axis: start}, output=output)
        start += shape[axis]


def expand(lowering: Lowering, node: Node) -> None:
    shape, output = lowering.graph.shape(node.inputs[0]), lowering.graph.shape(node.output)
    added = len(output) - len(shape)
    axes = []
    for place, size in enumerate(output):
        axis = place - added
        axes.append([Along(size, axis if axis >= 0 and shape[axis] == size else None)])
    rearrange(lowering, node, axes)


def tile(lowering: Lowering, node: Node) -> None:
    shape, output = lowering.graph.shape(node.inputs[0]), lowering.graph.shape(node.output)
    pairs = enumerate(zip(shape, output, strict=True))
    rearrange(lowering, node, [[Along(whole // size, None), Along(size, axis)] for axis, (size, whole) in pairs])


def depth_to_space(lowering: Lowering, node: Node) -> None:
    batch, channels, height, width = lowering.graph.shape(node.inputs[0])
    side = int(node.attributes["blocksize"])
    left = channels // side**2
    apart, down, across = (1, side * left, left) if _depth_goes_first(node) else (side**2, side, 1)
    axes = [
        [Along(batch, 0)],
        [Along(left, 1, apart)],
        [Along(height, 2), Along(side, 1, down)],
        [Along(width, 3), Along(side, 1, across)],
    ]
    rearrange(lowering, node, axes)


def space_to_depth(lowering: Lowering, node: Node) -> None:
    batch, channels, height, width = lowering.graph.shape(node.inputs[0])
    side = int(node.attributes["blocksize"])
    inside, depth = [Along(side, 2), Along(side, 3)], [Along(channels, 1)]
    axes = [
        [Along(batch, 0)],
        [*inside, *depth] if _depth_goes_first(node) else [*depth, *inside],
        [Along(height // side, 2, side)],
        [Along(width // side, 3, side)],
    ]
    rearrange(lowering, node, axes)


def _depth_goes_first(node: Node) -> bool:
    """Return whether the places of a block lie apart by all channels, not next to each other. SpaceToDepth has a mode
    since operator set 28. Raises ModelError."""
    if (mode := node.attributes.get("mode", "DCR")) not in ("DCR", "CRD"):
        raise node.unsupported(f"its mode {mode!r} is none of DCR and CRD")
    return bool(mode == "DCR")


def rearranged(lowering: Lowering, node: Node) -> None:
    """Lower what passes/rearrangements.py found."""
    rearrange(lowering, node, [[Along(*part) for part in axis] for axis in node.attributes["axes"]])


def pad(lowering: Lowering, node: Node) -> None:
    """Lower a Pad; since operator set 11 its sizes and what it fills in are inputs. Negative sizes cut off."""
    shape = lowering.graph.shape(node.inputs[0])
    given = _given(lowering, node, ("pads", "value", "axes")[: 1 if lowering.graph.opset < 11 else 3])
    axes = [axis % len(shape) for axis in given.get("axes") or range(len(shape))]
    before, behind = dict.fromkeys(range(len(shape)), 0), dict.fromkeys(range(len(shape)), 0)
    before.update(zip(axes, given["pads"][: len(axes)], strict=True))
    behind.update(zip(axes, given["pads"][len(axes) :], strict=True))
    fill = given.get("value") or [node.attributes.get("value", 0)]
    _pad(lowering, node, before, behind, Border(node.attributes.get("mode", "constant"), fill[0]))


def center_crop_pad(lowering: Lowering, node: Node) -> None:
    shape, output = lowering.graph.shape(node.inputs[0]), lowering.graph.shape(node.output)
    added = {axis: whole - size for axis, (size, whole) in enumerate(zip(shape, output, strict=True))}
    before = {axis: abs(more) // 2 * (1 if more > 0 else -1) for axis, more in added.items()}
    _pad(lowering, node, before, {axis: more - before[axis] for axis, more in added.items()}, Border())


def concat(lowering: Lowering, node: Node) -> None:
    """Lower a Concat, in the order in which any of its inputs lies already; nothing where its readers read its
    parts."""
    if node.output in lowering.joined:
        return
    shape = lowering.graph.shape(node.output)
    on_device = any(lowering.layouts.lies_on_device(name) for name in node.inputs)
    axis = int(node.attributes["axis"]) % len(shape)
    place = TO_DEVICE.index(axis) if on_device else axis
    order = device_shape(shape) if on_device else shape
    behind = prod(order[place + 1 :])
    parts = tuple(lowering.graph.shape(name)[axis] * behind for name in node.inputs)
    inputs = {f"input{k}": lowering.layouts.get(name, on_device) for k, name in enumerate(node.inputs)}
    problem = ConcatProblem(prod(order[:place]), parts, lowering.layouts.dtype(node.output))
    lowering.run(node, "Concat", problem, inputs, on_device)


def reshape(lowering: Lowering, node: Node) -> None:
    lowering.layouts.reshape(node.output, node.inputs[0])


def _pad(lowering: Lowering, node: Node, before: dict[int, int], behind: dict[int, int], border: Border) -> None:
    axes, starts = [], {}
    for axis, size in enumerate(lowering.graph.shape(node.inputs[0])):
        starts[axis] = max(-before[axis], 0)
        kept = size - starts[axis] - max(-behind[axis], 0)
        axes.append([Along(size + before[axis] + behind[axis], axis, 1, max(before[axis], 0), kept)])
    rearrange(lowering, node, axes, starts, border)


def _plain(shape: Iterable[int]) -> list[list[Along]]:
    return [[Along(size, axis)] for axis, size in enumerate(shape)]


def _given(lowering: Lowering, node: Node, names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return lists of numbers, each an attribute of its name or an input behind the data; empty where there is none."""
    given = {}
    for index, name in enumerate(names, start=1):
        value = lowering.value(node, index, name) if name not in node.attributes else node.attributes[name]
        given[name] = [] if value is None else np.asarray(value).ravel().tolist()
    return given


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "CenterCropPad": center_crop_pad,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Pad": pad,
    "Rearrange": rearranged,
    "Reshape": reshape,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Tile": tile,
    "Transpose": transpose,
}
