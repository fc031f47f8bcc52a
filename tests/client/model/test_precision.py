"""Test that plans store floats in the precision that is asked for, and that models in float16 load as they are."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Precision
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import Plan, lower, precision
from gputune.client.model.reference import evaluate
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, HALF
from gputune.core.precision import STORED
from gputune.kernels.catalogue import family_of
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import build, save

Array = np.ndarray[Any, Any]
Weights = dict[str, tuple[int, ...] | Array]

NETWORK = "c = Conv<pads=[1,1,1,1]>(x, k) r = Relu(c) p = GlobalAveragePool(r) f = Flatten(p) y = MatMul(f, w)"
WEIGHTS = {"k": (8, 3, 3, 3), "w": (8, 5)}


def plan_of(model: onnx.ModelProto, folder: Path, **precision: Any) -> Plan:
    graph = read_model(save(model, folder))
    return lower(replace(graph, precision=Precision(**precision)))


def inputs_of(plan: Plan) -> dict[str, Array]:
    numbers = np.random.default_rng(0)
    return {spec.name: numbers.standard_normal(spec.shape).astype(spec.dtype) for spec in plan.inputs}


def right(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    halves = {one.name for one in session.get_inputs() if one.type == "tensor(float16)"}
    given = {name: value.astype(HALF if name in halves else FLOAT) for name, value in inputs.items()}
    return dict(zip(names, session.run(names, given), strict=True))


def check(model: onnx.ModelProto, plan: Plan, allowed: float = 2e-3) -> dict[str, Array]:
    """The plan is consistent, and computes what onnxruntime does."""
    for operation in plan.operations:
        family, problem = family_of(operation.task.op), operation.task.problem
        tensors = {**operation.inputs, "output": operation.output}
        for spec in (*family.inputs(problem), family.output(problem)):
            assert plan.tensors[tensors[spec.name]].dtype == spec.dtype, operation
    assert all(plan.tensors[view].dtype == plan.tensors[root].dtype for view, root in plan.aliases.items())
    assert {name: value.dtype.name for name, value in plan.constants.items()} == {
        name: spec.dtype for name, spec in plan.tensors.items() if spec.constant
    }
    inputs = inputs_of(plan)
    got, want = evaluate(plan, inputs), right(model, inputs)
    for name, array in want.items():
        error = np.abs(got[name].astype(np.float64) - array).max() / np.abs(array.astype(np.float64)).max()
        assert error <= allowed, name
    return got


def types(plan: Plan) -> Counter[tuple[str, str]]:
    return Counter((each.task.op, each.task.problem.dtype) for each in plan.operations)


def test_tensors_and_weights_are_stored_in_half(tmp_path: Path) -> None:
    model = build("(float[1,3,8,8] x) => (float[1,5] y)", NETWORK, WEIGHTS)
    plan, usual = plan_of(model, tmp_path, mode=STORED), plan_of(model, tmp_path)
    got = check(model, plan)
    assert {spec.dtype for spec in (*plan.inputs, *plan.outputs)} == {FLOAT} == {got["y"].dtype.name}
    assert 2 * sum(value.nbytes for value in plan.constants.values()) == sum(
        value.nbytes for value in usual.constants.values()
    )
    casts = {each.inputs["input0"]: each.output for each in plan.operations if each.task.op == "Typed"}
    assert casts == {"y/float16": "y"}, "the first convolution reads the model's input as it is"
    assert {dtype for (op, dtype) in types(plan) if op != "Typed"} == {HALF}
    assert plan.coarsest == HALF and usual.coarsest == FLOAT
    assert check(model, usual, 1e-5)


def test_products_may_be_multiplied_in_half(tmp_path: Path) -> None:
    model = build("(float[1,3,8,8] x) => (float[1,5] y)", NETWORK, WEIGHTS)
    plan = plan_of(model, tmp_path, mode=HALF)
    check(model, plan)
    factors = {each.task.op: vars(each.task.problem).get("factors") for each in plan.operations}
    assert (factors["Conv"], factors["MatMul"], factors["Pool"]) == (HALF, HALF, None)
    nodes = frozenset(read_model(save(model, tmp_path)).node_ops)
    kept = plan_of(model, tmp_path, mode=HALF, kept=nodes)
    assert HALF not in {vars(each.task.problem).get("factors") for each in kept.operations}


@pytest.mark.parametrize("mode", ["", STORED, FLOAT, HALF])
def test_a_model_in_float16_loads_as_it_is(tmp_path: Path, mode: str) -> None:
    weights = {name: np.random.default_rng(1).standard_normal(shape).astype(HALF) for name, shape in WEIGHTS.items()}
    model = build("(float16[1,3,8,8] x) => (float16[1,5] y)", NETWORK, weights)
    plan = plan_of(model, tmp_path, mode=mode)
    assert {spec.dtype for spec in (*plan.inputs, *plan.outputs)} == {HALF}
    check(model, plan)
    ops = {op for op, _ in types(plan)}
    if mode == FLOAT:
        assert "Typed" in ops and {value.dtype.name for value in plan.constants.values()} == {FLOAT}
    else:
        assert "Typed" not in ops and {value.dtype.name for value in plan.constants.values()} == {HALF}


def test_inputs_and_outputs_have_the_types_that_you_give(tmp_path: Path) -> None:
    model = build("(float[1,3,8,8] x) => (float[1,5] y)", NETWORK, WEIGHTS)
    plan = plan_of(model, tmp_path, mode=STORED, given={"x": HALF})
    assert [spec.dtype for spec in (*plan.inputs, *plan.outputs)] == [HALF, FLOAT]
    check(model, plan)
    plan = plan_of(model, tmp_path, given={"y": HALF})
    assert [spec.dtype for spec in (*plan.inputs, *plan.outputs)] == [FLOAT, HALF]
    check(model, plan)


def test_a_node_that_is_kept_computes_and_stores_float32(tmp_path: Path) -> None:
    model = build("(float[1,3,8,8] x) => (float[1,5] y)", NETWORK, WEIGHTS)
    graph = read_model(save(model, tmp_path))
    name = next(node.name for node in graph.nodes if node.op == "Conv")
    plan = lower(replace(graph, precision=Precision(STORED, frozenset([name]))))
    assert {op for op, dtype in types(plan) if dtype == FLOAT} >= {"Conv"}
    check(model, plan)


def test_the_halves_of_a_model_with_both_types_are_kept(tmp_path: Path) -> None:
    """Its author has kept some in float32; casts around them are only there if they change the type of a tensor."""
    body = "a = Cast<to=1>(x) e = Exp(a) s = ReduceSum<keepdims=1>(e, axes) q = Div(e, s) y = Cast<to=10>(q)"
    model = build("(float16[2,64] x) => (float16[2,64] y)", body, {"axes": np.array([1])}, opset=17)
    check(model, plan_of(model, tmp_path))


def test_a_sum_of_squares_is_not_rounded_to_half(tmp_path: Path) -> None:
    """It would be infinite."""
    body = "s = Mul(x, x) m = ReduceSum<keepdims=1>(s, axes) d = Sqrt(m) q = Div(x, d) t = Mul(q, g) y = MatMul(t, w)"
    weights: Weights = {"axes": np.array([1]), "g": (64,), "w": (64, 16)}
    model = build("(float[4,64] x) => (float[4,16] y)", body, weights, opset=17)
    plan = plan_of(model, tmp_path, mode=STORED)
    inputs = {"x": np.full((4, 64), 300, np.float32)}
    np.testing.assert_allclose(evaluate(plan, inputs)["y"], right(model, inputs)["y"], rtol=1e-2, atol=1e-2)
    assert ("MatMul", HALF) in types(plan)


def test_large_constants_are_the_largest_number(tmp_path: Path) -> None:
    weights = {"m": np.array([[0, -1e9, -np.inf, 7e4]], np.float32)}
    plan = plan_of(build("(float[2,4] x) => (float[2,4] y)", "y = Max(x, m)", weights), tmp_path, mode=STORED)
    (mask,) = plan.constants.values()
    np.testing.assert_array_equal(mask.ravel(), np.array([0, -65504, -np.inf, 65504], HALF))


def test_an_output_that_others_read_and_see_is_computed_once(tmp_path: Path) -> None:
    body = "r = MatMul(x, w) s = Reshape(r, shape) y = Relu(s) z = Add(r, r)"
    weights: Weights = {"w": (8, 8), "shape": np.array([2, 2, 8])}
    model = build("(float[4,8] x) => (float[4,8] r, float[2,2,8] y, float[4,8] z)", body, weights)
    plan = plan_of(model, tmp_path, mode=STORED)
    check(model, plan)
    assert types(plan)["MatMul", HALF] == 1


GROWN = {
    "square": ("Mul({0}, {0})", 300),
    "cube": ("Pow({0}, three)", 50),
    "exp": ("Exp({0})", 12),
    "pow": ("Pow({0}, broken)", 1000),
    "sinh": ("Sinh({0})", 12),
    "cosh": ("Cosh({0})", 12),
    "reciprocal": ("Reciprocal({0})", 1e-5),
    "tan": ("Tan({0})", 1.57079),
    "mul by itself": ("Mul({0}, x)", 300),
    "mul to itself": ("Mul(x, {0})", 300),
}
"""What makes a number much larger, and a number that becomes too large for float16."""


def test_every_function_that_makes_numbers_larger_is_tried() -> None:
    assert not precision.GROWING - GROWN.keys()


BEHIND = [
    (function, before)
    for function in GROWN
    for before in (("",) if function == "tan" else ("", "Neg", "Abs", "Relu", "Sqrt"))  # which reads what is stored
]


@pytest.mark.parametrize(("function", "before"), BEHIND)
def test_what_becomes_too_large_is_not_rounded_to_half(tmp_path: Path, function: str, before: str) -> None:
    """Also behind a step that leaves numbers as large as they are, or makes them smaller."""
    text, number = GROWN[function]
    numbers = np.full((2, 4), {"Neg": -number, "Sqrt": number**2}.get(before, number), np.float32)
    first = f"r = {before}(x) " if before else ""
    body = f"{first}g = {text.format('r' if before else 'x')} y = ReduceMax<axes=[1]>(g) z = ReduceMin<axes=[1]>(g)"
    weights: Weights = {"three": np.array(3, np.float32), "broken": np.array(1.7, np.float32)}
    model = build("(float[2,4] x) => (float[2,1] y, float[2,1] z)", body, weights)
    want = right(model, {"x": numbers})
    assert np.abs(want["y"]).min() > 65520
    for mode in (STORED, HALF):
        got = evaluate(plan_of(model, tmp_path, mode=mode), {"x": numbers})
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=2e-3)


@pytest.mark.parametrize("dtype", [name for name in ELEMENT_TYPES if np.dtype(name).kind in "iu"])
def test_floats_of_whole_numbers_are_not_rounded_to_half(tmp_path: Path, dtype: str) -> None:
    """Such as the distances of places, of the largest that float32 holds."""
    body = "f = Cast<to=1>(i) g = Cast<to=1>(j) d = Sub(f, g) y = Mul(d, x)"
    model = build(f"({dtype}[4] i, {dtype}[4] j, float[4] x) => (float[4] y)", body)
    plan = plan_of(model, tmp_path, mode=STORED)
    most = min(int(np.iinfo(dtype).max), 2**24)
    inputs: dict[str, Array] = {
        "i": np.arange(most, most - 4, -1).astype(dtype),
        "j": np.arange(most - 1, most - 5, -1).astype(dtype),
        "x": np.ones(4, np.float32),
    }
    np.testing.assert_array_equal(evaluate(plan, inputs)["y"], np.ones(4))


@pytest.mark.parametrize("mode", ["", STORED, FLOAT, HALF])
@pytest.mark.parametrize("of_model", [FLOAT, HALF])
def test_every_tensor_says_which_tensor_of_the_model_it_holds(tmp_path: Path, mode: str, of_model: str) -> None:
    """Copies in another type, too, which names in reports and comparisons follow from."""
    numbers = np.random.default_rng(1)
    weights: Weights = {name: numbers.standard_normal(shape).astype(of_model) for name, shape in WEIGHTS.items()}
    end = "z = Cast<to=1>(f) s = Exp(z)"
    kind = {FLOAT: "float", HALF: "float16"}[of_model]
    signature = f"({kind}[1,3,8,8] x) => ({kind}[1,5] y, float[1,8] s)"
    plan = plan_of(build(signature, f"{NETWORK} {end}", weights), tmp_path, mode=mode)
    assert {each.output for each in plan.operations} <= plan.holds.keys()
    for each in plan.operations:
        if each.task.op == "Typed":
            assert plan.holds[each.output].name in (plan.holds[each.inputs["input0"]].name, each.output)


def test_whole_numbers_stay(tmp_path: Path) -> None:
    body = "i = ArgMax<axis=1, keepdims=0>(x) h = Gather(t, i) c = Greater(h, x0) y = Where(c, h, x0)"
    weights: Weights = {"t": (9, 4), "x0": np.array(0.25, np.float32)}
    model = build("(float[2,9] x) => (int64[2] i, float[2,4] y)", body, weights, opset=17)
    check(model, plan_of(model, tmp_path, mode=STORED))


def test_an_input_that_no_kernel_reads_as_it_is_gets_a_copy(tmp_path: Path) -> None:
    model = build("(float[4,8] x) => (float[4,5] y)", "y = MatMul(x, w)", {"w": (8, 5)})
    plan = plan_of(model, tmp_path, mode=STORED)
    check(model, plan)
    casts = {each.inputs["input0"]: each.output for each in plan.operations if each.task.op == "Typed"}
    assert casts == {"x": "x/float16", "y/float16": "y"}


def test_a_family_that_knows_no_halves_gets_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of op packages."""
    monkeypatch.setattr(family_of("MatMul"), "floats", (FLOAT,))
    model = build("(float[1,3,8,8] x) => (float[1,5] y)", NETWORK, WEIGHTS)
    plan = plan_of(model, tmp_path, mode=STORED)
    check(model, plan)
    assert types(plan)["MatMul", FLOAT] == 1 and types(plan)["Conv", HALF] == 1


def test_fused_groups_have_the_type_of_their_operations(tmp_path: Path) -> None:
    graph = replace(read_model(save(two_blocks(), tmp_path)), precision=Precision(STORED))
    found = Alternatives(graph)
    assert found.groups and {group.task.problem.dtype for group in found.groups} == {HALF}
