"""Test every family on tensors of half, stored on devices that compute in float32."""

from dataclasses import replace
from typing import Any

import pytest

from gputune.core.dtypes import FLOAT, HALF
from gputune.kernels.catalogue import family_of
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import CASE_NAMES, CASES

OF_FLOATS = {op: problem for op, problem in ONE_OF_EACH.items() if vars(problem)["dtype"] == FLOAT}


@pytest.mark.parametrize(("op", "problem"), OF_FLOATS.items(), ids=OF_FLOATS)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_configurations_compute_the_reference(bench: Any, op: str, problem: Any) -> None:
    bench.check(family_of(op), replace(problem, dtype=HALF))


@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=CASE_NAMES)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_difficult_shapes(bench: Any, op: str, name: str, problem: Any) -> None:
    bench.check(family_of(op), replace(problem, dtype=HALF), sampled=1, turn=len(name))
