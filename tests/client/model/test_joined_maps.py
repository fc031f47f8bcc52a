"""Test which Concats nothing has to run: products read the parts, also after a pooling; compared with onnxruntime."""

import re
from typing import Any

import numpy as np
import pytest

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import Plan
from gputune.client.model.lowering.added import Added, using
from gputune.client.model.lowering.operators import LOWERINGS
from tests.client.models import build, integers, save
from tests.client.plans import Lowered, assert_agrees, ops

MAPS = "(float[2,3,6,5] x) => (float[i,j,k,l] y)"
PARTS = {"a": "a = Conv<pads=[1,1,1,1]>(x, u)", "b": "b = Conv<pads=[1,1,1,1]>(x, v)"}
WEIGHTS: dict[str, Any] = {
    "u": (5, 3, 3, 3), "v": (7, 3, 3, 3), "w12": (4, 12, 1, 1), "w8": (4, 8, 1, 1), "w17": (4, 17, 1, 1),
    "w22": (4, 22, 1, 1), "wide": (4, 12, 3, 3), "grouped": (4, 6, 1, 1), "bias": (4,), "known": (2, 3, 6, 5),
    "empty": np.zeros((2, 0, 6, 5), np.float32), "two_and_three": integers(2, 3), "w6": (4, 6, 1, 1),
}  # fmt: skip


def plan_of(lowered: Lowered, body: str, signature: str = MAPS) -> Plan:
    """The plan of the parts that are read and what reads them; it computes what they do, and stands for all of them."""
    whole = " ".join((*(part for name, part in PARTS.items() if re.search(rf"\b{name}\b", body)), body))
    read = {name: value for name, value in WEIGHTS.items() if re.search(rf"\b{name}\b", whole)}
    model = build(signature, whole, read)
    for node in model.graph.node:
        node.name = f"the {node.output[0]}"
    plan = lowered(model)
    assert_agrees(model, plan)
    assert {node for operation in plan.operations for node in operation.nodes} == {n.name for n in model.graph.node}
    assert {name for each in plan.operations for name in each.inputs.values()} <= plan.tensors.keys()
    return plan


def parts(plan: Plan) -> list[tuple[int, ...]]:
    return [each.task.problem.parts for each in plan.operations if each.task.op == "MatMul"]


@pytest.mark.parametrize(
    ("body", "widths"),
    [
        ("c = Concat<axis=1>(a, b) y = Conv(c, w12)", [(5, 7)]),
        ("c = Concat<axis=-3>(a, b) d = Conv(c, w12, bias) y = Relu(d)", [(5, 7)]),
        ("c = Concat<axis=1>(a, x) y = Conv<strides=[1,1], pads=[0,0,0,0]>(c, w8)", [(5, 3)]),
        ("c = Concat<axis=1>(b, a, a) y = Conv(c, w17)", [(7, 5, 5)]),
        ("c = Concat<axis=1>(a, b, b, known) y = Conv(c, w22)", [(5, 7, 7, 3)]),
        ("c = Concat<axis=1>(a, empty, b) y = Conv(c, w12)", [(5, 7)]),
        ("c = Concat<axis=1>(a, b) d = Conv(c, w12) e = Conv(c, w12, bias) y = Mul(d, e)", [(5, 7), (5, 7)]),
        ('c = Concat<axis=1>(a, b) y = Conv<auto_pad="SAME_UPPER">(c, w12)', [(5, 7)]),
    ],
)
def test_pointwise_convolutions_read_parts(lowered: Lowered, body: str, widths: list[tuple[int, ...]]) -> None:
    plan = plan_of(lowered, body)
    assert "Concat" not in ops(plan)
    assert parts(plan) == widths
    assert "c" not in plan.tensors


def test_of_a_concat_of_a_concat_the_inner_one_runs(lowered: Lowered) -> None:
    plan = plan_of(lowered, "c = Concat<axis=1>(a, b) d = Concat<axis=1>(c, a) y = Conv(d, w17)")
    assert ops(plan).count("Concat") == 1
    assert parts(plan) == [(12, 5)]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("c = Concat<axis=1>(a, b) d = Conv(c, w12) e = ReduceMax<axes=[1]>(c) y = Add(d, e)", "float[i,j,k,l] y"),
        ("c = Concat<axis=1>(a, b) y = Conv(c, w12)", "float[i,j,k,l] y, float[m,n,o,p] c"),
        ("c = Concat<axis=1>(a, b, x, x, x, x) y = Conv(c, w24)", "float[i,j,k,l] y"),
        ("c = Concat<axis=2>(a, a) y = Conv(c, w5)", "float[i,j,k,l] y"),
        ("c = Concat<axis=1>(a, b) y = Conv<strides=[1,2]>(c, w12)", "float[i,j,k,l] y"),
        ("c = Concat<axis=1>(a, b) y = Conv<pads=[0,1,0,0]>(c, w12)", "float[i,j,k,l] y"),
        ("c = Concat<axis=1>(a, b) y = Conv(c, wide)", "float[i,j,k,l] y"),
        ("c = Concat<axis=1>(a, b) y = Conv<group=2>(c, grouped)", "float[i,j,k,l] y"),
        ("c = Concat<axis=1>(a, b) d = Conv(c, square) y = Add(d, c)", "float[i,j,k,l] y"),
    ],
    ids=[
        "other reader", "output", "six parts", "other axis", "strides", "pads", "3x3", "groups", "residual",
    ],
)  # fmt: skip
def test_other_concats_run(lowered: Lowered, monkeypatch: pytest.MonkeyPatch, body: str, outputs: str) -> None:
    more = {"w24": (4, 24, 1, 1), "w5": (4, 5, 1, 1), "square": (12, 12, 1, 1)}
    for name, shape in more.items():
        monkeypatch.setitem(WEIGHTS, name, shape)
    plan = plan_of(lowered, body, f"(float[2,3,6,5] x) => ({outputs})")
    assert ops(plan).count("Concat") == 1
    assert not any(parts(plan))


