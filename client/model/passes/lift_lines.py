"""Lift lines [N, C, L] to maps [N, C, 1, L] of height 1, so that the kernels for maps process lines.

Maps keep their device layout between two lifted operators. Elementwise operators, and others that mean the same on
maps, are therefore lifted too. A Reshape remains only if something else reads the line.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputune.client.model.graph import Graph, Node, Scaled, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.fuse_elementwise import ELEMENTWISE

# fmt: off
WINDOWS = frozenset((
    "AveragePool", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool",
))
# fmt: on
"""Operators that kernels compute on maps only."""

FOLLOWING = ELEMENTWISE | {"Concat", "GroupNormalization", "InstanceNormalization"}
"""Operators that mean the same on maps; they are lifted behind one that was."""

ACROSS = {"dilations": 1, "kernel_shape": 1, "output_padding": 0, "output_shape": 1, "strides": 1}
"""Attributes with one number per axis of a window, and what each is along a height of 1."""


def lift_lines(graph: Graph) -> Graph:
    """Return the same graph without convolutions and poolings of lines."""
    lift = _Lift(graph)
    for node in graph.nodes:
        lift.take(node)
    return graph.rewritten(lift.nodes, lift.constants, lift.tensors, lift.scaled)


class _Lift(Work):
    """The nodes so far; `maps` knows the map of each tensor that has one, `computed` the lines that came as maps."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.maps: dict[str, str] = {}
        self.computed: set[str] = set()

    def take(self, node: Node) -> None:
        rank = len(self.graph.shape(node.output)) if node.outputs and node.output in self.graph.tensors else 0
        behind = node.op in FOLLOWING and not self.computed.isdisjoint(node.inputs)
        if rank != 3 or not (node.op in WINDOWS or (behind and self.graph.is_float(node))):
            self.nodes.append(node)
            return
        inputs = tuple(map(self._map, node.inputs))
        outputs = tuple(name and self._computed(name) for name in node.outputs)
        self.nodes.append(replace(node, inputs=inputs, outputs=outputs, attributes=_over_maps(node.attributes)))
        self.computed.update(node.outputs)
        for line, lifted in zip(node.outputs, outputs, strict=True):
            if line:
                self.nodes.append(Node("Reshape", f"{lifted}/line", (lifted,), (line,)))

    def _map(self, tensor: str) -> str:
        """Return the tensor with a height of 1 before its last axis; what has one axis or none broadcasts as it is, and
        a bias is one number per channel."""
        if not tensor or len(self.graph.shape(tensor)) < 2 or tensor in self.maps:
            return self.maps.get(tensor, tensor)
        if tensor in self.graph.constants:
            value = self.graph.constants[tensor].reshape(self._info(tensor).shape)
            lifted = self.maps[tensor] = self.exact(f"{tensor}/map", value)
            if (known := self.graph.scaled.get(tensor)) is not None and known.scales is None and known.zeros is None:
                self.scaled[lifted] = Scaled(known.numbers.reshape(value.shape))
        else:
            lifted = self._computed(tensor)
            self.nodes.append(Node("Reshape", lifted, (tensor,), (lifted,)))
        return lifted

    def _computed(self, tensor: str) -> str:
        """Return a new tensor, the map of this one."""
        name = self.maps[tensor] = self.tensor(f"{tensor}/map", self._info(tensor))
        return name

    def _info(self, tensor: str) -> TensorInfo:
        info = self.graph.tensors[tensor]
        return TensorInfo((*info.shape[:-1], 1, info.shape[-1]), info.dtype)


def _over_maps(attributes: Mapping[str, Any]) -> dict[str, Any]:
    lifted = dict(attributes)
    for name, along_height in ACROSS.items():
        if name in lifted:
            lifted[name] = (along_height, *lifted[name])
    if "pads" in lifted:
        before, behind = lifted["pads"]
        lifted["pads"] = (0, before, 0, behind)
    if lifted.get("axis") in (2, -1):  # of a Concat; -2 and -3 become the height and the channels
        lifted["axis"] = 3
    elif lifted.get("axis", 0) < 0:
        lifted["axis"] += 3
    return lifted
