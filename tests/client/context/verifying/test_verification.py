"""Test --verify: what counts as equal, and what is refused before anything takes time. Misses are in tests/opencl."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputune.client.context.verifying.distance import ALLOWED, Compared, distance
from gputune.client.context.verifying.part_oracle import PartOracle
from gputune.client.context.verifying.verification import Verifier, ground_truth_for, ground_truth_of_parts
from gputune.client.model.graph import Exactness
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.oracle import Oracle
from gputune.client.model.parts import cut_model
from gputune.client.model.plan import Plan
from gputune.runtime.application.made_up_inputs import RANGES, random_inputs
from gputune.runtime.context.records import TensorRecord
from tests.client import models
from tests.client.commands import Generate


def floats(*values: float) -> models.Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (floats(1, 2), floats(1, 2.001), True),
        (floats(1, 2), floats(1, 2.1), False),
        (floats(1e-7, 0), floats(0, 0), True),
        (floats(1e-5, 0), floats(0, 0), False),
        (floats(np.nan, 1), floats(np.nan, 1), True),
        (floats(np.nan, 1), floats(1, 1), False),
        (floats(np.inf, 1), floats(np.inf, 1), True),
        (floats(-np.inf, 1), floats(np.inf, 1), False),
        (floats(1, 2), floats(1, 2, 3), False),
        (np.array([1000]), np.array([1001]), False),
        (np.array([True]), np.array([True]), True),
        (np.array([1], np.int32), np.array([1], np.int64), False),
    ],
)
def test_what_is_the_same(got: models.Array, want: models.Array, right: bool) -> None:
    assert (distance(got, want) <= ALLOWED) == right


def test_random_inputs_are_the_same_each_time_and_valid_indices(tmp_path: Path) -> None:
    model = models.build("(float[2,3] x, int64[4] i) => (float[2,3] y, int64[4] j)", "y = Relu(x) j = Add(i, i)")
    plan = lower(read_model(models.save(model, tmp_path)))
    one, two = random_inputs(plan.inputs), random_inputs(plan.inputs)
    assert one["x"].dtype == np.float32 and one["i"].dtype == np.int64
    assert set(one["i"]) <= {0, 1}
    np.testing.assert_array_equal(one["x"], two["x"])


@pytest.mark.parametrize(
    ("body", "draw"),
    [
        ("y = Relu(x)", 0),
        ("y = Sqrt(x)", 1),  # NaN for a part of normal numbers
        ("l = Log(x) y = MatMul(l, w)", 1),  # NaN for all of them
        ("o = Constant<value_float=1.0>() d = Sub(x, o) y = Sqrt(d)", 2),
        ("o = Constant<value_float=10.0>() d = Sub(x, o) y = Log(d)", 3),  # for the fewest of them
        ("o = Constant<value_float=-10.0>() d = Sub(o, x) y = Sqrt(d)", 0),  # for whatever x is
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_random_inputs_leave_few_outputs_nan(tmp_path: Path, body: str, draw: int, cut: bool) -> None:
    path = models.save(models.build("(float[4,16] x) => (float[4,16] y)", body, {"w": (16, 16)}), tmp_path)
    wanted = random_inputs([TensorRecord("x", (4, 16))], draw)["x"]
    if cut:
        truth = ground_truth_of_parts([cut_model(path, {}, {})], None)
        given = [
            inputs for part in truth.oracles.values() if isinstance(part, PartOracle) for inputs in part._model_inputs
        ]
    else:
        plan = lower(read_model(path))
        given = [*ground_truth_for([path], None, [plan]).inputs[plan.name]]
    for inputs in given:
        np.testing.assert_array_equal(inputs["x"], wanted)


def test_draws_differ_and_are_in_their_ranges() -> None:
    tensors = [TensorRecord("x", (100,)), TensorRecord("h", (100,), "float16"), TensorRecord("i", (9,), "int32")]
    for draw, ends in enumerate(RANGES):
        found = random_inputs(tensors, draw)
        assert {array.dtype.name for array in found.values()} == {"float32", "float16", "int32"}
        if ends is None:
            assert found["x"].min() < 0 < found["x"].max()
        else:
            assert ends[0] < found["x"].min() < found["x"].max() <= ends[1] and found["h"].max() <= ends[1]


def test_the_oracle_is_given_what_has_no_elements(tmp_path: Path) -> None:
    """A context has no such input, the model has."""
    body = "y = Concat<axis=0>(past, x)"
    path = models.save(models.build("(float[P,3] past, float[2,3] x) => (float[n,3] y)", body), tmp_path)
    plan = lower(read_model(path, {"P": (0,)}))
    truth = ground_truth_for([path], None, [plan])
    (inputs,) = truth.inputs[plan.name]
    assert list(inputs) == ["x"]
    np.testing.assert_array_equal(truth.oracles[plan.name].run(inputs)["y"], inputs["x"])


def test_the_oracle_shows_inner_tensors_in_the_models_order(tmp_path: Path) -> None:
    path = models.save(models.conv_relu_gemm(), tmp_path)
    oracle, inputs = Oracle(path), random_inputs(lower(read_model(path)).inputs)
    found = oracle.tensors(["y", "r", "no such", "c"], inputs)
    assert list(found) == ["c", "r", "y"]
    np.testing.assert_array_equal(found["r"], np.maximum(found["c"], 0))
    np.testing.assert_array_equal(found["y"], oracle.run(inputs)["y"])


def test_without_onnxruntime(generate: Generate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    ran = generate("--verify")
    assert ran.code == 2
    assert "--verify needs onnxruntime: pip install onnxruntime" in ran.last_line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--verify",), "the device null computes nothing"),
        (("--input_list", "list"), "give --verify, too"),
        (("--verify", "--input_list", "list"), "cannot be read"),
        (("--precision_mode", "float16"), "null does not compute in float16, as its driver does not offer cl_khr_fp16"),
    ],
)
def test_what_cannot_be_verified_or_computed(generate: Generate, options: tuple[str, ...], said: str) -> None:
    ran = generate(*options)
    assert (ran.code, said in ran.last_line) == (2, True), ran.err
    assert not ran.context.exists()


class _Moving:
    """An oracle whose optimisations move an output."""

    def __init__(self, value: models.Array, own: models.Array) -> None:
        self.value, self.own = value, own

    def run(self, inputs: object) -> dict[str, models.Array]:
        return {"y": self.value}

    def tensors(self, names: Sequence[str], inputs: object) -> dict[str, models.Array]:
        return dict.fromkeys(names, self.value)

    def optimised(self) -> Any:
        return _Moving(self.own, self.own)


@pytest.mark.parametrize(
    ("exactness", "off", "own", "wrong"),
    [
        (Exactness(), 0.1, 0.2, ""),
        (Exactness(), 0.1, 0.05, "off by 0.1 of its largest value"),
        (None, 0.1, 0.2, "off by 0.1 of its largest value"),
        (Exactness(steps={"y": 0.1}), 0.1, 0.0, ""),
        (Exactness(steps={"y": 0.05}), 0.1, 0.0, "off by 0.1 of its largest value"),
    ],
)
def test_a_quantised_output_may_move_as_far_as_in_onnxruntime(
    exactness: Exactness | None, off: float, own: float, wrong: str
) -> None:
    want = np.ones(100, np.float32)
    got, moved = want.copy(), want + np.float32(own)
    got[3] -= off
    plan = Plan("g", (), (), (), {}, {}, {}, exactness=exactness)
    executor: Any = SimpleNamespace(run_timed=lambda inputs: ({"y": got}, 1.0))
    oracle: Any = _Moving(want, moved)
    found: dict[str, Compared] = {}
    result = Verifier(oracle, SimpleNamespace())._wrong(executor, [{}], found, plan)  # type: ignore[arg-type]
    assert (result is not None) == bool(wrong)
    assert result is None or wrong in result[2]
