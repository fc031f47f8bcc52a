"""Compare every function of elements of any types with the reference, at the ends of the types."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from gputune.core.dtypes import BFLOAT, FLOAT, FLOATS, HALF, HALVES
from gputune.kernels.family import Array, Instance
from gputune.kernels.ops.typed import FAMILY, TypedProblem
from gputune.kernels.typed_functions import TYPED
from gputune.runtime.measuring.verification import mismatch
from tests.opencl.conftest import TOGETHER, KernelBench

Given = tuple[tuple[str, ...], str, list[Array]]
"""Types of a function's inputs, of its result, and the inputs."""
WHOLE = ("int8", "uint16", "int32", "int64")


def extremes(dtype: str) -> Array:
    """19 numbers of a type, so that they end in part of a vector: its ends, and what lies around zero."""
    if dtype == "bool":
        return np.array([True, False, False] * 6 + [True])
    if dtype in (FLOAT, BFLOAT):
        special = [0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 0.5, -0.5]
        return np.concatenate([special, np.linspace(-3, 7, 10)]).astype(dtype)
    if dtype == "float16":
        special = [0, -0.0, np.inf, -np.inf, np.nan, 65504, -65504, 6e-8, -6.1e-5]
        return np.concatenate([special, np.linspace(-3, 7, 10)]).astype(np.float16)
    info = np.iinfo(dtype)
    around = range(-5, 6) if info.min else range(11)
    numbers = [info.min, info.max, info.min + 1, info.max - 1, info.max // 2, *around, 7, 9, 31]
    return np.array(numbers, dtype)


def operands(function: str) -> list[tuple[tuple[str, ...], str]]:
    """Types to try a function with: those of its inputs and of its result."""
    known = TYPED[function]
    if function == "where":
        return [(("bool", dtype, dtype), dtype) for dtype in ("int8", "uint64", *FLOATS, "bool")]
    if function == "bit_cast":
        return [(("float32",), "int32"), (("bool",), "int8"), (("int64",), "uint64"), (("float16",), "int16")]
    if function == "pow":
        return [
            (("int32", "int32"), "int32"),
            (("uint8", "int64"), "uint8"),
            (("int64", "float32"), "int64"),
            (("int32", "float16"), "int32"),
        ]
    chosen = {
        "any": ("bool", *FLOATS, "int64"),
        "bool": ("bool",),
        "float": FLOATS,
        "whole": WHOLE,
    }
    return [((dtype,) * known.inputs, "bool" if known.gives == "bool" else dtype) for dtype in chosen[known.takes]]


def configured(bench: KernelBench, function: str, given: Given) -> tuple[TypedProblem, dict[str, int]]:
    dtypes, dtype, inputs = given
    problem = TypedProblem(function, inputs[-1].shape, tuple(x.shape for x in inputs), dtypes, dtype)
    return problem, FAMILY.default(problem, bench.limits) | {"VW": 8, "DIMX": 1}


def instances(bench: KernelBench, *functions: str) -> Iterator[Instance]:
    for function in functions:
        for given in ends(function):
            yield bench.instance(FAMILY, *configured(bench, function, given))


def compare(bench: KernelBench, function: str, tried: list[Given], relative: float = 1e-6) -> None:
    """A function of inputs of these types, with a result of that type, computes the reference."""
    bench.build_together(bench.instance(FAMILY, *configured(bench, function, given)) for given in tried)
    for dtypes, dtype, inputs in tried:
        problem, configuration = configured(bench, function, (dtypes, dtype, inputs))
        given = {f"input{k}": value for k, value in enumerate(inputs)}
        got, damage = bench.run(FAMILY, problem, configuration, given)
        wrong = damage or mismatch(got, FAMILY.reference(problem, given), relative, 0.0)
        assert not wrong, f"{function} of {dtypes}: {wrong}"


FUNCTIONS = [name for name in TYPED if name != "cast"]


def ends(function: str) -> list[Given]:
    """Return inputs at the ends of the types of a function."""
    tried: list[Given] = []
    for dtypes, dtype in operands(function):
        inputs = [np.roll(extremes(each), shift * 4) for shift, each in enumerate(dtypes)]
        if function == "pow" and dtypes[1] in FLOATS:
            inputs[1] = np.array([0, 1, 2, 3, 0.5] * 4, dtypes[1])[:19]
            inputs[0] = np.abs(inputs[0]) % 1000
        tried.append((dtypes, dtype, inputs))
    return tried


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_is_right_also_at_the_ends_of_its_types(bench: KernelBench, function: str) -> None:
    later = instances(bench, *FUNCTIONS[FUNCTIONS.index(function) :])
    bench.build_together(instances(bench, function), islice(later, TOGETHER))
    compare(bench, function, ends(function))


@pytest.mark.parametrize("target", (*WHOLE, "uint64", "bool", *FLOATS))
def test_casts_are_right(bench: KernelBench, target: str) -> None:
    tried: list[Given] = []
    for source in (*FLOATS, "uint64", "int8"):
        if source != target and {source, target} == {*HALVES}:
            continue  # two casts
        values = extremes(source)
        if source in FLOATS and target not in ("bool", *FLOATS):
            values = np.array([*np.linspace(-9.75, 100.75, 18), 0], source)
        tried.append(((source,), target, [values]))
    compare(bench, "cast", tried)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_halves_are_rounded_to_nearest_even(bench: KernelBench) -> None:
    """Also at the border of infinity, and from subnormal halves on."""
    around = np.array([65504, 65519, 65520, 65536, 2049, 2051, 4098, 4102, 2**24 + 1, -(2**62), 1, 0], np.int64)
    tiny = np.array([2**-25, 2**-25 * 1.001, 3 * 2**-25, 65519.996, 65520, -1e30, 1e-30, 1 + 2**-11], np.float32)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    casts: list[Given] = [(("int64",), HALF, [around]), (("float32",), HALF, [tiny]), ((HALF,), "float32", [every])]
    compare(bench, "cast", casts, 0.0)
    compare(bench, "cast", [(("float32",), HALF, [every.astype(np.float32)])], 0.0)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_bfloats_are_rounded_to_nearest_even(bench: KernelBench) -> None:
    """Also at the border of infinity; a NaN whose upper bits are those of an infinity stays one."""
    every = np.arange(1 << 16, dtype=np.uint16)
    normal = every[(every & 0x7F80) > 0]
    floats = [(normal.astype(np.uint32) << 16 | low).view(np.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    compare(bench, "cast", [(("float32",), BFLOAT, [np.concatenate(floats)])], 0.0)
    compare(bench, "cast", [((BFLOAT,), "float32", [normal.view(BFLOAT)])], 0.0)


@pytest.mark.parametrize("function", ["copy", "where", "bit_cast"])
def test_a_move_keeps_every_bit_of_a_half(bench: KernelBench, function: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves, choice = bits.view(np.float16), bits % 3 == 0
    dtypes: tuple[str, ...] = ("bool", HALF, HALF)
    inputs = [choice, halves, halves[::-1].copy()]
    if function != "where":
        dtypes, inputs = (HALF,), [halves]
    dtype = "int16" if function == "bit_cast" else HALF
    problem = TypedProblem(function, bits.shape, (bits.shape,) * len(dtypes), dtypes, dtype)
    given = {f"input{k}": value for k, value in enumerate(inputs)}
    got, _ = bench.run(FAMILY, problem, FAMILY.default(problem, bench.limits), given)
    want = np.where(choice, bits, bits[::-1]) if function == "where" else bits
    assert np.array_equal(got.view(np.uint16), want)
