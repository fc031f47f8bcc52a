"""Provide ONNX files of EPContext nodes and others, as tools merge and cut them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from tests.native.fake import ELEMENTS

Value = tuple[str, Sequence[Any]] | str
"""A tensor's name and shape; of a name alone it's that of the fake contexts."""


def node(
    inputs: Sequence[str], outputs: Sequence[str], context: Path | bytes | str | None, graph: str = "main", **more: Any
) -> onnx.NodeProto:
    """An EPContext node. context: a file next to the ONNX file, or the bytes of one, or a path as it is; None: that of
    a main node."""
    attributes: dict[str, Any] = {"main_context": int(context is not None), "source": "gputune"}
    attributes["partition_name"] = graph
    if context is not None:
        attributes["embed_mode"] = int(isinstance(context, bytes))
        attributes["ep_cache_context"] = context.name if isinstance(context, Path) else context
    name = more.pop("name", f"node of {', '.join(outputs)}")
    attributes |= more
    return helper.make_node(
        "EPContext",
        inputs,
        outputs,
        name=name,
        domain="com.microsoft",
        **{key: value for key, value in attributes.items() if value is not None},
    )


def _info(value: Value, kind: int) -> onnx.ValueInfoProto:
    name, shape = (value, (ELEMENTS,)) if isinstance(value, str) else value
    return helper.make_tensor_value_info(name, kind, shape)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    inner: Sequence[Value] = (),
    constants: Sequence[onnx.TensorProto] = (),
    kind: int = TensorProto.FLOAT,
    metadata: dict[str, str] | None = None,
) -> Path:
    """Writes a model. inner: tensors between nodes, whose shapes onnxruntime cannot infer."""
    graph = helper.make_graph(
        list(nodes),
        "model",
        [_info(value, kind) for value in inputs],
        [_info(value, kind) for value in outputs],
        list(constants),
        value_info=[_info(value, kind) for value in inner],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opsets)
    if metadata:
        helper.set_model_props(model, metadata)
    onnx.save(model, str(path))
    return path


def save_in_parts(path: Path, binary: Path | bytes) -> Path:
    """A model of two parts, which multiply by 8 each; onnxruntime negates what is between them, and looks at it."""
    kinds: dict[str, tuple[int, list[int | str | None]]] = {
        "y": (TensorProto.FLOAT, [64]),
        "whole": (TensorProto.INT64, [64]),
        "found": (TensorProto.INT64, [1, "n"]),
    }
    between = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ("h", "n")]
    graph = helper.make_graph(
        [
            node(["x"], ["h"], binary, graph="one"),
            helper.make_node("Neg", ["h"], ["n"]),
            helper.make_node("Cast", ["h"], ["whole"], to=TensorProto.INT64),
            helper.make_node("NonZero", ["whole"], ["found"]),
            node(["n"], ["y"], None, graph="two"),
        ],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])],
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        value_info=between,
    )
    return save_graph(path, graph)


def save_graph(path: Path, graph: onnx.GraphProto) -> Path:
    """A model of a graph that may have EPContext nodes."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), str(path))
    return path
