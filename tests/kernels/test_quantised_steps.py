"""Test the steps of quantised numbers against onnxruntime, and what follows from a chain of them."""

import itertools

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import problem_to_dict
from gputune.kernels.ops.conv import ConvProblem
from tests.kernels.problems import CPU
from tests.kernels.quantised import SCALES, quantised, ties

WHOLE, SCALED, SATURATED = Step("whole"), Step("mul", operand=0, channels=64), Step("saturate", (-128, 127))


@pytest.mark.parametrize(("dtype", "zeros"), [("uint8", (0, 119)), ("int8", (-9, 127))])
def test_quantising_is_what_onnxruntime_does(dtype: str, zeros: tuple[int, ...]) -> None:
    given = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, float s, {dtype} z) => ({dtype}[N] y)
        {{ y = QuantizeLinear(x, s, z) }}"""
    )
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    limits = np.iinfo(dtype)
    for scale, zero in itertools.product(SCALES, zeros):
        values = ties(scale)
        got = quantised(scale, limits.min - zero, limits.max - zero).apply(values)
        feeds = {"x": values, "s": np.array(scale, np.float32), "z": np.array(zero, dtype)}
        np.testing.assert_array_equal(got + zero, session.run(None, feeds)[0], err_msg=f"{scale} {zero}")


def test_nothing_divides_and_what_is_not_finite_is_a_bound() -> None:
    got = quantised(0.02, -3, 4).apply(np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.05], np.float32))
    assert got.tolist() == [-3, 4, -3, 4, -3, 2]
    assert "/" not in quantised(0.02, -3, 4).source("v")


@pytest.mark.parametrize(
    ("steps", "exact"),
    [
        ([WHOLE, SCALED, SATURATED], True),
        ([WHOLE, SCALED, Step("relu"), Step("quotient", (0.5, 2)), SATURATED, Step("mul", (3,))], True),
        ([Step("mul", (3,)), Step("mul", (3,)), SATURATED], False),
        ([WHOLE, SCALED, Step("add", (3,)), SATURATED], False),
        ([WHOLE, Step("add", operand=1), SCALED, SATURATED], True),
        ([Step("exp"), SATURATED], False),
    ],
)
def test_a_step_to_whole_numbers_is_exact_behind_one_rounding(steps: list[Step], exact: bool) -> None:
    assert Chain(tuple(steps)).quantises_exactly == exact


def test_sums_of_whole_numbers_are_not_computed_by_winograd() -> None:
    problems = [
        ConvProblem(1, 28, 28, 64, 64, (3, 3), pads=(1, 1, 1, 1), epilogue=Chain(steps))
        for steps in ((), (WHOLE, SCALED, SATURATED))
    ]
    assert ["ALG" in family_of("Conv").default(problem, CPU) for problem in problems] == [True, False]
    inputs = family_of("Conv").sample_inputs(problems[1], np.random.default_rng(0))
    assert inputs["operand0"].shape == (64,)
    assert all((inputs[name] == np.rint(inputs[name])).all() for name in ("input", "weight"))


def test_caches_know_steps_as_they_were() -> None:
    plain, channels = (problem_to_dict(Step("add", operand=0, channels=size)) for size in (0, 5))
    assert plain == {"function": "add", "values": [], "operand": 0, "swapped": False}
    assert channels == plain | {"channels": 5}
