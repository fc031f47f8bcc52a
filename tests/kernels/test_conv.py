"""Test convolution: what it costs, its tolerance, and where Winograd is offered."""

import time
from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.conv import FAMILY, ConvProblem

from .problems import CPU, DEVICES, random_inputs


def test_reference_is_fast() -> None:
    problem = ConvProblem(1, 112, 112, 64, 64, (3, 3), pads=(1, 1, 1, 1), bias=True)
    inputs = random_inputs("Conv", problem)
    start = time.process_time()
    FAMILY.reference(problem, inputs)
    assert time.process_time() - start < 2  # process time counts all threads


def test_work_counts_every_tap_and_every_byte_once() -> None:
    problem = ConvProblem(2, 8, 8, 4, 6, (3, 3), pads=(1, 1, 1, 1), groups=2, bias=True)
    work = FAMILY.work(problem)
    pixels = 2 * 8 * 8
    assert work.flops == pixels * 6 * (2 * 9 * 2 + 1)
    assert work.bytes == 4 * (pixels * 4 + 6 * 2 * 9 + 6 + pixels * 6)


def test_tolerance_is_far_below_a_missing_tap() -> None:
    problem = ConvProblem(1, 8, 8, 64, 8, (3, 3), pads=(1, 1, 1, 1))
    inputs = random_inputs("Conv", problem)
    want = FAMILY.reference(problem, inputs)
    inputs["weight"][:, 5, 2, 2] = 0
    wrong = np.abs(FAMILY.reference(problem, inputs) - want).max()
    tolerance = FAMILY.tolerance(problem)
    assert wrong > 100 * (tolerance.absolute + tolerance.relative * np.abs(want).max())


@pytest.mark.parametrize(
    ("change", "algorithms"),
    [
        ({}, (0, 2, 4)),
        ({"strides": (2, 2)}, (0, 2)),
        ({"dtype": "float16"}, (0, 2, 4)),
        ({"height": 3}, (0, 2)),
        ({"height": 1}, ()),
        ({"strides": (1, 2)}, ()),
        ({"strides": (3, 3)}, ()),
        ({"kernel": (3, 1), "pads": (1, 0, 1, 0)}, ()),
        ({"dilations": (2, 2)}, ()),
        ({"groups": 2}, ()),
        ({"in_channels": 15}, ()),
        ({"out_channels": 15}, ()),
    ],
)
def test_winograd_is_offered_where_it_applies(change: dict[str, Any], algorithms: tuple[int, ...]) -> None:
    fields: dict[str, Any] = {
        "batch": 1, "height": 8, "width": 9, "in_channels": 16, "out_channels": 16, "kernel": (3, 3),
        "pads": (1, 1, 1, 1), **change,
    }  # fmt: skip
    problem = ConvProblem(**fields)
    for limits in DEVICES.values():
        space = FAMILY.space(problem, limits)
        found = {one.get("ALG", -1) for one in space.configurations()}
        assert found - {0, 1, -1} == set(algorithms) - {0}
        assert limits.device_type != "cpu" or found == (set(algorithms) or {-1})
        assert FAMILY.default(problem, limits).get("ALG", 0) in (0, 1)
    found = {one["ALG"] for one in FAMILY.starters(problem, CPU)} if algorithms else set()
    assert found == set(algorithms)


def test_a_winograd_configuration_hands_the_transformed_input_over() -> None:
    problem = ConvProblem(2, 9, 10, 32, 48, (3, 3), pads=(1, 1, 1, 1), bias=True)
    one = {"ALG": 4, "MR": 4, "NV": 2, "VW": 16, "KU": 1, "LM": 1, "LN": 1, "ORDER": 0, "RB": 2}
    instance = FAMILY.render(problem, one)
    tiles, frequencies = 2 * 3 * 3, 36
    blocks = 3  # of 8 tiles
    assert instance.packed == {"packed": 4 * (64 * (frequencies * 32 + 1) + 32)}
    assert instance.scratch == {"transformed": 4 * blocks * frequencies * (8 * 32 + 16)}
    (transform,) = instance.main.stages
    assert (transform.global_size, transform.local_size) == ((1, tiles), (1, 1))
    assert (instance.main.global_size, instance.main.local_size) == ((2, blocks), (1, 1))
