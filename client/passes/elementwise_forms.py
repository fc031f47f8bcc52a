"""The one form of elementwise operators, and of BatchNormalization, which is some of them: for one_form.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gputune.client.graph import Node, TensorInfo

if TYPE_CHECKING:  # one_form.py has the table that names these functions
    from gputune.client.passes.one_form import Work

LARGEST = float(np.finfo(np.float32).max)


def cast(work: Work, node: Node) -> Iterator[Node]:
    source = node.inputs[0]
    same = work.graph.tensors[source].dtype == work.graph.tensors[node.output].dtype
    yield replace(node, op="Identity" if same else "Cast", inputs=(source,), attributes={})


def clip(work: Work, node: Node) -> Iterator[Node]:
    source, info = node.inputs[0], work.graph.tensors[node.output]
    bounds = [(op, name) for op, name in zip(("Max", "Min"), node.inputs[1:], strict=False) if name]
    if any(work.graph.tensors[name].size != 1 for _, name in bounds):
        raise node.unsupported("one of its bounds has several elements; 1 is supported")
    if info.dtype == "float32" and all(name in work.graph.constants for _, name in bounds):
        known = {{"Max": "min", "Min": "max"}[op]: work.graph.scalar(name) for op, name in bounds}
        limits = {"min": -LARGEST, "max": LARGEST} | dict(node.attributes) | known
        yield replace(node, inputs=(source,), attributes=limits)
        return
    for number, (op, bound) in enumerate(bounds, start=1):
        last = number == len(bounds)
        result = node.output if last else work.tensor(f"{node.output}/raised", info)
        yield Node(op, node.name if last else f"{node.name}/raised", (source, bound), (result,), origins=node.origins)
        source = result
    if not bounds:
        yield replace(node, op="Identity", attributes={})


def power(work: Work, node: Node) -> Iterator[Node]:
    base, exponent = node.inputs
    if work.graph.tensors[base].dtype == "float32" != work.graph.tensors[exponent].dtype:
        if exponent in work.graph.constants:
            exponent = work.constant(f"{exponent}/float", work.graph.constants[exponent])
        else:
            whole, exponent = exponent, work.tensor(f"{exponent}/float", TensorInfo(work.graph.shape(exponent)))
            yield Node("Cast", f"{node.name}/float", (whole,), (exponent,), origins=node.origins)
    yield replace(node, inputs=(base, exponent))


def variadic(op: str) -> Callable[[Work, Node], Iterator[Node]]:
    """The form of an operator of any number of inputs: `op`, which takes two, for each after the first."""

    def form(work: Work, node: Node) -> Iterator[Node]:
        total, *others = node.inputs
        if not others:
            yield replace(node, op="Identity")
        for number, other in enumerate(others, start=1):
            name, result = node.name, node.output
            if number < len(others):
                shape = np.broadcast_shapes(*map(work.graph.shape, node.inputs[: number + 1]))
                info = TensorInfo(shape, work.graph.tensors[other].dtype)
                name, result = f"{node.name}/{number}", work.tensor(f"{node.output}/{number}", info)
            yield Node(op, name, (total, other), (result,), origins=node.origins)
            total = result

    return form


def mean(work: Work, node: Node) -> Iterator[Node]:
    total = work.tensor(f"{node.output}/sum", work.graph.tensors[node.output])
    yield from variadic("Add")(work, replace(node, name=f"{node.name}/sum", outputs=(total,)))
    count = work.constant(f"{node.output}/count", len(node.inputs))
    yield Node("Div", node.name, (total, count), node.outputs, origins=node.origins)


def dropout(work: Work, node: Node) -> Iterator[Node]:
    """At inference, or with nothing dropped, a copy of its input and a mask that is all true."""
    ratio = node.inputs[1] if len(node.inputs) > 1 else ""
    training = node.inputs[2] if len(node.inputs) > 2 else ""
    if training and work.graph.scalar(training) != 0 and work.graph.scalar(ratio) != 0:
        raise node.unsupported("it is in training mode")
    yield Node("Identity", node.name, node.inputs[:1], node.outputs[:1], origins=node.origins)
    for mask in filter(work.uses.__getitem__, node.outputs[1:]):
        info = work.graph.tensors[mask]
        ones = work.exact(f"{mask}/ones", np.ones(info.shape, info.dtype))
        yield Node("Identity", f"{node.name}/mask", (ones,), (mask,), origins=node.origins)


def batch_normalization(work: Work, node: Node) -> Iterator[Node]:
    if node.attributes.get("training_mode", 0) or any(work.uses[name] for name in node.outputs[1:]):
        raise node.unsupported("it is in training mode")
    if not node.attributes.get("spatial", 1):
        raise node.unsupported("it normalises each position on its own (spatial=0)")
    info = work.graph.tensors[node.output]
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    channels = (-1,) + (1,) * (len(info.shape) - 2)
    if all(name in work.graph.constants for name in node.inputs[1:5]):
        parts = (work.graph.constants[name] for name in node.inputs[1:5])
        scale, bias, mean, variance = (np.asarray(part, dtype=np.float64) for part in parts)
        factor = scale / np.sqrt(variance + epsilon)
        factors = work.constant(f"{node.output}/factor", factor.reshape(channels))
        shifts = work.constant(f"{node.output}/shift", (bias - mean * factor).reshape(channels))
    else:
        column = TensorInfo((work.graph.tensors[node.inputs[1]].size, *channels[1:]))
        steps: list[Node] = []

        def step(op: str, *inputs: str) -> str:
            output = work.tensor(f"{node.output}/{len(steps)}", column)
            steps.append(Node(op, f"{node.name}/{len(steps)}", inputs, (output,), origins=node.origins))
            return output

        scales, biases, means, variances = (step("Reshape", name) for name in node.inputs[1:5])
        raised = step("Add", variances, work.constant(f"{node.output}/epsilon", epsilon))
        factors = step("Div", scales, step("Sqrt", raised))
        shifts = step("Sub", biases, step("Mul", means, factors))
        yield from steps
    scaled = work.tensor(f"{node.output}/scaled", info)
    yield Node("Mul", node.name, (node.inputs[0], factors), (scaled,), origins=node.origins)
    yield Node("Add", f"{node.name}/shift", (scaled, shifts), (node.output,), origins=node.origins)
