"""Compare layout conversion kernels with the reference: ragged blocks, pictures, and through local memory."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.transpose import FAMILY, TransposeProblem
from gputune.kernels.template import BASE_OPTIONS, template

SHAPES = [(1, 3, 13, 17), (2, 1, 5, 7), (1, 24, 1, 1), (3, 37, 5, 7), (1, 16, 8, 8), (35, 4, 1, 29), (17, 2, 2, 5)]


@pytest.mark.parametrize(("source", "target"), [("NCHW", "NHWC"), ("NHWC", "NCHW")])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conversion_is_right(bench: Any, shape: tuple[int, int, int, int], source: str, target: str) -> None:
    bench.check(FAMILY, TransposeProblem(*shape, source, target), sampled=3)


@pytest.mark.parametrize(
    "blocks", [(4, 4, 16, 1), (4, 2, 4, 1), (4, 3, 8, 1), (2, 8, 4, 2), (1, 16, 2, 4), (3, 4, 1, 1)]
)
@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_work_groups_have_parts_of_several_small_maps(bench: Any, blocks: tuple[int, ...], dtype: str) -> None:
    """Stored as one vector where that is a whole block, and the last blocks overlapping."""
    problem = TransposeProblem(23, 4, 1, 19, "NCHW", "NHWC", dtype)
    configuration = dict(zip(("VR", "VC", "DIMX", "DIMY"), blocks, strict=True)) | {"STAGED": 0, "PAD": 0}
    value = np.arange(23 * 4 * 19).reshape(23, 4, 1, 19).astype(dtype)
    got, damage = bench.run(FAMILY, problem, configuration, {"input": value})
    np.testing.assert_array_equal(got, FAMILY.reference(problem, {"input": value}))
    assert not damage


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("blocks", [(2, 4, 4, 2), (1, 1, 8, 8), (3, 2, 2, 8)])
def test_blocks_change_hands_in_local_memory(bench: Any, blocks: tuple[int, int, int, int], pad: int) -> None:
    problem = TransposeProblem(2, 19, 7, 5, "NCHW", "NHWC")
    configuration = dict(zip(("VR", "VC", "DIMX", "DIMY"), blocks, strict=True)) | {"STAGED": 1, "PAD": pad}
    if FAMILY.space(problem, bench.limits).violations(configuration):
        pytest.skip("the device has no work-groups of this size")
    value = np.arange(2 * 19 * 7 * 5, dtype=np.float32).reshape(2, 19, 7, 5)
    got, damage = bench.run(FAMILY, problem, configuration, {"input": value})
    np.testing.assert_array_equal(got, FAMILY.reference(problem, {"input": value}))
    assert not damage


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("transpose_layout.cl"), BASE_OPTIONS)
