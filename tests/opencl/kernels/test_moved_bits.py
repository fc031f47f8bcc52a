"""Test that kernels which only move elements keep every bit of any type, also those of each NaN."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import ELEMENT_TYPES, FLOATS, HALVES
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Array, Instance
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.move import move
from gputune.kernels.ops.scatter import at_points
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.space import Configuration
from tests.kernels.difficult import DIFFICULT
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.opencl.conftest import TOGETHER, KernelBench

OF_ANY_TYPE = (
    ("Concat", ConcatProblem(3, (5, 9))),
    ("Move", move(40, 1, [Loop(9, 3), Loop(5, 1, 1, 3)])),
    ("Transpose", TransposeProblem(2, 5, 1, 4, "NCHW", "NHWC")),
)
OF_HALF: tuple[tuple[str, Any], ...] = (
    *((op, ONE_OF_EACH[op]) for op in ("Concat", "Gather", "Resize", "Transpose")),
    ("Scatter", at_points((4, 3, 19), (6, 2))),
    ("Move", move(35 * 7, 0, [Loop(9, 35, 1, 7), Loop(35, 1)], fill=-0.3)),
    ("Move", move(20, 0, [Loop(19, 5, 3, 4), Loop(5, 1, 1, 3)], "reflect")),
)


def bits(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return any bits as numbers of a type."""
    count = int(np.prod(shape))
    drawn = np.random.default_rng(count).integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8)
    return (drawn % 2 if dtype == "bool" else drawn).view(dtype).reshape(shape)


def filled(op: str, problem: Any, dtype: str) -> Any:
    """Return the problem of a type; what fills a border is the least number of the type."""
    least = 0.0 if dtype == "bool" or dtype in FLOATS else int(np.iinfo(dtype).min)
    return replace(problem, dtype=dtype, **({"fill": least} if op == "Move" else {}))


CASES = [
    *((op, filled(op, problem, dtype)) for op, problem in OF_ANY_TYPE for dtype in ELEMENT_TYPES),
    *((op, replace(problem, dtype=dtype)) for op, problem in OF_HALF for dtype in HALVES),
]


def tried(bench: KernelBench, op: str, problem: Any) -> Sequence[Configuration]:
    family = family_of(op)
    return [family.default(problem, bench.limits), *family.starters(problem, bench.limits)][:3]


def instances(bench: KernelBench, cases: Sequence[tuple[str, Any]]) -> Iterator[Instance]:
    for op, problem in cases:
        yield from (bench.instance(family_of(op), problem, one) for one in tried(bench, op, problem))


@pytest.mark.parametrize("place", range(len(CASES)), ids=[f"{op}-{problem.dtype}" for op, problem in CASES])
def test_elements_of_every_type_move_unchanged(bench: KernelBench, place: int) -> None:
    """Any bits are in the place of samples; halves are not converted."""
    op, problem = CASES[place]
    family = family_of(op)
    inputs = {
        name: bits(problem.dtype, value.shape) if value.dtype == problem.dtype and name != "indices" else value
        for name, value in family.sample_inputs(problem, np.random.default_rng(1)).items()
    }
    want = np.asarray(family.reference(problem, inputs), problem.dtype)
    bench.build_together(instances(bench, CASES[place:][:1]), islice(instances(bench, CASES[place:]), TOGETHER))
    for configuration in tried(bench, op, problem):
        got, damage = bench.run(family, problem, configuration, inputs)
        assert got.tobytes() == want.tobytes(), configuration
        assert not damage


@pytest.mark.parametrize("name", DIFFICULT["Concat"])
def test_no_element_is_in_the_place_of_another(bench: KernelBench, name: str) -> None:
    family, problem = family_of("Concat"), DIFFICULT["Concat"][name]
    whole = np.arange(problem.rows * problem.length, dtype=np.float32).reshape(problem.rows, problem.length)
    parts = np.split(whole, np.cumsum(problem.parts)[:-1], axis=1)
    inputs = {f"input{k}": np.ascontiguousarray(part) for k, part in enumerate(parts)}
    default = family.default(problem, bench.limits)
    bench.compare(family, problem, [default], inputs, whole.reshape(family.output(problem).shape))
