"""Compare recurrent kernels with the reference: every cell, both directions, ragged states, batch tiles, lanes."""

from itertools import cycle
from typing import Any

import numpy as np
import pytest

from gputune.kernels.ops.recurrent import FAMILY
from gputune.kernels.template import BASE_OPTIONS, template
from tests.kernels.recurrent_problems import RECURRENT

SHAPES = [
    {"MB": 1, "NV": 2, "VW": 1, "LANES": 1, "LOCAL": 0},
    {"MB": 2, "NV": 1, "VW": 2, "LANES": 4, "LOCAL": 1},
    {"MB": 4, "NV": 2, "VW": 1, "LANES": 2, "LOCAL": 0},
    {"MB": 2, "NV": 1, "VW": 4, "LANES": 1, "LOCAL": 1},
]
DEFAULTS = ("rnn", "gru", "lstm")


@pytest.mark.parametrize(("name", "shape"), list(zip(RECURRENT, cycle(SHAPES), strict=False)), ids=RECURRENT)
def test_every_cell_is_right(bench: Any, name: str, shape: dict[str, int]) -> None:
    problem = RECURRENT[name]
    tried = [shape, FAMILY.default(problem, bench.limits)] if name in DEFAULTS else [shape]
    bench.compare(FAMILY, problem, tried, FAMILY.sample_inputs(problem, np.random.default_rng(1)))


def test_the_template_compiles_alone(bench: Any) -> None:
    bench.backend.build(template("recurrent_steps.cl"), BASE_OPTIONS)
