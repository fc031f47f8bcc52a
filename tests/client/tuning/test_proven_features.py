"""Test which tasks depend on what a device has proven of its features: those whose spaces ask, and no others."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.cache.key import Validity
from gputune.client.errors import ConfigError
from gputune.client.generation.kernels import lines_of, shown_kernels
from gputune.client.model.plan import Task
from gputune.client.options.tuning import TuningOptions
from gputune.client.tuning.proven_features import proven_features
from gputune.client.tuning.search.cache_hit import untuned_verdict
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import TaskSearch, asked_by, default_of, device_limits, space_of
from gputune.client.tuning.tuner import Tuner
from gputune.kernels import catalogue
from gputune.kernels.catalogue import Packaged, families
from gputune.kernels.family import DeviceLimits
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.asking_package.tenfold import FAMILY, FEATURE, TenfoldProblem
from tests.client.answering_target import QUICK, AnsweringTarget
from tests.client.fake_target import ok
from tests.kernels.one_of_each import ONE_OF_EACH

ASKING = Task("Tenfold", TenfoldProblem(64), 1)
OTHER = Task("MatMul", ONE_OF_EACH["MatMul"], 1)
IDENTITY = NULL_REPORT.identity
assert IDENTITY is not None
BARE = device_limits(IDENTITY)
HAS = device_limits(IDENTITY, features=frozenset([FEATURE]))


@pytest.fixture(autouse=True)
def _package() -> Iterator[None]:
    with catalogue.using({"Tenfold": Packaged(FAMILY, "asking_package 1.0")}):
        yield


def validity(task: Task, limits: DeviceLimits, **settings: str) -> Validity:
    assert IDENTITY is not None
    return TaskSearch(task, IDENTITY, limits, EFFORTS["quick"], settings).validity


class Target:
    """Prove some features, and note what it is asked for."""

    def __init__(self, *proven: str) -> None:
        self._proven = proven
        self.asked: list[frozenset[str]] = []

    def proven(self, features: Collection[str]) -> frozenset[str]:
        self.asked.append(frozenset(features))
        return self.asked[-1].intersection(self._proven)


@pytest.mark.parametrize("op", sorted(ONE_OF_EACH))
def test_no_kernel_of_the_catalogue_asks_for_a_feature_that_its_records_do_not_have(op: str) -> None:
    """Today's records stay valid: what a device has proven changes neither key nor validity of a task that does not
    ask."""
    task = Task(op, ONE_OF_EACH[op], 1)
    if not (asked := asked_by([task], BARE)):
        assert validity(task, HAS, POCL_AFFINITY="1") == validity(task, BARE, POCL_AFFINITY="1")
        assert validity(task, BARE, POCL_AFFINITY="1").settings == {"POCL_AFFINITY": "1"}
        assert space_of(task, HAS) is space_of(task, BARE)
    assert asked == frozenset(), f"{op}: leave it out here once it asks"


def test_a_task_that_asks_has_what_was_proven_in_its_validity() -> None:
    before, now = validity(ASKING, BARE, A="1"), validity(ASKING, HAS, A="1")
    assert before.settings == {"A": "1", "gputune.feature.subgroups": "not proven"}
    assert now.settings == {"A": "1", "gputune.feature.subgroups": "proven"}
    more = replace(HAS, features=HAS.features | {"half"})
    assert validity(ASKING, more, A="1") == now, "it does not ask for half"


def test_a_configuration_that_needs_a_feature_is_legal_once_it_is_proven() -> None:
    assert [*space_of(ASKING, BARE).configurations()] == [{"FAST": 0}]
    assert [*space_of(ASKING, HAS).configurations()] == [{"FAST": 0}, {"FAST": 1}]
    assert space_of(ASKING, BARE).violations({"FAST": 1}) == [
        "with FAST a subgroup: the kernel needs subgroups, which the device has not proven"
    ]
    assert space_of(ASKING, BARE).sha256 == space_of(ASKING, HAS).sha256
    assert default_of(ASKING, HAS) == default_of(ASKING, BARE) == {"FAST": 0}


def test_targets_are_asked_for_what_tasks_ask_for() -> None:
    both, one = Target(FEATURE, "half"), Target("half")
    targets: Any = [both, both]
    assert proven_features(targets, [OTHER], BARE) == frozenset()
    assert both.asked == []
    assert proven_features(targets, [OTHER, ASKING], BARE) == {FEATURE}
    assert both.asked == [{FEATURE}] * 2
    targets = [both, one]
    assert proven_features(targets, [ASKING], BARE) == frozenset(), "each target may have to run its kernels"


def test_another_answer_has_only_the_tasks_measured_again_that_ask(cache: PerformanceCache) -> None:
    target: Any = AnsweringTarget(lambda configuration: ok(50 if configuration.get("FAST") else 100))

    def tuned(*features: str) -> dict[str, Any]:
        target.requests.clear()
        tuner = Tuner([target], cache, QUICK, limits=replace(BARE, features=frozenset(features)))
        verdicts = tuner.verdicts([ASKING, OTHER])
        found = {one.op: one.configuration for one in tuner.tune([ASKING, OTHER])}
        return {
            "asking": (verdicts[ASKING].kind, found["Tenfold"]),
            "other": verdicts[OTHER].kind,
            "told": str(verdicts[ASKING]),
            "rendered": {variant.configuration["FAST"] for one in target.requests for variant in one.variants
                         if "FAST" in variant.configuration},
        }  # fmt: skip

    first = tuned()
    assert first["asking"] == ("new", {"FAST": 0}) and first["other"] == "new"
    assert first["rendered"] == {0}, "a device that lacks it never sees the variant"
    proven = tuned(FEATURE)
    assert proven["asking"] == ("stale", {"FAST": 1}) and proven["other"] == "hit"
    assert proven["rendered"] == {0, 1}
    assert "gputune.feature.subgroups" in proven["told"]
    again = tuned()
    assert again["asking"] == ("hit", {"FAST": 0}) and again["other"] == "hit"
    assert "Tenfold" in families()


def test_a_kernel_is_shown_with_what_it_needs() -> None:
    assert IDENTITY is not None

    def lines(limits: DeviceLimits) -> list[str]:
        verdicts = {ASKING: untuned_verdict()}
        return [*lines_of(shown_kernels(verdicts, {}, IDENTITY, limits, TuningOptions(), {"FAST": 1}, lambda task: []))]

    assert "//   needs of the device: subgroups" in lines(HAS)
    with pytest.raises(ConfigError, match="the kernel needs subgroups, which the device has not proven"):
        lines(BARE)
