"""Test which products and softmaxes one kernel could compute, and that it computes the same."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.importer import read_model
from gputune.client.model.reference import evaluate
from gputune.kernels.ops.attention import AttentionProblem
from tests.client.model.test_contrib_operators import CASES, model_of
from tests.client.models import build, integers, numbers, save
from tests.kernels.problems import CPU, GPU

Alternated = Callable[[onnx.ModelProto], Alternatives]

THIRDS = """
    r = Reshape(x, split) t = Transpose<perm=[2,0,3,1,4]>(r) q = Gather<axis=0>(t, first) k = Gather<axis=0>(t, second)
    v = Gather<axis=0>(t, third) u = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, u) m = Mul(s, root)
    {softmax} o = MatMul(p, v) e = Transpose<perm=[0,2,1,3]>(o) y = Reshape(e, joined)"""
WEIGHTS: Mapping[str, Any] = {
    "split": integers(2, 7, 3, 4, 5), "joined": integers(2, 7, 20), "root": numbers(0.45), "first": np.int64(0),
    "second": np.int64(1), "third": np.int64(2), "cap": numbers(3.0), "zero": numbers(0), "never": numbers(-np.inf),
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
    "guarded rows": (GUARDED, ", float[2,1,7,7] mask"),
}
NONE = {
    "a logarithm": "p = LogSoftmax<axis=-1>(m)",
    "another axis": "p = Softmax<axis=-2>(m)",
    "no softmax": "p = Relu(m)",
    "rounded scores": "f = Floor(m) p = Softmax<axis=-1>(f)",
    "shares that are changed": "f = Softmax<axis=-1>(m) p = Mul(f, f)",
    "scores that others read": "p = Softmax<axis=-1>(m) z = Relu(m)",
    "shares that others read": "p = Softmax<axis=-1>(m) z = Identity(p)",
}


@pytest.fixture(scope="session")
def alternated(tmp_path_factory: pytest.TempPathFactory) -> Alternated:
    folder: Path = tmp_path_factory.mktemp("models")
    return lambda model: Alternatives(read_model(save(model, folder)))


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
    given = {spec.name: generator.standard_normal(spec.shape).astype(np.float32) for spec in model.plan.inputs}
    if softmax == GUARDED:
        given["mask"][1, 0, 3] = -np.inf
    problem = assert_same(model, given)
    assert (problem.places.batch, problem.rows, problem.keys, problem.depth) == ((2, 4), 7, 7, 5)
    assert problem.masked == (softmax == GUARDED)
    assert len(model.plan.operations) - len(model.plan_with(model.groups).operations) == 2
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


@pytest.mark.parametrize(("name", "wanted"), MICROSOFT.items(), ids=MICROSOFT)
def test_operators_of_microsoft_are_groups(
    alternated: Alternated, name: str, wanted: tuple[tuple[int, ...], int]
) -> None:
    model, inputs = model_of(*CASES[name])
    problem = assert_same(alternated(model), inputs)
    assert (problem.places.batch, problem.rows) == wanted
