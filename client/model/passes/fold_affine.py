"""Fold scales and shifts per output channel into the weights and bias of the preceding Conv, ConvTranspose or Gemm.

This removes BatchNormalization, a bias written as Add, and learnable scales.
"""

from dataclasses import dataclass, replace

import numpy as np

from gputune.client.model.graph import Array, Graph, Node
from gputune.client.model.passes.additions import Additions
from gputune.client.model.passes.refusing import refusing

OUTPUT_CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1}
"""Where the output channel, in a ConvTranspose the group's, lies in the weights of what takes a scale and a shift."""


@dataclass
class _Affine:
    """result * scale + shift, per output channel, in double precision; `moved` once it is not the identity."""

    scale: Array
    shift: Array
    moved: bool = False


def fold_affine(graph: Graph) -> Graph:
    """Return the same graph with fewer Add, Sub, Mul and Div; a result with other readers is left alone."""
    uses = graph.uses()
    readers = {name: node for node in graph.nodes for name in node.reads}
    swallowed: set[str] = set()
    nodes: list[Node] = []
    added = Additions(graph)
    for node in graph.nodes:
        if node.output in swallowed:
            continue
        if node.op not in OUTPUT_CHANNEL_AXIS or node.inputs[1] not in graph.constants:
            nodes.append(node)
            continue
        axis = OUTPUT_CHANNEL_AXIS[node.op]
        channels = graph.constants[node.inputs[1]].shape[axis] * _groups(node)
        affine = _Affine(np.ones(channels), np.zeros(channels))
        last, origins = node, node.origins
        while uses[last.output] == 1 and (reader := readers.get(last.output)) is not None:
            if not _absorb(graph, node, last.output, reader, affine):
                break
            swallowed.add(reader.output)
            last, origins = reader, (*origins, *reader.origins)
        folded = replace(node, outputs=last.outputs, origins=origins)
        with refusing(node):
            nodes.append(_with(graph, folded, axis, affine, added) if affine.moved else node)
    return graph.rewritten(nodes, added.constants, scaled=added.scaled)


def _absorb(graph: Graph, node: Node, value: str, reader: Node, affine: _Affine) -> bool:
    """Take the reader's constant into `affine` if it is one number per channel, and return whether it was."""
    if reader.op not in ("Add", "Sub", "Mul", "Div") or graph.shape(reader.output) != graph.shape(value):
        return False
    left, right = reader.inputs
    numbers = _per_channel(graph, node, right if value == left else left)
    if numbers is None or (reader.op == "Div" and (value == right or not numbers.all())):
        return False
    match reader.op:
        case "Mul" | "Div":
            factor = 1 / numbers if reader.op == "Div" else numbers
            affine.scale, affine.shift = affine.scale * factor, affine.shift * factor
        case "Sub" if value == right:
            affine.scale, affine.shift = -affine.scale, numbers - affine.shift
        case _:
            affine.shift = affine.shift + (numbers if reader.op == "Add" else -numbers)
    affine.moved = True
    return True


def _per_channel(graph: Graph, node: Node, tensor: str) -> Array | None:
    """Return a constant as one double per output channel of `node`, None when it varies along another axis."""
    value = graph.constants.get(tensor)
    if value is None:
        return None
    shape = graph.shape(node.output)
    channel = len(shape) - 1 if node.op == "Gemm" else 1
    padded = (1,) * (len(shape) - value.ndim) + value.shape
    if any(size != 1 for axis, size in enumerate(padded) if axis != channel) or value.size not in (1, shape[channel]):
        return None
    return np.broadcast_to(value.reshape(-1).astype(np.float64), (shape[channel],))


def _with(graph: Graph, node: Node, axis: int, affine: _Affine, added: Additions) -> Node:
    """Return the node with new weights and bias."""
    weight = graph.constants[node.inputs[1]]
    old_bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if old_bias and old_bias not in graph.constants:
        raise graph.computed(node, "bias", old_bias)
    bias = graph.constants[old_bias] if old_bias else np.zeros_like(affine.shift)
    biased = added.constant(f"{node.name}/bias", bias * affine.scale + affine.shift)
    if (affine.scale == 1).all():  # a bias alone is no reason to touch what may be half a gigabyte
        return replace(node, inputs=(*node.inputs[:2], biased))
    scale = affine.scale.reshape(_groups(node), *(-1 if each == axis else 1 for each in range(weight.ndim)))
    scaled = weight.reshape(_groups(node), -1, *weight.shape[1:]) * scale
    known = graph.scaled.get(node.inputs[1]) if node.op == "Gemm" else None
    kept = known and known.times(affine.scale)
    weighted = added.constant(f"{node.name}/weight", scaled.reshape(weight.shape), kept)
    return replace(node, inputs=(node.inputs[0], weighted, biased))


def _groups(node: Node) -> int:
    """In how many groups of its first axis the weights hold other output channels: of a Conv they are that axis."""
    return int(node.attributes.get("group", 1)) if node.op == "ConvTranspose" else 1
