"""Test convolutions and poolings over lines: what is lifted to maps, what follows, and that all of it is right."""

import onnx

from tests.client.models import build
from tests.client.plans import Simplified


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


def test_what_is_no_part_of_a_chain_stays_a_line(simplified: Simplified) -> None:
    body = "t = Tanh(x) u = Exp(t) v = Concat<axis=1>(u, t) y = Conv(v, w)"
    graph = simplified(build("(float[2,3,7] x) => (float[a,b,c] y)", body, {"w": (2, 6, 3)}))
    ranks = {node.op: len(graph.shape(node.output)) for node in graph.nodes if node.op != "Reshape"}
    assert ranks == {"Elementwise": 3, "Concat": 3, "Conv": 4}


def test_one_line_read_twice_is_lifted_once(simplified: Simplified) -> None:
    body = "a = Conv(x, w) b = Conv(x, w) y = Concat<axis=1>(a, b)"
    graph = simplified(build("(float[2,3,7] x) => (float[a,b,c] y)", body, {"w": (2, 3, 3)}))
    assert sorted(node.op for node in graph.nodes) == ["Concat", "Conv", "Conv", "Reshape", "Reshape"]
    assert len(graph.constants) == 1
