"""Test recurrent cells: guesses and launches fit devices and problems, and wrong problems say what is wrong."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.recurrent import FAMILY

from .problems import DEVICES, SMALL
from .recurrent_problems import GRU, LSTM, RECURRENT, TANH


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", RECURRENT)
def test_guesses_are_valid_and_buffers_fit(name: str, device: str) -> None:
    problem, limits = RECURRENT[name], DEVICES[device]
    space, default = FAMILY.space(problem, limits), FAMILY.default(problem, limits)
    starters = FAMILY.starters(problem, limits)
    assert default not in starters
    for configuration in (default, *starters):
        assert space.violations(configuration) == []
        instance = FAMILY.render(problem, configuration)
        names = {spec.name for spec in FAMILY.inputs(problem) if not spec.constant}
        assert set(instance.main.arguments) == {"output", *instance.packed, *instance.scratch, *names}
        assert instance.main.global_size[0] == instance.main.local_size[0] == configuration["LANES"]
        assert instance.main.global_size[1] * configuration["MB"] >= problem.batch * problem.directions


def test_large_states_leave_local_memory() -> None:
    problem = replace(RECURRENT["lstm"], hidden=128)
    default = FAMILY.default(problem, SMALL)
    assert default["LOCAL"] == 0
    assert FAMILY.render(problem, default).scratch["states"] == 4 * 3 * 128
    wrong = FAMILY.space(problem, SMALL).violations(default | {"LOCAL": 1})
    assert any("1024 bytes of local memory" in reason for reason in wrong)


def test_entries_stop_at_their_lengths_whatever_those_say() -> None:
    problem = replace(RECURRENT["rnn-reverse"], outputs=("Y", "Y_h"))
    inputs = FAMILY.sample_inputs(problem, np.random.default_rng(2))
    inputs["lengths"] = np.array([-3, 99], np.int32)
    result = FAMILY.reference(problem, inputs)
    every = problem.steps * problem.batch * problem.hidden
    steps = result[:every].reshape(problem.steps, problem.batch, problem.hidden)
    assert not steps[:, 0].any()
    assert not result[every:].reshape(problem.batch, problem.hidden)[0].any()
    np.testing.assert_array_equal(result[every:].reshape(problem.batch, problem.hidden)[1], steps[0, 1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cell": "QRNN"}, "not a forward QRNN"),
        ({"direction": "sideways"}, "not a sideways LSTM"),
        ({"dtype": "float64"}, "float32, float16, not float64"),
        ({"steps": 0}, "positive sizes, not steps=0"),
        ({"activations": LSTM[:2]}, "3 activations"),
        ({"outputs": ("Y_h", "Y")}, "in this order"),
        ({"outputs": ()}, "some of Y, Y_h, Y_c"),
        ({"after_reset": True}, "no reset gate"),
        ({"cell": "GRU", "activations": GRU, "outputs": ("Y_c",), "initial_c": False}, "some of Y, Y_h in"),
        ({"cell": "RNN", "activations": (TANH,), "outputs": ("Y",)}, "no c"),
        ({"hidden": 30_000}, "32 bits"),
    ],
)
def test_a_wrong_problem_says_what_is_wrong(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(RECURRENT["lstm"], **fields)
