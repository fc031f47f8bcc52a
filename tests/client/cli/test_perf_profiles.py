"""Test --perf_profile and --perf_config_yaml, and their effects."""

import json
from pathlib import Path
from typing import Any

from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.yaml_form import write_yaml


def test_a_run_says_which_profile_it_had(net_run: Any, tmp_path: Path) -> None:
    ran = net_run("--perf_profile", "power_saver", "--keep_warm")
    assert ran.code == 0, ran.err
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["power"]["perf_profile"] == "power_saver"
    profile = PerfProfile.from_preset("power_saver")
    profile.set_dsp_hysteresis_time_us(1000)
    (tmp_path / "own.yaml").write_text(write_yaml(profile))
    assert net_run("--perf_config_yaml", tmp_path / "own.yaml").code == 0
    assert json.loads((tmp_path / "summary.json").read_text())["power"]["perf_profile"] == "custom"
