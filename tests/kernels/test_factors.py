"""Test that products are multiplied in half where a problem and a device allow it, and are declared so."""

from dataclasses import replace
from typing import Any

import pytest

from gputune.core.dtypes import FLOAT, HALF, HALF_EXTENSION
from gputune.kernels.algorithms import FACTORS
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import problem_to_dict
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.matmul import MatMulProblem
from tests.kernels.batched_problems import BATCHED
from tests.kernels.problems import CPU, GPU

ABLE, ABLE_CPU = (replace(limits, extensions=frozenset({HALF_EXTENSION})) for limits in (GPU, CPU))
PRODUCTS: list[tuple[str, Any]] = [
    ("MatMul", MatMulProblem(40, 64, 48, bias=True, dtype=HALF)),
    ("Conv", ConvProblem(1, 16, 16, 16, 32, (3, 3), pads=(1, 1, 1, 1), dtype=HALF)),
    ("MatMul", replace(BATCHED["heads-merged"], dtype=HALF)),
]
every_product = pytest.mark.parametrize(("op", "problem"), PRODUCTS, ids=[op for op, _ in PRODUCTS])


@every_product
def test_a_device_without_half_has_the_space_of_stored_halves(op: str, problem: Any) -> None:
    family, allowed = family_of(op), replace(problem, factors=HALF)
    for limits in (CPU, GPU):
        assert family.space(allowed, limits).sha256 == family.space(problem, limits).sha256
        assert family.default(allowed, limits) == family.default(problem, limits)
        assert family.starters(allowed, limits) == family.starters(problem, limits)


@every_product
def test_a_device_with_half_chooses(op: str, problem: Any) -> None:
    family, allowed = family_of(op), replace(problem, factors=HALF)
    for limits, default in ((ABLE_CPU, 0), (ABLE, 1)):
        space, chosen = family.space(allowed, limits), family.default(allowed, limits)
        assert not space.violations(chosen) and chosen[FACTORS] == default
        starters = family.starters(allowed, limits)
        assert {one[FACTORS] for one in (chosen, *starters)} == {0, 1}
        assert FACTORS not in family.default(problem, limits)


@every_product
def test_kernels_that_multiply_in_half_say_so(op: str, problem: Any) -> None:
    family, allowed = family_of(op), replace(problem, factors=HALF)
    default = family.default(allowed, ABLE)
    limits = replace(ABLE, argument_form="offsets")
    for form in (ABLE, limits):
        main = family.rendered(allowed, default, form).main
        assert main.source.startswith(f"#pragma OPENCL EXTENSION {HALF_EXTENSION} : enable\n")
        assert main.source.count("#pragma OPENCL") == 1
        for kernel in main.sequence:
            assert kernel.needs is not None and kernel.needs.extensions == (HALF_EXTENSION,)
            assert GPU.lack(kernel.needs) == f"{HALF_EXTENSION}, which the driver does not offer"
    stored = family.rendered(problem, family.default(problem, ABLE), ABLE).main
    assert "pragma" not in stored.source and stored.needs is not None and not stored.needs.extensions


@every_product
def test_keys_of_other_problems_stay(op: str, problem: Any) -> None:
    assert "factors" not in problem_to_dict(problem)
    assert problem_to_dict(replace(problem, factors=HALF))["factors"] == HALF


@every_product
def test_factors_are_float_or_as_stored(op: str, problem: Any) -> None:
    with pytest.raises(ValueError, match=f"{op} on float32 is multiplied in float32, not in float16"):
        replace(problem, dtype=FLOAT, factors=HALF)


def test_planes_are_multiplied_in_float() -> None:
    """They are a model's input."""
    problem = ConvProblem(1, 16, 16, 3, 32, (3, 3), layout="NCHW", dtype=HALF, factors=HALF)
    assert FACTORS not in family_of("Conv").default(problem, ABLE)
