"""Test with made-up times that trials end early only if noise exceeds a task's possible gain."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache
from gputune.client.tuning.expected_gain import Standing, gain_share
from gputune.client.tuning.measuring.doubt import TELLING, doubt_of, is_blind
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import BATCH
from gputune.client.tuning.task_scheduler import Blind, blind_line
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.kernels.family import Work
from gputune.runtime.devices import recording
from gputune.server.protocol.messages import Progress
from tests.client.answering_target import AnsweringTarget, by_width, stored, tune
from tests.client.fake_target import ok

NORMAL = EFFORTS["normal"]
RECORDINGS = Path(__file__).parents[2] / "recordings"
SAMPLES = 24


def scattered(level: float, spread: float, seed: int, count: int = SAMPLES) -> tuple[float, ...]:
    """Samples around a level, of which the logarithms spread so much."""
    chance = random.Random(seed)
    return tuple(level * 2.718281828 ** chance.gauss(0, spread) for _ in range(count))


class Noisy(AnsweringTarget):
    """A device whose times scatter by a share of them, which may change from batch to batch."""

    def __init__(self, *spreads: float, answer: Callable[[Mapping[str, int]], Trial] = by_width) -> None:
        super().__init__(answer)
        self.spreads = spreads

    def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
        number = len(self.requests)
        spread = self.spreads[min(number, len(self.spreads) - 1)]
        measured = super().measure_kernel(request, on_progress)

        def noisy(place: int, trial: Trial) -> Trial:
            if trial.status != "ok":
                return trial
            samples = scattered(statistics.median(trial.samples_ns), spread, 1000 * number + place)
            return replace(trial, samples_ns=samples, wall_ns=samples)

        trials = tuple(noisy(place, trial) for place, trial in enumerate(measured.trials))
        return replace(measured, trials=trials, baseline=measured.baseline and noisy(999, measured.baseline))


def test_the_doubt_of_a_batch_is_the_scatter_of_its_pairs() -> None:
    baseline = scattered(100.0, 0.0, 0)
    variants = [scattered(80.0, 0.4, seed) for seed in range(15)]
    found = doubt_of(variants, baseline, SAMPLES)
    assert found == pytest.approx(1.2533 * 0.4 / SAMPLES**0.5, rel=0.25)
    fewer = doubt_of(variants, baseline, SAMPLES // 4)
    assert fewer == pytest.approx(2 * (found or 0)), "with a quarter of the samples twice as much"


def test_what_slows_down_all_alike_is_no_doubt() -> None:
    moments = scattered(1.0, 0.8, 5)
    variant, baseline = [3 * moment for moment in moments], [2 * moment for moment in moments]
    assert doubt_of([variant], baseline, SAMPLES) == pytest.approx(0)


@pytest.mark.parametrize(
    "variants",
    [[], [[1.0, 2.0, 3.0]], [[1.0] * 6], [[float(n) for n in range(1, 25)]]],
    ids=["none", "3", "6", "itself"],
)
def test_too_few_samples_and_the_baseline_itself_say_nothing(variants: Sequence[Sequence[float]]) -> None:
    assert doubt_of(variants, [float(n) for n in range(1, 25)], SAMPLES) is None
    assert doubt_of(variants, [], SAMPLES) is None


@pytest.mark.parametrize(
    ("doubt", "gain", "blind"),
    [(None, 0.0, False), (0.18, 0.09, True), (0.18, 0.2, False), (TELLING, 0.0, False), (0.051, 0.0, True)],
)
def test_only_doubt_beyond_what_can_be_gained_ends_a_task(doubt: float | None, gain: float, blind: bool) -> None:
    assert is_blind(doubt, gain) is blind


def test_what_a_batch_may_gain_is_a_share_of_the_tasks_time() -> None:
    standings = {0: Standing(Work(1000, 10), 100.0, 0), 1: Standing(Work(1000, 10), 200.0, 1)}
    assert gain_share(1, standings, 0.08) == pytest.approx(0.25), "half of its distance, after a batch without one"
    assert gain_share(0, standings, 0.08) == pytest.approx(0.08)
    gained = replace(standings[0], gained=0.5)
    assert gain_share(0, {0: gained}, 0.08) == 0.5, "what has gained much may gain as much again"
    assert gain_share(0, {0: replace(gained, fruitless=3)}, 0.08) == pytest.approx(0.0625), "less and less"
    assert gain_share(2, {**standings, 2: Standing(Work(1, 1), None, 0)}, 0.08) == 1


def alike(configuration: Mapping[str, int]) -> Trial:
    """Nothing is to be gained."""
    return ok(1000.0)


def test_trials_end_when_noise_is_more_than_can_be_gained(
    cache: PerformanceCache, caplog: pytest.LogCaptureFixture
) -> None:
    """What seems to have been gained by chance is worth another batch or two."""
    tune(Noisy(0.6, answer=alike), cache, effort=NORMAL)
    assert len(stored(cache)) <= 3 * BATCH
    assert (
        "1 of 1 tasks ended early: the machine was too busy to tell variants apart: times are uncertain" in caplog.text
    )
    assert "could be gained; the same command continues from here" in caplog.text


def test_what_can_be_gained_in_spite_of_noise_is_looked_for_longer(cache: PerformanceCache) -> None:
    """Half of all variants take several times as long as others."""
    tune(Noisy(0.6), cache, effort=NORMAL)
    assert len(stored(cache)) > 5 * BATCH


def test_who_asks_for_everything_gets_it(cache: PerformanceCache, caplog: pytest.LogCaptureFixture) -> None:
    target = Noisy(0.6, answer=alike)
    scarce = replace(EFFORTS["full"], trials=5 * BATCH, light_trials=5 * BATCH)
    tune(target, cache, effort=scarce)
    assert len(stored(cache)) >= 5 * BATCH
    assert "ended early" not in caplog.text


def test_the_next_generation_goes_on_with_it(cache: PerformanceCache, caplog: pytest.LogCaptureFixture) -> None:
    tune(Noisy(0.6, answer=alike), cache, effort=NORMAL)
    caplog.clear()
    quiet = Noisy(0.01, answer=alike)
    tune(quiet, cache, effort=NORMAL)
    assert len(stored(cache)) > 3 * BATCH
    assert "ended early" not in caplog.text
    idle = Noisy(0.01, answer=alike)
    tune(idle, cache, effort=NORMAL)
    assert idle.requests == [], "it has come to its end"


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
def test_a_quiet_machine_ends_no_task(cache: PerformanceCache, caplog: pytest.LogCaptureFixture, spread: float) -> None:
    """As many variants are measured as on a machine without noise; 3 % is what two shared cores scatter by."""
    tune(Noisy(spread), cache, effort=NORMAL)
    assert len(stored(cache)) > 3 * BATCH
    assert "ended early" not in caplog.text


def test_a_task_whose_trials_are_used_up_has_not_ended_early(
    cache: PerformanceCache, caplog: pytest.LogCaptureFixture
) -> None:
    tune(Noisy(0.6), cache, effort=EFFORTS["quick"])
    assert "ended early" not in caplog.text


@pytest.mark.parametrize("name", ["conv3x3_14x14x6to8_pocl", "matmul_49x288x16_pocl"])
def test_recorded_spaces_end_no_task(name: str) -> None:
    """Samples of these were not taken beside the baseline's, and scatter by more than pairs would."""
    rows = [row for row in recording.read(RECORDINGS / f"{name}.jsonl.gz").rows if len(row.samples_ns) >= 7]
    batches = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    doubts = [doubt_of([row.samples_ns for row in batch], (1.0,) * 99, NORMAL.samples) for batch in batches]
    assert len(doubts) > 5
    assert not any(is_blind(doubt, 0.0) for doubt in doubts)


def test_the_line_counts_tasks_and_tells_the_worst() -> None:
    found = [None] * 22 + [Blind(0.18, 0.09), Blind(0.07, 0.02), Blind(0.1, 0.05)]
    assert blind_line(found) == (
        "3 of 25 tasks ended early: the machine was too busy to tell variants apart: times are uncertain by up to "
        "±18%, and 9% could be gained; the same command continues from here"
    )
    assert blind_line([None]) == blind_line([]) == ""
