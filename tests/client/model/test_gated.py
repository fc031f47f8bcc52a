"""Test activations spelt as a value times a gate: every order that exporters write, and what only looks like one."""

from typing import Any

import numpy as np
import pytest

from gputune.client.model.graph import Node
from gputune.client.model.importer import read_model
from gputune.client.model.passes import simplify
from tests.client.models import Array, build, numbers, save
from tests.client.plans import Lowered, assert_agrees, ops

CONSTANTS: dict[str, Any] = {
    "one": numbers(1),
    "two": numbers(2),
    "three": numbers(3),
    "half": numbers(0.5),
    "half3d": np.full((1, 1, 1), 0.5, np.float32),
    "root2": numbers(1.41421356),
    "inverse": numbers(0.70710678),
    "cube": numbers(0.044715),
    "slope": numbers(0.7978845608),
    "quick": numbers(1.702),
}

# The operator that is found, and ways to spell it with x and y.
SPELLINGS: list[tuple[str, str]] = [
    ("Gelu", "d = Div(x, root2) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)"),
    ("Gelu", "d = Mul(x, inverse) e = Erf(d) a = Add(one, e) h = Mul(half, x) y = Mul(h, a)"),
    ("Gelu", "d = Div(x, root2) e = Erf(d) a = Add(e, one) h = Mul(a, half3d) y = Mul(h, x)"),
    ("Gelu", "d = Div(x, root2) e = Erf(d) h = Mul(e, half) a = Add(h, half) y = Mul(x, a)"),
    ("Gelu", "d = Div(x, root2) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Div(m, two)"),
    ("Gelu", "d = Div(x, root2) e = Erf(d) h = Mul(x, half) m = Mul(h, e) y = Add(m, h)"),
    (
        "Gelu",
        "p = Pow(x, three) q = Mul(p, cube) a = Add(x, q) s = Mul(a, slope) t = Tanh(s) b = Add(t, one)"
        " h = Mul(x, half) y = Mul(h, b)",
    ),
    (
        "Gelu",
        "p = Mul(x, x) q = Mul(p, cube) a = Add(one, q) r = Mul(slope, x) s = Mul(r, a) t = Tanh(s) b = Add(one, t)"
        " m = Mul(x, b) y = Mul(half, m)",
    ),
    ("Swish", "s = Sigmoid(x) y = Mul(x, s)"),
    ("Swish", "s = Sigmoid(x) y = Mul(s, x)"),
    ("Swish", "q = Mul(quick, x) s = Sigmoid(q) y = Mul(x, s)"),
    ("Mish", "p = Softplus(x) t = Tanh(p) y = Mul(x, t)"),
]
BETWEEN = "(float[2,3,7] u) => (float[2,3,7] v)", "x = Exp(u)", "v = Neg(y)"


def model_of(spelling: str) -> Any:
    signature, before, behind = BETWEEN
    read = {name: value for name, value in CONSTANTS.items() if name in spelling.replace("(", " ").replace(")", " ")}
    return build(signature, f"{before} {spelling} {behind}", read)


def activations(model: Any, tmp_path: Any) -> list[Node]:
    return [node for node in simplify(read_model(save(model, tmp_path))).nodes if node.op == "Elementwise"]


@pytest.mark.parametrize(("op", "spelling"), SPELLINGS)
def test_every_spelling_is_one_step(lowered: Lowered, tmp_path: Any, op: str, spelling: str) -> None:
    model = model_of(spelling)
    (node,) = activations(model, tmp_path)
    found = [step.function.removesuffix("_tanh") for step in node.chain.steps]
    assert found == ["exp", op.lower(), "neg"]
    assert len(node.stands_for) == len(model.graph.node)
    assert_agrees(model, lowered(model))


ALMOST = [
    "d = Div(x, two) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "d = Div(x, root2) e = Erf(d) a = Add(e, two) m = Mul(x, a) y = Mul(m, half)",
    "d = Div(x, root2) e = Erf(d) a = Add(e, one) m = Mul(d, a) y = Mul(m, half)",
    "d = Div(root2, x) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "p = Pow(x, two) q = Mul(p, cube) a = Add(x, q) s = Mul(a, slope) t = Tanh(s) b = Add(t, one)"
    " h = Mul(x, half) y = Mul(h, b)",
    "s = Sigmoid(x) y = Mul(u, s)",
    "a = Add(x, one) s = Sigmoid(a) y = Mul(x, s)",
    "p = Softplus(x) t = Tanh(p) y = Mul(p, t)",
]


@pytest.mark.parametrize("spelling", ALMOST)
def test_what_only_looks_like_one_is_not(lowered: Lowered, tmp_path: Any, spelling: str) -> None:
    model = model_of(spelling)
    functions = {step.function for node in activations(model, tmp_path) for step in node.chain.steps}
    assert not functions & {"gelu", "gelu_tanh", "swish", "mish"}
    assert_agrees(model, lowered(model))


def test_a_gate_that_others_read_stays(lowered: Lowered) -> None:
    body = "s = Sigmoid(x) y = Mul(x, s) z = Mul(s, w)"
    weights: dict[str, Array | tuple[int, ...]] = {"w": (2, 3)}
    model = build("(float[1,3] x) => (float[1,3] y, float[2,3] z)", body, weights)
    plan = lowered(model)
    assert_agrees(model, plan)
    assert ops(plan) == ["Elementwise"] * 3


def test_it_joins_the_product_before_it(lowered: Lowered) -> None:
    body = "m = MatMul(u, w) x = Add(m, b) d = Div(x, root2) e = Erf(d) a = Add(e, one) p = Mul(x, a) v = Mul(p, half)"
    weights = {"w": (7, 5), "b": (5,)} | {name: CONSTANTS[name] for name in ("root2", "one", "half")}
    model = build("(float[3,7] u) => (float[3,5] v)", body, weights)
    plan = lowered(model)
    assert_agrees(model, plan)
    assert ops(plan) == ["MatMul"]
