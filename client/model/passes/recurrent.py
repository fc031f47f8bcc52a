"""Move out of LSTM, GRU and RNN the work that does not wait for the previous step.

What the input contributes to the gates of all steps becomes one MatMul and an Add before the node. The node's inputs
are then

  gates [steps, batch, directions * gates * hidden], the recurrent weights [directions, hidden, gates, hidden], the bias
  [directions, hidden] of a GRU with linear_before_reset, lengths, first h, first c, peepholes, scales

An LSTM whose state is quantised (definitions/quantising.py) has gates and scales already.
"""

from dataclasses import replace

import numpy as np

from gputune.client.model.graph import Array, Graph, Node, Scaled, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.refusing import refusing
from gputune.core.precision import IN_FLOATS
from gputune.kernels.indexing.cells import GATES

ONNX_INPUTS = 8


def project_inputs(graph: Graph) -> Graph:
    """Return the same graph with its recurrent nodes in this form. Raises ModelError for weights that are computed."""
    work = _Work(graph)
    for node in graph.nodes:
        if node.op in GATES:
            with refusing(node):
                work.take(node)
        else:
            work.nodes.append(node)
    return graph.rewritten(work.nodes, work.constants, work.tensors, work.scaled)


def has_whole_state(graph: Graph, node: Node) -> bool:
    """Return whether a node is an LSTM whose state is quantised, with scales in place of W."""
    return node.op == "LSTM" and len(graph.shape(node.inputs[1])) == 2


class _Work(Work):
    """The graph being read, and the nodes and tensors of the new one."""

    def take(self, node: Node) -> None:
        source, *weights = (*node.inputs, *[""] * (ONNX_INPUTS - len(node.inputs)))
        if has_whole_state(self.graph, node):
            self._take_whole(node, source, *weights)
            return
        weight, recurrent = (self.value(node, name, what) for name, what in zip(weights, "WR", strict=False))
        gates, directions, hidden = GATES[node.op], recurrent.shape[0], recurrent.shape[2]
        steps = self.graph.shape(source)[1 if node.attributes.get("layout", 0) else 0]
        bias, lengths = weights[2:4]
        biases = self.value(node, bias, "B") if bias else np.zeros((directions, 2 * gates * hidden), np.float32)
        biases = biases.reshape(directions, 2, gates, hidden)
        added, after = biases.sum(axis=1), ""
        if node.attributes.get("linear_before_reset", 0):
            added[:, 2] = biases[:, 0, 2]
            after = self.constant(f"{node.name}/bias", biases[:, 1, 2])
        projected = self._projection(node, source, weight.reshape(-1, weight.shape[2]).T, added.reshape(-1))
        packed = self._packed(node, recurrent)
        self.nodes.append(replace(node, inputs=(projected, packed, after, self._lengths(lengths, steps), *weights[4:])))

    def _take_whole(
        self, node: Node, gates: str, scales: str, recurrent: str, _: str, lengths: str, *rest: str
    ) -> None:
        if self._lengths(lengths, self.graph.shape(gates)[0]):
            raise node.unsupported(f"its sequences have lengths of their own, {lengths!r}")
        weight = self.value(node, recurrent, "R")
        if self.graph.precision.quantised == IN_FLOATS:
            weight, scales = weight * self.value(node, scales, "scales")[..., np.newaxis], ""
        packed = self._packed(node, weight, whole=bool(scales))
        self.nodes.append(replace(node, inputs=(gates, packed, "", "", *rest, scales)))

    def _packed(self, node: Node, recurrent: Array, whole: bool = False) -> str:
        gates, (directions, _, hidden) = GATES[node.op], recurrent.shape
        turned = recurrent.reshape(directions, gates, hidden, hidden).transpose(0, 2, 1, 3)
        return self.constant(f"{node.name}/recurrent", turned, Scaled(turned.astype(np.int16)) if whole else None)

    def _lengths(self, lengths: str, steps: int) -> str:
        """Return the name of the lengths of sequences, "" where all have every step."""
        known = self.graph.constants.get(lengths)
        return "" if known is not None and (known == steps).all() else lengths

    def _projection(self, node: Node, source: str, weight: Array, bias: Array) -> str:
        """Add the nodes of the input times `weight`, plus `bias`; return their result, or that of a known input."""
        if source in self.graph.constants:
            return self.constant(f"{node.name}/gates", self.graph.constants[source] @ weight + bias)
        info = TensorInfo((*self.graph.shape(source)[:2], weight.shape[1]))
        matrix, shift = (self.constant(f"{node.name}/{what}", value) for what, value in (("W", weight), ("B", bias)))
        product, result = (self.tensor(f"{node.name}/{what}", info) for what in ("product", "gates"))
        self.nodes += [
            Node("MatMul", f"{node.name}/input", (source, matrix), (product,), origins=node.origins),
            Node("Add", f"{node.name}/shift", (product, shift), (result,), origins=node.origins),
        ]
        return result
