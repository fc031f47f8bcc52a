"""Test LSTM, GRU and RNN as plans: every attribute compared with onnxruntime, and what becomes of several outputs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import Plan, lower
from gputune.client.model.reference import evaluate
from gputune.client.report.problems import problem_of, words
from gputune.kernels.family import problem_to_dict

Array = npt.NDArray[Any]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 7


def case(
    op: str,
    optional: str = "B",
    outputs: str = "Y Y_h Y_c",
    lengths: tuple[int, ...] = (),
    steps: int = STEPS,
    **attributes: Any,
) -> tuple[Any, dict[str, Array]]:
    """A model of one node with the optional inputs named, and values for its inputs."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * HIDDEN
    generator = np.random.default_rng(3)
    shapes = {
        "X": (steps, BATCH, INPUT),
        "W": (directions, rows, INPUT),
        "R": (directions, rows, HIDDEN),
        "B": (directions, 2 * rows),
        "lengths": (BATCH,),
        "h": (directions, BATCH, HIDDEN),
        "c": (directions, BATCH, HIDDEN),
        "P": (directions, 3 * HIDDEN),
    }
    there = ("X", "W", "R", *optional.split())
    values = {name: generator.uniform(-0.8, 0.8, shapes[name]).astype(np.float32) for name in there}
    values.update({"lengths": np.array(lengths, np.int32)} if lengths else {})
    names = [name if name in values else "" for name in (list(shapes) if op == "LSTM" else list(shapes)[:6])]
    given = ["X"] + [name for name in ("lengths", "h", "c") if name in values]
    wanted = [name if name in outputs.split() else "" for name in ("Y", "Y_h", "Y_c")[: 3 if op == "LSTM" else 2]]
    node = helper.make_node(op, names, wanted, hidden_size=HIDDEN, **attributes)
    kinds = {"lengths": TensorProto.INT32}
    graph = helper.make_graph(
        [node],
        "recurrent",
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), values[name].shape) for name in given],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in wanted if name],
        [numpy_helper.from_array(value, name) for name, value in values.items() if name not in given],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return model, {name: values[name] for name in given}


def planned(model: Any) -> Plan:
    return lower(import_model(model, Path("recurrent.onnx"), {}))


