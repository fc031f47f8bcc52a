"""Test recurrent cells: where states lie, and where entries end."""

from dataclasses import replace

import numpy as np

from gputune.kernels.ops.recurrent import FAMILY

from .problems import SMALL
from .recurrent_problems import RECURRENT


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
