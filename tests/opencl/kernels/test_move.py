"""Compare Move kernels with their reference: every border, step and type, on sizes that fit no vector."""

from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import ELEMENT_TYPES, FLOATS
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import KernelFamily
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops import concat, move, transpose
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.move import BORDERS, MoveProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.template import BASE_OPTIONS, template

CHAIN = Chain((Step("add", operand=0), Step("relu")))

PROBLEMS = {
    "permuted": move.move(7 * 5 * 33, 0, [Loop(33, 1), Loop(7, 5 * 33), Loop(5, 33)]),
    "rows kept": move.move(7 * 5 * 33, 0, [Loop(5, 33), Loop(7, 5 * 33), Loop(33, 1)], epilogue=CHAIN),
    "backwards": move.move(101, 100, [Loop(34, -3)]),
    "spread": move.move(19, 0, [Loop(13, 0), Loop(19, 1), Loop(37, 0)]),
    "one": move.move(1, 0, [Loop(1, 1)]),
    "all border": move.move(2, 0, [Loop(3, 2, 4, 1), Loop(2, 1)], fill=2.5),
}
BORDERED = [
    [Loop(9, 7, 1, 5), Loop(12, 1, 2, 7)],
    [Loop(40, 17, 15, 3), Loop(17, 1)],
    [Loop(5, 3, 2, 1), Loop(3, 1)],
    [Loop(50, -1, 3, 35)],
]


@pytest.mark.parametrize("name", PROBLEMS)
def test_move_is_right(bench: Any, name: str) -> None:
    bench.check(move.FAMILY, PROBLEMS[name], sampled=1)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("which", range(len(BORDERED)))
def test_borders_are_right(bench: Any, border: str, which: int) -> None:
    loops = BORDERED[which]
    problem = move.move(51, 34 if which == 3 else 0, loops, border, fill=-1.5)
    inputs = {"input": np.arange(51, dtype=np.float32)}
    got, damage = bench.run(move.FAMILY, problem, move.FAMILY.default(problem, bench.limits), inputs)
    np.testing.assert_array_equal(got, move.FAMILY.reference(problem, inputs))
    assert not damage


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_every_type_moves_unchanged(bench: Any, dtype: str) -> None:
    least = 0.0 if dtype == "bool" or dtype in FLOATS else int(np.iinfo(dtype).min)
    moved: MoveProblem = move.move(40, 1, [Loop(9, 3), Loop(5, 1, 1, 3)], fill=least, dtype=dtype)
    turned = TransposeProblem(2, 5, 1, 4, "NCHW", "NHWC", dtype)
    made: tuple[tuple[KernelFamily, Any], ...] = (
        (move.FAMILY, moved),
        (transpose.FAMILY, turned),
        (concat.FAMILY, ConcatProblem(3, (5, 9), dtype)),
    )
    for family, problem in made:
        values: dict[str, Any] = {}
        for spec in family.inputs(problem):
            numbers = np.random.default_rng(0).integers(0, 256, spec.nbytes, np.uint8)
            values[spec.name] = (numbers % 2 if dtype == "bool" else numbers).view(dtype).reshape(spec.shape)
        got, damage = bench.run(family, problem, family.default(problem, bench.limits), values)
        want = np.asarray(family.reference(problem, values), dtype)
        assert got.tobytes() == want.tobytes()
        assert not damage


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("move_rows.cl"), BASE_OPTIONS)
