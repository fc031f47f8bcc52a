"""Test names from passes and lowering: whatever names a model uses for its tensors and nodes, it computes the same."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from gputune.client.model.graph import Graph, Names
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.lowering.lowering import lower_simplified
from gputune.client.model.passes import PASSES
from gputune.client.model.reference import evaluate
from tests.client.models import MODELS, Array, build
from tests.client.plans import assert_agrees
from tests.strategies.graphs.comparing import mixed


def test_free_names_are_given_once() -> None:
    names = Names(["a", "a.2"])
    assert [names.free("a"), names.free("a"), names.free("b"), names.free("b")] == ["a.3", "a.4", "b", "b.2"]


def given_names(graph: Graph) -> tuple[list[str], list[str]]:
    """The names that the passes and the lowering of a graph give to tensors, and those that they give to nodes."""
    own = graph.tensors.keys()
    nodes = {node.name for node in graph.nodes}
    tensors: dict[str, None] = {}
    labels: dict[str, None] = {}
    for transform in PASSES:
        graph = transform(graph)
        tensors.update(dict.fromkeys(graph.tensors))
        labels.update(dict.fromkeys(node.name for node in graph.nodes))
    plan = lower_simplified(graph)
    tensors.update(dict.fromkeys(plan.tensors))
    labels.update(dict.fromkeys(operation.name for operation in plan.operations))
    return [name for name in tensors if name not in own], [name for name in labels if name not in nodes]


def called(model: onnx.ModelProto, tensors: list[str], nodes: list[str], chance: random.Random) -> onnx.ModelProto:
    """The model with some of these names for its tensors and its nodes; inputs and outputs keep theirs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    kept = {item.name for item in (*graph.input, *graph.output)}
    own = {*(item.name for item in graph.initializer), *(name for node in graph.node for name in node.output)}
    mine = sorted(own - kept - {""})
    chance.shuffle(mine)
    new = dict(zip(mine, chance.sample(tensors, min(len(tensors), len(mine))), strict=False))
    for item in graph.initializer:
        item.name = new.get(item.name, item.name)
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
        node.name = chance.choice(nodes) if nodes and chance.random() < 0.7 else node.name
    del graph.value_info[:]
    return copy


def some() -> Iterator[tuple[str, onnx.ModelProto]]:
    yield from ((name, MODELS[name]()) for name in MODELS)
    yield from ((f"made up {seed}", mixed(seed).model) for seed in range(12))


def test_generated_names_never_meet_those_of_the_model() -> None:
    """Each model again with the very names that were given to tensors and nodes beside its own."""
    chance = random.Random(1)
    for title, model in some():
        graph = import_model(model, Path(title), {})
        inputs: dict[str, Array] = {
            name: np.random.default_rng(1).standard_normal(graph.shape(name), dtype=np.float32) for name in graph.inputs
        }
        want = evaluate(lower(graph), inputs)
        tensors, nodes = given_names(graph)
        again = called(model, tensors, nodes, chance)
        got = evaluate(lower(import_model(again, Path(title), {})), inputs)
        assert all(np.array_equal(got[name], want[name], equal_nan=True) for name in want), title


def test_a_weight_may_be_called_as_the_matrix_of_another() -> None:
    model = build(
        "(float[1,4,2,2] x, float[4,5] z) => (float[1,5,2,2] y, float[4,5] q)",
        'q = Add(z, "w/matrix") y = Conv(x, w)',
        {"w": (5, 4, 1, 1), "w/matrix": (4, 5)},
    )
    assert_agrees(model, lower(import_model(model, Path("model"), {})))


def test_a_node_may_be_called_as_a_part_of_another() -> None:
    """The bias is folded into the convolution; the product keeps its own."""
    model = build(
        "(float[1,4,3,3] x, float[2,4] z, float[2,5] k) => (float[1,5,1,1] y, float[2,5] q)",
        "c = Conv(x, w) y = Add(c, b) [g] q = Gemm(z, v, k)",
        {"w": (5, 4, 3, 3), "b": (1, 5, 1, 1), "v": (4, 5)},
    )
    model.graph.node[1].name = "g/add"
    assert_agrees(model, lower(import_model(model, Path("model"), {})))
