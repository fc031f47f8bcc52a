"""Test where examples/two_parts.py can cut a network in two."""

import sys
from pathlib import Path

import onnx

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from two_parts import places_to_cut

from tests.client import models


def reads(model: onnx.ModelProto, tensor: str) -> set[str]:
    """What else the part behind a tensor would have to read of the part in front of it."""
    graph = model.graph
    number = next(number for number, node in enumerate(graph.node) if tensor in node.output)
    front = {name for node in graph.node[: number + 1] for name in node.output} | {item.name for item in graph.input}
    front -= {item.name for item in graph.initializer}
    behind = {name for node in graph.node[number + 1 :] for name in node.input} | {item.name for item in graph.output}
    return front & behind


def test_every_place_is_read_alone_and_every_other_is_none() -> None:
    for model in (models.conv_relu_gemm(), models.residual_block(), models.squeeze_excite()):
        places = places_to_cut(model)
        every = [name for node in model.graph.node for name in node.output]
        assert places == [name for name in every if name in places]
        for name in every:
            alone = reads(model, name) == {name}
            assert (name in places) == (alone and name not in {item.name for item in model.graph.output})


def test_a_branch_that_goes_around_is_not_cut() -> None:
    model = models.build("(float[2,4] x) => (float[2,4] y)", "a = Relu(x)\nb = Exp(a)\nc = Add(a, b)\ny = Relu(c)")
    assert places_to_cut(model) == ["a", "c"]
