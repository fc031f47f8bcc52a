"""Test tiles in local memory on the device: each way to bring factors in, over shapes that no tile divides."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.matmul import MatMulProblem
from tests.kernels.problems import GATED, GPU, RELU, RESIDUAL, random_inputs

MANY = replace(GPU, max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), compute_units=132)
MATMUL: dict[str, Any] = {
    "whole-tiles": MatMulProblem(64, 64, 64),
    "primes": MatMulProblem(67, 61, 37, bias=True, epilogue=RESIDUAL),
    "parts": MatMulProblem(33, 136, 72, bias=True, epilogue=RELU, parts=(68, 4, 64)),
    "parts-of-primes": MatMulProblem(19, 96, 41, parts=(31, 1, 53, 11)),
    "one-step": MatMulProblem(17, 1, 16, epilogue=GATED),
    "long-reduction": MatMulProblem(16, 1027, 20, bias=True),
}
CONV: dict[str, Any] = {
    "same": ConvProblem(1, 14, 14, 64, 64, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=RELU),
    "strided-odd": ConvProblem(2, 15, 13, 36, 41, (3, 3), (2, 2), (1, 1, 1, 1), bias=True, epilogue=RESIDUAL),
    "three-channels": ConvProblem(1, 23, 21, 3, 32, (7, 7), (2, 2), (3, 3, 3, 3), bias=True),
    "dilated-asymmetric": ConvProblem(1, 13, 12, 10, 17, (3, 2), (1, 2), (3, 1, 0, 2), (3, 2)),
    "line-of-sixteen-taps": ConvProblem(1, 1, 70, 6, 24, (1, 16), (1, 1), (0, 9, 0, 3)),
    "windows-in-the-padding": ConvProblem(1, 3, 3, 8, 20, (3, 3), pads=(5, 5, 5, 5), bias=True),
}
CASES = [("MatMul", name, problem) for name, problem in MATMUL.items()] + [
    ("Conv", name, problem) for name, problem in CONV.items()
]
CHOICES = ("STAGES", "PAD", "SA", "SB", "SPLIT", "BAND", "LM", "LN", "BK")


def covering(op: str, problem: Any) -> Iterator[dict[str, int]]:
    """Few configurations in which each value of each choice occurs, as far as it is legal."""
    missing: set[tuple[str, int]] = set()
    legal = [one for one in family_of(op).space(problem, MANY).configurations() if one.get("ALG") == 1]
    for one in legal:
        missing |= {(name, one[name]) for name in CHOICES}
    while missing:
        best = max(legal, key=lambda one: sum((name, one[name]) in missing for name in CHOICES))
        missing -= set(best.items())
        yield best


@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=[f"{op}-{name}" for op, name, _ in CASES])
def test_tiles_in_local_memory_compute_the_reference(bench: Any, op: str, name: str, problem: Any) -> None:
    chosen = list(covering(op, problem))
    assert chosen
    bench.compare(family_of(op), problem, chosen, random_inputs(op, problem))


@pytest.mark.parametrize("op", ["MatMul", "Conv"])
def test_nothing_comes_from_beyond_the_reduction(bench: Any, op: str) -> None:
    """Blocks end with zeros behind the last step: weights that are infinite there make no NaN of sums."""
    problem: Any = MATMUL["primes"] if op == "MatMul" else replace(CONV["three-channels"], epilogue=RELU)
    weight, numbers = ("b", np.random.default_rng(3)) if op == "MatMul" else ("weight", np.random.default_rng(4))
    family, inputs = family_of(op), random_inputs(op, problem)
    flat = inputs[weight].reshape(-1)
    flat[numbers.choice(flat.size, 5, replace=False)] = np.inf
    inputs["a" if op == "MatMul" else "input"] = np.abs(inputs["a" if op == "MatMul" else "input"]) + 0.5
    with np.errstate(invalid="ignore"):
        want = family.reference(problem, inputs)
    for configuration in covering(op, problem):
        got, damage = bench.run(family, problem, configuration, inputs)
        assert not damage
        assert np.array_equal(np.isnan(got), np.isnan(want)), configuration
        assert np.array_equal(np.isinf(got), np.isinf(want)), configuration
