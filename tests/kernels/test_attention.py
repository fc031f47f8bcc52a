"""Test attention: the reference compared with what numbers say one by one, defaults, and what a space allows."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gputune.kernels.indexing.attending import USUAL_SUMS
from gputune.kernels.ops.attention import FAMILY, AttentionProblem

from .attention_problems import ATTENTIONS, REAL, heads
from .problems import CPU, GPU, SMALL, random_inputs

LARGE = replace(
    GPU, max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), local_memory_bytes=48 << 10, compute_units=132
)


def at(problem: AttentionProblem, name: str, *index: int) -> int:
    """Where a number of a tensor lies."""
    start = problem.places.starts[("query", "key", "value").index(name)]
    return start + sum(step * each for step, each in zip(problem.steps[name], index, strict=True))


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_reference_is_a_softmax_over_steps(name: str) -> None:
    """Number by number, with nothing but the steps."""
    problem = ATTENTIONS[name]
    given = random_inputs("Attention", problem)
    for bools in {"zeroed", "hidden"} & given.keys():
        given[bools][...] = np.arange(given[bools].size) % 3 == 0
    got = FAMILY.reference(problem, given)
    inputs = {name: value.astype(np.float64) for name, value in given.items()}
    assert got.shape == FAMILY.output(problem).shape
    generator = np.random.default_rng(2)
    for _ in range(10):
        *batch, row, column = (int(generator.integers(size)) for size in problem.shape)
        scores = []
        for key in range(problem.keys):
            product = sum(
                inputs["query"].flat[at(problem, "query", *batch, row, k)]
                * inputs["key"].flat[at(problem, "key", *batch, key, k)]
                for k in range(problem.depth)
            )
            operands = [
                inputs[f"operand{k}"][sum(a * b for a, b in zip(steps, (*batch, row, key), strict=True))]
                for k, steps in enumerate(problem.places.operand_steps)
            ]
            score = float(problem.scores.apply(np.asarray(product), [np.asarray(each) for each in operands]))
            if (outer := problem.places.hidden_steps) is not None:
                place = sum(a * b for a, b in zip(outer, (*batch, row, key), strict=True))
                score = score if inputs["hidden"][place] == problem.shown else float(inputs["hidden_score"][0])
            scores.append(score)
        values = [inputs["value"].flat[at(problem, "value", *batch, key, column)] for key in range(problem.keys)]
        shares = [math.exp(score - max(scores)) for score in scores]
        want = sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares)
        if (outer := problem.places.zeroed_steps) is not None:
            want *= 1 - inputs["zeroed"][sum(a * b for a, b in zip(outer, (*batch, row), strict=True))]
        steps = problem.places.output_steps
        place = sum(a * b for a, b in zip(steps, (*batch, row, column), strict=True))
        assert got.flat[place] == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_a_row_that_masks_hide_is_nan_or_zero() -> None:
    for masked in (False, True):
        problem = heads(1, 3, 4, 8, scores=ATTENTIONS["mask-of-keys"].scores, operand_steps=((0, 0, 4, 1),))
        problem = replace(problem, masked=masked)
        inputs = random_inputs("Attention", problem)
        inputs["operand0"][4:8] = -np.inf
        result = FAMILY.reference(problem, inputs).reshape(3, 8)
        assert np.isfinite(result[[0, 2]]).all()
        assert (result[1] == 0).all() if masked else np.isnan(result[1]).all()


def test_work_is_that_of_two_products_and_a_softmax() -> None:
    work = FAMILY.work(heads(12, 128, 128, 32))
    assert work.flops == 12 * 128 * 128 * (2 * 32 + 1 + 5) + 2 * 12 * 128 * 128 * 32
    assert work.bytes == 4 * 4 * 12 * 128 * 32  # no matrix of scores


@pytest.mark.parametrize("name", REAL)
def test_a_default_of_gpus_has_arithmetic_groups_and_registers(name: str) -> None:
    problem = REAL[name]
    one = FAMILY.default(problem, LARGE)
    columns = 4 * math.ceil(problem.columns / (4 * one["LN"]))
    assert one["MR"] * (one["NR"] + columns) <= USUAL_SUMS
    assert one["LM"] * one["LN"] >= 32
    if problem.rows > 1:
        assert one["MR"] >= 4
        assert one["NR"] >= 4
        assert problem.products * math.ceil(problem.rows / (one["MR"] * one["LM"])) >= 96


def test_what_has_no_room_in_local_memory_has_rows_of_its_own() -> None:
    assert FAMILY.default(REAL["vit"], GPU)["ALG"] == 1
    assert FAMILY.default(REAL["vit"], SMALL)["ALG"] == 0
    assert "ALG" not in FAMILY.default(REAL["vit"], CPU)


def test_only_cpus_with_rows_for_all_cores_are_known_to_gain() -> None:
    assert [FAMILY.pays(REAL["vit"], limits) for limits in (CPU, GPU, SMALL)] == [True, False, False]
    assert [FAMILY.pays(REAL["decoder"], replace(CPU, compute_units=units)) for units in (32, 33)] == [True, False]


@pytest.mark.parametrize(("rows", "units", "tile"), [(197, 2, 8), (17, 2, 6), (16, 24, 8), (16, 64, 3), (16, 1000, 1)])
def test_tiles_of_cpus_are_even_and_enough_for_all_cores(rows: int, units: int, tile: int) -> None:
    default = FAMILY.default(heads(12, rows, 64, 64), replace(CPU, compute_units=units))
    assert (default["MR"], default["NV"], default["VW"]) == (tile, 2, 16)
