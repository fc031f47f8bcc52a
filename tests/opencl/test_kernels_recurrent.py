"""Recurrent kernels against the reference: every cell, both directions, ragged states, tiles of the batch, lanes."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.recurrent import FAMILY
from gputune.kernels.template import BASE_OPTIONS, template

from ..kernels.recurrent_problems import RECURRENT

SHAPES = [
    {"MB": 1, "NV": 2, "VW": 1, "LANES": 1, "LOCAL": 0},
    {"MB": 2, "NV": 1, "VW": 2, "LANES": 4, "LOCAL": 1},
    {"MB": 4, "NV": 2, "VW": 1, "LANES": 2, "LOCAL": 0},
    {"MB": 2, "NV": 1, "VW": 4, "LANES": 1, "LOCAL": 1},
]
TRIED = [*zip(RECURRENT, SHAPES * len(RECURRENT), strict=False), *((name, None) for name in ("rnn", "gru", "lstm"))]


@pytest.mark.parametrize(("name", "shape"), TRIED, ids=[name + ("" if shape else "-default") for name, shape in TRIED])
def test_every_cell_is_right(bench: Any, name: str, shape: dict[str, int] | None) -> None:
    problem = RECURRENT[name]
    inputs = FAMILY.sample_inputs(problem, np.random.default_rng(1))
    bench.compare(FAMILY, problem, [shape or FAMILY.default(problem, bench.limits)], inputs)


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("recurrent_steps.cl"), BASE_OPTIONS)
