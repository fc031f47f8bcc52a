"""Lower the operators that normalise magnitudes: normalisations over axes or groups, and LRN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.layouts import device_shape
from gputune.client.model.lowering.reductions import positions, rows
from gputune.client.model.passes.axes import axis_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.loops import merged
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.reduce import ReduceProblem

WITHOUT_ZERO = 1e-9
"""What MeanVarianceNormalization adds to a deviation; its square is added to the variance instead."""


def over_axes(lowering: Lowering, node: Node) -> None:
    """LayerNormalization and RMSNormalization, over the axes from `axis` on or over those that a pass has found.

    The statistics of the first are reductions of their own where a model reads them.
    """
    if node.attributes.get("stash_type", 1) != 1:
        raise node.unsupported(f"it computes in type {node.attributes['stash_type']}; 1, float32, is supported")
    graph, layouts = lowering.graph, lowering.layouts
    rank = len(graph.shape(node.inputs[0]))
    axes = node.attributes.get("axes") or range(axis_of(graph, node, -1), rank)
    on_device = layouts.lies_on_device(node.inputs[0])
    source = layouts.get(node.inputs[0], on_device)
    shape, places = _shape(lowering, node, on_device), positions(axes, on_device)
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    parameters, varies = _parameters(lowering, node, shape, on_device)
    kind = "rms" if node.op == "RMSNormalization" else "deviation"
    rows = merged(shape, places, varies)
    problem = NormaliseProblem(kind, *rows, "scale" in parameters, "bias" in parameters, epsilon, node.chain)
    lowering.run(node, "Normalise", problem, {"input": source, **parameters}, on_device)
    inverse = Chain((Step("add", (epsilon,)), Step("sqrt"), Step("div", (1.0,), swapped=True)))
    for output, statistic, chain in zip(node.outputs[1:], ("mean", "variance"), (Chain(), inverse), strict=False):
        if lowering.uses[output]:
            reduction = ReduceProblem(statistic, *merged(shape, places)[:2], epilogue=chain)
            target = layouts.define(output, on_device)
            lowering.emit(f"{node.name}/{statistic}", "Reduce", reduction, {"input": source}, target, node.stands_for)


def per_channel(lowering: Lowering, node: Node) -> None:
    """InstanceNormalization and GroupNormalization: over the positions of each channel or group of channels."""
    if node.attributes.get("stash_type", 1) != 1:
        raise node.unsupported(f"it computes in type {node.attributes['stash_type']}; 1, float32, is supported")
    on_device = lowering.layouts.lies_on_device(node.inputs[0])
    batch, channels, *spatial = lowering.graph.shape(node.inputs[0])
    groups = int(node.attributes.get("num_groups", channels))
    if groups < 1 or channels % groups:
        raise node.unsupported(f"its {channels} channels cannot be divided into {groups} groups")
    sizes = {lowering.graph.tensors[name].size for name in node.inputs[1:3]}
    if len(sizes) != 1 or not sizes <= {groups, channels}:
        raise node.unsupported(f"its scale and bias have {sizes} elements, there are {channels} channels")
    each = channels // groups
    shape, group, within = (batch, groups, each, prod(spatial)), 1, (2, 3)
    if on_device:
        shape, group, within = (batch, prod(spatial), groups, each), 2, (1, 3)
    varies = (group,) if sizes == {groups} else (group, group + 1)
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    problem = NormaliseProblem("deviation", *merged(shape, within, varies), True, True, epsilon, node.chain)
    names = dict(zip(("input", "scale", "bias"), node.inputs, strict=True))
    inputs = {key: lowering.layouts.get(name, on_device and key == "input") for key, name in names.items()}
    lowering.run(node, "Normalise", problem, inputs, on_device)


def plain(lowering: Lowering, node: Node) -> None:
    """LpNormalization and MeanVarianceNormalization."""
    if node.op == "LpNormalization":
        axes: Sequence[int] = (axis_of(lowering.graph, node, -1),)
        if (norm := int(node.attributes.get("p", 2))) not in (1, 2):
            raise node.unsupported(f"its norm has p = {norm}; 1 and 2 are supported")
        kind, epsilon = f"l{norm}", 0.0
    else:
        rank = len(lowering.graph.shape(node.inputs[0]))
        axes = [int(axis) % rank for axis in node.attributes.get("axes", (0, 2, 3))]
        kind, epsilon = "deviation", WITHOUT_ZERO**2
    on_device = lowering.layouts.lies_on_device(node.inputs[0])
    rows = merged(_shape(lowering, node, on_device), positions(axes, on_device))
    problem = NormaliseProblem(kind, *rows, epsilon=epsilon, epilogue=node.chain)
    lowering.run(node, "Normalise", problem, {"input": lowering.layouts.get(node.inputs[0], on_device)}, on_device)


def local_response(lowering: Lowering, node: Node) -> None:
    """LRN, across the channels."""
    on_device = lowering.layouts.lies_on_device(node.inputs[0])
    problem = LrnProblem(
        *rows(lowering, node, (1,), on_device),
        size=int(node.attributes["size"]),
        alpha=float(node.attributes.get("alpha", 1e-4)),
        beta=float(node.attributes.get("beta", 0.75)),
        bias=float(node.attributes.get("bias", 1.0)),
    )
    lowering.run(node, "LRN", problem, {"input": lowering.layouts.get(node.inputs[0], on_device)}, on_device)


def _shape(lowering: Lowering, node: Node, on_device: bool) -> tuple[int, ...]:
    shape = lowering.graph.shape(node.inputs[0])
    return device_shape(shape) if on_device else shape


def _parameters(
    lowering: Lowering, node: Node, shape: tuple[int, ...], on_device: bool
) -> tuple[dict[str, str], tuple[int, ...]]:
    """Return the tensors of scale and bias, which broadcast to the input, and the axes along which both vary."""
    layouts = lowering.layouts
    names = {key: name for key, name in zip(("scale", "bias"), node.inputs[1:3], strict=False) if name}
    if not names:
        return {}, ()
    found = {key: layouts.get_broadcast(name, len(shape), on_device) for key, name in names.items()}
    sizes = {key: (1,) * len(shape) + layouts.tensors[name].shape for key, name in found.items()}
    sizes = {key: size[-len(shape) :] if shape else () for key, size in sizes.items()}
    together = np.broadcast_shapes(*sizes.values())
    for key, name in found.items():
        if sizes[key] == together:
            continue
        if name not in layouts.constants:
            raise node.unsupported(f"its scale and bias have the shapes {list(sizes.values())}")
        value = np.broadcast_to(layouts.constants[name].reshape(sizes[key]), together)
        found[key] = layouts.constant(f"{node.output}/{key}", value)
    if any(size not in (1, whole) for size, whole in zip(together, shape, strict=True)):
        raise node.unsupported(f"its scale of shape {together} does not broadcast to {shape}")
    return found, tuple(axis for axis, size in enumerate(together) if size > 1)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "GroupNormalization": per_channel,
    "InstanceNormalization": per_channel,
    "LRN": local_response,
    "LayerNormalization": over_axes,
    "LpNormalization": plain,
    "MeanVarianceNormalization": plain,
    "RMSNormalization": over_axes,
}
