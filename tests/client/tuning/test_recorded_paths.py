"""Test the search on a recorded convolution along many paths: other seeds, no starters, another best, noise.

Three of its 384 configurations are within 3 % of the best, and one path more or less by chance says little. The samples
are those of a CPU."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.cache import TrialRecord
from gputune.client.model.plan import Task
from gputune.client.report.problems import problem_of
from gputune.client.tuning.search.effort import EFFORTS, FEW
from gputune.client.tuning.search.task_search import TaskSearch, device_limits
from gputune.core.statuses import OK
from gputune.kernels.catalogue import family_of
from gputune.kernels.space import configuration_key
from gputune.runtime.devices import recording

(PATH,) = (Path(__file__).parents[2] / "recordings").glob(f"conv3x3*{recording.SUFFIX}")
RECORDED = recording.read(PATH)
NORMAL = EFFORTS["normal"]
SEEDS = range(1, 21)
NEAR = 1.03
SLOWER = 1.3


def ends_near_the_best(seed: int, noise: float, slower: int) -> bool:
    """Whether a search with a seed ends near the best, of which so many are made slower. With noise it has as many
    finalists as a tuner measures again."""
    header = RECORDED.header
    task = Task(header.op, problem_of(header.op, header.problem), 1)
    times = {
        configuration_key(dict(zip(header.parameters, row.values, strict=True))): float(np.median(row.samples_ns))
        for row in RECORDED.rows
    }
    for key in sorted(times, key=lambda key: times[key])[:slower]:
        times[key] *= SLOWER
    chance = np.random.default_rng(seed)
    told = {key: cost * math.exp(noise * chance.standard_normal()) for key, cost in times.items()}
    search = TaskSearch(task, header.device, device_limits(header.device), NORMAL, {})
    search.seed = seed
    while batch := search.next_batch():
        search.tell([TrialRecord(one, OK, (told[configuration_key(one)],)) for one in batch])
    assert len(search.known) <= FEW
    finalists = sorted(search.known, key=lambda key: told[key])[: NORMAL.finalists + 1 if noise else 1]
    return min(times[key] for key in finalists) <= NEAR * min(times.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("starters", "noise", "slower", "least"),
    [
        pytest.param(True, 0.0, 0, 19, id="as it is"),
        pytest.param(False, 0.0, 0, 18, id="no starters"),
        pytest.param(True, 0.0, 1, 18, id="the best made slower"),
        pytest.param(True, 0.05, 0, 16, id="5 % noise"),
    ],
)
def test_most_paths_end_near_the_best(
    starters: bool, noise: float, slower: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    family: Any = family_of("Conv")
    if not starters:
        monkeypatch.setattr(type(family), "starters", lambda *_: [])
    assert sum(ends_near_the_best(seed, noise, slower) for seed in SEEDS) >= least
