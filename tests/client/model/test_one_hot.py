"""Test products with one-hot vectors: looked up with the same result, whatever the indices are."""

from pathlib import Path

import numpy as np
import pytest

from gputune.client.model.importer import import_model
from gputune.client.model.lowering import Plan, lower
from gputune.client.model.reference import evaluate
from tests.client.models import Array, build

NUMBERS = np.arange(5).reshape(1, 1, 5)
TABLE = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
BODY = "e = Equal(x, n) c = Cast<to=1>(e) y = MatMul(c, t)"


def plan_of(body: str = BODY, dtype: str = "int32", numbers: Array = NUMBERS, table: Array = TABLE) -> Plan:
    signature = f"({dtype}[2,7,1] x) => (float[2,7,3] y)"
    model = build(signature, body, {"n": numbers.astype(dtype), "t": table})
    return lower(import_model(model, Path("one_hot.onnx"), {}))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("body", [BODY, BODY.replace("x, n", "n, x")])
def test_rows_are_looked_up_and_unknown_ones_are_zero(body: str, dtype: str) -> None:
    plan = plan_of(body, dtype)
    assert [operation.task.op for operation in plan.operations] == ["Typed", "Gather"]
    indices = np.array([0, 4, 2, -1, 5, -2, 3, 1, -5, -6, 999, 2**31 - 1, -(2**31), 1], dtype).reshape(2, 7, 1)
    want = (indices == NUMBERS).astype(np.float32) @ TABLE
    np.testing.assert_array_equal(evaluate(plan, {"x": indices})["y"], want)


@pytest.mark.parametrize(
    ("body", "numbers", "table"),
    [
        (BODY, NUMBERS + 1, TABLE),
        (BODY, NUMBERS[..., ::-1], TABLE),
        (BODY, NUMBERS, np.where(TABLE[0, 0] == TABLE, np.float32(np.inf), TABLE)),
        (BODY.replace("MatMul(c, t)", "MatMul(d, t)").replace("y =", "d = Add(c, c) y ="), NUMBERS, TABLE),
        (BODY.replace("y = MatMul(c, t)", "p = MatMul(c, t) m = ReduceMax(c) y = Add(p, m)"), NUMBERS, TABLE),
    ],
    ids=["from-one", "backwards", "infinite", "not-one", "used-twice"],
)
def test_other_products_stay(body: str, numbers: Array, table: Array) -> None:
    assert "Gather" not in [operation.task.op for operation in plan_of(body, "int32", numbers, table).operations]
