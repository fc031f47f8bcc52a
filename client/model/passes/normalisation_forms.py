"""Bring BatchNormalization into one form, elementwise steps with one number per channel, for one_form.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gputune.client.model.graph import Node, TensorInfo
from gputune.client.model.passes.additions import Work


class _Steps:
    """The nodes that a node becomes, and the names of their results."""

    def __init__(self, work: Work, node: Node) -> None:
        self.work = work
        self.node = node
        self.nodes: list[Node] = []

    def of(self, shape: tuple[int, ...], op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Return the result of one more node, which has this shape, as `output` or under a new name."""
        number = len(self.nodes)
        output = output or self.work.tensor(f"{self.node.output}/{number}", TensorInfo(shape))
        name = f"{self.node.name}/{number}" if output != self.node.output else self.node.name
        self.nodes.append(Node(op, name, inputs, (output,), attributes, origins=self.node.origins))
        return output

    def number(self, value: float) -> str:
        """Return a constant."""
        return self.work.constant(f"{self.node.output}/number", value)


def batch_normalization(work: Work, node: Node) -> Iterator[Node]:
    if not node.attributes.get("spatial", 1):
        raise node.unsupported("it normalises each position on its own (spatial=0)")
    shape, epsilon = work.graph.shape(node.output), float(node.attributes.get("epsilon", 1e-5))
    column = (1, work.graph.tensors[node.inputs[1]].size, *(1 for _ in shape[2:]))
    steps = _Steps(work, node)
    if node.attributes.get("training_mode", 0):
        _training(steps, shape, column, epsilon)
    elif any(work.uses[name] for name in node.outputs[1:]):
        raise node.unsupported("its mean and variance are used as outputs, which is for training mode only")
    elif all(name in work.graph.constants for name in node.inputs[1:5]):
        parts = (np.asarray(work.graph.constants[name], np.float64) for name in node.inputs[1:5])
        scale, bias, mean, variance = parts
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = scale / np.sqrt(variance + epsilon)
        factors = work.constant(f"{node.output}/factor", factor.reshape(column[1:]))
        shifts = work.constant(f"{node.output}/shift", (bias - mean * factor).reshape(column[1:]))
        steps.of(shape, "Add", steps.of(shape, "Mul", node.inputs[0], factors), shifts, output=node.output)
    else:
        scales, biases, means, variances = (steps.of(column, "Reshape", name) for name in node.inputs[1:5])
        factors = _factors(steps, column, scales, variances, epsilon)
        shifts = steps.of(column, "Sub", biases, steps.of(column, "Mul", means, factors))
        steps.of(shape, "Add", steps.of(shape, "Mul", node.inputs[0], factors), shifts, output=node.output)
    yield from steps.nodes


def _factors(steps: _Steps, column: tuple[int, ...], scales: str, variances: str, epsilon: float) -> str:
    raised = steps.of(column, "Add", variances, steps.number(epsilon))
    return steps.of(column, "Div", scales, steps.of(column, "Sqrt", raised))


def _training(steps: _Steps, shape: tuple[int, ...], column: tuple[int, ...], epsilon: float) -> None:
    """Normalise the batch by its own statistics, which move those that are given."""
    node, momentum = steps.node, float(steps.node.attributes.get("momentum", 0.9))
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    scales, biases, *given = (steps.of(column, "Reshape", name) for name in node.inputs[1:5])
    means = steps.of(column, "ReduceMean", node.inputs[0], axes=axes, keepdims=1)
    moved = steps.of(shape, "Sub", node.inputs[0], means)
    # the mean is rounded, which channels of nearly one value would keep
    moved = steps.of(shape, "Sub", moved, steps.of(column, "ReduceMean", moved, axes=axes, keepdims=1))
    variances = steps.of(column, "ReduceMean", steps.of(shape, "Mul", moved, moved), axes=axes, keepdims=1)
    scaled = steps.of(shape, "Mul", moved, _factors(steps, column, scales, variances, epsilon))
    steps.of(shape, "Add", scaled, biases, output=node.output)
    for output, old, new in zip(node.outputs[1:], given, (means, variances), strict=False):
        if output:
            kept = steps.of(column, "Mul", old, steps.number(momentum))
            added = steps.of(column, "Mul", new, steps.number(1 - momentum))
            steps.of((column[1],), "Reshape", steps.of(column, "Add", kept, added), output=output)
