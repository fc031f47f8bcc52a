"""Turns windows over maps with a depth, [N, C, D, H, W], into windows over maps, and poolings of bytes into those of
floats.

A pooling is one over rows and columns and then one over the depth: sums, maxima and the counts that averages divide by
all factor. A convolution sees the depths of its window side by side as channels, which a Gather looks up.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from gputune.client.graph import Array, Graph, Node, TensorInfo

POOLINGS = frozenset(("AveragePool", "LpPool", "MaxPool"))
GLOBAL_POOLINGS = frozenset(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"))
PER_AXIS = {"dilations": 1, "kernel_shape": 1, "pads": 0, "strides": 1}
"""Attributes with numbers for each axis of a window, and what they are where nothing else is seen."""


def fold_depth(graph: Graph) -> Graph:
    """The same graph without convolutions and poolings of maps with depth; transposed convolutions stay."""
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


class _Work:
    """The graph that is read, and what it becomes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._taken = set(graph.tensors)

    def name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}.{number}"
        self._taken.add(name)
        return name

    def constant(self, wanted: str, value: Array) -> str:
        self.constants[name := self.name(wanted)] = value
        return name

    def step(
        self,
        node: Node,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        dtype: str = "float32",
    ) -> str:
        """One more node in the place of `node`; returns its output."""
        output = self.name(f"{node.output}/{op}")
        self.tensors[output] = TensorInfo(tuple(shape), dtype)
        self.nodes.append(Node(op, output, tuple(inputs), (output,), attributes or {}, origins=node.origins))
        return output

    def finish(self, node: Node, op: str, source: str) -> None:
        """The last node, which computes what `node` does."""
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
    weight = work.graph.constants.get(node.inputs[1])
    if weight is None or weight.ndim != 5:
        work.nodes.append(node)  # to be refused by whoever lowers it
        return
    batch, channels, depth, height, width = work.graph.shape(node.inputs[0])
    _, filters, deep, down, across = work.graph.shape(node.output)
    seen, taps = weight.shape[1:3]
    source, indices = _depths(work, node, depth, deep, taps)
    gathered = work.step(node, "Gather", (source, indices), (batch, channels, deep, taps, height, width), {"axis": 2})
    beside = (batch, deep, channels, taps, height, width)
    turned = work.step(node, "Transpose", (gathered,), beside, {"perm": (0, 2, 1, 3, 4, 5)})
    maps = work.step(node, "Reshape", (turned,), (batch * deep, channels * taps, height, width))
    flat = work.constant(f"{node.inputs[1]}/flat", weight.reshape(filters, seen * taps, *weight.shape[3:]))
    result = work.step(
        node, "Conv", (maps, flat, *node.inputs[2:]), (batch * deep, filters, down, across), _seeing(node, (1, 2))
    )
    again = work.step(node, "Reshape", (result,), (batch, deep, filters, down, across))
    perm = {"perm": (0, 2, 1, 3, 4)}
    work.nodes.append(Node("Transpose", node.name, (again,), node.outputs, perm, origins=node.origins))


def _depths(work: _Work, node: Node, depth: int, deep: int, taps: int) -> tuple[str, str]:
    """The input with zeros before and behind its depth, and which depth each tap of each output depth sees."""
    step, apart = (int(node.attributes.get(name, (1,))[0]) for name in ("strides", "dilations"))
    mode = node.attributes.get("auto_pad", "NOTSET")
    missing = max((deep - 1) * step + (taps - 1) * apart + 1 - depth, 0)
    before = int(node.attributes["pads"][0]) if mode == "NOTSET" and "pads" in node.attributes else 0
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before = missing // 2 if mode == "SAME_UPPER" else missing - missing // 2
    behind = max((deep - 1) * step + (taps - 1) * apart + 1 - depth - before, 0)
    batch, channels, _, *size = work.graph.shape(node.inputs[0])
    parts = [node.inputs[0]]
    if before:
        zeros = np.zeros((batch, channels, before, *size), np.float32)
        parts.insert(0, work.constant(f"{node.output}/before", zeros))
    if behind:
        zeros = np.zeros((batch, channels, behind, *size), np.float32)
        parts.append(work.constant(f"{node.output}/behind", zeros))
    source = parts[0]
    if len(parts) > 1:
        source = work.step(node, "Concat", parts, (batch, channels, before + depth + behind, *size), {"axis": 2})
    indices = np.arange(deep)[:, np.newaxis] * step + np.arange(taps) * apart
    return source, work.constant(f"{node.output}/depths", indices.astype(np.int64))


def _seeing(node: Node, axes: tuple[int | None, int | None]) -> dict[str, Any]:
    """The node's attributes for a window over two of its axes; None is an axis along which a window sees one place."""
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
    **dict.fromkeys(POOLINGS, _pool),
    **dict.fromkeys(GLOBAL_POOLINGS, _global_pool),
}