def test_a_concat_of_one_part_with_elements_is_none(lowered: Lowered) -> None:
    body = f"{PARTS['a']} c = Concat<axis=1>(a, empty) y = Conv(c, w5)"
    model = build(MAPS, body, {"u": WEIGHTS["u"], "empty": WEIGHTS["empty"], "w5": (4, 5, 1, 1)})
    plan = lowered(model)
    assert_agrees(model, plan)
    assert "Concat" not in ops(plan)


@pytest.mark.parametrize(
    "pooling",
    [
        "MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1]>",
        "AveragePool<kernel_shape=[2,2], ceil_mode=1, strides=[2,2]>",
        "LpPool<kernel_shape=[2,3], p=3>",
        "GlobalAveragePool",
        "GlobalMaxPool",
    ],
)
def test_poolings_come_before_the_join(lowered: Lowered, pooling: str) -> None:
    plan = plan_of(lowered, f"c = Concat<axis=1>(a, b, a) p = {pooling}(c) r = Relu(p) y = Conv(r, w17)")
    assert ops(plan)[:5] == ["Conv", "Conv", "Pool", "Pool", "MatMul"]
    assert parts(plan) == [(5, 7, 5)]
    assert [each.nodes for each in plan.operations[2:5]] == [("the p", "the r")] * 2 + [("the c", "the y")]
    assert [each.name for each in plan.operations[2:4]] == ["r/part0", "r/part1"]


@pytest.mark.parametrize(
    "body",
    [
        "p = MaxPool<kernel_shape=[2,2]>(c) y = Conv(p, wide)",
        "p = MaxPool<kernel_shape=[2,2]>(c) d = Conv(p, w12) e = ReduceMax<axes=[1]>(p) y = Add(d, e)",
        "p = MaxPool<kernel_shape=[1,1]>(c) d = Conv(p, w12) e = Conv(c, w12) y = Add(d, e)",
        "p = MaxPool<kernel_shape=[1,1]>(c) q = Mul(p, other) y = Conv(q, w12)",
        "p, i = MaxPool<kernel_shape=[1,1]>(c) d = Conv(p, w12) j = Cast<to=1>(i) e = ReduceMax<axes=[1]>(j)"
        " y = Add(d, e)",
    ],
    ids=["3x3 behind", "pooled for others", "joined for others", "operand", "indices"],
)
def test_other_poolings_stay_whole(lowered: Lowered, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setitem(WEIGHTS, "other", (2, 12, 6, 5))
    plan = plan_of(lowered, f"c = Concat<axis=1>(a, b) {body}")
    assert (ops(plan).count("Pool"), ops(plan).count("Concat")) == (1, 1)


def test_moves_write_parts_as_products_read_them(lowered: Lowered) -> None:
    plan = plan_of(lowered, "p, q = Split<axis=3>(x, two_and_three) c = Concat<axis=1>(q, q) y = Conv(c, w6)")
    assert ops(plan) == ["Move", "MatMul", "Transpose"]


def test_a_package_that_lowers_convolutions_reads_joined_maps(lowered: Lowered) -> None:
    with using(Added({"Conv": LOWERINGS["Conv"]})):
        assert "Concat" in ops(plan_of(lowered, "c = Concat<axis=1>(a, b) y = Conv(c, w12)"))


@pytest.mark.parametrize(
    "body",
    [
        "c = Concat<axis=1>(x, x) e = Conv(c, w1) y = Conv<group=12>(e, v)",
        "c = Concat<axis=1>(x, x) e = Conv(c, w1) d = Conv<group=12>(e, v) y = Conv(d, w2)",
        "d = Conv<group=2>(x, v1) c = Concat<axis=1>(d, d) y = Conv(c, w3)",
    ],
    ids=["no projection", "expanded parts", "projected parts"],
)
def test_no_kernel_of_several_convolutions_reads_parts(tmp_path: Any, body: str) -> None:
    weights = {
        "w1": (12, 4, 1, 1), "v": (12, 1, 3, 3), "w2": (4, 12, 1, 1), "v1": (2, 1, 3, 3), "w3": (4, 4, 1, 1),
    }  # fmt: skip
    read = {name: shape for name, shape in weights.items() if f"{name})" in body}
    groups = Alternatives(
        read_model(save(build("(float[1,2,6,5] x) => (float[i,j,k,l] y)", body, read), tmp_path))
    ).groups
    assert [group.task.op for group in groups] == ["SeparableConv"] * ("d, w2" in body)