def agree(model: Any, inputs: dict[str, Array]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = evaluate(planned(model), inputs)
    for output, want in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        assert got[output.name].shape == want.shape
        np.testing.assert_allclose(got[output.name], want, rtol=2e-6, atol=2e-6)


@settings(max_examples=15)
@given(st.data())
def test_options_go_together_as_in_onnxruntime(data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(sorted(GATES)))
    optional = data.draw(st.sets(st.sampled_from(["B", "h", "c", "P"] if op == "LSTM" else ["B", "h"])))
    steps = data.draw(st.integers(1, 4))
    lengths = data.draw(st.just(()) | st.tuples(*[st.integers(1, steps)] * BATCH))
    outputs = data.draw(st.sets(st.sampled_from(["Y", "Y_h", "Y_c"] if op == "LSTM" else ["Y", "Y_h"]), min_size=1))
    attributes: dict[str, Any] = {"direction": data.draw(st.sampled_from(["forward", "reverse", "bidirectional"]))}
    if data.draw(st.booleans()):
        attributes["clip"] = 0.5
    if op != "RNN" and data.draw(st.booleans()):
        attributes[{"GRU": "linear_before_reset", "LSTM": "input_forget"}[op]] = 1
    agree(*case(op, " ".join(optional), " ".join(outputs), lengths, steps, **attributes))


CASES: dict[str, dict[str, Any]] = {
    "clip": {"op": "LSTM", "optional": "B P", "clip": 0.3},
    "clip-gru": {"op": "GRU", "clip": 0.3},
    "coupled": {"op": "LSTM", "optional": "B P", "input_forget": 1},
    "after-reset": {"op": "GRU", "linear_before_reset": 1, "direction": "bidirectional"},
    "after-reset-without-bias": {"op": "GRU", "optional": "", "linear_before_reset": 1},
    "first-h-only": {"op": "LSTM", "optional": "h"},
    "alphas-and-betas": {
        "op": "GRU",
        "activations": ["HardSigmoid", "LeakyRelu", "Sigmoid", "ScaledTanh"],
        "activation_alpha": [0.3, 0.2, 0.7],
        "activation_beta": [0.4, 0.9],
        "direction": "bidirectional",
    },
    "elu-and-threshold": {"op": "GRU", "activations": ["ThresholdedRelu", "Elu"], "activation_alpha": [0.1, 0.8]},
    "soft-functions": {"op": "LSTM", "activations": ["Softplus", "Softsign", "Elu"], "optional": "B h"},
    "other-functions": {
        "op": "LSTM",
        "activations": ["Affine", "Relu", "tanh"],
        "activation_alpha": [0.5],
        "activation_beta": [0.1],
    },
}


@pytest.mark.parametrize("name", CASES)
def test_attributes_agree_with_onnxruntime(name: str) -> None:
    agree(*case(**CASES[name]))


@pytest.mark.parametrize("outputs", ["Y", "Y_h", "Y_c", "Y_h Y_c", "Y Y_h Y_c"])
def test_only_what_is_used_is_written(outputs: str) -> None:
    model, inputs = case("LSTM", outputs=outputs)
    agree(model, inputs)
    operations = planned(model).operations
    parts = 0 if " " not in outputs else len(outputs.split())
    assert [each.task.op for each in operations] == ["MatMul", "Recurrent", *["Move"] * parts]
    assert operations[1].task.problem.outputs == tuple(outputs.split())


def test_known_inputs_meet_every_attribute() -> None:
    """onnx's own evaluator does not look at them all."""
    model, inputs = case("LSTM", "B h", lengths=(4, 1, 5), clip=0.3, activations=["Sigmoid", "Softsign", "Tanh"])
    for name in ("X", "lengths"):
        model.graph.input.remove(next(item for item in model.graph.input if item.name == name))
        model.graph.initializer.append(numpy_helper.from_array(inputs.pop(name), name))
    agree(model, inputs)
    model.graph.input.remove(model.graph.input[0])
    model.graph.initializer.append(numpy_helper.from_array(inputs.pop("h"), "h"))
    agree(model, inputs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_last_states_are_read_out_of_all_of_them(direction: str) -> None:
    model, inputs = case("GRU", "B h", "Y Y_h", direction=direction)
    agree(model, inputs)
    operations = planned(model).operations
    assert [each.task.op for each in operations] == ["MatMul", "Recurrent", "Move"]
    assert operations[1].task.problem.outputs == ("Y",)


def test_one_step_leaves_its_last_state_where_it_is() -> None:
    model, inputs = case("GRU", outputs="Y Y_h", steps=1)
    agree(model, inputs)
    assert planned(model).operations[1].task.problem.outputs == ("Y",)


def test_layers_and_directions_stack() -> None:
    """As exporters write them: the directions side by side are the next layer's input."""
    text = """<ir_version: 8, opset_import: ["" : 14]> layers (float[5,3,4] x) => (float[5,3,10] y, float[2,3,5] s)
    <int64[3] shape = {0, 0, -1}> {
        a = LSTM<hidden_size=5, direction="bidirectional">(x, w0, r0, b0)
        t = Transpose<perm=[0,2,1,3]>(a)
        u = Reshape(t, shape)
        b, s = GRU<hidden_size=5, direction="bidirectional", linear_before_reset=1>(u, w1, r1, b1)
        v = Transpose<perm=[0,2,1,3]>(b)
        y = Reshape(v, shape)
    }"""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(4)
    shapes = {"w0": (2, 20, 4), "r0": (2, 20, 5), "b0": (2, 40), "w1": (2, 15, 10), "r1": (2, 15, 5), "b1": (2, 30)}
    for name, shape in shapes.items():
        value = generator.uniform(-0.7, 0.7, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    agree(model, {"x": generator.standard_normal((5, 3, 4)).astype(np.float32)})


def test_batches_may_come_first() -> None:
    """onnxruntime has no layout 1: the same turned around."""
    for op in GATES:
        model, inputs = case(op, "B h", direction="bidirectional")
        want = evaluate(planned(model), inputs)
        model.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
        turned = {name: np.ascontiguousarray(value.swapaxes(0, 1)) for name, value in inputs.items()}
        for info in model.graph.input:
            first, second = info.type.tensor_type.shape.dim[:2]
            first.dim_value, second.dim_value = second.dim_value, first.dim_value
        got = evaluate(planned(model), turned)
        np.testing.assert_allclose(got["Y"], want["Y"].transpose(2, 0, 1, 3), atol=1e-6)
        np.testing.assert_allclose(got["Y_h"], want["Y_h"].swapaxes(0, 1), atol=1e-6)


def test_weights_are_known_and_functions_are() -> None:
    model, _ = case("RNN")
    weight = next(item for item in model.graph.initializer if item.name == "R")
    model.graph.initializer.remove(weight)
    model.graph.input.append(helper.make_tensor_value_info("R", TensorProto.FLOAT, weight.dims))
    with pytest.raises(ModelError, match="its R 'R' is computed at run time"):
        planned(model)
    with pytest.raises(ModelError, match="its activation 'affine' needs an alpha and a beta"):
        planned(case("RNN", activations=["Affine"], activation_alpha=[0.5])[0])
    with pytest.raises(ModelError, match="its activation 'cos' is none of affine"):
        planned(case("RNN", activations=["cos"])[0])
    with pytest.raises(ModelError, match="it has 1 activations instead of 2"):
        planned(case("RNN", activations=["Tanh"], direction="bidirectional")[0])


def test_reports_know_the_problem() -> None:
    problem = planned(case("LSTM", "B P", direction="reverse")[0]).operations[1].task.problem
    plain = json.loads(json.dumps(problem_to_dict(problem)))
    assert problem_of("Recurrent", plain) == problem
    assert words("Recurrent", plain) == "15×28 → 147, LSTM, 5 steps, reverse"
