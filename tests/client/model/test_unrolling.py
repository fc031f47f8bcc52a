"""Test when a loop is written as its rounds, and what is said of one that is not."""

from pathlib import Path

import numpy as np
import pytest

from gputune.client.errors import UnsupportedNodes
from gputune.client.model.importer import read_model
from gputune.client.model.importer.unrolling import MOST_ROUNDS
from tests.client.models import Array, build, save

STATE = "float[2,4] x, bool c0, int64 m"
BODY = "body = g (int64 i, bool c, float[2,4] s) => (bool d, float[2,4] t)"
SCALED = "t = MatMul(s, w) d = Identity(c)"

REFUSED = {
    "a count that follows from data": (
        f"y = Loop<{BODY} {{ {SCALED} }}>(m, , x)", "Loop node '.*' is not supported: 'm' must be known before it runs",
    ),
    "a condition at first": (f"y = Loop<{BODY} {{ {SCALED} }}>(three, c0, x)", "'c0' must be known before it runs"),
    "a condition of a round": (
        f"y = Loop<{BODY} {{ t = MatMul(s, w) d = Not(c0) }}>(three, , x)", "whether it goes on follows from data",
    ),
    "too many rounds": (f"y = Loop<{BODY} {{ {SCALED} }}>(many, , x)", f"it has more than {MOST_ROUNDS} rounds"),
    "no end": (f"y = Loop<{BODY} {{ {SCALED} }}>( , , x)", f"it has more than {MOST_ROUNDS} rounds"),
    "no rounds": (
        "l, y = Loop<body = g (int64 i, bool c, float[2,4] s) => (bool d, float[2,4] t, float[2,4] u)"
        " { t = MatMul(s, w) u = Neg(s) d = Identity(c) }>(none, , x)",
        "it has no rounds, so its result 'y' has no elements",
    ),
    "an operator without kernels": (
        f"y = Loop<{BODY} {{ r = Det(square) t = Mul(s, r) d = Identity(c) }}>(three, , x)",
        "there are no kernels for Det",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "says"), REFUSED.values(), ids=REFUSED)
def test_loops_that_cannot_be_written_out_are_refused_with_the_reason(tmp_path: Path, body: str, says: str) -> None:
    counts = {"three": np.array(3), "many": np.array(MOST_ROUNDS + 1), "none": np.array(0)}
    weights: dict[str, tuple[int, ...] | Array] = {"w": (4, 4), **counts}
    model = build(f"({STATE}) => (float y)", f"turned = Transpose(x) square = MatMul(x, turned) {body}", weights)
    with pytest.raises(UnsupportedNodes, match=says) as caught:
        read_model(save(model, tmp_path))
    assert len(caught.value.refusals) == 1


def test_rounds_share_weights(tmp_path: Path) -> None:
    """Those around the loop, and those in its body."""
    numbers = "v = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()"
    body = f"{BODY} {{ {numbers} p = MatMul(s, w) t = Mul(p, v) d = Identity(c) }}"
    model = build(
        "(float[2,4] x) => (float[2,4] y)", f"y = Loop<{body}>(three, , x)", {"w": (4, 4), "three": np.array(3)}
    )
    graph = read_model(save(model, tmp_path))
    assert [node.op for node in graph.nodes].count("MatMul") == 3
    assert len({node.inputs[1] for node in graph.nodes if node.op == "Mul"}) == 1
    assert sorted(value.shape for value in graph.constants.values() if value.dtype == np.float32) == [(4,), (4, 4)]
