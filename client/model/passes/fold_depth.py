"""Turn windows over maps with a depth, [N, C, D, H, W], into windows over plain maps.

Poolings of bytes become poolings of floats.

A pooling becomes a pooling over rows and columns, then a pooling over the depth: sums, maxima and the counts that
averages divide by all factor. A convolution, transposed or not, sees the depths of its window side by side as channels,
which a Gather looks up.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from gputune.client.model.graph import Array, Graph, Node, TensorInfo
from gputune.client.model.passes.additions import Work

POOLINGS = frozenset(("AveragePool", "LpPool", "MaxPool"))
GLOBAL_POOLINGS = frozenset(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"))
PER_AXIS = {"dilations": 1, "kernel_shape": 1, "output_padding": 0, "pads": 0, "strides": 1}
"""Attributes with numbers for each axis of a window, and what they are where nothing else is seen."""


def fold_depth(graph: Graph) -> Graph:
    """Return the same graph without convolutions and poolings of maps with depth.

    Raises ModelError for a weight that is computed at run time, and for a ConvTranspose whose pads are not given.
    """
    work = _Work(graph)
    for node in graph.nodes:
        rank = len(graph.shape(node.inputs[0])) if node.op in FOLDS else 0
        alone = not any(work.uses[name] for name in node.outputs[1:])
        if node.op == "MaxPool" and alone and graph.tensors[node.inputs[0]].dtype in ("int8", "uint8"):
            _pool_bytes(work, node)
        elif rank == 5 and alone:
            FOLDS[node.op](work, node)
        else:
            work.nodes.append(node)
    return graph.rewritten(work.nodes, work.constants, work.tensors)


class _Work(Work):
    """The graph that is read, and what it becomes."""

    def step(
        self,
        node: Node,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        dtype: str = "float32",
    ) -> str:
        """Add one more node in the place of `node`, and return its output."""
        output = self.tensor(f"{node.output}/{op}", TensorInfo(tuple(shape), dtype))
        self.nodes.append(Node(op, output, tuple(inputs), (output,), attributes or {}, origins=node.origins))
        return output

    def finish(self, node: Node, op: str, source: str) -> None:
        """Add the last node, which computes what `node` does."""
        self.nodes.append(Node(op, node.name, (source,), (node.output,), origins=node.origins))


def _pool_bytes(work: _Work, node: Node) -> None:
    shape, output = (work.graph.shape(name) for name in (node.inputs[0], node.output))
    floats = work.step(node, "Cast", node.inputs[:1], shape)
    pooled = work.step(node, node.op, (floats,), output, node.attributes)
    work.finish(node, "Cast", pooled)


def _pool(work: _Work, node: Node) -> None:
    batch, channels, depth, height, width = work.graph.shape(node.inputs[0])
    _, _, deep, down, across = work.graph.shape(node.output)
    maps = work.step(node, "Reshape", node.inputs[:1], (batch, channels * depth, height, width))
    flat = work.step(node, node.op, (maps,), (batch, channels * depth, down, across), _seeing(node, (1, 2)))
    lines = work.step(node, "Reshape", (flat,), (batch, channels, depth, down * across))
    pooled = work.step(node, node.op, (lines,), (batch, channels, deep, down * across), _seeing(node, (0, None)))
    work.finish(node, "Reshape", pooled)


def _global_pool(work: _Work, node: Node) -> None:
    batch, channels, *size = work.graph.shape(node.inputs[0])
    maps = work.step(node, "Reshape", node.inputs[:1], (batch, channels, prod(size[:-1]), size[-1]))
    work.finish(node, "Reshape", work.step(node, node.op, (maps,), (batch, channels, 1, 1), node.attributes))


def _conv(work: _Work, node: Node) -> None:
    weight = _weight(work, node)
    taps = np.arange(weight.shape[2]) * _along_depth(node, "dilations", 1)
    starts = np.arange(work.graph.shape(node.output)[2]) * _along_depth(node, "strides", 1)
    before = _along_depth(node, "pads", 0)
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode != "NOTSET":
        missing = max(int(starts[-1] + taps[-1]) + 1 - work.graph.shape(node.inputs[0])[2], 0)
        before = {"SAME_UPPER": missing // 2, "SAME_LOWER": missing - missing // 2}.get(mode, 0)
    flat = weight.reshape(weight.shape[0], -1, *weight.shape[3:])
    _beside(work, node, starts[:, np.newaxis] + taps - before, flat)


def _conv_transpose(work: _Work, node: Node) -> None:
    """Output depth d sees at tap k the input depth i with i * stride + k * dilation = d + pad, where there is one."""
    weight = _weight(work, node)
    if "output_shape" in node.attributes or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        raise node.unsupported("with 3 spatial dimensions it must have pads, not auto_pad or output_shape")
    taps = np.arange(weight.shape[2]) * _along_depth(node, "dilations", 1)
    starts = np.arange(work.graph.shape(node.output)[2]) + _along_depth(node, "pads", 0)
    seen, rest = np.divmod(starts[:, np.newaxis] - taps, _along_depth(node, "strides", 1))
    flat = weight.swapaxes(1, 2).reshape(-1, weight.shape[1], *weight.shape[3:])
    _beside(work, node, np.where(rest == 0, seen, -1), flat)


def _beside(work: _Work, node: Node, depths: Array, flat: Array) -> None:
    """Add the convolution of maps that hold the depths of a window side by side: `depths` [output depth, tap] says
    which each is; those outside of the map are zeros. `flat` are the weights for so many more channels."""
    batch, channels, depth, *size = work.graph.shape(node.inputs[0])
    _, filters, deep, *result = work.graph.shape(node.output)
    inside = (depths >= 0) & (depths < depth)
    indices = work.exact(f"{node.output}/depths", np.where(inside, depths, depth).astype(np.int64))
    source = node.inputs[0]
    if not inside.all():
        zeros = work.constant(f"{node.output}/zeros", np.zeros((batch, channels, 1, *size), np.float32))
        source = work.step(node, "Concat", (source, zeros), (batch, channels, depth + 1, *size), {"axis": 2})
    taps = depths.shape[1]
    gathered = work.step(node, "Gather", (source, indices), (batch, channels, deep, taps, *size), {"axis": 2})
    order = {"perm": (0, 2, 1, 3, 4, 5)}
    turned = work.step(node, "Transpose", (gathered,), (batch, deep, channels, taps, *size), order)
    maps = work.step(node, "Reshape", (turned,), (batch * deep, channels * taps, *size))
    inputs = (maps, work.constant(f"{node.inputs[1]}/flat", flat), *node.inputs[2:])
    flattened = work.step(node, node.op, inputs, (batch * deep, filters, *result), _seeing(node, (1, 2)))
    again = work.step(node, "Reshape", (flattened,), (batch, deep, filters, *result))
    back = {"perm": (0, 2, 1, 3, 4)}
    work.nodes.append(Node("Transpose", node.name, (again,), node.outputs, back, origins=node.origins))


def _weight(work: _Work, node: Node) -> Array:
    if node.inputs[1] not in work.graph.constants:
        raise work.graph.computed(node, "weight", node.inputs[1])
    return work.graph.constants[node.inputs[1]]


def _along_depth(node: Node, attribute: str, alone: int) -> int:
    return int(node.attributes.get(attribute, (alone,))[0])


def _seeing(node: Node, axes: tuple[int | None, int | None]) -> dict[str, Any]:
    """Return the node's attributes for a window over two of its axes; None is an axis along which a window sees one
    place."""
    kept = dict(node.attributes)
    for name, alone in PER_AXIS.items():
        if name in kept:
            values = kept[name]
            picked = [alone if axis is None else values[axis] for axis in axes]
            if name == "pads":
                picked += [alone if axis is None else values[3 + axis] for axis in axes]
            kept[name] = tuple(picked)
    return kept


FOLDS: Mapping[str, Callable[[_Work, Node], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(POOLINGS, _pool),
    **dict.fromkeys(GLOBAL_POOLINGS, _global_pool),
}
