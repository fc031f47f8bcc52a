"""Test tiles in local memory on the device: each way to bring factors in, over shapes that no tile divides."""

import functools
import itertools
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


FEW = replace(MANY, compute_units=1)
"""Shares are for a device with more units than tiles, and bands for a device with fewer."""

Chosen = set[tuple[str, int]]


@functools.cache
def legal(op: str, problem: Any) -> list[dict[str, int]]:
    """Return all tiles in local memory for either device."""
    spaces = (family_of(op).space(problem, limits) for limits in (MANY, FEW))
    return [one for space in spaces for one in space.configurations() if one.get("ALG") == 1]


def choices(configuration: dict[str, int]) -> Chosen:
    return {(name, configuration[name]) for name in CHOICES}


def taken(configurations: list[dict[str, int]], missing: Chosen) -> dict[str, int]:
    """Return the configuration with the most of what is missing, which is missing no more."""
    best = max(configurations, key=lambda one: len(choices(one) & missing))
    missing -= choices(best)
    return best


def covering(op: str, problem: Any) -> Iterator[dict[str, int]]:
    """Few configurations in which each value of each choice occurs, as far as it is legal."""
    missing = set[tuple[str, int]]().union(*map(choices, legal(op, problem)))
    while missing:
        yield taken(legal(op, problem), missing)


@functools.cache
def shared_out(op: str) -> dict[str, list[dict[str, int]]]:
    """Return configurations of each problem, few in all: each value of each choice occurs in one of the problems."""
    problems = {name: legal(op, problem) for each, name, problem in CASES if each == op}
    missing = set[tuple[str, int]]().union(*(choices(one) for each in problems.values() for one in each))
    chosen = {name: [taken(configurations, missing)] for name, configurations in problems.items()}
    while missing:
        name = max(problems, key=lambda name: max(len(choices(one) & missing) for one in problems[name]))
        chosen[name].append(taken(problems[name], missing))
    return chosen


@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=[f"{op}-{name}" for op, name, _ in CASES])
def test_tiles_in_local_memory_compute_the_reference(bench: Any, op: str, name: str, problem: Any) -> None:
    bench.compare(family_of(op), problem, shared_out(op)[name], random_inputs(op, problem))


@pytest.mark.slow
@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=[f"{op}-{name}" for op, name, _ in CASES])
def test_all_choices_compute_the_reference(bench: Any, op: str, name: str, problem: Any) -> None:
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
    for configuration in itertools.islice(covering(op, problem), 2):  # which differ in all that they can
        got, damage = bench.run(family, problem, configuration, inputs)
        assert not damage
        assert np.array_equal(np.isnan(got), np.isnan(want)), configuration
        assert np.array_equal(np.isinf(got), np.isinf(want)), configuration
