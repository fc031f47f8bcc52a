"""Test functions of elements of any types: each compared with onnxruntime, and what C leaves undefined."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from gputune.core.dtypes import ELEMENT_TYPES, HALVES
from gputune.kernels.family import Array, DeviceLimits
from gputune.kernels.ops.typed import FAMILY, TypedProblem
from gputune.kernels.typed_functions import TYPED

LIMITS = DeviceLimits(256, (256, 256, 64), 32768, 1 << 30, 2, "cpu", 8)
SIGNED = np.array([-7, -1, 0, 1, 5, 9, 12, -100], np.int32)
OTHERS = np.array([2, -2, 3, -1, 5, 7, -5, 11], np.int32)
FLOATS = np.array([-2.75, -0.5, 0, 0.5, 2.5, 100.25, np.inf, np.nan], np.float32)
OF_HALF = np.array([-65504, -0.0, 0, 6e-8, 6.1e-5, 65504, np.inf, np.nan], np.float16)
UNSIGNED = np.array([0, 1, 3, 127, 128, 200, 255, 17], np.uint8)
SHIFTS = np.array([0, 1, 7, 3, 2, 5, 6, 4], np.uint8)
YES, NO = np.array([True, True, False, False] * 2), np.array([True, False] * 4)

# Function, operator, attributes, inputs.
AS_ONNX: list[tuple[str, str, dict[str, Any], list[Array]]] = [
    ("copy", "Identity", {}, [SIGNED]),
    ("where", "Where", {}, [YES, FLOATS, -FLOATS]),
    ("where", "Where", {}, [NO, SIGNED.astype(np.int64), OTHERS.astype(np.int64)]),
    *((name, op, {}, [SIGNED, OTHERS]) for name, op in (("equal", "Equal"), ("less", "Less"), ("greater", "Greater"))),
    ("equal", "Equal", {}, [FLOATS, FLOATS]),
    ("where", "Where", {}, [YES, OF_HALF, -OF_HALF]),
    ("equal", "Equal", {}, [OF_HALF, OF_HALF]),
    ("less", "Less", {}, [OF_HALF, -OF_HALF]),
    ("equal", "Equal", {}, [YES, NO]),
    ("less_or_equal", "LessOrEqual", {}, [FLOATS, -FLOATS]),
    ("greater_or_equal", "GreaterOrEqual", {}, [FLOATS, -FLOATS]),
    *((op.lower(), op, {}, [YES, NO]) for op in ("And", "Or", "Xor")),
    ("not", "Not", {}, [YES]),
    ("is_nan", "IsNaN", {}, [FLOATS]),
    ("is_nan", "IsNaN", {}, [OF_HALF]),
    ("is_inf", "IsInf", {}, [-FLOATS]),
    ("is_positive_inf", "IsInf", {"detect_negative": 0}, [-FLOATS]),
    ("is_negative_inf", "IsInf", {"detect_positive": 0}, [-FLOATS]),
    *((op.lower(), op, {}, [SIGNED, OTHERS]) for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")),
    ("add", "Add", {}, [np.array([2**31 - 1], np.int32), np.array([1], np.int32)]),
    ("fmod", "Mod", {"fmod": 1}, [SIGNED, OTHERS]),
    ("mod", "Mod", {}, [UNSIGNED, SHIFTS + np.uint8(1)]),
    ("pow", "Pow", {}, [OTHERS, np.array([3, 2, 0, 5, 9, 4, 1, 6], np.int64)]),
    ("pow", "Pow", {}, [OTHERS, np.array([3, 2, 0, 5, 0.5, 1.5, 1, 6], np.float32)]),
    *((op.lower(), op, {}, [SIGNED]) for op in ("Neg", "Abs", "Sign", "Relu")),
    ("abs", "Abs", {}, [np.array([-128, 127], np.int8)]),
    *((f"bitwise_{op.lower()}", f"Bitwise{op}", {}, [SIGNED, OTHERS]) for op in ("And", "Or", "Xor")),
    ("bitwise_not", "BitwiseNot", {}, [UNSIGNED]),
    ("shift_left", "BitShift", {"direction": "LEFT"}, [UNSIGNED, SHIFTS]),
    ("shift_right", "BitShift", {"direction": "RIGHT"}, [UNSIGNED, SHIFTS]),
]


def in_onnxruntime(op: str, inputs: list[Array], **attributes: Any) -> Array:
    names = [f"x{k}" for k in range(len(inputs))]
    given = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in inputs]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "one_node",
        [helper.make_tensor_value_info(*each) for each in zip(names, given, [x.shape for x in inputs], strict=True)],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    if TensorProto.BFLOAT16 in (*given, *attributes.values()):  # which onnxruntime takes from no array
        results: Any = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
        return np.asarray(results[0])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, dict(zip(names, inputs, strict=True)))[0]
    return result


def problem_of(function: str, inputs: list[Array], dtype: str) -> TypedProblem:
    shapes, dtypes = tuple(value.shape for value in inputs), tuple(value.dtype.name for value in inputs)
    return TypedProblem(function, np.broadcast_shapes(*shapes), shapes, dtypes, dtype)


def reference(function: str, inputs: list[Array], dtype: str) -> Array:
    problem = problem_of(function, inputs, dtype)
    return FAMILY.reference(problem, {f"input{k}": value for k, value in enumerate(inputs)})


@pytest.mark.parametrize(("function", "op", "attributes", "inputs"), AS_ONNX, ids=lambda x: str(x)[:20])
def test_a_function_is_what_onnx_says(function: str, op: str, attributes: dict[str, Any], inputs: list[Array]) -> None:
    want = in_onnxruntime(op, inputs, **attributes)
    got = reference(function, inputs, want.dtype.name)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


def test_every_function_is_compared() -> None:
    assert {function for function, *_ in AS_ONNX} | {"cast", "bit_cast"} == TYPED.keys()


def test_bits_are_read_as_another_type() -> None:
    floats = np.array([1, -2, 0.5], np.float32)
    assert reference("bit_cast", [floats], "int32").tolist() == [127 << 23, -(1 << 30), 126 << 23]
    assert reference("bit_cast", [reference("bit_cast", [floats], "uint32")], "float32").tolist() == floats.tolist()
    assert reference("bit_cast", [np.array([255, 1], np.uint8)], "int8").tolist() == [-1, 1]
    assert reference("bit_cast", [np.array([1, -2], np.float16)], "int16").tolist() == [15 << 10, -(1 << 14)]


@pytest.mark.parametrize("source", ELEMENT_TYPES)
@pytest.mark.parametrize("target", ELEMENT_TYPES)
def test_casts_are_those_of_onnxruntime(source: str, target: str) -> None:
    lowest = 0 if target == "uint64" else -3.75
    values = np.array([0, 0.9, 1, 2.5, 127.5, 100, lowest, lowest / 2], np.float32)
    values = np.abs(values) if source.startswith("u") else values
    given = values.astype(source)
    if source != target and {source, target} <= {*HALVES}:
        with pytest.raises(ValueError, match=r"^Typed converts one of float16, bfloat16, not several at once$"):
            reference("cast", [given], target)
        return
    want = in_onnxruntime("Cast", [given], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
    np.testing.assert_array_equal(reference("cast", [given], target), want)


def test_what_c_leaves_undefined_has_a_value() -> None:
    least = np.int32(-(2**31))
    numbers, divisors = np.array([7, -7, least, least, 0], np.int32), np.array([0, 0, -1, 0, 0], np.int32)
    assert reference("div", [numbers, divisors], "int32").tolist() == [0, 0, least, 0, 0]
    assert reference("mod", [numbers, divisors], "int32").tolist() == [0] * 5
    assert reference("fmod", [numbers, divisors], "int32").tolist() == [0] * 5
    assert reference("shift_left", [UNSIGNED, UNSIGNED], "uint8").tolist() == [0, 2, 24, 0, 0, 0, 0, 0]
    signed = np.array([-7, 100, -7, 7, -1], np.int8), np.array([1, 1, 8, -1, 7], np.int8)
    assert reference("shift_left", list(signed), "int8").tolist() == [-14, -56, 0, 0, -128]
    assert reference("shift_right", list(signed), "int8").tolist() == [-4, 50, -1, 0, -1]
    powers = reference(
        "pow", [np.array([2, 1, -1, -1, 0], np.int32), np.array([-1, -5, -2, -3, -1], np.int32)], "int32"
    )
    assert powers.tolist() == [0, 1, 1, -1, 0]
    assert reference("cast", [np.array([-1, 2.0**63], np.float32)], "uint64").tolist() == [2**64 - 1, 2**63]


def test_an_input_that_is_constant_along_a_row_is_read_once() -> None:
    problem = TypedProblem("where", (4, 6), ((4, 1), (6,), ()), ("bool", "int64", "int64"), "int64")
    source = FAMILY.render(problem, FAMILY.default(problem, LIMITS)).main.source
    assert "const uchar a = input0[(row)]; long b[VW]; READ_AS_IS(long, b, input1, (x));" in source
    assert "; const long c = input2[0];" in source
    assert "#define COMPUTE(lane) a ? b[lane] : c\n" in source


def test_work_counts_every_byte_once() -> None:
    problem = TypedProblem("where", (4, 6), ((4, 1), (6,), ()), ("bool", "int64", "int64"), "int64")
    assert FAMILY.work(problem).bytes == 4 + 48 + 8 + 24 * 8
