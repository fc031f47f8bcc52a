"""Test what each pass makes of a graph; test_lowering checks that the results are right."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gputune.client.model.graph import Graph, Node
from gputune.client.model.importer import read_model
from gputune.client.model.passes import PASSES
from tests.client import models
from tests.client.models import MODELS, build, numbers, save
from tests.client.plans import Simplified


def functions(node: Node) -> list[str]:
    return [step.function for step in node.chain.steps]


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_passes_leave_their_argument_alone(tmp_path: Path) -> None:
    for make in MODELS.values():
        graph = read_model(save(make(), tmp_path))
        for transform in PASSES:
            before = (graph.nodes, dict(graph.constants), dict(graph.tensors))
            after = transform(graph)
            assert (graph.nodes, dict(graph.constants), dict(graph.tensors)) == before
            graph = after


def test_graphs_stay_whole(simplified: Simplified) -> None:
    """Every tensor that is read is an input, a constant, or computed by a node before."""
    for make in MODELS.values():
        graph = simplified(make())
        known = {*graph.inputs, *graph.constants}
        for node in graph.nodes:
            assert set(node.reads) <= known
            assert not known.intersection(node.outputs)
            known.update(node.outputs)
        assert set(graph.outputs) <= known
        assert known <= graph.tensors.keys()


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("hard_swish")])
def test_hard_swish_is_recognised_in_every_spelling(simplified: Simplified, name: str) -> None:
    (conv,) = simplified(MODELS[name]()).nodes
    assert (conv.op, functions(conv)) == ("Conv", ["hard_swish"])
    assert len(conv.origins) == len(MODELS[name]().graph.node)


def test_what_only_looks_like_hard_swish_is_not(simplified: Simplified) -> None:
    graph = simplified(MODELS["almost_hard_swish"]())
    assert "hard_swish" not in [name for node in graph.nodes for name in functions(node)]


def test_a_gate_that_others_read_stays(simplified: Simplified) -> None:
    body = "a = Add(x, three) g = Clip(a, zero, six) m = Mul(x, g) y = Div(m, six) z = Exp(g)"
    weights = {"three": numbers(3), "zero": numbers(0), "six": numbers(6)}
    graph = simplified(build("(float[5] x) => (float[5] y, float[5] z)", body, weights))
    assert sorted(functions(node) for node in graph.nodes) == [["add", "clip", "exp"], ["hard_swish"]]


def test_scales_and_shifts_end_in_weights_and_bias(simplified: Simplified) -> None:
    (conv,) = simplified(MODELS["scaled_convolution"]()).nodes
    assert (conv.op, conv.chain.steps) == ("Conv", ())
    assert len(conv.inputs) == 3


def test_batch_normalization_folds_with_the_right_numbers(simplified: Simplified) -> None:
    model = models.residual_block()
    known = {item.name: onnx.numpy_helper.to_array(item).astype(np.float64) for item in model.graph.initializer}
    graph = simplified(model)
    first = graph.nodes[0]
    factor = known["scale"] / np.sqrt(known["variance"] + 1e-5)
    weight, bias = (graph.constants[name] for name in first.inputs[1:])
    np.testing.assert_allclose(weight, known["w1"] * factor.reshape(-1, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(bias, known["shift"] - known["mean"] * factor, rtol=1e-5)
    assert weight.dtype == bias.dtype == np.float32


def test_a_convolution_with_two_readers_keeps_its_weights(simplified: Simplified) -> None:
    graph = simplified(MODELS["batch_norm_alone"]())
    (conv,) = (node for node in graph.nodes if node.op == "Conv")
    assert conv.inputs[1] == "w"


@pytest.mark.parametrize("constant", [(1, 1, 4), (5, 1), (3, 5, 4)])
def test_what_varies_along_the_map_is_not_folded_into_weights(
    simplified: Simplified, constant: tuple[int, ...]
) -> None:
    body = "c = Conv(x, w) y = Add(c, k)"
    signature = "(float[1,3,5,4] x) => (float[1,3,5,4] y)"
    graph = simplified(build(signature, body, {"w": (3, 3, 1, 1), "k": constant}))
    assert ops(graph) == ["Conv", "Elementwise"]


def test_a_constant_as_large_as_the_result_becomes_an_epilogue_operand(simplified: Simplified) -> None:
    body = "c = Conv(x, w) y = Add(c, k)"
    signature = "(float[1,3,5,4] x) => (float[1,3,5,4] y)"
    (conv,) = simplified(build(signature, body, {"w": (3, 3, 1, 1), "k": (1, 3, 5, 4)})).nodes
    assert conv.operands == ("k",)


def test_a_residual_joins_the_convolution_that_runs_later(simplified: Simplified) -> None:
    first, second = simplified(models.residual_block()).nodes
    assert (functions(first), first.operands) == (["relu"], ())
    assert (functions(second), second.operands) == (["add", "relu"], ("x",))
    first, second = simplified(MODELS["projected_residual"]()).nodes
    assert functions(first) == []
    assert (functions(second), second.operands) == (["sub", "relu"], (first.output,))
    assert second.chain.steps[0].swapped


def test_the_earlier_side_takes_the_addition_when_the_later_one_cannot(simplified: Simplified) -> None:
    """The later side is an output too, so it must stay as it is; the earlier convolution then moves behind it."""
    body = "a = Conv(x, v) z = Conv(x, w) y = Add(a, z)"
    signature = "(float[1,3,5,4] x) => (float[1,3,5,4] y, float[1,3,5,4] z)"
    first, second = simplified(build(signature, body, {"v": (3, 3, 1, 1), "w": (3, 3, 1, 1)})).nodes
    assert (first.output, second.output, second.operands) == ("z", "y", ("z",))


def test_outputs_that_are_used_inside_are_not_fused_away(simplified: Simplified) -> None:
    graph = simplified(MODELS["shared_output"]())
    assert "inner" in graph.producers()
    assert functions(graph.producers()["inner"]) == []


def test_operands_are_shared_and_numbered(simplified: Simplified) -> None:
    body = "c = Conv(x, w) a = Add(c, x) m = Mul(a, z) y = Add(m, x)"
    signature = "(float[1,3,5,4] x, float[1,3,5,4] z) => (float[1,3,5,4] y)"
    (conv,) = simplified(build(signature, body, {"w": (3, 3, 1, 1)})).nodes
    assert conv.operands == ("x", "z")
    assert [step.operand for step in conv.chain.steps] == [0, 1, 0]
    assert conv.chain.operands == 2


def test_copies_vanish_except_for_a_second_name(simplified: Simplified) -> None:
    graph = simplified(MODELS["identities"]())
    assert {name: functions(node) for name, node in graph.producers().items()} == {
        "y": ["relu", "exp"],
        "z": [],
        "again": [],
    }
