"""Test what operators make of rows that are there and of rows behind them, in onnxruntime at exact lengths."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gputune.client.model.importer import load
from gputune.client.model.model_files import StateChoice
from gputune.client.model.oracle import Oracle
from gputune.client.model.state import Stateful, with_state

from ...models import build
from .test_decoders import steps_of

SIGNATURE = "(float[N, T, 4] x, float[N, P, 4] past) => (float[N, Q, 4] present, {type}{shape} y)"
JOINED = "present = Concat<axis = -2> (past, x) "
VALUES = {
    "one": np.array([1]),
    "two": np.array([2]),
    "last": np.array(-1),
    "axis": np.array(1),
    "begin": np.array([0]),
    "end": np.array([2**31 - 1]),
    "back": np.array([-1]),
    "flat": np.array([0, -1, 2, 2]),
    "numbers": np.arange(8, dtype=np.uint8).reshape(4, 2),
}

# name: shape of y, body, type of y
RULES: dict[str, tuple[str, str, str]] = {
    "a Softmax along the rows": ("[N, Q, 4]", "y = Softmax<axis = 1> (present)", "float"),
    "a LogSoftmax along the rows, summed": (
        "[N, 4]",
        "l = LogSoftmax<axis = 1> (present) y = ReduceMax<axes = [1], keepdims = 0> (l)",
        "float",
    ),
    "the largest": ("[N, 1, 4]", "y = ReduceMax<axes = [1]> (present)", "float"),
    "the smallest": ("[N, 1, 4]", "y = ReduceMin<axes = [1]> (present)", "float"),
    "the largest whole number": (
        "[N, 1, 4]",
        "i = Cast<to = 6> (present) y = ReduceMax<axes = [1]> (i)",
        "int32",
    ),
    "a sum": ("[N, 1, 4]", "y = ReduceSum (present, one)", "float"),
    "a sum of squares": ("[N, 1, 4]", "y = ReduceSumSquare<axes = [1]> (present)", "float"),
    "a norm": ("[N, 4]", "y = ReduceL2<axes = [1], keepdims = 0> (present)", "float"),
    "the place of the largest": ("[N, 1, 4]", "y = ArgMax<axis = 1> (present)", "int64"),
    "sums so far": ("[N, Q, 4]", "y = CumSum (present, axis)", "float"),
    "the last row": ("[N, 1, 4]", "y = Slice (present, back, end, one)", "float"),
    "all but the first row": ("[N, P, 4]", "y = Slice (present, one, end, one)", "float"),
    "the last row by its number": ("[N, 4]", "y = Gather<axis = 1> (present, last)", "float"),
    "as many rows as there are": (
        "[1, N, Q, 4]",
        "s = Shape (present) n = Squeeze (c, begin) c = Gather<axis = 0> (s, one) zero = Sub (n, n) u = Div (n, n) "
        "r = Range (zero, n, u) y0 = Gather<axis = 1> (present, r) y = Unsqueeze (y0, begin)",
        "float",
    ),
    "the first row": ("[N, 1, 4]", "y = Slice (present, begin, one, one)", "float"),
    "half of each row": ("[N, Q, 2]", "y = Slice (present, begin, two, two)", "float"),
    "each row in two": ("[N, Q, 2, 2]", "y = Reshape (present, flat)", "float"),
    "rows divided": ("[N, Q, 2]", "y, z = Split<axis = 2> (present)", "float"),
    "products of rows": (
        "[N, T, 4]",
        "t = Transpose<perm = [0, 2, 1]> (present) s = MatMul (x, t) y = MatMul (s, present)",
        "float",
    ),
    "how many there are": ("[2]", "s = Shape (present) y = Gather<axis = 0> (s, one)", "int64"),
    "numbers of rows": (
        "[N, Q, 4]",
        "s = Shape (present) n = Squeeze (c, begin) c = Gather<axis = 0> (s, one) zero = Sub (n, n) u = Div (n, n) "
        "r = Range (zero, n, u) f = Cast<to = 1> (r) w = Unsqueeze (f, one) y = Mul (present, w)",
        "float",
    ),
    "a range of rows": (
        "[N, Q, 2]",
        "q, s, z = DynamicQuantizeLinear (present) i = MatMulInteger (q, numbers, z) y = Cast<to = 1> (i)",
        "float",
    ),
}


def test_a_chunk_is_filled_up_only_where_that_does_not_show(tmp_path: Path) -> None:
    bodies = {
        "y = Identity (x)": (["y"], False),
        "y = ReduceMax<axes = [1]> (x)": ([], True),
        "y = Cast<to = 1> (numbers)": ([], False),
        "s = Shape (x) y = Cast<to = 1> (s)": ([], True),
        "q, s, z = DynamicQuantizeLinear (x) y = DequantizeLinear (q, s, z)": (["y"], True),
    }
    path = tmp_path / "model.onnx"
    for body, (names, whole) in bodies.items():
        onnx.save(build(SIGNATURE.format(type="float", shape="[N, R, 4]"), JOINED + body, VALUES, opset=13), path)
        for tokens in (1, 3):
            states = with_state(Stateful(load(path), path, {"N": (1,), "T": (tokens,)}, {}, StateChoice(11))).states
            assert states is not None and [one.name for one in states.token_inputs] == ["x"]
            assert ([one.name for one in states.token_outputs], states.whole) == (names, whole and tokens > 1)


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("name", RULES)
def test_only_rows_that_are_there_are_seen(name: str, tokens: int, tmp_path: Path) -> None:
    shape, body, dtype = RULES[name]
    model = build(SIGNATURE.format(type=dtype, shape=shape), JOINED + body, VALUES, opset=13)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    decoder = with_state(Stateful(load(path), path, {"N": (2,), "T": (tokens,)}, {}, StateChoice(11)))
    found = steps_of(decoder, tmp_path).verify(Oracle(tmp_path, decoder.model).run)
    assert found.keys() == {"present", "y"}
