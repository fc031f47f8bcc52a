"""Compare functions of elements of any types with the reference: every function, all widths, broadcasting."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.family import Array
from gputune.kernels.ops.typed import FAMILY, TypedProblem
from gputune.kernels.template import BASE_OPTIONS, template
from gputune.kernels.typed_functions import TYPED
from gputune.runtime.measuring.verification import mismatch

Shape = tuple[int, ...]
Given = tuple[tuple[str, ...], str, list[Array]]
"""Types of a function's inputs, of its result, and the inputs."""
WHOLE = ("int8", "uint16", "int32", "int64")

# The function, the broadcast shape, the inputs' shapes and types, the result's type.
CASES: list[tuple[str, Shape, tuple[Shape, ...], tuple[str, ...], str]] = [
    ("where", (2, 5, 7, 3), ((2, 1, 7, 1), (2, 5, 7, 3), ()), ("bool", "float32", "float32"), "float32"),
    ("where", (6, 1, 17), ((17,), (6, 1, 1), (6, 1, 17)), ("bool", "int64", "int64"), "int64"),
    ("equal", (3, 31), ((31,), (3, 1)), ("int16", "int16"), "bool"),
    ("cast", (1, 13, 7, 24), ((1, 13, 7, 24),), ("float32",), "int64"),
    ("cast", (1009,), ((1009,),), ("int64",), "float32"),
    ("copy", (), ((),), ("bool",), "bool"),
]


@pytest.mark.parametrize(("function", "shape", "shapes", "dtypes", "dtype"), CASES, ids=lambda x: str(x)[:20])
def test_broadcasting_is_right(
    bench: Any, function: str, shape: Shape, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], dtype: str
) -> None:
    bench.check(FAMILY, TypedProblem(function, shape, shapes, dtypes, dtype))


def extremes(dtype: str) -> Array:
    """19 numbers of a type, so that they end in part of a vector: its ends, and what lies around zero."""
    if dtype == "bool":
        return np.array([True, False, False] * 6 + [True])
    if dtype == "float32":
        special = [0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 0.5, -0.5]
        return np.concatenate([special, np.linspace(-3, 7, 10)]).astype(np.float32)
    info = np.iinfo(dtype)
    around = range(-5, 6) if info.min else range(11)
    numbers = [info.min, info.max, info.min + 1, info.max - 1, info.max // 2, *around, 7, 9, 31]
    return np.array(numbers, dtype)


def operands(function: str) -> list[tuple[tuple[str, ...], str]]:
    """Types to try a function with: those of its inputs and of its result."""
    known = TYPED[function]
    if function == "where":
        return [(("bool", dtype, dtype), dtype) for dtype in ("int8", "uint64", "float32", "bool")]
    if function == "bit_cast":
        return [(("float32",), "int32"), (("bool",), "int8"), (("int64",), "uint64")]
    if function == "pow":
        return [(("int32", "int32"), "int32"), (("uint8", "int64"), "uint8"), (("int64", "float32"), "int64")]
    chosen = {
        "any": ("bool", "float32", "int64"),
        "bool": ("bool",),
        "float": ("float32",),
        "whole": WHOLE,
    }
    return [((dtype,) * known.inputs, "bool" if known.gives == "bool" else dtype) for dtype in chosen[known.takes]]


def compare(bench: Any, function: str, tried: list[Given]) -> None:
    """A function of inputs of these types, with a result of that type, computes the reference."""
    problems = [
        TypedProblem(function, inputs[-1].shape, tuple(x.shape for x in inputs), dtypes, dtype)
        for dtypes, dtype, inputs in tried
    ]
    configured = [(problem, FAMILY.default(problem, bench.limits) | {"VW": 8, "DIMX": 1}) for problem in problems]
    bench.build_together(FAMILY, configured)
    for (problem, configuration), (dtypes, _, inputs) in zip(configured, tried, strict=True):
        given = {f"input{k}": value for k, value in enumerate(inputs)}
        got, damage = bench.run(FAMILY, problem, configuration, given)
        wrong = damage or mismatch(got, FAMILY.reference(problem, given), 1e-6, 0.0)
        assert not wrong, f"{function} of {dtypes}: {wrong}"


@pytest.mark.parametrize("function", [name for name in TYPED if name != "cast"])
def test_every_function_is_right_also_at_the_ends_of_its_types(bench: Any, function: str) -> None:
    tried: list[Given] = []
    for dtypes, dtype in operands(function):
        inputs = [np.roll(extremes(each), shift * 4) for shift, each in enumerate(dtypes)]
        if function == "pow" and dtypes[1] == "float32":
            inputs[1] = np.array([0, 1, 2, 3, 0.5] * 4, np.float32)[:19]
            inputs[0] = np.abs(inputs[0]) % 1000
        tried.append((dtypes, dtype, inputs))
    compare(bench, function, tried)


@pytest.mark.parametrize("target", (*WHOLE, "uint64", "bool", "float32"))
def test_casts_are_right(bench: Any, target: str) -> None:
    tried: list[Given] = []
    for source in ("float32", "uint64", "int8"):
        values = extremes(source)
        if source == "float32" and target != "bool":
            values = np.array([*np.linspace(-9.75, 100.75, 18), 0], np.float32)
        tried.append(((source,), target, [values]))
    compare(bench, "cast", tried)


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("typed_elements.cl"), BASE_OPTIONS)
