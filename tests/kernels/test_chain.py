"""Test chains: every function compared with onnxruntime, the side of an operand, and what the OpenCL text keeps."""

import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import EMPTY, Chain, Step, literal
from gputune.kernels.chain_functions import BINARY, SWAPPED, UNARY
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.pool import PoolProblem

INFINITY = float("inf")


def float32(numbers: Any) -> Any:
    return np.array(numbers, np.float32)


VALUES = float32([-70, -9, -3, -1.5, -0.5, -1e-3, 0, 1e-3, 0.4, 1, 2.5, 3, 6, 70, INFINITY, -INFINITY, np.nan])

# fmt: off
PLAIN = (
    "Abs", "Neg", "Mish", "Softplus", "Softsign", "Reciprocal", "Sign", "Floor", "Ceil", "Round", "Erf", "Sin", "Cos",
    "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
)
# fmt: on

# Step, and the ONNX node that means the same: op, attributes, constant inputs after the value.
AS_ONNX: list[tuple[Step, str, dict[str, Any], list[float | None]]] = [
    (Step("relu"), "Relu", {}, []),
    (Step("leaky_relu", (0.2,)), "LeakyRelu", {"alpha": 0.2}, []),
    (Step("clip", (0, 6)), "Clip", {}, [0, 6]),
    (Step("clip", (-1.25, 3.4028235e38)), "Clip", {}, [-1.25, None]),
    (Step("clip", (-3.4028235e38, 0.1)), "Clip", {}, [None, 0.1]),
    (Step("hard_sigmoid", (0.2, 0.5)), "HardSigmoid", {}, []),
    (Step("hard_sigmoid", (1 / 6, 0.25)), "HardSigmoid", {"alpha": 1 / 6, "beta": 0.25}, []),
    (Step("hard_swish"), "HardSwish", {}, []),
    (Step("sigmoid"), "Sigmoid", {}, []),
    (Step("tanh"), "Tanh", {}, []),
    (Step("sqrt"), "Sqrt", {}, []),
    (Step("exp"), "Exp", {}, []),
    (Step("log"), "Log", {}, []),
    (Step("threshold", (1.5,)), "ThresholdedRelu", {"alpha": 1.5}, []),
    (Step("shrink", (1.5, 0.25)), "Shrink", {"lambd": 1.5, "bias": 0.25}, []),
    (Step("elu", (0.7,)), "Elu", {"alpha": 0.7}, []),
    (Step("selu", (1.6732632, 1.050701)), "Selu", {}, []),
    (Step("celu", (0.7,)), "Celu", {"alpha": 0.7}, []),
    (Step("swish", (1,)), "Swish", {}, []),
    (Step("swish", (1.702,)), "Swish", {"alpha": 1.702}, []),
    (Step("gelu"), "Gelu", {}, []),
    (Step("gelu_tanh"), "Gelu", {"approximate": "tanh"}, []),
    (Step("square"), "Pow", {}, [2]),
    (Step("cube"), "Pow", {}, [3]),
    *((Step(op.lower()), op, {}, []) for op in PLAIN),
    (Step("pow", (5,)), "Pow", {}, [5]),
    (Step("pow", (-0.5,)), "Pow", {}, [-0.5]),
    (Step("max", (0.3,)), "Max", {}, [0.3]),
    (Step("min", (0.3,)), "Min", {}, [0.3]),
    (Step("prelu", (0.3,)), "PRelu", {}, [0.3]),
    (Step("fmod", (-1.3,)), "Mod", {"fmod": 1}, [-1.3]),
    (Step("add", (0.3,)), "Add", {}, [0.3]),
    (Step("sub", (0.3,)), "Sub", {}, [0.3]),
    (Step("mul", (-2,)), "Mul", {}, [-2]),
    (Step("div", (3,)), "Div", {}, [3]),
]


QUANTISED = ("whole", "quotient", "saturate", "one_for_zero", "ratio")
"""Steps of test_quantised_steps.py."""


@pytest.mark.parametrize(("step", "op", "attributes", "constants"), AS_ONNX)
def test_a_step_is_what_onnx_says(
    run_node: Callable[..., Any], step: Step, op: str, attributes: dict[str, Any], constants: list[float | None]
) -> None:
    got = Chain((step,)).apply(VALUES)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, run_node(op, [VALUES, *constants], **attributes), rtol=3e-6, atol=2e-7)


