"""Compare matrix products of all forms, from ONNX to the plan, with onnxruntime."""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.client.errors import ModelError
from tests.client.models import build, integers, numbers

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]


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


@st.composite
def matmuls(draw: st.DrawFn) -> onnx.ModelProto:
    """MatMul of vectors, matrices and batches that broadcast; either side may be a constant."""
    m, k, n = (draw(st.integers(1, 5)) for _ in "mkn")
    batch = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 3)))]
    shapes = []
    for matrix, vector in (([m, k], [k]), ([k, n], [k])):
        own = [size if draw(st.booleans()) else 1 for size in batch][draw(st.integers(0, len(batch))) :]
        shapes.append(vector if draw(st.integers(0, 4)) == 0 else own + matrix)
    constant = draw(st.sampled_from(["", "x", "v"]))
    names = {name: ",".join(map(str, shape)) for name, shape in zip("xv", shapes, strict=True) if name != constant}
    weights = {constant: tuple(shapes["xv".index(constant)])} if constant else {}
    inputs = ", ".join(f"float[{shape}] {name}" for name, shape in names.items())
    result = np.matmul(*(np.zeros(shape) for shape in shapes)).shape
    return build(f"({inputs}) => ({float_of(result, 'y')})", "y = MatMul(x, v)", weights)


@pytest.mark.slow
@settings(max_examples=60)
@given(model=matmuls())
def test_matmuls_of_all_kinds(lowered: Lowered, model: onnx.ModelProto) -> None:
    plan = lowered(model)
    assert_agrees(model, plan)
    assert len(plan.operations) == 1


@settings(max_examples=40)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    turned=st.tuples(st.booleans(), st.booleans()),
    factors=st.tuples(*[st.sampled_from([1.0, 0.5, -2.0])] * 2),
    addend=st.sampled_from(["", "m,n", "n", "1,n", "m,1", "1"]),
    constants=st.sets(st.sampled_from("xvc"), max_size=2),
)
def test_gemms_of_all_kinds(
    lowered: Lowered, sizes: tuple[int, int, int], turned: tuple[bool, bool], factors: tuple[float, float], addend: str,
    constants: set[str],
) -> None:  # fmt: skip
    letters = dict(zip("mkn", sizes, strict=True))
    shapes = {"x": ["mk", "km"][turned[0]], "v": ["kn", "nk"][turned[1]]}
    sides = {name: tuple(letters[letter] for letter in axes) for name, axes in shapes.items()}
    if addend:
        sides["c"] = tuple(letters.get(size, 1) for size in addend.split(","))
    given_ = {name: shape for name, shape in sides.items() if name not in constants}
    if not {"x", "v"} & given_.keys():
        given_["x"] = sides["x"]
    signature = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in given_.items())
    body = f"y = Gemm<transA={int(turned[0])}, transB={int(turned[1])}, alpha={factors[0]}, beta={factors[1]}>"
    weights = {name: shape for name, shape in sides.items() if name not in given_}
    model = build(f"({signature}) => (float[{sizes[0]},{sizes[2]}] y)", f"{body}({', '.join(sides)})", weights)
    assert_agrees(model, lowered(model))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", ["2,3,5", "2,5,4"]),
        ("ij, jk", ["3,5", "5,4"]),
        ("i,i", ["7", "7"]),
        ("i,j->ji", ["7", "3"]),
        ("...ij,jk", ["2,3,5,4", "4,3"]),
        ("...ij,...jk->...ik", ["2,3,2,4", "2,1,4,5"]),
        ("bqhd,bkhd->bhqk", ["2,3,4,5", "2,6,4,5"]),
        ("bhqk,bkhd->bqhd", ["2,4,3,6", "2,6,4,5"]),
        ("bhc,bnhc->bn", ["5,3,2", "5,4,3,2"]),
        ("ijk,kl->lji", ["5,3,2", "2,4"]),
        ("ii,ij->ij", ["4,4", "4,3"]),
        ("ij,ij->ij", ["4,3", "4,3"]),
        ("ij,->ji", ["4,3", ""]),
        ("ijk->kij", ["4,3,2"]),
    ],
)
def test_equations(lowered: Lowered, equation: str, shapes: list[str]) -> None:
    plan = lowered(contraction(equation, shapes))
    assert_agrees(contraction(equation, shapes), plan)
    assert len(plan.operations) == 1


