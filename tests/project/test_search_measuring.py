"""Test the replay of raw samples through the server's successive halving: its draws, its counts, and its judge."""

import numpy as np
import pytest

from benchmarks.search import measuring
from benchmarks.search.measuring import Drawing, Samples, at_once, in_batches, judged


def samples(configurations: int, noise: float = 0.01) -> Samples:
    """Medians 5 % apart in random order, the best in row 3, the baseline in row 0 far from it."""
    chance = np.random.default_rng(0)
    medians = 100 * 1.05 ** np.array([40, *(1 + chance.permutation(configurations - 1))])
    medians[3] = 100.0
    drawn: Samples = medians[:, None] * chance.normal(1, noise, (configurations, 32))
    return drawn


def test_a_race_of_all_finds_the_best_within_two_runs_each() -> None:
    pick, runs = at_once(samples(256)[:, 8:])
    assert pick == 3 and 1.5 < runs < 2.0


@pytest.mark.parametrize("size", [8, 16])
def test_batches_find_the_best_and_count_the_baselines_runs(size: int) -> None:
    given = samples(256)[:, 8:]
    pick, runs = in_batches(given, size, np.random.default_rng(1))
    assert pick == 3
    baseline = Drawing(given)
    baseline.measure([0], 3)
    assert runs > 1 + 256 / size / 256 * baseline.runs / 3


def test_a_baseline_beside_a_race_is_drawn_in_every_pass() -> None:
    drawing = Drawing(samples(16))
    assert set(drawing.measure([5, 6], 3, baseline=5)) == {5, 6} and drawing.runs == 6
    drawing = Drawing(samples(16))
    assert set(drawing.measure([5, 6], 3, baseline=0)) == {5, 6} and drawing.runs == 9


def test_the_samples_that_judge_have_not_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    given = samples(64)
    recorded = given.copy()
    seen: list[tuple[Samples, Samples]] = []

    def noted(all_of_them: Samples, picks: Samples, judges: Samples, *others: int) -> object:
        seen.append((picks, judges))
        return judged(all_of_them, picks, judges, *others)

    monkeypatch.setattr(measuring, "judged", noted)
    monkeypatch.setattr(measuring, "samples_of", lambda recording: recorded)
    found = [
        *measuring.in_order(None),  # type: ignore[arg-type]
        *measuring.shuffled(None, 2, rounds=True),  # type: ignore[arg-type]
        *measuring.shuffled(None, 2, rounds=False, batch=8),  # type: ignore[arg-type]
    ]
    assert len(found) == len(seen) == 8
    for picks, judges in seen:
        assert (picks.shape[1], judges.shape[1]) == (24, 8)
        for row in range(64):
            assert sorted([*picks[row], *judges[row]]) == sorted(given[row])
    assert all(abs(one.regret) < 1e-9 and one.regret_of_least == 0 for one in found)