def test_every_function_is_compared() -> None:
    compared = {step.function for step, *_ in AS_ONNX}
    assert compared == UNARY.keys() - {"half", "bfloat", *QUANTISED} | BINARY.keys() - {"mod", *QUANTISED}


def test_half_rounds_to_the_nearest_even_number_and_overflows() -> None:
    numbers = float32([65519.996, 65520, -1e5, 2049, 2051, 6e-8, 2e-8, -0.0, INFINITY])
    want = float32([65504, INFINITY, -INFINITY, 2048, 2052, 2**-24, 0, -0.0, INFINITY])
    got = Chain((Step("half"),)).apply(numbers)
    np.testing.assert_array_equal(got, want)
    assert np.signbit(got[-2])


def test_bfloat_rounds_to_the_nearest_even_number_and_overflows() -> None:
    most = 255 * 2.0**120
    numbers = float32([most * 1.0019, most * 1.002, -3.4e38, 257, 259, 2.0**-133, 1e-41, -0.0, INFINITY])
    want = float32([most, INFINITY, -INFINITY, 256, 260, 2.0**-133, 0, -0.0, INFINITY])
    got = Chain((Step("bfloat"),)).apply(numbers)
    np.testing.assert_array_equal(got, want)
    assert np.signbit(got[-2])


def test_a_remainder_has_the_sign_of_the_divisor() -> None:
    got = Chain((Step("mod", operand=0),)).apply(float32([7.5, -7.5, 7.5, -7.5, 6]), [float32([2, 2, -2, -2, -3])])
    assert got.tolist() == [1.5, 0.5, -0.5, -1.5, 0]
    assert Chain((Step("mod", (7.5,), swapped=True),)).apply(float32([2, -2])).tolist() == [1.5, -0.5]


@pytest.mark.parametrize("function", [*UNARY, *BINARY])
def test_nan_passes_through(function: str) -> None:
    values = (1.0, 2.0)[: UNARY[function].values] if function in UNARY else (1.0,)
    chain = Chain((Step(function, values),))
    assert np.isnan(chain.apply(float32([np.nan]))).all() == (function not in ("threshold", "shrink", "saturate"))
    assert not re.search(r"\b(fmin|fmax|min|max|clamp)\b", chain.source("v"))


@pytest.mark.parametrize("function", ["max", "min"])
def test_nan_of_either_side_wins(function: str) -> None:
    chain = Chain((Step(function, operand=0),))
    assert np.isnan(chain.apply(float32([np.nan, 1]), [float32([1, np.nan])])).all()


def test_the_operand_is_the_left_side_when_swapped() -> None:
    value, other = float32([2, 4]), float32([3, 5])
    assert Chain((Step("sub", operand=0),)).apply(value, [other]).tolist() == [-1, -1]
    assert Chain((Step("sub", operand=0, swapped=True),)).apply(value, [other]).tolist() == [1, 1]
    assert Chain((Step("div", (8,), swapped=True),)).apply(value).tolist() == [4, 2]
    assert Chain((Step("sub", operand=0, swapped=True),)).source("v", ["o"]) == "v = o - v;"
    assert Chain((Step("div", operand=0),)).source("v", ["o"]) == "v = v / o;"


def test_equal_steps_are_equal_whatever_the_spelling() -> None:
    assert Step("add", operand=0, swapped=True) == Step("add", operand=0)
    assert Step("mul", (0.1,)) == Step("mul", (float(np.float32(0.1)),))
    assert {function for function in BINARY if Step(function, (1,), swapped=True).swapped} == SWAPPED.keys()


def test_steps_apply_in_order_and_operands_broadcast() -> None:
    chain = EMPTY.then(Step("add", operand=0)).then(Step("relu")).then(Step("mul", operand=1))
    value = float32([[1, -5], [2, 3]])
    got = chain.apply(value, [float32([1, 2]), float32([[10], [100]])])
    assert got.tolist() == [[20, 0], [300, 500]]
    assert chain.operands == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": "swoosh"}, "unknown step 'swoosh'"),
        ({"function": "add"}, "one scalar or one tensor operand"),
        ({"function": "add", "values": (1,), "operand": 0}, "one scalar or one tensor operand"),
        ({"function": "mul", "values": (1, 2), "operand": 0}, "one scalar or one tensor operand"),
        ({"function": "clip", "values": (1,)}, "clip takes 2 values"),
        ({"function": "relu", "operand": 0}, "relu takes 0 values and no operand"),
        ({"function": "clip", "values": (float("nan"), 1)}, "NaN"),
    ],
)
def test_a_wrong_step_says_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Step(**arguments)


