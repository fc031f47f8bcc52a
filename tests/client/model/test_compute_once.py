"""Test that masks which several layers write anew are computed once, and nothing else is shared."""

import numpy as np
import pytest

from tests.client.models import build
from tests.client.plans import Lowered, assert_agrees, assert_whole

MASK = "{0}c = Cast<to = 9>(m) {0}r = Reshape({0}c, four) {0}w = Where({0}r, {0}z, {0}l) "
LAYER = MASK + "{0}s = Add({1}, {0}w) {0} = Softmax<axis = 3>({0}s) "
ONE, OTHER = np.array(0, np.float32), np.array(-1e4, np.float32)


def launches(lowered: Lowered, body: str, given: str = "float[1,2,5,5] x, int32[1,5] m") -> list[str]:
    names = ("a", "b", "d")
    weights = {f"{name}z": ONE for name in names} | {f"{name}l": OTHER for name in names}
    model = build(f"({given}) => (float y)", body, {**weights, "four": np.array([1, 1, 1, 5])}, opset=17)
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan)
    return [operation.task.op for operation in plan.operations]


def test_a_mask_of_three_layers_is_computed_once(lowered: Lowered) -> None:
    body = LAYER.format("a", "x") + LAYER.format("b", "a") + LAYER.format("d", "b") + "y = Identity(d)"
    assert launches(lowered, body).count("Typed") == 2  # the Cast and the Where


@pytest.mark.parametrize(
    ("body", "typed"),
    [
        ("a = Cast<to = 6>(x) b = Cast<to = 7>(x) d = Cast<to = 7>(a) e = Add(b, d) y = Cast<to = 1>(e)", 5),
        ("a = Greater(x, az) b = Greater(az, x) d = Or(a, b) y = Cast<to = 1>(d)", 4),
        ("a = Greater(x, az) b = Greater(x, al) d = Xor(a, b) y = Cast<to = 1>(d)", 4),
        ("a = Greater(x, az) b = Greater(x, bz) d = Xor(a, b) y = Cast<to = 1>(d)", 3),
    ],
)
def test_other_nodes_stay_apart(lowered: Lowered, body: str, typed: int) -> None:
    assert launches(lowered, body, "float[1,2,5,5] x").count("Typed") == typed
