"""Compare DynamicQuantizeLSTM, step by step, with the oracle: onnxruntime with one thread and weights of uint8."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.graph import Precision
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.oracle import Oracle
from gputune.client.model.plan import Plan
from gputune.client.model.reference import evaluate
from gputune.core.precision import EXACT, IN_FLOATS
from tests.client.models import Array, save
from tests.client.plans import Lowered, assert_whole

INPUTS, HIDDEN = 12, 16


@dataclass(frozen=True)
class Given:
    """A cell's use. of_columns: whether scales and zero points are. without: optional inputs that are absent."""

    steps: int
    batch: int
    direction: str = "forward"
    dtype: str = "int8"
    of_columns: bool = False
    without: str = "P"
    opset: int = 13
    attributes: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "forward": Given(7, 2),
    "both directions": Given(6, 1, "bidirectional", "uint8", without="h c P"),
    "backwards, of columns": Given(5, 3, "reverse", of_columns=True, opset=18),
    "without zero points and biases": Given(4, 2, without="b wz rz P", opset=12),
    "peepholes": Given(5, 2, "bidirectional", without=""),
    "clip": Given(5, 1, attributes={"clip": 0.3}),
    "other functions": Given(5, 2, attributes={"activations": ["HardSigmoid", "Softsign", "Relu"]}),
    "coupled": Given(5, 2, attributes={"input_forget": 1}),
    "lengths of all steps": Given(5, 2, without="", attributes={"lengths": (5, 5)}),
}


def model_of(given: Given) -> tuple[onnx.ModelProto, dict[str, Array]]:
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
    states = {name: random.standard_normal((count, given.batch, HIDDEN)).astype(np.float32) for name in "hc"}
    values |= states | {"P": (random.standard_normal((count, 3 * HIDDEN)) * 0.3).astype(np.float32)}
    attributes = {**given.attributes, "hidden_size": HIDDEN, "direction": given.direction}
    if lengths := attributes.pop("lengths", ()):
        values["lengths"] = np.array(lengths, np.int32)
    for name in given.without.split():
        del values[name]
    inputs = ["x", "w", "r", "b", "lengths", "h", "c", "P", "ws", "wz", "rs", "rz"]
    inputs = [name if name in values else "" for name in inputs]
    node = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["Y", "Yh", "Yc"], "cell", domain="com.microsoft", **attributes
    )
    known = [name for name in ("x", *states) if name in values]
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
    assert sum(each.task.op == "Recurrent" for each in plan.operations) == 1
    onnx.save(model, tmp_path / "model.onnx")
    got, wanted = evaluate(plan, inputs), Oracle(tmp_path / "model.onnx").run(inputs)
    for name, want in wanted.items():
        np.testing.assert_allclose(got[name], want, rtol=0, atol=1e-6, err_msg=name)


def test_lengths_are_refused(lowered: Lowered) -> None:
    model, _ = model_of(Given(5, 2, attributes={"lengths": (5, 4)}))
    with pytest.raises(ModelError, match="its sequences have lengths of their own, 'lengths'"):
        lowered(model)


def test_in_floats_no_state_is_rounded(tmp_path: Path) -> None:
    """The recurrent weights are dequantised then, and the cell is one of floats."""
    model, inputs = model_of(CASES["both directions"])
    graph = read_model(save(model, tmp_path))
    exact, floats = (lower(replace(graph, precision=Precision(quantised=rules))) for rules in (EXACT, IN_FLOATS))
    assert [plan_cells(plan) for plan in (exact, floats)] == [[True], [False]]
    for name, value in evaluate(exact, inputs).items():
        np.testing.assert_allclose(evaluate(floats, inputs)[name], value, rtol=0, atol=0.05)


def plan_cells(plan: Plan) -> list[bool]:
    """Return of each cell whether its state is whole numbers."""
    return [operation.task.problem.whole for operation in plan.operations if operation.task.op == "Recurrent"]
