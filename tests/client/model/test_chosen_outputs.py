"""Test --set_output_tensors and --enable_intermediate_outputs: which tensors become outputs, and what they hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.errors import ConfigError
from gputune.client.model.chosen_outputs import ChosenOutputs
from gputune.client.model.graph import Graph
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.lowering.layouts import device_shape
from gputune.client.model.reference import evaluate
from tests.client import models
from tests.client.model.test_parts import in_onnxruntime
from tests.strategies.graphs.comparing import differing, mixed

EVERY = ChosenOutputs(every=True)


def imported(model: onnx.ModelProto) -> Graph:
    return import_model(model, Path("made up"), {})


def chosen(text: str, *graphs: Graph) -> list[tuple[str, ...]]:
    return [graph.outputs for graph in ChosenOutputs.parse(False, text).of(graphs)]


@pytest.mark.parametrize("seed", range(1000, 1024))
def test_every_tensor_that_a_kernel_writes_is_an_output_with_the_models_value(seed: int) -> None:
    made = mixed(seed)
    before = imported(made.model)
    (graph,) = EVERY.of([before])
    assert graph.outputs[: len(before.outputs)] == before.outputs
    plan = lower(graph)
    written = {plan.holds[each.output].name for each in plan.operations if each.output in plan.holds}
    assert written & graph.named <= set(graph.outputs)
    got = evaluate(plan, made.inputs)
    assert differing(got, {name: made.values[name] for name in graph.outputs}) == ""


@pytest.mark.parametrize("seed", range(1024, 1048))
def test_what_a_plan_holds_is_the_tensor_of_that_name(seed: int) -> None:
    """Also without being an output: this is how --verify knows what a kernel should have written."""
    made = mixed(seed)
    graph = imported(made.model)
    plan = lower(graph)
    held = {each.output: plan.holds[each.output] for each in plan.operations if each.output in plan.holds}
    named = {output: tensor for output, tensor in held.items() if tensor.name in graph.named}
    assert len(named) > 0
    found: dict[str, models.Array] = {}
    evaluate(plan, made.inputs, lambda operation, result: found.update({operation.output: result}))
    for output, tensor in named.items():
        right = made.values[tensor.name]
        shape = device_shape(right.shape) if tensor.on_device else right.shape
        assert plan.tensors[output].shape == shape, output
        right = right.transpose(0, 2, 3, 1) if tensor.on_device and right.ndim == 4 else right
        assert differing({output: found[output].reshape(shape)}, {output: right}) == ""


def test_an_output_that_is_a_view_is_copied_before_others_read_it() -> None:
    body = "seen = Reshape(x, s) y = ReduceMax<keepdims=1>(seen)"
    model = models.build("(float[2,3] x) => (float[6] seen, float[1] y)", body, {"s": models.integers(6)})
    assert [operation.output for operation in lower(imported(model)).operations] == ["seen", "y"]


def test_a_tensor_that_would_be_fused_away_is_kept() -> None:
    model = models.conv_relu_gemm()
    graph = imported(model)
    fused, (kept,) = lower(graph), map(lower, ChosenOutputs(named=("c",)).of([graph]))
    assert "c" not in {each.output for each in fused.operations}
    assert len(kept.operations) > len(fused.operations)
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 7)).astype(np.float32)
    got, want = evaluate(kept, {"x": x}), in_onnxruntime(model, ["y", "c"], {"x": x})
    np.testing.assert_allclose(got["c"], want["c"], atol=1e-5)
    np.testing.assert_allclose(got["y"], want["y"], atol=1e-5)
    assert [output.name for output in lower(*EVERY.of([graph])).outputs] == ["y", "r"], "fused as without it"


def test_lists_for_all_graphs_and_for_one() -> None:
    graph = imported(models.conv_relu_gemm())
    first, second = replace(graph, name="g_1"), replace(graph, name="g_2")
    assert chosen("r,c", graph) == [("y", "c", "r")], "in the order in which they are computed"
    assert chosen("y", graph) == [("y",)]
    assert chosen("c", first, second) == [("y", "c")] * 2
    assert chosen("g_1:c,r;g_2:f", first, second) == [("y", "c", "r"), ("y", "f")]
    assert chosen("g_2:f;r", first, second) == [("y", "r"), ("y", "r", "f")]


@given(st.lists(st.text('a:,;" 0', min_size=1, max_size=5), min_size=1, max_size=3, unique=True))
def test_any_name_can_be_given_in_quotes(names: list[str]) -> None:
    body = "".join(f"t{index} = Relu(x) y{index} = Exp(t{index}) " for index in range(len(names)))
    outputs = ", ".join(f"float[2] y{index}" for index in range(len(names)))
    model = models.build(f"(float[2] x) => ({outputs})", body)
    for node in model.graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names[int(each[1:])] if each[0] == "t" else each for each in tensors]
    graph = imported(model)
    text = ",".join('"{}"'.format(name.replace('"', '""')) for name in names)
    assert set(*chosen(text, graph)) == {*graph.outputs, *names}


def test_what_is_refused() -> None:
    graph = imported(models.conv_relu_gemm())
    other = replace(graph, name="other")
    for text, why in {
        "cc": "computes no tensor 'cc'; the nearest are 'c'",
        "x": "it is an input",
        "nothing like it": "nor one with a similar name",
        "a,,b": "a name that is empty",
        "": "a name that is empty",
        "c;": "a name that is empty",
        '"c': "unexpected end of data",
    }.items():
        with pytest.raises(ConfigError, match=why):
            chosen(text, graph)
    with pytest.raises(ConfigError, match="if 'wrong' names a graph, the graphs are 'small', 'other'"):
        chosen("wrong:c", graph, other)
    with pytest.raises(ConfigError, match="drop one of them"):
        ChosenOutputs.parse(True, "c")
