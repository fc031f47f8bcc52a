"""Test where a search begins: legal winners from elsewhere and from near problems."""

import logging
import os
from dataclasses import replace
from typing import Any

import pytest

from gputune.cache import PerformanceCache, TaskKey, TrialRecord, Validity, WinnerRecord
from gputune.client.model.plan import Task
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.seeding import FARTHEST, FILES_AT_MOST, FROM_NEAR, Seeding, distance
from gputune.client.tuning.search.task_search import TaskSearch, device_limits
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.space import configuration_key
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client.answering_target import TASK, AnsweringTarget, by_width, tune, tuner


def search(m: int = 64, k: int = 512, n: int = 512) -> TaskSearch:
    assert NULL_REPORT.identity is not None
    task = Task("MatMul", MatMulProblem(m, k, n), 1)
    return TaskSearch(task, NULL_REPORT.identity, device_limits(NULL_REPORT.identity), EFFORTS["quick"], {})


HERE = search()
LEGAL = list(HERE.space.configurations())[:20]


def seeds(cache: PerformanceCache, running: Any = None) -> list[dict[str, int]]:
    return list(Seeding(cache).seeds_for(HERE.key, HERE.validity, HERE.space, running or {}).configurations)


def test_nothing_is_known_at_first(cache: PerformanceCache) -> None:
    assert seeds(cache) == []


def test_what_won_on_another_device_or_driver_comes_first_and_only_where_it_is_legal(cache: PerformanceCache) -> None:
    other = replace(HERE.validity, driver_version="2")
    illegal = {**LEGAL[0], "VW": 7}
    times = [(illegal, 1.0), (LEGAL[3], 2.0), (LEGAL[4], 9.0)]
    cache.store_trials(HERE.key, other, [TrialRecord(c, "ok", (ns,)) for c, ns in times])
    cache.store_trials(HERE.key, HERE.validity, [TrialRecord(LEGAL[5], "ok", (0.5,))])
    with PerformanceCache.open(cache.path.with_name("there.sqlite")) as there:
        validity = replace(HERE.validity, device_name="another")
        there.store_trials(HERE.key, validity, [TrialRecord(LEGAL[7], "ok", (3.0,))])
    found = seeds(cache)
    assert LEGAL[7] in found and LEGAL[5] not in found, "this device's own records are no seeds, but resumed"
    assert illegal not in found
    assert found == [c for c in found if c in (LEGAL[3], LEGAL[7])]


def test_of_many_files_the_newest_are_read(cache: PerformanceCache) -> None:
    for age in range(FILES_AT_MOST + 2):
        winner = LEGAL[3] if age < FILES_AT_MOST else LEGAL[7]
        with PerformanceCache.open(cache.path.with_name(f"{'az'[age % 2]}{age}.sqlite")) as there:
            validity = replace(HERE.validity, device_name=f"card {age}")
            there.store_trials(HERE.key, validity, [TrialRecord(winner, "ok", (3.0,))])
        os.utime(there.path, (1e9 - age, 1e9 - age))
    found = Seeding(cache).seeds_for(HERE.key, HERE.validity, HERE.space, {})
    assert list(found.configurations) == [LEGAL[3]]
    assert f"won on {FILES_AT_MOST} other device or driver records" in found.origin


def test_the_winner_of_this_device_under_other_conditions_is_told_apart(cache: PerformanceCache) -> None:
    def earlier() -> list[dict[str, int]]:
        return list(Seeding(cache).seeds_for(HERE.key, HERE.validity, HERE.space, {}).earlier)

    another, source = replace(HERE.validity, device_name="another"), replace(HERE.validity, source_sha256="0" * 64)
    both = replace(source, driver_version="2")
    for place, validity in enumerate((HERE.validity, another)):
        conclude(cache, validity, LEGAL[place])
    assert earlier() == [], "another device is not this one, and what is valid is resumed"
    conclude(cache, both, LEGAL[2])
    assert earlier() == [LEGAL[2]]
    conclude(cache, source, LEGAL[3])
    assert earlier() == [LEGAL[3]], "the nearest conditions count"
    conclude(cache, source, {**LEGAL[3], "VW": 7})
    assert earlier() == [], "only where it is legal"


