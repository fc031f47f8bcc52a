"""Test which products and softmaxes one kernel could compute, and that it computes the same."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.reference import evaluate
from gputune.kernels.ops.attention import AttentionProblem
from tests.client.model.test_contrib_operators import CASES, model_of
from tests.client.models import build, integers, numbers
from tests.client.plans import Alternated
from tests.kernels.problems import CPU, GPU

THIRDS = """
    r = Reshape(x, split) t = Transpose<perm=[2,0,3,1,4]>(r) q = Gather<axis=0>(t, first) k = Gather<axis=0>(t, second)
    v = Gather<axis=0>(t, third) u = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, u) m = Mul(s, root)
    {softmax} o = MatMul(p, v) e = Transpose<perm=[0,2,1,3]>(o) y = Reshape(e, joined)"""
WEIGHTS: Mapping[str, Any] = {
    "split": integers(2, 7, 3, 4, 5), "joined": integers(2, 7, 20), "root": numbers(0.45), "first": np.int64(0),
    "second": np.int64(1), "third": np.int64(2), "cap": numbers(3.0), "zero": numbers(0), "never": numbers(-np.inf),
    "lowest": numbers(-3.4e38),
}  # fmt: skip
PLAIN = "p = Softmax<axis=-1>(m)"
MASKED = "d = Add(m, mask) p = Softmax<axis=-1>(d)"
GUARDED = "d = Add(m, mask) g = Softmax<axis=-1>(d) n = IsNaN(g) p = Where(n, zero, g)"
CAPPED = "a = Div(m, cap) b = Tanh(a) c = Mul(b, cap) d = Add(c, mask) p = Softmax<axis=-1>(d)"
FOUND = {
    "thirds": (PLAIN, ""),
    "a mask of keys": (MASKED, ", float[2,1,1,7] mask"),
    "a mask of queries": (MASKED, ", float[7,7] mask"),
    "a mask of heads": (MASKED, ", float[4,7,7] mask"),
    "a cap": (CAPPED, ", float[2,4,7,7] mask"),
    "bools that show": ("d = Where(mask, m, lowest) p = Softmax<axis=-1>(d)", ", bool[2,1,1,7] mask"),
    "bools that hide": ("c = Div(m, cap) d = Where(mask, lowest, c) p = Softmax<axis=-1>(d)", ", bool[7,7] mask"),
    "guarded rows": (GUARDED, ", float[2,1,7,7] mask"),
}
NONE = {
    "a logarithm": "p = LogSoftmax<axis=-1>(m)",
    "another axis": "p = Softmax<axis=-2>(m)",
    "no softmax": "p = Relu(m)",
    "rounded scores": "f = Floor(m) p = Softmax<axis=-1>(f)",
    "shares that are changed": "f = Softmax<axis=-1>(m) p = Mul(f, f)",
    "scores that others read": "p = Softmax<axis=-1>(m) z = Relu(m)",
    "scores in the place of scores": "c = Neg(m) g = Greater(m, root) d = Where(g, m, c) p = Softmax<axis=-1>(d)",
    "numbers in the place of shares": "s1 = Softmax<axis=-1>(m) g = Greater(m, root) p = Where(g, root, s1)",
    "shares that others read": "p = Softmax<axis=-1>(m) z = Identity(p)",
}


def thirds(softmax: str, inputs: str = "", outputs: str = "") -> onnx.ModelProto:
    signature = f"(float[2,7,60] x{inputs}) => (float[2,7,20] y{outputs})"
    return build(signature, THIRDS.format(softmax=softmax), WEIGHTS, opset=17)


def assert_same(model: Alternatives, inputs: Mapping[str, Any]) -> AttentionProblem:
    """The plan with all that can be fused computes what the plain one does. Returns the first problem."""
    fused = model.plan_with(model.groups)
    want, got = evaluate(model.plan, inputs), evaluate(fused, inputs)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6)
    assert "Softmax" not in {operation.task.op for operation in fused.operations}
    problem: AttentionProblem = model.groups[0].task.problem
    return problem


@pytest.mark.parametrize(("softmax", "inputs"), FOUND.values(), ids=FOUND)
def test_products_and_the_softmax_between_them_are_a_group(alternated: Alternated, softmax: str, inputs: str) -> None:
    model = alternated(thirds(softmax, inputs))
    generator = np.random.default_rng(3)
    given: dict[str, Any] = {
        spec.name: generator.standard_normal(spec.shape).astype(np.float32) for spec in model.plan.inputs
    }
    if "bool" in inputs:
        given["mask"] = given["mask"] > 0
    if softmax == GUARDED:
        given["mask"][1, 0, 3] = -np.inf
    problem = assert_same(model, given)
    assert (problem.places.batch, problem.rows, problem.keys, problem.depth) == ((2, 4), 7, 7, 5)
    assert problem.masked == (softmax == GUARDED)
    fewer = len(model.plan.operations) - len(model.plan_with(model.groups).operations)
    assert fewer == (3 if "bool" in inputs else 2)
    assert model.likely(CPU) == model.groups
    assert model.likely(GPU) == ()


@pytest.mark.parametrize("softmax", NONE.values(), ids=NONE)
def test_anything_else_stays_apart(alternated: Alternated, softmax: str) -> None:
    outputs = ", float[2,4,7,7] z" if "z =" in softmax else ""
    assert alternated(thirds(softmax, outputs=outputs)).groups == ()


MICROSOFT = {
    "Attention with ends and starts, causal": ((2, 4), 5),
    "Attention with a past": ((2, 4), 5),
    "MultiHeadAttention with all": ((2, 4), 5),
    "GroupQueryAttention": ((2, 2, 2), 5),  # heads of a group share their keys
    "GroupQueryAttention of a step": ((2, 2), 2),  # heads of a group are rows
    "GroupQueryAttention of a turned prompt": ((2, 2, 2), 5),
    "GroupQueryAttention of a chunk": ((2, 2), 5),
}


FLAT = "float[2,6,24] q, float[2,7,12] k, float[2,7,12] v"
ONNX = {
    "causal": ("float[2,4,6,8] q, float[2,4,7,8] k, float[2,4,7,5] v", "y = Attention<is_causal=1>(q, k, v)"),
    "a mask of numbers": (
        "float[2,4,6,8] q, float[2,4,7,8] k, float[2,4,7,8] v, float[6,7] mask",
        "y = Attention<scale=0.3, softcap=2.0>(q, k, v, mask)",
    ),
    "shared heads, a mask of bools": (
        f"{FLAT}, bool[2,1,6,7] mask", "y = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v, mask)",
    ),
    "a past": (
        "float[2,4,1,8] q, float[2,4,1,8] k, float[2,4,1,8] v, float[2,4,9,8] old, float[2,4,9,8] past",
        'y, keys, values = Attention<is_causal=1>(q, k, v, "", old, past)',
    ),
}  # fmt: skip


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize(("inputs", "node"), ONNX.values(), ids=ONNX)
def test_attention_of_onnx_is_a_group(alternated: Alternated, inputs: str, node: str, opset: int) -> None:
    model = alternated(build(f"({inputs}) => (float[a,b] y)", node, opset=opset, ir_version=11))
    generator = np.random.default_rng(5)
    given: dict[str, Any] = {
        spec.name: generator.standard_normal(spec.shape).astype(np.float32) for spec in model.plan.inputs
    }
    if "bool" in inputs:
        given["mask"] = given["mask"] > 0
        given["mask"][1, 0, 2] = False  # which makes the row zero
    assert_same(model, given)
    assert evaluate(model.plan, given)["y"].any(axis=-1).all() == ("bool" not in inputs)


@pytest.mark.parametrize(("name", "wanted"), MICROSOFT.items(), ids=MICROSOFT)
def test_operators_of_microsoft_are_groups(
    alternated: Alternated, name: str, wanted: tuple[tuple[int, ...], int]
) -> None:
    model, inputs = model_of(*CASES[name])
    problem = assert_same(alternated(model), inputs)
    assert (problem.places.batch, problem.rows) == wanted
