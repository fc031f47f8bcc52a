"""Test batched products: the reference compared with numpy, what a problem refuses, and what may be read in place."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.batched_matmul import FAMILY, BatchedMatMulProblem

from .batched_problems import BATCHED
from .problems import DEVICES, random_inputs

PLAIN = BATCHED["primes"]


@pytest.mark.parametrize("name", BATCHED)
def test_the_reference_is_a_sum_over_steps(name: str) -> None:
    """Element by element, with nothing but the steps."""
    problem = BATCHED[name]
    inputs = random_inputs("BatchedMatMul", problem)
    got = FAMILY.reference(problem, inputs)
    assert got.dtype == np.float32
    assert got.shape == FAMILY.output(problem).shape
    generator = np.random.default_rng(2)
    for _ in range(20):
        *batch, row, column = (int(generator.integers(size)) for size in problem.shape)

        def at(steps: tuple[int, ...], *matrix: int, outer: tuple[int, ...] = tuple(batch)) -> int:
            return sum(step * index for step, index in zip(steps, (*outer, *matrix), strict=True))

        total = np.float64(0)
        for k in range(problem.k):
            a = inputs["a"].flat[problem.starts[0] + at(problem.a_steps, row, k)]
            b = inputs["b"].flat[problem.starts[1] + at(problem.b_steps, k, column)]
            total += np.float64(a) * np.float64(b)
        operands = [inputs[f"operand{i}"][at(steps, row, column)] for i, steps in enumerate(problem.operand_steps)]
        want = problem.epilogue.apply(np.asarray(total), [np.asarray(value) for value in operands])
        assert got.flat[at(problem.output_steps, row, column)] == pytest.approx(want, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "positive"),
        ({"dtype": "float16"}, "float16"),
        ({"a_steps": (91, 13)}, "3 steps per tensor"),
        ({"b_steps": (221, 17, -1)}, "none negative"),
        ({"elements": (272, 663)}, "beyond the 272 elements of a"),
        ({"elements": (273, 662)}, "beyond the 662 elements of b"),
        ({"starts": (1, 0)}, "beyond the 273 elements of a"),
        ({"starts": (0, -1)}, "beyond the 663 elements of b"),
        ({"output_steps": (119, 17, 2)}, "each element once"),
        ({"output_steps": (0, 17, 1)}, "each element once"),
        ({"operand_steps": ((119, 17, 1),)}, "0 operands"),
    ],
)
def test_a_problem_refuses_what_would_leave_its_buffers(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", BATCHED)
def test_guesses_are_valid_and_launches_fit(name: str, device: str) -> None:
    problem, limits = BATCHED[name], DEVICES[device]
    space = FAMILY.space(problem, limits)
    guesses = [FAMILY.default(problem, limits), *FAMILY.starters(problem, limits)]
    assert len({tuple(sorted(one.items())) for one in guesses}) == len(guesses)
    for configuration in guesses:
        assert space.violations(configuration) == []
        instance = FAMILY.render(problem, configuration)
        assert len(instance.main.stages) == configuration["PACK"] == len(instance.scratch)
        for launch in instance.main.sequence:
            assert math.prod(launch.local_size) <= limits.max_work_group_size
            assert not any(whole % part for whole, part in zip(launch.global_size, launch.local_size, strict=True))


def test_only_whole_rows_are_read_in_place() -> None:
    def widths(problem: BatchedMatMulProblem, limits: DeviceLimits) -> set[int]:
        return {one["VW"] for one in FAMILY.space(problem, limits).configurations() if not one["PACK"]}

    assert widths(BATCHED["right-turned"], DEVICES["gpu"]) == set()
    assert widths(BATCHED["primes"], DEVICES["gpu"]) == {1, 2, 4, 8}
    assert 16 not in widths(replace(PLAIN, n=9, output_steps=(63, 9, 1)), DEVICES["cpu"])


def test_shared_matrices_are_packed_once() -> None:
    problem = BATCHED["broadcast"]
    configuration = FAMILY.default(problem, DEVICES["cpu"]) | {"PACK": 1, "NV": 1, "VW": 4, "LN": 1, "LM": 1}
    assert FAMILY.render(problem, configuration).scratch == {"packed": 4 * 3 * 9 * 20}


def test_tensors_have_the_shape_in_which_they_lie() -> None:
    assert [spec.shape for spec in FAMILY.inputs(BATCHED["heads"])] == [(2, 10, 3, 8), (2, 18, 3, 8), (36,)]
    assert [spec.shape for spec in FAMILY.inputs(BATCHED["thirds"])] == [(210,), (210,)]
    assert [spec.shape for spec in FAMILY.inputs(BATCHED["broadcast"])][:2] == [(4, 6, 9), (3, 9, 20)]
    assert FAMILY.output(BATCHED["heads-merged"]).shape == (2, 10, 3, 8)
    assert FAMILY.output(BATCHED["batch-innermost"]).shape == (6, 9, 5)


def test_what_is_packed_must_fit_and_is_counted_once() -> None:
    """A hundred products by one matrix need the room of one."""
    shared = BatchedMatMulProblem(
        (100, 2), 8, 64, 64, (1024, 512, 64, 1), (0, 4096, 1, 64), (1024, 512, 64, 1), (102400, 8192)
    )
    small = replace(DEVICES["cpu"], max_allocation_bytes=4 * 2 * 65 * 64)
    assert FAMILY.space(shared, small).violations(FAMILY.default(shared, small)) == []
    with pytest.raises(ValueError, match="packed weights"):
        FAMILY.default(shared, replace(small, max_allocation_bytes=4 * 64 * 64))


def test_work_counts_what_is_read_and_every_product() -> None:
    work = FAMILY.work(BATCHED["thirds"])
    assert work.flops == 2 * 7 * 7 * 2 * 5
    assert work.bytes == 4 * (2 * 7 * 5 + 2 * 5 * 7 + 2 * 7 * 7)
    masked = BATCHED["heads"]
    assert FAMILY.work(masked).bytes == 4 * (2 * 3 * (10 * 8 + 8 * 18 + 10 * 18) + 2 * 18)