def conclude(cache: PerformanceCache, validity: Validity, configuration: dict[str, int]) -> None:
    cache.store_trials(HERE.key, validity, [TrialRecord(configuration, "ok", (5.0,))])
    cache.conclude(HERE.key, validity, WinnerRecord(configuration, 5.0, 6.0, "quick", rendered_sha256=""))


def test_winners_of_other_vendors_are_strangers(cache: PerformanceCache) -> None:
    names = {"Radeon RX 6600": LEGAL[3], "Radeon RX 6800": LEGAL[4], "GeForce RTX 3060": LEGAL[5]}
    for name, winner in names.items():
        there = replace(HERE.validity, device_name=name, vendor="")
        cache.store_trials(HERE.key, there, [TrialRecord(winner, "ok", (5.0,))])
    here = replace(HERE.validity, device_name="GeForce RTX 3090", vendor="NVIDIA Corporation")
    found = Seeding(cache).seeds_for(HERE.key, here, HERE.space, {})
    assert list(found.configurations) == [LEGAL[5]]
    assert found.strangers in ((LEGAL[3], LEGAL[4]), (LEGAL[4], LEGAL[3]))
    assert found.origin.startswith(
        "1 that won on 1 other device or driver records and 2 that won on 2 records of other"
    )


def test_near_problems_give_their_winners_the_nearest_first(cache: PerformanceCache) -> None:
    for place, n in enumerate((4096, 1024, 515, 2048, 600, 520)):
        near = search(n=n)
        winner = WinnerRecord(LEGAL[place], 5.0, 6.0, "quick", rendered_sha256="")
        cache.store_trials(near.key, near.validity, [TrialRecord(LEGAL[place], "ok", (5.0,))])
        cache.conclude(near.key, near.validity, winner)
    assert seeds(cache) == [LEGAL[2], LEGAL[5], LEGAL[4]]
    assert len(seeds(cache)) == FROM_NEAR
    running = {search(n=511).key: LEGAL[9]}
    assert seeds(cache, running)[0] == LEGAL[9], "a task of the same generation counts while it is not concluded"


def test_a_far_problem_or_another_op_is_no_neighbour(cache: PerformanceCache) -> None:
    far = search(m=64 * 2 ** (int(FARTHEST) + 1))
    assert seeds(cache, {far.key: LEGAL[1]}) == []
    assert distance(HERE.key, TaskKey("Conv", HERE.key.problem)) == float("inf")
    assert distance(HERE.key, HERE.key) == 0
    assert distance(HERE.key, search(m=127).key) == pytest.approx(0.978, abs=0.001)


def test_equal_winners_are_one_seed(cache: PerformanceCache) -> None:
    running = {search(n=500 + place).key: LEGAL[place // 3] for place in range(9)}
    found = seeds(cache, running)
    assert len({configuration_key(one) for one in found}) == len(found) == 3


def test_a_damaged_neighbour_is_passed_over(cache: PerformanceCache, caplog: pytest.LogCaptureFixture) -> None:
    cache.path.with_name("broken.sqlite").write_bytes(b"not a database at all")
    with caplog.at_level(logging.DEBUG, "gputune"):
        assert seeds(cache) == []
    assert "no seeds from broken.sqlite" in caplog.messages[0]


def test_what_won_before_the_source_changed_is_measured_next_to_the_default(cache: PerformanceCache) -> None:
    """The starters alone may take all that an effort has."""
    search = tuner(AnsweringTarget(by_width), cache)._search(TASK)
    first = [search.default, *search.family.starters(TASK.problem, tuner(AnsweringTarget(by_width), cache)._limits)]
    before = next(c for c in reversed(list(search.space.configurations())) if c not in first)
    older = replace(search.validity, source_sha256="0" * 64)
    cache.store_trials(search.key, older, [TrialRecord(before, "ok", (5.0,))])
    cache.conclude(search.key, older, WinnerRecord(before, 5.0, 6.0, "quick", rendered_sha256=""))
    target = AnsweringTarget(by_width)
    tune(target, cache)
    assert target.measured[:2] == [configuration_key(search.default), configuration_key(before)]