@pytest.mark.parametrize(
    ("equation", "shapes", "why"),
    [
        ("ab,bc,cd->ad", ["2,3", "3,4", "4,5"], "multiplies 3 tensors"),
        ("ii->i", ["3,3"], "a diagonal of its only input"),
        ("ijk,kij->", ["2,3,4", "4,2,3"], "sums over axes that are not adjacent"),
    ],
)
def test_refused_equations_say_why(lowered: Lowered, equation: str, shapes: list[str], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        lowered(contraction(equation, shapes))


@pytest.mark.parametrize(
    ("signature", "body", "why"),
    [
        ("(int32[2,3] x, int32[3,4] v) => (int32[2,4] y)", "y = MatMul(x, v)", "MatMul_0' is not .* multiplies int32"),
        ("(int32[3,4] x) => (int32[4] y)", 'y = Einsum<equation="ij->j">(x)', "multiplies int32"),
        ("(float[2,3] x, float[3,4] v, float[4,2] c) => (float[2,4] y)", "y = Gemm(x, v, c)", "does not broadcast"),
        ("(float[2,3] x, float[3,4] v, float[2,2,4] c) => (float[2,4] y)", "y = Gemm(x, v, c)", "(2, 2, 4)"),
    ],
)
def test_refused_products_say_why(lowered: Lowered, signature: str, body: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        lowered(build(signature, body))


def test_maps_are_multiplied_where_they_lie(lowered: Lowered) -> None:
    signature = "(float[2,6,5,4] x, float[2,6,4,3] z) => (float[2,6,5,3] y)"
    assert product(lowered, signature, "c = Conv(x, w) y = MatMul(c, z)", {"w": (6, 6, 1, 1)}) == [
        "Transpose",
        "MatMul",
        "BatchedMatMul",
    ]


def test_shared_matrices_make_more_rows(lowered: Lowered) -> None:
    model = build("(float[4,3,5] x, float[5,2] v) => (float[4,3,2] y)", "y = MatMul(x, v)")
    problem = lowered(model).operations[0].task.problem
    assert (problem.batch, problem.m) == ((), 12)


def test_a_column_is_computed_as_a_row(lowered: Lowered) -> None:
    model = build("(float[9,5] x, float[5] v) => (float[9] y)", "y = MatMul(x, v)")
    problem = lowered(model).operations[0].task.problem
    assert (problem.m, problem.n, np.prod(problem.output_steps[-1])) == (1, 9, 1)


ATTENTION = """
    q0 = MatMul(x, wq) k0 = MatMul(x, wk) v0 = MatMul(x, wv)
    q1 = Reshape(q0, split) k1 = Reshape(k0, split) v1 = Reshape(v0, split)
"""
REST = """
    p = Softmax<axis=-1>(scores) o = MatMul(p, v) t = Transpose<perm=[0,2,1,3]>(o) r = Reshape(t, joined)
    y = MatMul(r, wq)"""


@pytest.mark.parametrize(
    "body",
    [
        """q = Transpose<perm=[0,2,1,3]>(q1) k = Transpose<perm=[0,2,3,1]>(k1) v = Transpose<perm=[0,2,1,3]>(v1)
           s = MatMul(q, k) d = Div(s, root) scores = Add(d, mask)""",
        """q = Transpose<perm=[0,2,1,3]>(q1) k2 = Transpose<perm=[0,2,1,3]>(k1) v = Transpose<perm=[0,2,1,3]>(v1)
           k = Transpose<perm=[0,1,3,2]>(k2) f = Mul(root, q) g = Mul(k, root) s = MatMul(f, g)
           scores = Add(mask, s)""",
        """q2 = Transpose(q1) q = Transpose<perm=[3,1,2,0]>(q2) k3 = Transpose<perm=[0,2,3,1]>(k1)
           v2 = Transpose<perm=[0,2,1,3]>(v1) v = Reshape(v2, alone) k = Reshape(k3, turned) d = Div(q, root)
           s = MatMul(d, k) scores = Add(s, mask)""",
    ],
    ids=["bert", "both-sides-scaled", "axes-come-and-go"],
)
def test_attention_needs_no_copies(lowered: Lowered, body: str) -> None:
    weights: dict[str, Any] = dict.fromkeys(("wq", "wk", "wv"), (6, 6))
    weights |= {"split": integers(1, 8, 2, 3), "joined": integers(1, 8, 6), "root": numbers(1.7)}
    weights |= {"alone": integers(2, 8, 3), "turned": integers(2, 3, 8)}
    signature = "(float[1,8,6] x, float[1,1,1,8] mask) => (float[1,8,6] y)"
    assert product(lowered, signature, ATTENTION + body + REST, weights) == [
        "MatMul",
        "MatMul",
        "MatMul",
        "BatchedMatMul",
        "Softmax",
        "BatchedMatMul",
        "MatMul",
    ]


@pytest.mark.parametrize(
    "parts",
    [
        """t = Transpose<perm=[2,0,3,1,4]>(r) a = Slice(t, zero, one, zero) b = Slice(t, one, two, zero)
           c = Slice(t, minus, large, zero) q = Squeeze(a, zero) k = Squeeze(b, zero) v = Squeeze(c, zero)""",
        """t = Transpose<perm=[2,0,3,1,4]>(r) a, b, c = Split<axis=0>(t) q = Squeeze(a, zero) k = Squeeze(b, zero)
           v = Squeeze(c, zero)""",
        """t = Transpose<perm=[2,0,3,1,4]>(r) q = Gather<axis=0>(t, first) k = Gather<axis=0>(t, second)
           v = Gather<axis=0>(t, last)""",
        """a = Gather<axis=2>(r, first) b = Gather<axis=2>(r, second) c = Gather<axis=-3>(r, last)
           q = Transpose<perm=[0,2,1,3]>(a) k = Transpose<perm=[0,2,1,3]>(b) v = Transpose<perm=[0,2,1,3]>(c)""",
    ],
    ids=["Slice", "Split", "Gather", "Gather-first"],
)
def test_inputs_that_are_thirds_of_one_tensor_are_read_there(lowered: Lowered, parts: str) -> None:
    weights: dict[str, Any] = {"w": (6, 18), "split": integers(2, 5, 3, 2, 3)}
    weights |= {"zero": integers(0), "one": integers(1), "two": integers(2), "minus": integers(-1)}
    weights |= {"large": integers(1 << 40), "first": np.int64(0), "second": np.int64(1), "last": np.int64(-1)}
    body = f"""m = MatMul(x, w) r = Reshape(m, split) {parts} u = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, u)
        p = Softmax<axis=-1>(s) o = MatMul(p, v) y = Transpose<perm=[0,2,1,3]>(o)"""
    ran = product(lowered, "(float[2,5,6] x) => (float[2,5,2,3] y)", body, weights)
    assert ran == ["MatMul", "BatchedMatMul", "Softmax", "BatchedMatMul"]


@pytest.mark.parametrize(
    ("body", "ran"),
    [
        ("s = Softmax(m) n = IsNaN(s) w = Where(n, zero, s) y = MatMul(w, v)", ["Softmax", "BatchedMatMul"]),
        ("s = Softmax(m) n = IsNaN(s) y = Where(n, zero, s)", ["Softmax"]),
        ("s = Softmax(m) n = IsNaN(s) y = Where(n, one, s)", ["Softmax", "Typed", "Typed"]),
        ("s = Softmax(m) n = IsNaN(m) y = Where(n, zero, s)", ["Softmax", "Typed", "Typed"]),
        (
            "s = Softmax(m) n = IsNaN(s) w = Where(n, zero, s) y = Add(w, s)",
            ["Softmax", "Typed", "Typed", "Elementwise"],
        ),
    ],
)
def test_a_softmax_masks_its_rows(lowered: Lowered, body: str, ran: list[str]) -> None:
    weights = {"zero": numbers(0), "one": numbers(1)}
    model = build("(float[3,3] m, float[3,3] v) => (float[3,3] y)", body, weights)
    assert sorted(ops(lowered(model))) == sorted(ran)
    assert_agrees(model, lowered(model))


def test_slices_that_step_or_are_computed_stay(lowered: Lowered) -> None:
    body = "s = Slice(x, zero, end, axis, two) y = MatMul(s, v)"
    weights = {"zero": integers(0), "end": integers(9), "axis": integers(1), "two": integers(2)}
    assert product(lowered, "(float[3,9] x, float[5,4] v) => (float[3,4] y)", body, weights)[-1] == "BatchedMatMul"
    body = "s = Slice(x, start, end, axis) y = MatMul(s, v)"
    weights = {"start": integers(-7, 1), "end": integers(-2, 3), "axis": integers(-1, 0)}
    signature = "(float[3,9] x, float[5,4] v) => (float[2,4] y)"
    assert product(lowered, signature, body, weights) == ["BatchedMatMul"]


def test_what_others_read_stays(lowered: Lowered) -> None:
    """A turned input and a turned result that are read elsewhere, and two products with one Transpose between them."""
    signature = "(float[3,4] x, float[3,5] v) => (float[4,5] y, float[4,3] t, float[5,4] u, float[5,5] z, float[4,5] p)"
    body = "t = Transpose(x) y = MatMul(t, v) u = Transpose(y) p = MatMul(t, v) q = Transpose(p) z = MatMul(q, y)"
    model = build(signature, body)
    plan = lowered(model)
    assert_agrees(model, plan)
    model = build(
        "(float[3,4] x, float[4,5] v) => (float[5,5] z)", "p = MatMul(x, v) q = Transpose(p) z = MatMul(q, p)"
    )
    assert_agrees(model, lowered(model))
    model = build(
        "(float[3,4] x, float[4,5] v, float[3,2] w) => (float[5,2] z)",
        "p = MatMul(x, v) q = Transpose(p) z = MatMul(q, w)",
    )
    plan = lowered(model)
    assert_agrees(model, plan)
    assert ops(plan) == ["BatchedMatMul", "BatchedMatMul"]


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


@settings(max_examples=40)
@given(model=rearranged_products())
def test_products_of_what_was_rearranged(lowered: Lowered, model: onnx.ModelProto) -> None:
    plan = lowered(model)
    assert_agrees(model, plan)
    assert ops(plan) == ["BatchedMatMul"]
