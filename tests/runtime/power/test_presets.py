"""Test that the preset perf profiles equal their table, which is repeated here."""

import pytest

from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import PHASES
from gputune.runtime.power.records import Corner, Corners, PowerMode, Vote

ROWS = {
    # name: corner, governor, latency and all power of the start vote; done corners; hysteresis and polling
    "burst": (Corner.MAX, False, 40, True, "SVS2 SVS SVS", 300_000, 9999),
    "sustained_high_performance": (Corner.TURBO, False, 100, True, "SVS2 SVS SVS", 300_000, 9999),
    "high_performance": (Corner.TURBO, False, 100, True, "SVS2 SVS SVS", 0, 9999),
    "balanced": (Corner.NOM_PLUS, True, 1000, False, "SVS2 SVS SVS", 0, 0),
    "low_balanced": (Corner.NOM, True, 1000, False, "SVS2 SVS SVS", 0, 0),
    "high_power_saver": (Corner.SVS_PLUS, True, 1000, False, "SVS2 SVS SVS", 0, 0),
    "power_saver": (Corner.SVS, True, 1000, False, "SVS2 SVS SVS", 0, 0),
    "low_power_saver": (Corner.SVS2, True, 1000, False, "SVS2 SVS2 SVS2", 0, 0),
    "extreme_power_saver": (Corner.DISABLE, True, 1000, False, "DISABLE DISABLE DISABLE", 0, 0),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_preset_equals_its_row(name: str) -> None:
    corner, dcvs, latency_us, high_performance, done_names, hysteresis_us, rpc_polling_us = ROWS[name]
    profile = PerfProfile.from_preset(name)
    profile.check()
    assert profile.name == name and not profile.silent
    assert (profile.hysteresis_us, profile.rpc_polling_us) == (hysteresis_us, rpc_polling_us)
    assert (profile.async_voting, profile.sleep_disable_ms) == (False, 0)
    extreme = name == "extreme_power_saver"
    mode = PowerMode.POWER_SAVER if extreme else PowerMode.ADJUST_UP_DOWN
    held, done = Corners(corner, corner, corner), Corners(*(Corner[each] for each in done_names.split()))
    lowest = Corners() if extreme else Corners(Corner.MIN, Corner.MIN, Corner.MIN)
    for phase in PHASES:
        after = lowest if phase == "deinit" else done
        assert profile.vote(phase, "start") == Vote(held, held, dcvs, latency_us, mode, high_performance)
        assert profile.vote(phase, "done") == Vote(after, after, True, 2000, mode)


def test_system_settings_asks_for_nothing() -> None:
    profile = PerfProfile.from_preset("system_settings")
    assert profile == PerfProfile() and profile.silent
    assert (profile.name, profile.hysteresis_us, profile.rpc_polling_us) == ("system_settings", 0, 0)
    assert set(PRESETS) == {*ROWS, "system_settings"}


def test_a_preset_is_changed_in_a_copy() -> None:
    profile = PerfProfile.from_preset("burst")
    profile.set_enable_async_voting(True)
    assert profile.name == "custom"
    assert PerfProfile.from_preset("burst").name == "burst"


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="there is no perf profile 'bursty'; the nearest is burst"):
        PerfProfile.from_preset("bursty")
