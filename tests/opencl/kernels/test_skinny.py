"""Test products of few rows on the device, with shares and without, in both forms of arguments."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gputune.core.launches import ArgumentForm
from gputune.kernels.algorithms import ALG
from gputune.kernels.ops.matmul import FAMILY, SKINNY, MatMulProblem
from tests.kernels.problems import GATED, GPU, RELU, RESIDUAL
from tests.kernels.test_skinny import configured
from tests.opencl.conftest import KernelBench

TRIED = 3
PROBLEMS = {
    "one": MatMulProblem(1, 1, 1, bias=True),
    "dot-product": MatMulProblem(1, 3001, 1, epilogue=RELU),
    "column": MatMulProblem(5, 260, 1, bias=True),
    "row": MatMulProblem(1, 512, 72, bias=True, epilogue=RESIDUAL),
    "odd": MatMulProblem(3, 127, 129, bias=True, epilogue=GATED),
    "primes": MatMulProblem(13, 61, 37, bias=True),
    "no-reduction": MatMulProblem(16, 1, 20, bias=True),
    "long": MatMulProblem(2, 20_000, 8),
    "parts": MatMulProblem(7, 260, 40, bias=True, epilogue=RELU, parts=(128, 132)),
    "parts-of-primes": MatMulProblem(9, 45, 17, epilogue=RESIDUAL, parts=(13, 1, 31)),
    "most-rows": MatMulProblem(16, 384, 96, bias=True),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("form", ["sub_buffers", "offsets"])
def test_few_rows_compute_the_reference(bench: KernelBench, name: str, form: ArgumentForm) -> None:
    """Hard values are among the inputs."""
    problem, dice = PROBLEMS[name], random.Random(f"{name} {form}")
    every = [one for one in FAMILY.space(problem, GPU).configurations() if one[ALG] == SKINNY]
    by_shares = [[one for one in every if (one["SPLIT"] > 1) == shared] for shared in (False, True)]
    chosen = [one for some in by_shares for one in dice.sample(some, min(TRIED, len(some)))]
    taking = replace(bench, limits=replace(bench.limits, argument_form=form))
    taking.compare(FAMILY, problem, chosen, FAMILY.sample_inputs(problem, np.random.default_rng(1)))


@pytest.mark.parametrize("rows", range(1, 17))
def test_every_number_of_rows(bench: KernelBench, rows: int) -> None:
    problem = MatMulProblem(rows, 67, 45, bias=True)
    tall = 1 << (rows - 1).bit_length()
    tiles = [{"MR": tall, "LM": 16, "LN": 4}, {"MR": max(tall // 2, 1), "LM": 4, "LN": 8, "SPLIT": 4}]
    chosen = [configured(problem, **tile) for tile in tiles]
    bench.compare(FAMILY, problem, chosen, FAMILY.sample_inputs(problem, np.random.default_rng(rows)))


def test_sums_that_do_not_fit_local_memory_at_once_are_added_in_turns(bench: KernelBench) -> None:
    """What one turn reads is what the next turn overwrites."""
    problem = MatMulProblem(4, 67, 96, bias=True)
    chosen = configured(problem, MR=4, NV=2, KU=1, LM=16, LN=16)
    assert "-DSUMMED=2 " in FAMILY.render(problem, chosen).main.options
    bench.compare(FAMILY, problem, [chosen], FAMILY.sample_inputs(problem, np.random.default_rng(5)))


def test_no_order_of_work_groups_changes_a_bit(bench: KernelBench) -> None:
    problem = MatMulProblem(4, 4096, 64)
    inputs = FAMILY.sample_inputs(problem, np.random.default_rng(3))
    chosen = configured(problem, MR=4, LM=16, LN=16, SPLIT=8)
    results = {bench.run(FAMILY, problem, chosen, inputs)[0].tobytes() for _ in range(3)}
    assert len(results) == 1
