"""Test what a MapFamily makes of what a family declares, by one that declares next to nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import ANY, FLOAT, HALF
from gputune.kernels.chain import EMPTY, Chain, Step
from gputune.kernels.family import ALONE, Array, Problem, Tolerance
from gputune.kernels.indexing.maps import EXACT, MapFamily
from gputune.kernels.space import Configuration, Constraint
from gputune.kernels.tiling.streaming import DIMX, DIMY, VW, busy, ceil_div

from .. import op_package_example
from .problems import DEVICES

ADD = Chain((Step("add", operand=0),))


@dataclass(frozen=True)
class CopyProblem(Problem):
    op = "Copy"
    types = ANY

    shape: tuple[int, int]
    dtype: str = FLOAT
    epilogue: Chain = EMPTY

    def check(self) -> None:
        if min(self.shape) < 1:
            raise ValueError("Copy needs positive sizes")


class CopyFamily(MapFamily):
    op = CopyProblem.op
    template = "wave_elements.cl"
    package = op_package_example.__name__
    parameters = (VW, DIMX, DIMY)
    guessed = ({"DIMX": 2}, {"VW": 1})
    guessed_on_cpus = ({"DIMY": 4},)
    guessed_beyond_cpus = ({"DIMX": 128},)
    moves = True
    accuracy = Tolerance(1e-5, 1e-6)

    def rules(self, problem: CopyProblem) -> tuple[Constraint, ...]:
        return (busy(("VW", "DIMX"), problem.shape[1], "a row"),)

    def widths(self, problem: CopyProblem, limits: Any) -> dict[str, int]:
        return {"VW": 4}

    def grid(self, problem: CopyProblem, configuration: Configuration) -> tuple[int, int]:
        return ceil_div(problem.shape[1], configuration["VW"]), problem.shape[0]

    def sizes(self, problem: CopyProblem) -> Mapping[str, int]:
        return {"ROWS": problem.shape[0], "PLAIN": not problem.epilogue.steps}

    def reference(self, problem: CopyProblem, inputs: Mapping[str, Array]) -> Array:
        return problem.epilogue.apply_to(inputs["input"], inputs)


FAMILY, PROBLEM = CopyFamily(), CopyProblem((3, 37))


def test_a_launch_is_what_a_family_declares() -> None:
    main = FAMILY.render(replace(PROBLEM, epilogue=ADD), {"VW": 4, "DIMX": 8, "DIMY": 2}).main
    assert (main.entry, main.arguments) == ("wave_elements", ("input", "output", "operand0"))
    assert (main.global_size, main.local_size) == ((16, 4), (8, 2))
    assert main.options == "-cl-std=CL1.2 -DDIMX=8 -DDIMY=2 -DPLAIN=0 -DROWS=3 -DVW=4"
    assert (main.needs, main.writes, main.aligned) == (ALONE, ("output",), False)
    assert "wave_elements(" in main.source, "the template of the family's package"


@pytest.mark.parametrize(("device", "last"), [("cpu", {"DIMY": 4}), ("gpu", {"DIMX": 128})])
def test_guesses_are_parts_of_the_default_that_differ(device: str, last: dict[str, int]) -> None:
    default = FAMILY.default(PROBLEM, DEVICES[device])
    assert default == {"VW": 4, "DIMX": 16, "DIMY": 4}
    assert FAMILY.space(PROBLEM, DEVICES[device]).violations(default) == []
    assert FAMILY.guesses(PROBLEM, DEVICES[device]) == [default | each for each in ({"DIMX": 2}, {"VW": 1}, last)]


@pytest.mark.parametrize(
    ("dtype", "epilogue", "seen", "tolerance"),
    [
        (FLOAT, EMPTY, FLOAT, EXACT),
        (HALF, EMPTY, "uint16", EXACT),
        ("int8", EMPTY, "int8", EXACT),
        (FLOAT, ADD, FLOAT, Tolerance(1e-5, 1e-6)),
        (HALF, ADD, HALF, Tolerance(4 * 2.0**-11, 1e-6)),
    ],
)
def test_what_only_moves_is_exact_and_keeps_its_bits(
    dtype: str, epilogue: Chain, seen: str, tolerance: Tolerance
) -> None:
    problem = CopyProblem((3, 5), dtype, epilogue)
    assert (FAMILY.seen(problem), FAMILY.tolerance(problem)) == (seen, tolerance)
    tensors = (*FAMILY.inputs(problem), FAMILY.output(problem))
    assert {(tensor.shape, tensor.dtype) for tensor in tensors} == {((3, 5), dtype)}
    assert FAMILY.work(problem).flops == 15 * len(epilogue.steps)
    assert FAMILY.work(problem).bytes == len(tensors) * 15 * np.dtype(dtype).itemsize


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float64"}, "Copy knows dtype float32, .*, bool, not float64"),
        ({"dtype": "int8", "epilogue": ADD}, "Copy with an epilogue knows dtype float32, float16, bfloat16, not int8"),
        ({"shape": (0, 2)}, "Copy needs positive sizes"),
    ],
)
def test_a_problem_checks_its_types_and_itself(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PROBLEM, **change)
