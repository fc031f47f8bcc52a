"""Concat, Resize and ConvTranspose kernels against their references, on sizes that fit no vector."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import Array
from gputune.kernels.ops import concat, conv_transpose, resize
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.template import BASE_OPTIONS, template

RELU = Chain((Step("relu"),))
CHAIN = Chain((Step("add", operand=0), Step("hard_swish"), Step("mul", operand=1)))

CONCATS = [
    ConcatProblem(1, (1,)),
    ConcatProblem(35, (24, 24, 24, 24)),
    ConcatProblem(17, (3, 1, 64)),
    ConcatProblem(1, (1000, 17)),
    ConcatProblem(300, (5, 16, 7, 1, 2, 9, 33, 8, 4)),
]
RESIZES = [
    ResizeProblem(1, 1, 1, 1, (1, 1), (1, 1), (1, 1)),
    ResizeProblem(2, 5, 7, 24, (10, 14), (1, 1), (2, 2), epilogue=CHAIN),
    ResizeProblem(1, 5, 7, 19, (40, 21), (1, 1), (8, 3)),
    ResizeProblem(2, 9, 12, 5, (4, 8), (9, 3), (4, 2), (-3, 1)),
    ResizeProblem(1, 6, 5, 3, (11, 9), (12, 10), (22, 18), (-30, 40), epilogue=RELU),
]
DECONVS = [
    ConvTransposeProblem(1, 1, 1, 1, 1, (1, 1), (1, 1), (1, 1)),
    ConvTransposeProblem(2, 5, 7, 24, 24, (2, 2), (2, 2), (10, 14), bias=True, epilogue=RELU),
    ConvTransposeProblem(1, 9, 13, 24, 1, (2, 2), (2, 2), (18, 26), bias=True, epilogue=RELU),
    ConvTransposeProblem(2, 5, 6, 7, 5, (3, 3), (2, 2), (10, 11), (1, 1), bias=True, epilogue=CHAIN),
    ConvTransposeProblem(1, 6, 5, 17, 20, (4, 4), (2, 2), (12, 10), (1, 1)),
    ConvTransposeProblem(1, 4, 5, 3, 19, (3, 2), (1, 3), (4, 13), (1, 2), bias=True),
    ConvTransposeProblem(1, 4, 3, 6, 6, (3, 2), (2, 3), (11, 13), (0, 0), (2, 3), bias=True),
    ConvTransposeProblem(1, 3, 3, 4, 9, (2, 2), (3, 3), (9, 9), bias=True, epilogue=CHAIN),
]


def tagged(problem: ConcatProblem) -> dict[str, Array]:
    """Parts in which every element is another number, so that none can be in another's place."""
    whole = np.arange(problem.rows * problem.length, dtype=np.float32).reshape(problem.rows, problem.length)
    parts = np.split(whole, np.cumsum(problem.parts)[:-1], axis=1)
    return {f"input{k}": np.ascontiguousarray(part) for k, part in enumerate(parts)}


@pytest.mark.parametrize("problem", CONCATS, ids=lambda p: f"{p.rows}x{p.parts}")
def test_concat_is_right(bench: Any, problem: ConcatProblem) -> None:
    bench.check(concat.FAMILY, problem, sampled=2)
    got, damage = bench.run(concat.FAMILY, problem, concat.FAMILY.default(problem, bench.limits), tagged(problem))
    assert got.ravel().tolist() == list(range(got.size))
    assert not damage


@pytest.mark.parametrize("problem", RESIZES, ids=lambda p: f"{p.size}-{p.output}-{p.channels}")
def test_resize_is_right(bench: Any, problem: ResizeProblem) -> None:
    bench.check(resize.FAMILY, problem, sampled=2)


@pytest.mark.parametrize("problem", DECONVS, ids=lambda p: f"{p.kernel}-{p.strides}-{p.in_channels}-{p.out_channels}")
def test_transposed_convolution_is_right(bench: Any, problem: ConvTransposeProblem) -> None:
    bench.check(conv_transpose.FAMILY, problem, sampled=2)


@pytest.mark.parametrize(
    "name", ["concat_parts.cl", "resize_nearest.cl", "conv_transpose_tiled.cl", "pack_transposed.cl"]
)
def test_the_template_compiles_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)
