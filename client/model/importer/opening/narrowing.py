"""Make float32 of all numbers of another type in a model: of float64, so that kernels can compute what it says, as
exactly as they can; of bfloat16, so that onnxruntime can, which has few kernels for it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array
from gputune.client.model.importer.definitions import STANDARD
from gputune.client.model.importer.opening.ordering import graphs_of
from gputune.client.model.importer.opening.weights import constant

log = logging.getLogger(__name__)

TYPES = frozenset(("dtype", "to"))
"""Attributes of ONNX's operators that say which type a node computes."""


def narrowed(model: ModelProto, path: Path) -> ModelProto:
    """Return a model without functions in float32; with a warning itself, if it has no float64. path: what messages
    call it, and where its data lies. Raises ModelError for a number that is too large."""
    copy = ModelProto()
    copy.CopyFrom(model)
    if _Conversion(path, TensorProto.DOUBLE).graph(copy.graph):
        return copy
    log.warning(f"--float64 has no effect on model {path}, which has no float64; leave it out")
    return model


def widen(model: ModelProto, path: Path) -> bool:
    """Make float32 of all bfloat16 in a model, and return whether it had any. path: as of narrowed."""
    return _Conversion(path, TensorProto.BFLOAT16).graph(model.graph) > 0


class _Conversion:
    """Each method returns how much of what it is given was of a type, and is in float32 now."""

    def __init__(self, path: Path, elem_type: int) -> None:
        self._path, self._elem_type = path, elem_type

    def graph(self, graph: GraphProto) -> int:
        """In a graph and in those of its nodes."""
        tensors = sum(map(self._tensor, graph.initializer))
        values = sum(map(self._value, (*graph.input, *graph.output, *graph.value_info)))
        inner = sum(map(self.graph, graphs_of(graph.node)))
        return tensors + values + inner + sum(self._node(node) for node in graph.node)

    def _node(self, node: NodeProto) -> int:
        own = node.attribute if node.domain in STANDARD else ()
        types = [item for item in own if item.name in TYPES and item.i == self._elem_type]
        for item in types:
            item.i = TensorProto.FLOAT
        return len(types) + sum(map(self._tensor, _tensors(node)))

    def _tensor(self, item: TensorProto) -> int:
        if item.data_type != self._elem_type:
            return 0
        item.CopyFrom(numpy_helper.from_array(self._numbers(item), item.name))
        return 1

    def _numbers(self, item: TensorProto) -> Array:
        value = constant(self._path, item)
        with np.errstate(over="ignore"):
            narrow = np.asarray(value, np.float32)
        if np.any(np.isinf(narrow) & np.isfinite(value)):
            raise ModelError(
                f"constant {item.name!r} of model {self._path} has numbers that float32 cannot hold, such as "
                f"{np.max(np.abs(value[np.isfinite(value)])):g}; leave --float64 out"
            )
        return narrow

    def _value(self, item: ValueInfoProto) -> int:
        kind = item.type.tensor_type
        if kind.elem_type != self._elem_type:
            return 0
        kind.elem_type = TensorProto.FLOAT
        return 1


def _tensors(node: NodeProto) -> Iterator[TensorProto]:
    for item in node.attribute:
        if item.type == AttributeProto.TENSOR:
            yield item.t
        yield from item.tensors
