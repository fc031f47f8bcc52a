"""Test plans with and without optional fusion: what may be fused, when it is, and that the plans compute the same."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.model.plan import Plan, Task
from gputune.client.model.reference import evaluate
from gputune.kernels.catalogue import family_of
from tests.client.models import build
from tests.client.plans import Alternated
from tests.kernels.problems import CPU, GPU

SIGNATURE = "(float[1,4,8,8] x) => (float[1,6,4,4] y)"
DEPTHWISE = "d = Conv<group=4, pads=[1,1,1,1], strides=[2,2]>(x, v, b) r = Relu(d)"
WEIGHTS = {"v": (4, 1, 3, 3), "b": (4,), "w": (6, 4, 1, 1), "u": (6, 6, 1, 1), "c": (6,)}
TWO_BLOCKS = """
    d = Conv<group=8, pads=[1,1,1,1]>(x, v, b) r = Clip(d, low, high) p = Conv(r, w, b)
    e = Conv<group=8, pads=[1,1,1,1]>(p, v2, b) s = Clip(e, low, high) q = Conv(s, w, b)
    f = Conv<group=8, strides=[2,2]>(q, v, b) t = HardSwish(f) y = Conv(t, w, b)"""


def two_blocks() -> onnx.ModelProto:
    """Two equal blocks, of which the second reads the first, and another one."""
    weights: Mapping[str, Any] = {
        "v": (8, 1, 3, 3), "v2": (8, 1, 3, 3), "b": (8,), "w": (8, 8, 1, 1), "low": np.float32(0),
        "high": np.float32(6),
    }  # fmt: skip
    return build("(float[1,8,7,5] x) => (float[n,c,h,w2] y)", TWO_BLOCKS, weights, opset=14)


BLOCK = """
    e = Conv(x, w1, b1) f = Clip(e, low, high) d = Conv<group=12, pads=[1,1,1,1]>(f, v, b1) g = Clip(d, low, high)
    p = Conv(g, w2, b2) y = Add(x, p)"""
BLOCK_WEIGHTS: Mapping[str, Any] = {
    "w1": (12, 4, 1, 1), "b1": (12,), "v": (12, 1, 3, 3), "w2": (4, 12, 1, 1), "b2": (4,),
    "low": np.float32(0), "high": np.float32(6),
}  # fmt: skip


def block() -> onnx.ModelProto:
    """An inverted residual block."""
    return build("(float[2,4,7,5] x) => (float[n,c,h,w] y)", BLOCK, BLOCK_WEIGHTS)


def ops(plan: Plan) -> list[str]:
    return [operation.task.op for operation in plan.operations]


def assert_same(one: Plan, other: Plan) -> None:
    """Both plans compute the same, and the other one is whole."""
    inputs = {spec.name: np.random.default_rng(1).standard_normal(spec.shape, dtype=np.float32) for spec in one.inputs}
    wanted, got = evaluate(one, inputs), evaluate(other, inputs)
    assert list(wanted) == list(got)
    for name, want in wanted.items():
        assert np.abs(got[name] - want).max() <= 1e-5 * np.abs(want).max()
    written = {spec.name for spec in other.inputs} | other.constants.keys()
    for operation in other.operations:
        specs = family_of(operation.task.op).inputs(operation.task.problem)
        assert [other.tensors[operation.inputs[spec.name]].nbytes for spec in specs] == [spec.nbytes for spec in specs]
        assert {other.root(name) for name in operation.inputs.values()} <= written
        written.add(other.root(operation.output))
    assert other.tensors.keys() == written | other.aliases.keys()
    assert sum(task.weight for task in other.tasks) == len(other.operations)
    assert len({(task.op, repr(task.problem)) for task in other.tasks}) == len(other.tasks)


def test_a_depthwise_and_the_pointwise_convolution_that_reads_it_are_a_group(alternated: Alternated) -> None:
    both = alternated(build(SIGNATURE, f"{DEPTHWISE} p = Conv(r, w, c) y = Relu(p)", WEIGHTS))
    assert ops(both.plan) == ["Transpose", "DepthwiseConv", "MatMul", "Transpose"]
    (group,) = both.groups
    assert group.names == tuple(operation.name for operation in both.plan.operations[1:3])
    assert group.replaces == both.plan.tasks[1:3]
    assert [task.op for task in both.tasks] == ["Transpose", "DepthwiseConv", "MatMul", "SeparableConv", "Transpose"]
    fused = both.plan_with([group])
    assert ops(fused) == ["Transpose", "SeparableConv", "Transpose"]
    assert fused.operations[1].nodes == (*both.plan.operations[1].nodes, *both.plan.operations[2].nodes)
    assert_same(both.plan, fused)
    assert both.plan_with([]) == both.plan


def test_no_kernel_is_a_convolution_in_groups_and_the_pointwise_one_that_reads_it(alternated: Alternated) -> None:
    weights = {**WEIGHTS, "v": (4, 2, 3, 3)}
    both = alternated(build(SIGNATURE, "d = Conv<group=2, pads=[1,1,1,1]>(x, v, b) y = Conv(d, w, c)", weights))
    assert ops(both.plan) == ["Transpose", "DepthwiseConv", "MatMul", "Transpose"]
    assert both.groups == ()


def test_a_group_that_saves_more_launches_is_the_likely_one(
    alternated: Alternated, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = alternated(block())
    assert [group.task.op for group in both.likely(CPU)] == ["InvertedResidual"]
    assert both.likely(GPU) == ()
    monkeypatch.setattr(type(family_of("InvertedResidual")), "pays", lambda *arguments: False)
    assert [group.task.op for group in both.likely(CPU)] == ["SeparableConv"]


def test_what_does_not_fit_is_not_likely(alternated: Alternated, monkeypatch: pytest.MonkeyPatch) -> None:
    def unfit(*arguments: Any) -> None:
        raise ValueError("no room")

    for op in ("InvertedResidual", "SeparableConv"):
        monkeypatch.setattr(type(family_of(op)), "default", unfit)
    assert alternated(block()).likely(CPU) == ()


def test_a_node_called_as_its_output_shares_its_name_with_no_conversion(alternated: Alternated) -> None:
    """The conversion that writes the output is called as the tensor."""
    body = "d = Conv<group=4, pads=[1,1,1,1], strides=[2,2]>(x, v, b) y = Conv(d, w, c)"
    model = build(SIGNATURE, body, WEIGHTS)
    model.graph.node[-1].name = "y"
    found = alternated(model)
    for plan in (found.plan, found.plan_with(found.groups)):
        names = [operation.name for operation in plan.operations]
        assert len(set(names)) == len(names)
        assert (plan.operations[-1].task.op, plan.operations[-1].output) == ("Transpose", "y")


@pytest.mark.parametrize(
    "body",
    [
        "p = Conv(r, w, c) q = GlobalAveragePool(r) k = Conv(q, w) y = Add(p, k)",  # the middle is read twice
        "y = Conv<group=2>(r, g, c)",
        "m = MaxPool<kernel_shape=[1,1]>(r) y = Conv(m, w, c)",
    ],
)
def test_others_are_no_group(alternated: Alternated, body: str) -> None:
    both = alternated(build(SIGNATURE, f"{DEPTHWISE} {body}", {**WEIGHTS, "g": (6, 2, 1, 1)}))
    assert both.groups == ()
    assert both.tasks == both.plan.tasks


def test_a_product_by_what_was_computed_is_no_group(alternated: Alternated) -> None:
    signature = "(float[1,4,8,8] x, float[4,6] z) => (float[1,4,4,6] y)"
    body = f'{DEPTHWISE} q = Relu(z) y = Einsum<equation="nchw,cd->nhwd">(r, q)'
    both = alternated(build(signature, body, WEIGHTS))
    assert ops(both.plan)[-1] == "MatMul"
    assert both.groups == ()


def test_a_middle_that_is_an_output_is_no_group(alternated: Alternated) -> None:
    signature = "(float[1,4,8,8] x) => (float[1,6,4,4] y, float[1,4,4,4] r)"
    assert alternated(build(signature, f"{DEPTHWISE} y = Conv(r, w, c)", WEIGHTS)).groups == ()


def test_a_residual_that_is_computed_between_the_two_is_there_in_time(alternated: Alternated) -> None:
    body = (
        f"{DEPTHWISE} m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) o = Conv(m, w) p = Conv(r, w, c) y = Add(p, o)"
    )
    both = alternated(build(SIGNATURE, body, WEIGHTS))
    assert ops(both.plan)[1:] == ["DepthwiseConv", "Pool", "MatMul", "MatMul", "Transpose"]
    assert_same(both.plan, both.plan_with(both.groups))


def test_equal_groups_are_one_task_with_their_number(alternated: Alternated) -> None:
    both = alternated(two_blocks())
    weights = {(task.op, task.weight) for task in both.tasks}
    assert {("SeparableConv", 2), ("SeparableConv", 1), ("MatMul", 2), ("DepthwiseConv", 2)} <= weights
    assert len(both.groups) == 3
    assert both.groups[0].task == both.groups[1].task != both.groups[2].task
    assert both.nodes_of[both.groups[0].task] == (*both.groups[0].fused.nodes, *both.groups[1].fused.nodes)
    half = both.plan_with(both.groups[1:])
    assert ops(half)[1:5] == ["DepthwiseConv", "MatMul", "SeparableConv", "SeparableConv"]
    assert_same(both.plan, half)
    with pytest.raises(ValueError, match="not groups of model"):
        alternated(two_blocks()).plan_with(both.groups[:1])


def test_a_group_is_fused_where_that_is_faster(alternated: Alternated) -> None:
    both = alternated(two_blocks())
    large, small = both.groups[0], both.groups[2]

    def times(large_ns: float | None, small_ns: float | None) -> Callable[[Task], float | None]:
        known = {large.task: large_ns, small.task: small_ns}
        return lambda task: known.get(task, 100.0) if task in both.tasks else None

    for (large_ns, small_ns), launch_ns, chosen in [
        ((199, 201), 0, both.groups[:2]),
        ((203.9, 204.1), 4, both.groups[:2]),
        ((204.1, 203.9), 4, both.groups[2:]),
        ((200, 200), 0, ()),
        ((None, 100), 4, both.groups[2:]),
    ]:
        time_ns = times(large_ns, small_ns)
        assert both.gainful(time_ns, launch_ns) == chosen
    assert large.gain_ns(times(150, 100), 4) == pytest.approx(54)
    assert large.gain_ns(lambda task: None if task == large.replaces[1] else 1.0, 4) is None


def test_an_expansion_in_front_makes_another_group_of_the_same_operations(alternated: Alternated) -> None:
    both = alternated(block())
    assert ops(both.plan) == ["Transpose", "MatMul", "DepthwiseConv", "MatMul", "Transpose"]
    pair, triple = both.groups
    assert triple.names == (both.plan.operations[1].name, *pair.names)
    assert [task.op for task in both.tasks][3:6] == ["MatMul", "SeparableConv", "InvertedResidual"]
    fused = both.plan_with([triple])
    assert ops(fused) == ["Transpose", "InvertedResidual", "Transpose"]
    assert_same(both.plan, fused)
    with pytest.raises(ValueError, match=f"would be fused twice: {pair.names[0]}, {pair.names[1]}$"):
        both.plan_with([pair, triple])


def test_of_groups_that_share_operations_the_greater_gain_is_chosen(alternated: Alternated) -> None:
    both = alternated(block())
    pair, triple = both.groups

    def chosen(pair_ns: float | None, triple_ns: float | None, launch_ns: float = 0) -> tuple[Any, ...]:
        known = {pair.task: pair_ns, triple.task: triple_ns}
        return both.gainful(lambda task: known.get(task, 100.0), launch_ns)

    assert chosen(190, 280) == (triple,)
    assert chosen(190, 295) == (pair,)
    assert chosen(190, 295, launch_ns=6) == (triple,)
    assert chosen(None, 295) == (triple,)
    assert chosen(190, None) == (pair,)
    assert chosen(210, 310) == ()


@pytest.mark.parametrize(
    "body",
    [
        BLOCK.replace("d = Conv<", "r = Relu(f) d = Conv<").replace("Add(x, p)", "Add(p, q) q = Conv(r, w2)"),
        BLOCK.replace("w1, b1)", "w3, b3)")
        .replace("group=12", "group=8")
        .replace("v, b1)", "v3, b3)")
        .replace("w2", "w4"),
    ],
    ids=["expanded is read twice", "expands too little"],
)
def test_other_expansions_stay_as_they_are(alternated: Alternated, body: str) -> None:
    if "q = " in body:  # operators come in the order in which they run
        body = body.replace(" y = Add(p, q) q = Conv(r, w2)", " q = Conv(r, w2) y = Add(p, q)")
    weights = {**BLOCK_WEIGHTS, "w3": (8, 4, 1, 1), "b3": (8,), "v3": (8, 1, 3, 3), "w4": (4, 8, 1, 1)}
    both = alternated(build("(float[2,4,7,5] x) => (float[n,c,h,w] y)", body, weights))
    assert [group.task.op for group in both.groups] == ["SeparableConv"]


@pytest.mark.parametrize("launch_ns", [0.0, 7.0, 1000.0])
@pytest.mark.parametrize("fused_ns", [50.0, 150.0, 500.0])
def test_an_inference_takes_what_the_chosen_plan_does(
    alternated: Alternated, fused_ns: float, launch_ns: float
) -> None:
    model = alternated(two_blocks())

    def time_ns(task: Task) -> float:
        return fused_ns if task.op == "SeparableConv" else 100.0

    plan = model.plan_with(model.gainful(time_ns, launch_ns))
    expected = sum(time_ns(each.task) + launch_ns for each in plan.operations)
    assert model.inference_ns(time_ns, launch_ns) == pytest.approx(expected)
