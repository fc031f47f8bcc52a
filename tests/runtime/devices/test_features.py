"""Test which features a device proves: by children that compute, compute something else, say nothing, or die."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from gputune.runtime.devices import features
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.runtime.devices.features import FEATURES_MARK, Probe, features_of, working

PROBE = Probe("", (0,), (1,), device_type="cpu")


def of_type(device_type: str) -> DeviceReport:
    assert NULL_REPORT.identity is not None
    return replace(NULL_REPORT, identity=replace(NULL_REPORT.identity, device_type=device_type))


def answer(name: str, reason: str = "") -> str:
    return FEATURES_MARK + json.dumps([name, reason]) + "\n"


def test_a_child_that_dies_costs_one_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    answers = [
        (answer("a") + answer("b", "it computes [2]"), "ended by SIGILL"),
        ("noise\n" + answer("d"), ""),
    ]

    def run(arguments: Sequence[str], environment: Mapping[str, str], time_limit_s: float) -> tuple[str, str]:
        asked.append(list(arguments[2:]))
        return answers[len(asked) - 1]

    monkeypatch.setattr(features, "run_probe", run)
    monkeypatch.setattr(features, "PROBES", dict.fromkeys("abcd", PROBE) | {"e": replace(PROBE, device_type="gpu")})
    assert features_of(of_type("cpu")) == {
        "a": "",
        "b": "it computes [2]",
        "c": "ended by SIGILL",
        "d": "",
        "e": "the device is no GPU",
    }
    assert asked == [["a", "b", "c", "d"], ["d"]]


def test_no_child_is_started_for_devices_that_cannot_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "run_probe", None)
    monkeypatch.setattr(features, "PROBES", {"a": PROBE})
    assert working(of_type("gpu")) == []


def test_silence_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "run_probe", lambda *arguments: ("", ""))
    monkeypatch.setattr(features, "PROBES", {"a": PROBE})
    assert features_of(of_type("cpu")) == {"a": "it was not answered"}
