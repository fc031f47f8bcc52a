"""Test how random models are made and compared; tests/client/model/test_random_graphs.py compares many."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array, Graph
from gputune.client.model.importer import every_node
from gputune.kernels import chain_functions
from tests.strategies.graphs import comparing, making
from tests.strategies.graphs.comparing import FAILED, KINDS, REFUSED, by_references, outcome_of
from tests.strategies.graphs.differences import DIFFERENCES, difference
from tests.strategies.graphs.making import Made, Maker, alone
from tests.strategies.graphs.nodes import DRAWS


def made(seed: int) -> onnx.ModelProto:
    return Maker(seed, DRAWS).make().model


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_repeats_a_model(kind: str) -> None:
    make = KINDS[kind].make
    assert make(7).model == make(7).model != make(8).model


def test_random_functions_have_defaults_at_three_depths() -> None:
    models = [KINDS["functions"].make(seed).model for seed in range(20)]
    functions = [each for model in models for each in model.functions]
    assert any(each.attribute_proto for each in functions) and any(each.attribute for each in functions)
    nodes = [node for each in functions for node in every_node(each.node)]
    assert any(each.ref_attr_name for node in nodes if node.domain == "own" for each in node.attribute)
    assert any(not node.attribute for node in nodes if node.domain == "own"), "calls omit what has a default"


def test_casts_that_do_not_round_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = replace(chain_functions.UNARY["half"], compute=lambda value: value)
    monkeypatch.setitem(chain_functions.UNARY, "half", exact)
    assert FAILED in {outcome_of(seed, by_references, "casts").kind for seed in range(16)}


def test_models_are_odd() -> None:
    models = [made(seed) for seed in range(60)]
    assert {model.opset_import[0].version for model in models} == set(range(7, 22))
    assert any(model.functions for model in models)
    nodes = [node for model in models for node in model.graph.node]
    assert any("/" in node.name for node in nodes), "names that look as if a pass had made them"
    assert any("/" in name for node in nodes for name in node.output)
    assert any(
        dim.dim_param for model in models for item in model.graph.input for dim in item.type.tensor_type.shape.dim
    )
    assert max(len(model.graph.output) for model in models) > 1
    for model in models:
        read = [name for node in model.graph.node for name in node.input]
        if any(read.count(item.name) > 1 for item in model.graph.initializer):
            return
    raise AssertionError("no weight has two readers")


def single(op: str, shape: tuple[int, ...], weights: list[Array], **attributes: Any) -> Made:
    """A model of one node, as the fuzzer has them."""
    names = [f"w{place}" for place in range(len(weights))]
    node = onnx.helper.make_node(op, ["x", *names], ["y"], **attributes)
    inputs = {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * np.float32(100)}
    known = dict(zip(names, weights, strict=True))
    results = alone(node, {**inputs, **known}, 17)
    assert results is not None
    info = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, results[0].shape)
    model = making.single(node, inputs, known, 17)
    model.graph.output[0].CopyFrom(info)
    return Made(model, inputs, {}, {**inputs, "y": results[0]}, known)


NOTHING = np.zeros(0, np.float32)
DIFFERENT = [
    single("MaxPool", (1, 1, 8, 8), [], auto_pad="SAME_UPPER", ceil_mode=1, kernel_shape=[2, 3], dilations=[2, 1]),
    single("Resize", (1, 1, 3, 9), [NOTHING, np.array([1, 1, 1, 0.75], np.float32)], mode="linear",
           coordinate_transformation_mode="align_corners"),
    single("LRN", (2, 40, 6, 6), [], size=1, bias=0.6, alpha=0.1),
]  # fmt: skip


@pytest.mark.parametrize("made", DIFFERENT, ids=[made.model.graph.node[0].op_type for made in DIFFERENT])
def test_each_documented_difference_is_one(made: Made) -> None:
    node = comparing.culprit(made, by_references)
    assert node is not None, "agrees, and need not be documented"
    assert difference(node, {**made.values, **made.weights})
    del node.attribute[:]
    assert not difference(node, {"x": np.ones((1, 1, 3, 9), np.float32)})


def wrong_where_there_is(op: str, graph: Graph, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    results = dict(by_references(graph, inputs))
    if any(node.op == op for node in graph.nodes):
        results = {name: value + 1 if value.dtype == np.float32 else value for name, value in results.items()}
    return results


def test_a_failure_names_the_node_that_fails_alone() -> None:
    seed = next(
        seed for seed in range(100) if {node.op_type for node in made(seed).graph.node} >= {"Transpose", "Conv"}
    )
    outcome = outcome_of(seed, lambda graph, inputs: wrong_where_there_is("Conv", graph, inputs))
    assert outcome.kind == FAILED
    assert outcome.node.startswith("Conv-")
    assert "is off by 1, allowed" in outcome.detail


def test_what_is_raised_is_a_failure_and_an_error_of_gputune_a_refusal() -> None:
    def broken(graph: Graph, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        raise KeyError(next(iter(inputs)))

    def refusing(graph: Graph, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        raise ModelError("node 'n17' of 12 needs what is not supported")

    assert outcome_of(3, broken).kind == FAILED
    assert "KeyError" in outcome_of(3, broken).detail
    refused = outcome_of(3, refusing)
    assert (refused.kind, refused.detail) == (REFUSED, "node '...' of N needs what is not supported")


def test_every_difference_from_onnxruntime_stands_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operators.md").read_text(encoding="utf-8")
    told = page[page.index("Where ONNX leaves something open") :]
    assert {op for each in DIFFERENCES for op in each.ops if not re.search(rf"\b{op}\b", told)} == set()


def test_hard_models_have_hard_values_and_few_nodes() -> None:
    models = [Maker(seed, DRAWS, hard=True).make() for seed in range(30)]
    assert {len(each.model.graph.node) for each in models} <= set(range(1, 12))
    values = np.concatenate([value.ravel() for each in models for value in each.inputs.values()])
    assert np.isnan(values).any() and np.isinf(values).any() and (np.abs(values) > 1e38).any()
