"""Compare every function of a chain with the reference, also for hard values."""

from dataclasses import replace

import numpy as np
import pytest

from gputune.core.dtypes import BFLOAT, ELEMENT_TYPES, FLOAT, HALF, HALVES
from gputune.kernels.chain import Chain, Step
from gputune.kernels.chain_functions import BINARY, SWAPPED, UNARY, Array
from gputune.kernels.hard_values import VALUES, defined
from gputune.kernels.ops.elementwise import FAMILY, ElementwiseProblem
from tests.opencl.conftest import TOGETHER, KernelBench

STEPS = [
    *(Step(name, (-0.5, 0.75)[: function.values]) for name, function in UNARY.items() if name != "quotient"),
    Step("quotient", (-0.5, -2)),  # a divisor and its reciprocal
    *(Step(name, (0.5, 0.75)[: UNARY[name].values]) for name in ("shrink", "swish", "celu")),
    *(Step(name, (1.5,)) for name in BINARY),
    *(Step(name, (1.5,), swapped=True) for name in SWAPPED),
    Step("clip", (-np.inf, 0.1)),
    Step("clip", (0.1, np.inf)),
    Step("clip", (0, 6)),
    Step("pow", (3,)),
    Step("pow", (-2,)),
    Step("max", (-np.inf,)),
]


@pytest.mark.parametrize("dtype", [FLOAT, HALF, pytest.param(BFLOAT, marks=pytest.mark.night)])
def test_every_function_is_right_also_for_hard_values(bench: KernelBench, dtype: str) -> None:
    hard = [number for _, number in VALUES[dtype]]
    value = np.concatenate([np.linspace(-8, 8, 33), [0, 88, -88], hard]).astype(dtype)
    inputs = {"input": value}
    problems = [ElementwiseProblem(value.shape, (), value.shape, Chain((step,)), dtype=dtype) for step in STEPS]
    tried = [(problem, FAMILY.default(problem, bench.limits) | {"VW": 8, "DIMX": 1}) for problem in problems]
    instances = [bench.instance(FAMILY, *each) for each in tried]
    for place, (step, (problem, configuration)) in enumerate(zip(STEPS, tried, strict=True)):
        bench.build_together(instances[place:][:1], instances[place:][:TOGETHER])  # no more than are kept
        got, damage = bench.run(FAMILY, problem, configuration, inputs)
        want = FAMILY.reference(problem, inputs)
        kept = np.concatenate([np.ones(36, bool), defined(problem.chain, np.array(hard, np.float32))])
        tolerance = FAMILY.tolerance(problem)  # of each element, not of the largest
        np.testing.assert_allclose(got[kept], want[kept], tolerance.relative, tolerance.absolute, err_msg=str(step))
        assert not damage


def angles(generator: np.random.Generator) -> Array:
    """Of every size a float has, and near the zeros and poles of the functions."""
    chosen = [0, -0.0, 1e-45, 1e-40, 1e-30, 1e-3, 0.5, 1, 100, 2**15, 2**23 - 1, 2**23, 1e7, 1e20, 3.4028235e38]
    sizes = np.ldexp(generator.uniform(1, 2, 300), generator.integers(-149, 128, 300))
    multiples = np.concatenate([np.arange(40), generator.integers(1, 10**5, 200), generator.integers(1, 10**9, 100)])
    values = np.concatenate([chosen, sizes, multiples * (np.pi / 2)]).astype(np.float32)
    return np.concatenate([values, -values, np.array([np.inf, -np.inf, np.nan], np.float32)])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_every_size_are_right_beside_each_other(bench: KernelBench, name: str) -> None:
    generator = np.random.default_rng(0)
    hard = angles(generator)
    rare = np.where(generator.random(4 * hard.size) < 0.9, generator.standard_normal(4 * hard.size), np.tile(hard, 4))
    inputs = {"input": np.concatenate([hard, *(generator.permutation(hard) for _ in range(8)), rare, [1e7]])}
    inputs["input"] = inputs["input"].astype(np.float32)
    shape = inputs["input"].shape
    problem = ElementwiseProblem(shape, (), shape, Chain((Step(name),)))
    tried = [FAMILY.default(problem, bench.limits) | {"VW": width, "DIMX": 1} for width in (1, 4, 16)]
    bench.build_together(bench.instance(FAMILY, problem, configuration) for configuration in tried)
    with np.errstate(invalid="ignore"):
        want = getattr(np, name)(inputs["input"].astype(np.float64))
    for configuration in tried:
        got, _ = bench.run(FAMILY, problem, configuration, inputs)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-30, err_msg=str(configuration))
        assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0])), "-0 has kept its sign"


@pytest.mark.parametrize("dtype", HALVES)
def test_a_step_rounds_every_number_as_a_cast_does(bench: KernelBench, dtype: str) -> None:
    """All halves, what lies in the middle of two, and next to that: with a plain step before it, which may not be
    contracted with it."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    if dtype == BFLOAT:  # float32 has no subnormal numbers on some devices
        halves[np.abs(halves) < 2.0**-126] = 0
    rounding = ELEMENT_TYPES[dtype].rounding
    with np.errstate(over="ignore", invalid="ignore"):
        above = np.nextafter(halves.astype(dtype), np.array(np.inf, dtype)).astype(np.float32)
        middles = halves / 2 + above / 2
    hard = np.array([65519.996, 65520, 65535, 1e5, -1e5, 3.4e38, 2**-25, 1e-8, 1e-30], np.float32)
    numbers = np.concatenate([halves, middles, np.nextafter(middles, np.float32(0)), hard])
    problem = ElementwiseProblem(numbers.shape, (), numbers.shape, Chain((Step("mul", (0.1,)), Step(rounding))))
    plain = replace(problem, chain=Chain((Step(rounding),)))
    default = FAMILY.default(problem, bench.limits)
    tried = [(each, default | {"VW": width, "DIMX": 1}) for each in (problem, plain) for width in (1, 4, 16)]
    bench.build_together(bench.instance(FAMILY, *each) for each in tried)
    with np.errstate(over="ignore", invalid="ignore"):
        rights = {problem: numbers * np.float32(0.1), plain: numbers}
        rights = {each: value.astype(dtype).astype(np.float32) for each, value in rights.items()}
    for each, configuration in tried:
        got, _ = bench.run(FAMILY, each, configuration, {"input": numbers})
        np.testing.assert_array_equal(got, rights[each], err_msg=str(configuration))
