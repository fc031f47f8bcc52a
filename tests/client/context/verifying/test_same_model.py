"""Test which inputs, outputs and results of a context are those of a model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.context.verifying.distance import Compared
from gputune.client.context.verifying.origin import Origin
from gputune.client.context.verifying.same_model import (
    Outputs,
    check_interface,
    check_outputs,
    compare_outputs,
    constants_of,
    model_outputs,
)
from gputune.client.errors import ModelError, NothingCompared, OtherModel, VerificationError
from gputune.runtime.context.records import GraphRecord, TensorRecord
from tests.client import models
from tests.client.contexts import small_context

PLAIN = "(float[2,4] x) => (float[8] y)", "s = Constant<value_ints=[8]>() r = Relu(x) y = Reshape(r, s)"
OPEN = "(float[N,4] x) => (float[M] y)", "s = Constant<value_ints=[-1]>() y = Reshape(x, s)"
TWO = "(float[2,4] x, float[2,4] z) => (float[8] y)", "s = Constant<value_ints=[8]>() a = Add(x, z) y = Reshape(a, s)"
PAST = (
    "(float[P,4] past, float[2,4] x) => (float[M] y)",
    "s = Constant<value_ints=[-1]>() c = Concat<axis=0>(past, x) y = Reshape(c, s)",
)
X, Y = TensorRecord("x", (2, 4)), TensorRecord("y", (8,))


def origin(folder: Path, model: tuple[str, str], **configuration: Any) -> Origin:
    """A context that does not say what it was made from, beside a model."""
    return Origin.of(small_context(folder / "c.bin", **configuration), models.save(models.build(*model), folder))


def graph(inputs: tuple[TensorRecord, ...] = (X,), outputs: tuple[TensorRecord, ...] = (Y,)) -> GraphRecord:
    return GraphRecord("main", inputs, outputs, (), ())


@pytest.mark.parametrize(
    ("model", "made", "configuration"),
    [
        (PLAIN, graph(), {}),
        (OPEN, graph(), {}),
        (PLAIN, graph((TensorRecord("x", (2, 4), "float16"),)), {}),  # --io_type
        (PLAIN, graph(outputs=(Y, TensorRecord("r", (2, 4)))), {}),  # --set_output_tensors
        (PLAIN, graph(outputs=(TensorRecord("y", (-1,)),)), {}),  # of a model in parts
        (TWO, graph(), {"input_values": [{"z": 1.0}]}),
        (PAST, graph(), {"input_dimensions": [{"P": [0]}]}),
        (PAST, graph(), {"input_dimensions": [{"past": [0, 4]}]}),
    ],
)
def test_an_interface_that_fits(tmp_path: Path, model: tuple[str, str], made: GraphRecord, configuration: Any) -> None:
    check_interface(origin(tmp_path, model, **configuration), made)


@pytest.mark.parametrize(
    ("model", "made", "configuration", "words"),
    [
        (
            PLAIN,
            graph((TensorRecord("z", (2, 4)),)),
            {},
            "has the input 'z', which the model has not; has no input 'x'",
        ),
        (PLAIN, graph((TensorRecord("x", (2, 5)),)), {}, "has the input 'x' with the shape [2, 5], the model with 2x4"),
        (
            OPEN,
            graph((TensorRecord("x", (2, 4, 1)),)),
            {},
            "has the input 'x' with the shape [2, 4, 1], the model with Nx4",
        ),
        (PLAIN, graph((TensorRecord("x", (2, 4), "int32"),)), {}, "has the input 'x' in int32, the model in float32"),
        (TWO, graph(), {}, "has no input 'z'"),
        (TWO, graph(), {"input_values": "z", "input_dimensions": [3, {"z": 0}]}, "has no input 'z'"),
        (PAST, graph(), {"input_dimensions": [{"P": [1]}]}, "has no input 'past'"),
        (PLAIN, graph(outputs=()), {}, "has no output 'y'"),
        (PLAIN, graph(outputs=(Y, TensorRecord("c", (8,)))), {}, "has the output 'c', which the model has not"),
        (
            PLAIN,
            graph(outputs=(TensorRecord("y", (9,)),)),
            {},
            "has the output 'y' with the shape [9], the model with 8",
        ),
        (
            PLAIN,
            graph(outputs=(TensorRecord("y", (8,), "int64"),)),
            {},
            "has the output 'y' in int64, the model in float32",
        ),
    ],
)
def test_an_interface_that_does_not(
    tmp_path: Path, model: tuple[str, str], made: GraphRecord, configuration: Any, words: str
) -> None:
    with pytest.raises(OtherModel) as raised:
        check_interface(origin(tmp_path, model, **configuration), made)
    assert isinstance(raised.value, ModelError) and raised.value.exit_code == 3
    assert f"c.bin does not say what it was made from: graph 'main' {words}; make a context from " in str(raised.value)


def test_what_a_context_says_of_constant_inputs(tmp_path: Path) -> None:
    found = constants_of(origin(tmp_path, TWO, input_values=[{"z": 2.5}], input_dimensions=[{"gone": [3]}]), graph())
    np.testing.assert_array_equal(found["z"], np.full((2, 4), 2.5, np.float32))
    told = origin(tmp_path, TWO, input_values=[{"z": {"shape": [2, 4], "sha256": "0" * 64}}])
    with pytest.raises(OtherModel, match=r"does not repeat the value of input 'z'.*`gputune compare` takes it"):
        constants_of(told, graph())
    (past,) = constants_of(origin(tmp_path, PAST, input_dimensions=[{"P": [0]}]), graph()).values()
    assert past.shape == (0, 4)


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        ({"y": Compared(9e-4, 8, 3)}, None, ""),
        (
            {"y": Compared(2e-3, 8), "z": Compared(0.5, 8)},
            VerificationError,
            "output 'z' differs by 0.5 of its largest",
        ),
        ({"y": Compared(float("inf"), 8, 8)}, VerificationError, "output 'y' differs by NaN or infinite values"),
        ({"y": Compared(0.0, 8, 8)}, NothingCompared, "all 8 values of output 'y' are NaN or infinite on both sides"),
    ],
)
def test_outputs_decide(tmp_path: Path, found: Any, error: type[VerificationError] | None, words: str) -> None:
    beside = origin(tmp_path, PLAIN)
    if error is None:
        check_outputs(beside, found, 1e-3)
        return
    with pytest.raises(error) as raised:
        check_outputs(beside, found, 1e-3)
    assert type(raised.value) is error and words in str(raised.value)


@pytest.mark.parametrize(
    ("body", "blank"), [("r = Log(x) y = Reshape(r, s)", 0), ("r = Div(x, o) y = Reshape(r, s)", 8)]
)
def test_outputs_are_compared_on_inputs_that_tell(tmp_path: Path, body: str, blank: int) -> None:
    text = "s = Constant<value_ints=[8]>() o = Constant<value_float=0.0>() " + body
    path = models.save(models.build("(float[2,4] x) => (float[8] y)", text), tmp_path)
    right, beside = model_outputs(path, (X,), {}), origin(tmp_path, PLAIN)
    assert compare_outputs(beside, right, right, {}) == {"y": Compared(0.0, 8, blank)}
    wrong = compare_outputs(beside, lambda draw: {"y": 2 * right(draw)["y"], "more": np.zeros(3)}, right, {})
    assert (wrong["y"].error > 0.5) == (not blank)


@pytest.mark.parametrize("other", [np.zeros(9, np.float32), np.zeros((8, 1), np.float32), np.zeros(8, np.int64)])
def test_a_shape_or_type_that_a_model_left_open_is_found_in_its_outputs(tmp_path: Path, other: models.Array) -> None:
    beside, mine = origin(tmp_path, OPEN), np.zeros(8, np.float32)
    with pytest.raises(OtherModel, match=r"output 'y' is float32\[8\], and (float32|int64)\[.*\] of the model"):
        compare_outputs(beside, lambda draw: {"y": mine}, lambda draw: {"y": other}, {})
    half = compare_outputs(beside, lambda draw: {"y": mine.astype(np.float16)}, lambda draw: {"y": mine}, {})
    assert half == {"y": Compared(0.0, 8, 0)}


def test_outputs_of_a_context_that_rounds_less_are_not_judged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = {"rules": "float", "whole_numbers": {}, "exceptions": [], "steps": {}}
    beside = origin(tmp_path, PLAIN, quantised_graphs={"main": told})
    check_outputs(beside, {"y": Compared(0.5, 8)}, 1e-3)
    assert "c.bin was made with --quantised float, so its outputs are not those of" in caplog.text


@pytest.mark.parametrize(
    ("quantised", "off", "own", "right"),
    [(True, 0.05, 0.1, True), (True, 0.2, 0.1, False), (True, 0.05, 0.0, False), (False, 0.05, 0.1, False)],
)
def test_quantised_outputs_may_be_as_far_off_as_onnxruntimes_own(
    tmp_path: Path, quantised: bool, off: float, own: float, right: bool
) -> None:
    told = {"rules": "exact", "whole_numbers": {}, "exceptions": [], "steps": {}}
    beside = origin(tmp_path, PLAIN, **({"quantised_graphs": {"main": told}} if quantised else {}))
    want = np.ones(8, np.float32)

    def moved(by: float) -> Outputs:
        return lambda draw: {"y": want + np.float32(by)}

    found = compare_outputs(beside, moved(off), moved(0), {}, moved(own))
    assert found["y"].within(1e-3) == right
    if right:
        check_outputs(beside, found, 1e-3)
        return
    with pytest.raises(VerificationError, match="output 'y' differs by"):
        check_outputs(beside, found, 1e-3)
