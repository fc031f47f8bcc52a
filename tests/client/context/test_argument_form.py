"""Test in which form launches are given what lies in arenas: measured once, and remembered with the device."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.context.argument_form import LAUNCHES, DeviceChoices, FormChoice
from gputune.client.errors import TargetError
from gputune.core.launches import ARGUMENT_FORMS, ArgumentForm
from gputune.runtime.devices.discovery import NULL_REPORT

assert NULL_REPORT.identity is not None
GPU = replace(NULL_REPORT.identity, device_type="gpu")
SECRET = b"s" * 32


class Runner:
    """Stands for contexts on a target, which take these times, in us for a launch; others cannot be loaded."""

    def __init__(self, us: Mapping[str, float]) -> None:
        self._us = us
        self.loaded: list[str] = []

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, plan: Any, outcomes: Any, *, form: ArgumentForm) -> str:
        assert len(plan.operations) == LAUNCHES and len(outcomes) == 1
        if form not in self._us:
            raise TargetError("bad_context", "the device has no such memory")
        self.loaded.append(form)
        return form

    def inference_ns(self, contexts: Sequence[str]) -> list[list[float]]:
        return [[1e3 * LAUNCHES * self._us[form] * part for part in (1, 0.9, 7)] for form in contexts]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[PerformanceCache]:
    with PerformanceCache.open(tmp_path / "a.gtperf", secret=SECRET) as cache:
        yield cache


def chosen(cache: PerformanceCache, us: Mapping[str, float], settings: Mapping[str, str] = {}, **how: Any) -> Any:
    runner: Any = Runner(us)
    return FormChoice(DeviceChoices(cache, how.get("device", GPU), settings, how.get("frozen", False))).chosen(
        runner
    ), runner.loaded


def test_the_fastest_is_chosen_and_remembered(cache: PerformanceCache, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    us = {"sub_buffers": 24.0, "buffers": 5.0, "svm": 4.0, "offsets": 4.5}
    assert chosen(cache, us) == ("svm", [*ARGUMENT_FORMS])
    assert "a launch takes with sub-buffers 24.0 us, whole buffers 5.0 us" in caplog.text
    assert chosen(cache, {}) == ("svm", []), "measured once"
    assert FormChoice(DeviceChoices(cache, GPU, {}, True)).remembered() == "svm"
    assert FormChoice(DeviceChoices(cache, GPU, {}, True)).launch_ns == 4e3, "estimates know it then"
    assert FormChoice(DeviceChoices(cache, GPU, {"IGC_x": "1"}, True)).launch_ns == 0
    other = replace(GPU, driver_version="another")
    assert chosen(cache, {"offsets": 1.0}, device=other) == ("offsets", ["offsets"]), "another driver is measured again"
    assert chosen(cache, {"buffers": 1.0}, {"IGC_x": "1"}) == ("buffers", ["buffers"]), "and so are other settings"


def test_of_equal_forms_the_simplest_is_chosen(cache: PerformanceCache) -> None:
    assert chosen(cache, {"sub_buffers": 4.1, "buffers": 4.05, "svm": 4.0, "offsets": 4.0})[0] == "sub_buffers"


def test_without_a_measurement_the_usual_form_stays(cache: PerformanceCache, caplog: pytest.LogCaptureFixture) -> None:
    assert chosen(cache, {"sub_buffers": 1.0}, frozen=True) == ("buffers", [])
    assert chosen(cache, {"offsets": 1.0}, device=NULL_REPORT.identity) == ("sub_buffers", []), "on a CPU"
    runner: Any = Runner({"svm": 1.0})
    runner.inference_ns = lambda _: (_ for _ in ()).throw(TargetError("timeout", "no answer"))
    assert FormChoice(DeviceChoices(cache, GPU, {}, False)).chosen(runner) == "buffers"
    assert "launches are given whole buffers, because other forms were not measured: no answer" in caplog.text
    assert chosen(cache, {"svm": 1.0})[0] == "svm", "the next generation measures"
