"""Bring elementwise operators into one form, for one_form.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gputune.client.model.graph import Node, TensorInfo
from gputune.client.model.passes.additions import Work

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
    """Return the form of an operator of any number of inputs: `op`, which takes two, for each after the first."""

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
        ones = work.exact(f"{mask}/ones", np.broadcast_to(np.ones((), info.dtype), info.shape))
        yield Node("Identity", f"{node.name}/mask", (ones,), (mask,), origins=node.origins)
