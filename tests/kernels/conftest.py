"""Provide onnxruntime as the judge of references."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

RunNode = Callable[..., Any]


def _run_node(op: str, inputs: Sequence[Any], **attributes: Any) -> Any:
    names = ["" if value is None else f"x{k}" for k, value in enumerate(inputs)]
    given = {name: np.asarray(value, np.float32) for name, value in zip(names, inputs, strict=True) if name}
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "one_node",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in given.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


@pytest.fixture(scope="session")
def run_node() -> RunNode:
    """run_node(op, inputs, **attributes): one ONNX node's first output; None among the inputs leaves one out."""
    return _run_node
