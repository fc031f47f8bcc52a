"""Compare matrix products of all forms, from ONNX to the plan, with onnxruntime."""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.models import build, integers, numbers
from tests.client.plans import Lowered, assert_agrees, ops


def product(lowered: Lowered, signature: str, body: str, weights: Any = None) -> list[str]:
    """Checks a model's plan against onnxruntime and says what it runs."""
    model = build(signature, body, weights)
    plan = lowered(model)
    assert_agrees(model, plan)
    return ops(plan)


def float_of(shape: Sequence[int], name: str) -> str:
    """A tensor as ONNX's text form declares it."""
    return f"float[{','.join(map(str, shape))}] {name}" if shape else f"float {name}"


def contraction(equation: str, shapes: Sequence[str]) -> onnx.ModelProto:
    """An Einsum of computed tensors, whose sizes are given as texts."""
    sizes = [[int(size) for size in shape.split(",") if size] for shape in shapes]
    names = string.ascii_lowercase[: len(shapes)]
    inputs = ", ".join(float_of(shape, name) for shape, name in zip(sizes, names, strict=True))
    result = float_of(np.einsum(equation, *(np.zeros(shape) for shape in sizes)).shape, "y")
    return build(f"({inputs}) => ({result})", f'y = Einsum<equation="{equation}">({", ".join(names)})')


def test_shared_matrices_make_more_rows(lowered: Lowered) -> None:
    model = build("(float[4,3,5] x, float[5,2] v) => (float[4,3,2] y)", "y = MatMul(x, v)")
    problem = lowered(model).operations[0].task.problem
    assert (problem.lies.batch, problem.m) == ((), 12)


def test_a_column_is_computed_as_a_row(lowered: Lowered) -> None:
    model = build("(float[9,5] x, float[5] v) => (float[9] y)", "y = MatMul(x, v)")
    problem = lowered(model).operations[0].task.problem
    assert (problem.m, problem.n, np.prod(problem.lies.output_steps[-1])) == (1, 9, 1)


ATTENTION = """
    q0 = MatMul(x, wq) k0 = MatMul(x, wk) v0 = MatMul(x, wv)
    q1 = Reshape(q0, split) k1 = Reshape(k0, split) v1 = Reshape(v0, split)
"""
REST = """
    p = Softmax<axis=-1>(scores) o = MatMul(p, v) t = Transpose<perm=[0,2,1,3]>(o) r = Reshape(t, joined)
    y = MatMul(r, wq)"""


@st.composite
def rearranged_products(draw: st.DrawFn) -> onnx.ModelProto:
    """A tensor times itself, each side seen through transposes, slices, factors and axes that come and go."""
    shape = [draw(st.integers(1, 4)) for _ in range(3)]
    weights: dict[str, Any] = {"half": numbers(0.5)}
    body, names, sizes = "", [], []
    for side in "ab":
        name, size = "x", list(shape)
        for step in range(draw(st.integers(0, 4))):
            new = f"{side}{step}"
            match draw(st.sampled_from(["Transpose", "Slice", "Unsqueeze", "Mul"])):
                case "Transpose":
                    order = draw(st.permutations(range(len(size))))
                    body += f" {new} = Transpose<perm={list(order)}>({name})"
                    size = [size[axis] for axis in order]
                case "Slice":
                    axis = draw(st.integers(0, len(size) - 1))
                    first = draw(st.integers(0, size[axis] - 1))
                    last = draw(st.integers(first + 1, size[axis]))
                    weights |= {f"{new}s": integers(first), f"{new}e": integers(last), f"{new}x": integers(axis)}
                    body += f" {new} = Slice({name}, {new}s, {new}e, {new}x)"
                    size[axis] = last - first
                case "Unsqueeze":
                    axis = draw(st.integers(0, len(size)))
                    weights[f"{new}x"] = integers(axis)
                    body += f" {new} = Unsqueeze({name}, {new}x)"
                    size.insert(axis, 1)
                case "Mul":
                    body += f" {new} = Mul({name}, half)"
            name = new
        names.append(name)
        sizes.append(size)
    rows, columns = (
        "".join(chr(ord(first) + axis) for axis in range(len(size))) for first, size in zip("aA", sizes, strict=True)
    )
    equation = f"{rows},{columns}->{draw(st.permutations(rows + columns).map(''.join))}"
    result = np.einsum(equation, *(np.zeros(size) for size in sizes)).shape
    body += f' y = Einsum<equation="{equation}">({names[0]}, {names[1]})'
    return build(f"({float_of(shape, 'x')}) => ({float_of(result, 'y')})", body, weights)


@settings(max_examples=20)
@given(model=rearranged_products())
def test_products_of_what_was_rearranged(lowered: Lowered, model: onnx.ModelProto) -> None:
    plan = lowered(model)
    assert_agrees(model, plan)
    assert ops(plan) == ["MatMul"]
