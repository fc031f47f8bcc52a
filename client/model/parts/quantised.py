"""Find the nodes that onnxruntime computes with quantised numbers, because of the nodes next to them."""

from collections.abc import Collection, Mapping

import onnx

from gputune.client.model.importer import operator_of, read_by

DOMAINS = ("", "com.microsoft.")
"""Where QuantizeLinear and DequantizeLinear are defined; onnxruntime takes both alike."""
QUANTIZE, DEQUANTIZE = (frozenset(domain + op for domain in DOMAINS) for op in ("QuantizeLinear", "DequantizeLinear"))
MOVES = frozenset(("MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""onnxruntime changes the order of these and a conversion."""
ACTIVATIONS = frozenset(("Clip", "Relu"))
"""onnxruntime makes these part of the QuantizeLinear behind them."""


def next_to_quantised(
    nodes: Mapping[int, onnx.NodeProto], host: Collection[int], constants: Collection[str]
) -> set[int]:
    """Return the nodes that read what a DequantizeLinear computes, or compute what a QuantizeLinear reads.

    nodes: those that have to run, by their places in order. host: those that run on the host, as conversions do unless
    an op package has kernels for them. constants: tensors that no node computes.
    """
    ops = {place: operator_of(node) for place, node in nodes.items()}
    makers = {name: place for place, node in nodes.items() for name in node.output if name}
    before = {
        place: {makers[name] for name in read_by(node) if name in makers and name not in constants}
        for place, node in nodes.items()
    }
    reading = {place for place in host if ops.get(place) in DEQUANTIZE}
    found = set[int]()
    for place in nodes:
        if not before[place].isdisjoint(reading):
            found.add(place)
            reading |= {place} if ops[place] in MOVES else set()
    feeding = {place for place in host if ops.get(place) in QUANTIZE}
    for place in reversed(list(nodes)):
        if place in feeding:
            found |= before[place]
            feeding |= {maker for maker in before[place] if ops[maker] in MOVES | ACTIVATIONS}
    return found
