"""Test gputune devices --memory without a driver."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gputune.core.errors import DeviceNotFound
from gputune.runtime.devices.discovery import NULL_REPORT, importers_of
from gputune.runtime.devices.features import PROBES
from tests.client.commands import Gputune


@pytest.fixture
def _no_drivers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("_no_drivers")
def test_memory_and_features_of_the_null_device(gputune: Gputune) -> None:
    """It proves no feature, because it computes nothing."""
    asked = ("devices", "--memory", "--features", "--device", "null")
    told = json.loads(gputune(*asked, "--json").out)
    importers = [{"name": "host pointer", "reason": ""}, {"name": "copy", "reason": ""}]
    assert told["memory"] == [{"index": -1, "device": "null", "reason": "", "importers": importers}]
    (entry,) = told["features"]
    assert entry["device"] == "null"
    found = {one["name"]: one["reason"] for one in entry["features"]}
    assert found == dict.fromkeys(PROBES, "the device computes nothing")
    shown = gputune(*asked).out.splitlines()
    lines = [
        "memory without a copy on null, the first that takes it:",
        "  host pointer: works",
        "  copy: works",
        "features of null:",
        "  half: the device computes nothing",
    ]
    assert shown[shown.index(lines[0]) :][: len(lines)] == lines


@pytest.mark.slow
@pytest.mark.usefixtures("_no_drivers")
@pytest.mark.parametrize("name", ["null", "waiting"])
def test_a_null_device_can_be_chosen_where_there_is_no_other(name: str, gputune: Gputune) -> None:
    ran = gputune("devices", "--device", name)
    assert ran.code == 0 and ran.out.splitlines()[-1].endswith("null device as asked: outputs are not computed")
    assert "memory without" not in ran.out and "features" not in ran.out, "which are told where they are asked for"


def test_a_device_that_cannot_be_opened_is_told_with_its_reason() -> None:
    with pytest.raises(DeviceNotFound, match="is not usable: broken"):
        importers_of(replace(NULL_REPORT, usable=False, reason="broken"))
