"""Test convolutions and poolings over lines: what is lifted to maps, what follows, and that all of it is right."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.graph import Graph
from gputune.client.model.importer import read_model
from gputune.client.model.passes import simplify
from tests.client.models import build, save

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]


@pytest.fixture
def simplified(tmp_path: Path) -> Callable[[onnx.ModelProto], Graph]:
    return lambda model: simplify(read_model(save(model, tmp_path)))


def chain() -> onnx.ModelProto:
    """Windows with all that may lie between them, of which nothing needs a conversion."""
    return build(
        "(float[2,3,13] x) => (float[a,b,c] y)",
        """c = Conv<pads=[1,2], strides=[2]>(x, w, b)
           n = BatchNormalization(c, s, b, b, p)
           r = Relu(n)
           d = Conv<auto_pad="SAME_UPPER", group=4>(r, v)
           e = Add(d, r)
           t = Tanh(e)
           m = Mul(t, k)
           f = Concat<axis=-1>(m, r)
           g = Concat<axis=-2>(f, f)
           y = MaxPool<kernel_shape=[2], dilations=[2]>(g)""",
        {"w": (4, 3, 3), "b": (4,), "s": (4,), "p": (4,), "v": (4, 1, 3), "k": (4, 1)},
    )


def test_a_chain_of_lines_is_converted_at_its_ends_only(lowered: Lowered) -> None:
    model = chain()
    for item in model.graph.initializer:
        if item.name == "p":  # a variance
            item.CopyFrom(onnx.numpy_helper.from_array(abs(onnx.numpy_helper.to_array(item)), "p"))
    plan = lowered(model)
    assert_agrees(model, plan)
    middle = ["Conv", "DepthwiseConv", "Elementwise", "Concat", "Concat", "Pool"]
    assert ops(plan) == [*middle, "Transpose"]


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("y = ConvTranspose<strides=[3], pads=[1,0], output_padding=[1]>(x, w, b)", {"w": (3, 5, 4), "b": (5,)}),
        ("y = ConvTranspose<strides=[2], output_shape=[20]>(x, w)", {"w": (3, 5, 3)}),
        ("y = Conv<dilations=[3], pads=[2,0]>(x, w)", {"w": (5, 3, 2)}),
        ("y = AveragePool<kernel_shape=[3], strides=[2], pads=[0,1], count_include_pad=1>(x)", {}),
        ('y = MaxPool<kernel_shape=[4], strides=[3], auto_pad="SAME_LOWER">(x)', {}),
        ("y = GlobalAveragePool(x)", {}),
        ("y = GlobalMaxPool(x)", {}),
        ("y, unread = MaxPool<kernel_shape=[3]>(x)", {}),
    ],
)
def test_attributes_reach_the_other_axis_only(lowered: Lowered, body: str, weights: dict[str, tuple[int, ...]]) -> None:
    model = build("(float[2,3,11] x) => (float[a,b,c] y)", body, weights)
    assert_agrees(model, lowered(model))


def test_operands_of_fewer_axes_follow(lowered: Lowered) -> None:
    body = """c = Conv(x, w) a = Mul(c, row) d = Sub(column, a) e = Add(d, line) p = Relu(e) q = Conv(p, w)
              y = Add(q, number)"""
    weights = {"w": (3, 3, 1), "row": (7,), "column": (3, 1), "number": (1,)}
    model = build("(float[2,3,7] x, float[3,7] line) => (float[a,b,c] y)", body, weights)
    assert_agrees(model, lowered(model))


def test_what_is_no_part_of_a_chain_stays_a_line(simplified: Callable[[onnx.ModelProto], Graph]) -> None:
    body = "t = Tanh(x) u = Exp(t) v = Concat<axis=1>(u, t) y = Conv(v, w)"
    graph = simplified(build("(float[2,3,7] x) => (float[a,b,c] y)", body, {"w": (2, 6, 3)}))
    ranks = {node.op: len(graph.shape(node.output)) for node in graph.nodes if node.op != "Reshape"}
    assert ranks == {"Elementwise": 3, "Concat": 3, "Conv": 4}


def test_a_sequence_that_is_transposed_for_a_convolution_moves_nowhere(lowered: Lowered) -> None:
    body = """t = Transpose<perm=[0,2,1]>(x) c = Conv<pads=[1,1]>(t, w, b) r = Relu(c)
              u = Transpose<perm=[0,2,1]>(r) y = MatMul(u, m)"""
    model = build("(float[2,11,3] x) => (float[a,b,c] y)", body, {"w": (4, 3, 3), "b": (4,), "m": (4, 5)})
    plan = lowered(model)
    assert_agrees(model, plan)
    assert ops(plan) == ["Conv", "MatMul"]


@pytest.mark.parametrize("operator", ["InstanceNormalization(c, s, b)", "GroupNormalization<num_groups=2>(c, s, b)"])
def test_normalisations_between_windows_follow(lowered: Lowered, operator: str) -> None:
    weights = {"w": (4, 3, 3), "s": (4,), "b": (4,), "v": (2, 4, 3)}
    body = f"c = Conv(x, w) n = {operator} r = Relu(n) y = Conv(r, v)"
    model = build("(float[2,3,11] x) => (float[d,e,f] y)", body, weights, opset=21, ir_version=10)
    plan = lowered(model)
    assert_agrees(model, plan)
    assert ops(plan).count("Transpose") == 1


def test_one_line_read_twice_is_lifted_once(simplified: Callable[[onnx.ModelProto], Graph]) -> None:
    body = "a = Conv(x, w) b = Conv(x, w) y = Concat<axis=1>(a, b)"
    graph = simplified(build("(float[2,3,7] x) => (float[a,b,c] y)", body, {"w": (2, 3, 3)}))
    assert sorted(node.op for node in graph.nodes) == ["Concat", "Conv", "Conv", "Reshape", "Reshape"]
    assert len(graph.constants) == 1


def test_maps_of_four_axes_are_refused_by_name(lowered: Lowered) -> None:
    model = build("(float[1,2,3,3,3,3] x) => (float[a,b,c,d,e,f] y)", "y = MaxPool<kernel_shape=[2,2,2,2]>(x)")
    with pytest.raises(ModelError, match="4 spatial dimensions; 1 to 3 are supported"):
        lowered(model)
