"""Test the tiled kernels on the device: difficult shapes, with the default, a starter and random configurations."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.template import BASE_OPTIONS, template
from tests.kernels.problems import CASE_NAMES, CASES, GPU, RELU, random_inputs


@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=CASE_NAMES)
def test_configurations_compute_the_reference(bench: Any, op: str, name: str, problem: Any) -> None:
    family, dice = family_of(op), random.Random(f"{op} {name}")
    chosen = [family.default(problem, bench.limits), *family.starters(problem, bench.limits)[:1]]
    for limits, count in ((bench.limits, 1), (GPU, 2)):
        every = list(family.space(problem, limits).configurations())
        chosen += dice.sample(every, min(count, len(every)))
    bench.compare(family, problem, chosen, random_inputs(op, problem))


@pytest.mark.parametrize(
    ("op", "problem", "configurations"),
    [
        (
            "Conv",
            ConvProblem(1, 30, 29, 48, 80, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=RELU),
            [
                {"MR": 7, "NV": 3, "VW": 16, "KU": 4, "LM": 4, "LN": 2, "ORDER": 1},
                {"MR": 16, "NV": 1, "VW": 1, "KU": 8, "LM": 2, "LN": 32, "ORDER": 0},
            ],
        ),
        (
            "Conv",
            ConvProblem(1, 30, 59, 3, 80, (3, 3), (1, 2), pads=(1, 1, 1, 1), bias=True, epilogue=RELU, layout="NCHW"),
            [
                {"MR": 7, "NV": 3, "VW": 16, "KU": 2, "LM": 4, "LN": 2, "ORDER": 1},
                {"MR": 16, "NV": 1, "VW": 1, "KU": 1, "LM": 2, "LN": 32, "ORDER": 0},
            ],
        ),
        (
            "DepthwiseConv",
            DepthwiseProblem(1, 29, 30, 83, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=RELU),
            [
                {"MR": 7, "VW": 16, "REUSE": 1, "LM": 4, "LN": 4, "ORDER": 1},
                {"MR": 16, "VW": 1, "REUSE": 0, "LM": 2, "LN": 32, "ORDER": 0},
            ],
        ),
        (
            "MatMul",
            MatMulProblem(301, 99, 150, bias=True, epilogue=RELU),
            [
                {"MR": 7, "NV": 3, "VW": 16, "KU": 4, "KA": 1, "PF": 64, "LM": 4, "LN": 2, "ORDER": 1},
                {"MR": 2, "NV": 2, "VW": 2, "KU": 3, "KA": 4, "PF": 0, "LM": 2, "LN": 32, "ORDER": 0},
            ],
        ),
        (
            "MatMul",
            MatMulProblem(301, 99, 150, bias=True, epilogue=RELU, parts=(65, 1, 12, 21)),
            [
                {"MR": 7, "NV": 3, "VW": 16, "KU": 4, "KA": 1, "PF": 64, "LM": 4, "LN": 2, "ORDER": 1},
                {"MR": 2, "NV": 2, "VW": 2, "KU": 3, "KA": 4, "PF": 0, "LM": 2, "LN": 32, "ORDER": 0},
            ],
        ),
        (
            "MatMul",
            MatMulProblem(1, 99, 40, parts=(50, 49)),
            [
                {"MR": 1, "NV": 1, "VW": 16, "KU": 4, "KA": 6, "PF": 64, "LM": 1, "LN": 2, "ORDER": 0},
                {"MR": 1, "NV": 3, "VW": 4, "KU": 4, "KA": 4, "PF": 0, "LM": 1, "LN": 1, "ORDER": 1},
            ],
        ),
    ],
    ids=["Conv", "Conv-planes", "DepthwiseConv", "MatMul", "MatMul-parts", "MatMul-row-of-parts"],
)
def test_tiles_and_groups_that_divide_nothing(
    bench: Any, op: str, problem: Any, configurations: Sequence[dict[str, int]]
) -> None:
    if bench.limits.device_type != "cpu":  # no space has prefetching there
        configurations = [one | {"PF": 0} if "PF" in one else one for one in configurations]
    bench.compare(family_of(op), problem, configurations, random_inputs(op, problem))


@pytest.mark.parametrize("reuse", [0, 1])
@pytest.mark.parametrize(("group", "width"), [(g, w) for g in (2, 4, 8) for w in (2, 4, 8, 16) if g <= w])
def test_vectors_of_groups(bench: Any, group: int, width: int, reuse: int) -> None:
    """Of every width, with a last vector that starts earlier; what is infinite in a group stays in it."""
    problem = DepthwiseProblem(1, 6, 9, 40, (3, 2), (2, 1), (1, 0, 1, 1), bias=True, group=group)
    configuration = {"MR": 4, "VW": width, "REUSE": reuse, "LM": 2, "LN": 2, "ORDER": 0}
    inputs = random_inputs("DepthwiseConv", problem)
    bench.compare(family_of("DepthwiseConv"), problem, [configuration], inputs)
    inputs["input"][..., 16] = np.inf
    got, _ = bench.run(family_of("DepthwiseConv"), problem, configuration, inputs)
    touched = sorted(set(np.argwhere(~np.isfinite(got))[:, -1]))
    assert touched == list(range(16, 16 + group))


@pytest.mark.parametrize(
    "name",
    [
        "conv_direct.cl",
        "conv_planes.cl",
        "depthwise_direct.cl",
        "matmul_tiled.cl",
        "pack_filter.cl",
        "pack_groups.cl",
        "swapped_lanes.cl",
    ],
)
def test_the_template_compiles_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)