def test_operands_are_numbered_without_gaps() -> None:
    with pytest.raises(ValueError, match=r"without gaps, not \[1\]"):
        Chain((Step("add", operand=1),))


def test_an_infinite_bound_bounds_nothing() -> None:
    got = Chain((Step("clip", (-1, INFINITY)),)).apply(float32([-INFINITY, 1e38, INFINITY]))
    assert got.tolist() == [-1, np.float32(1e38), INFINITY]


def test_infinite_bounds_have_a_name_in_opencl() -> None:
    source = Chain((Step("clip", (-INFINITY, 1e300)),)).source("v", vector="float4")
    assert "(float4)(-INFINITY)" in source
    assert "(float4)(INFINITY)" in source
    assert "inf" not in source


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_literal_keeps_every_bit(number: float) -> None:
    text = literal(number)
    assert text.endswith("f")
    assert struct.pack("<f", float(text[:-1])) == struct.pack("<f", number)


def test_the_prelude_names_each_operand_once() -> None:
    prelude = EMPTY.then(Step("add", operand=0)).then(Step("mul", operand=0)).prelude()
    assert prelude.count("__global const TYPE *restrict operand0") == 1
    assert prelude.count("LOAD(operand0, offset)") == 2
    assert EMPTY.prelude().split() == [
        *("#define", "OPERAND_PARAMETERS"),
        *("#define", "EPILOGUE(value,", "T,", "LOAD,", "offset)", "{", "}"),
    ]


WITH_A_DOMAIN = {
    "sqrt": Chain((Step("sqrt"),)),
    "log": Chain((Step("log"),)),
    "divided": Chain((Step("div", operand=0),)),
    "dividing": Chain((Step("div", operand=0, swapped=True),)),
    "root-of-a-difference": Chain((Step("sub", operand=0), Step("sqrt"))),
    "root-of-the-other-difference": Chain((Step("sub", operand=0, swapped=True), Step("sqrt"))),
    "root-of-one-minus-it": Chain((Step("sub", (1,), swapped=True), Step("sqrt"))),
    "root-of-its-negative": Chain((Step("mul", (-1,)), Step("sqrt"))),
    "arc-of-a-sum": Chain((Step("add", operand=0), Step("asin"))),
    "inverse-hyperbolic": Chain((Step("acosh"),)),
    "power-of-a-tensor": Chain((Step("sub", operand=1), Step("pow", operand=0))),
    "log-of-a-product": Chain((Step("mul", operand=1), Step("neg"), Step("log"), Step("add", operand=0))),
}
CHAINS = {step.function: Chain((step,)) for step, *_ in AS_ONNX} | WITH_A_DOMAIN


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_sampled_inputs_have_a_finite_reference(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the hard values among them, which test_hard_values.py is about."""
    monkeypatch.setattr("gputune.kernels.family.hard_values", lambda *_: np.zeros(0, np.float32))
    shape = (2, 5, 6, 7)
    operands = (shape,) * chain.operands
    problems = [
        ("Conv", ConvProblem(2, 9, 7, 128, 24, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=chain)),
        ("MatMul", MatMulProblem(5, 700, 9, bias=True, epilogue=chain)),
        ("Pool", PoolProblem("average", 1, 6, 6, 4, (2, 2), (2, 2), (0, 0, 0, 0), (3, 3), False, chain)),
        ("Elementwise", ElementwiseProblem(shape, operands, shape, chain, tuple(range(chain.operands)))),
    ]
    for op, problem in problems[-1:] if chain.discontinuous else problems:
        inputs = family_of(op).sample_inputs(problem, np.random.default_rng(3))
        assert {name: value.shape for name, value in inputs.items()} == {
            spec.name: spec.shape for spec in family_of(op).inputs(problem)
        }
        assert all(value.dtype == np.float32 for value in inputs.values())
        reference = family_of(op).reference(problem, inputs)
        assert np.all(np.abs(reference) < 1000), op
        assert np.ptp(reference) > 0


def test_chains_without_a_domain_are_sampled_from_both_signs() -> None:
    problem = MatMulProblem(64, 400, 64, epilogue=Chain((Step("add", operand=0), Step("div", (3,)))))
    inputs = family_of("MatMul").sample_inputs(problem, np.random.default_rng(3))
    assert all(value.min() < 0 < value.max() for value in inputs.values())
    assert 0.9 < np.std(inputs["a"] @ inputs["b"]) < 1.1
