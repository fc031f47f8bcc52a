"""Compare DynamicQuantizeLSTM, step by step, with the oracle: onnxruntime with one thread and weights of uint8."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.oracle import Oracle
from gputune.client.model.reference import evaluate
from tests.client.models import Array
from tests.client.plans import Lowered, assert_whole

INPUTS, HIDDEN = 12, 16


@dataclass(frozen=True)
class Given:
    """A cell's use. of_columns: whether scales and zero points are."""

    steps: int
    batch: int
    direction: str = "forward"
    dtype: str = "int8"
    of_columns: bool = False
    with_state: bool = True
    opset: int = 13


CASES = {
    "forward": Given(7, 2),
    "both directions": Given(6, 1, "bidirectional", "uint8", with_state=False),
    "backwards, of columns": Given(5, 3, "reverse", of_columns=True, opset=18),
}


def model_of(given: Given, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model, and values of its inputs."""
    random = np.random.default_rng(2)
    count = 2 if given.direction == "bidirectional" else 1
    numbers = (count, 4 * HIDDEN) if given.of_columns else (count,)
    limits = np.iinfo(given.dtype)
    values: dict[str, Array] = {"x": random.standard_normal((given.steps, given.batch, INPUTS)).astype(np.float32)}
    for name, rows in (("w", INPUTS), ("r", HIDDEN)):
        whole = random.integers(limits.min, limits.max + 1, (count, rows, 4 * HIDDEN))
        values[name] = whole.astype(given.dtype)
        values[f"{name}s"] = (random.uniform(0.5, 1.5, numbers) / 70 / np.sqrt(HIDDEN)).astype(np.float32)
        values[f"{name}z"] = np.full(numbers, 128 if given.dtype == "uint8" else 0, given.dtype)
    values["b"] = (random.standard_normal((count, 8 * HIDDEN)) * 0.1).astype(np.float32)
    states = ["h", "c"] if given.with_state else ["", ""]
    values |= {name: random.standard_normal((count, given.batch, HIDDEN)).astype(np.float32) for name in states if name}
    inputs = ["x", "w", "r", "b", "", *states, "", "ws", "wz", "rs", "rz"]
    attributes |= {"hidden_size": HIDDEN, "direction": given.direction}
    node = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["Y", "Yh", "Yc"], "cell", domain="com.microsoft", **attributes
    )
    known = [name for name in ("x", *states) if name]
    graph = helper.make_graph(
        [node],
        "cell",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, values[name].shape) for name in known],
        [helper.make_empty_tensor_value_info(name) for name in node.output],
        [numpy_helper.from_array(value, name) for name, value in values.items() if name not in known],
    )
    opsets = [helper.make_opsetid("", given.opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), {name: values[name] for name in known}


@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_steps_are_those_of_onnxruntime(lowered: Lowered, given: Given, tmp_path: Path) -> None:
    model, inputs = model_of(given)
    plan = lowered(model)
    assert_whole(plan)
    onnx.save(model, tmp_path / "model.onnx")
    got, wanted = evaluate(plan, inputs), Oracle(tmp_path / "model.onnx").run(inputs)
    for name, want in wanted.items():
        np.testing.assert_allclose(got[name], want, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("attributes", [{"clip": 3.0}, {"input_forget": 1}, {"activations": ["Relu", "Tanh", "Tanh"]}])
def test_other_cells_are_refused(lowered: Lowered, attributes: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"there are no kernels for com\.microsoft\.DynamicQuantizeLSTM"):
        lowered(model_of(CASES["forward"], **attributes)[0])
