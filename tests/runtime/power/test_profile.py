"""Test perf profiles: the original's API and its code snippets, ranges and order of corners, and the plain form."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from gputune.runtime.power.profiles.accessors import OF_ALL, OF_BOTH, OF_PHASE
from gputune.runtime.power.profiles.corner_names import corner_name, corner_of, power_mode_name, power_mode_of
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.settings import KINDS, PHASES
from gputune.runtime.power.records import NOTHING, Corner, Corners, PowerMode, Vote
from tests.runtime.power.profiles import profiles

SETTERS = ["set_dsp_hysteresis_time", *(f"set_{name}" for name in (*OF_ALL, *OF_PHASE, *OF_BOTH))]
KEYS = {
    "enable_async_voting": "ASYNC_VOTING_ENABLE",
    "dsp_hysteresis_time_us": "DSP_HYSTERESIS_TIME_US",
    "dsp_hysteresis_time": "DSP_HYSTERESIS_TIME_US",
    "sleep_disable": "DSP_SLEEP_DISABLE_MS",
    "dsp_rpc_polling_time": "DSP_RPC_POLLING_TIME_US",
    "enable_dcvs_start": "DSP_ENABLE_DCVS_START",
    "enable_dcvs_done": "DSP_ENABLE_DCVS_DONE",
    "sleep_latency_start": "DSP_SLEEP_LATENCY_START_US",
    "sleep_latency_done": "DSP_SLEEP_LATENCY_DONE_US",
    "high_performance_mode": "HIGH_PERFORMANCE_MODE",
    "power_mode_start": "POWERMODE_START",
    "power_mode_done": "POWERMODE_DONE",
}
"""What the setters set that are not of corners."""


class Instance:
    """What the snippets give profiles to: a builder or a network. It checks a profile as whatever applies it does."""

    def __init__(self) -> None:
        self.applied: list[PerfProfile] = []

    def set_custom_perf_profile(self, profile: PerfProfile) -> None:
        profile.check()
        self.applied.append(profile.copy())

    def set_performance_profile(self, preset: str) -> None:
        self.set_custom_perf_profile(PerfProfile.from_preset(preset))


def test_the_snippets_of_a_first_profile_run() -> None:
    builder, snpe = Instance(), Instance()
    perf_profile = PerfProfile()
    assert perf_profile.silent
    perf_profile = PerfProfile.from_preset("SNPE_PERFORMANCE_PROFILE_BURST")
    assert perf_profile == PerfProfile.from_preset("BURST")
    perf_profile.set_dcvs_voltage_corner_dcvs_v_corner_min_done("SNPE_DCVS_VOLTAGE_VCORNER_NOM_PLUS")
    perf_profile.set_dcvs_voltage_corner_dcvs_v_corner_min_done("DCVS_VOLTAGE_VCORNER_NOM_PLUS")
    builder.set_custom_perf_profile(perf_profile)
    snpe.set_custom_perf_profile(perf_profile)
    at_least = Corners(Corner.NOM_PLUS, Corner.NOM_PLUS, Corner.NOM_PLUS)
    for phase in PHASES:
        assert (snpe.applied[0].vote(phase, "done").bus, snpe.applied[0].vote(phase, "done").core) == (at_least,) * 2
    assert snpe.applied[0].get_dcvs_voltage_corner_dcvs_v_corner_min_done() is Corner.NOM_PLUS


def test_the_snippet_of_three_phases_runs() -> None:
    builder, snpe = Instance(), Instance()
    perf_handle = PerfProfile.from_preset("SNPE_PERFORMANCE_PROFILE_HIGH_PERFORMANCE")
    perf_handle.set_core_voltage_corner_max_mv_start("SNPE_DCVS_VOLTAGE_VCORNER_TURBO_PLUS")
    perf_handle.set_core_voltage_corner_max_mv_done("SNPE_DCVS_VOLTAGE_VCORNER_SVS")
    builder.set_custom_perf_profile(perf_handle)
    del perf_handle
    snpe.set_performance_profile("SNPE_PERFORMANCE_PROFILE_BURST")
    perf_handle_2 = PerfProfile()
    perf_handle_2.set_bus_voltage_corner_min_start("SNPE_DCVS_VOLTAGE_VCORNER_NOM")
    snpe.set_custom_perf_profile(perf_handle_2)
    snpe.set_performance_profile("SNPE_PERFORMANCE_PROFILE_LOW_BALANCED")
    assert builder.applied[0].vote("init", "start").core == Corners(Corner.TURBO, Corner.TURBO, Corner.TURBO_PLUS)
    assert [profile.name for profile in snpe.applied] == ["burst", "custom", "low_balanced"]
    assert snpe.applied[1].vote("execute", "start") == Vote(bus=Corners(least=Corner.NOM))


def test_the_snippet_of_hysteresis_runs() -> None:
    snpe = Instance()
    perf_handle = PerfProfile.from_preset("SNPE_PERFORMANCE_PROFILE_LOW_POWER_SAVER")
    perf_handle.set_dsp_hysteresis_time(500)  # ms
    snpe.set_custom_perf_profile(perf_handle)
    perf_handle.set_dsp_hysteresis_time(0)
    snpe.set_custom_perf_profile(perf_handle)
    assert [profile.hysteresis_us for profile in snpe.applied] == [500_000, 0]


def test_the_snippets_of_two_instances_run() -> None:
    disable = "SNPE_DCVS_VOLTAGE_CORNER_DISABLE"
    snpe_1 = Instance()
    perf_handle_1 = PerfProfile.from_preset("SNPE_PERFORMANCE_PROFILE_BURST")
    perf_handle_1.set_bus_voltage_corner_min_done(disable)
    perf_handle_1.set_bus_voltage_corner_target_done(disable)
    perf_handle_1.set_bus_voltage_corner_max_done(disable)
    perf_handle_1.set_core_voltage_corner_min_mv_done(disable)
    perf_handle_1.set_core_voltage_corner_target_mv_done(disable)
    perf_handle_1.set_core_voltage_corner_max_mv_start(disable)  # "Start" in the C snippet, "Done" in that of C++
    snpe_1.set_custom_perf_profile(perf_handle_1)
    assert snpe_1.applied[0].vote("execute", "done").core == Corners(most=Corner.SVS)
    perf_profile_1 = PerfProfile.from_preset("BURST")
    perf_profile_1.set_bus_voltage_corner_min_done("DCVS_VOLTAGE_CORNER_DISABLE")
    perf_profile_1.set_bus_voltage_corner_target_done("DCVS_VOLTAGE_CORNER_DISABLE")
    perf_profile_1.set_bus_voltage_corner_max_done("DCVS_VOLTAGE_CORNER_DISABLE")
    perf_profile_1.set_core_voltage_corner_min_mv_done("DCVS_VOLTAGE_CORNER_DISABLE")
    perf_profile_1.set_core_voltage_corner_target_mv_done("DCVS_VOLTAGE_CORNER_DISABLE")
    perf_profile_1.set_core_voltage_corner_max_mv_done("DCVS_VOLTAGE_CORNER_DISABLE")
    snpe_1.set_custom_perf_profile(perf_profile_1)
    done, start = snpe_1.applied[1].vote("execute", "done"), snpe_1.applied[1].vote("execute", "start")
    assert done.bus == done.core == NOTHING.core
    assert start == PerfProfile.from_preset("burst").vote("execute", "start")


def test_the_snippet_of_getters_runs() -> None:
    perf_profile = PerfProfile.from_preset("BURST")
    assert perf_profile.get_enable_async_voting() is False
    assert perf_profile.get_sleep_latency_start() == 40
    assert perf_profile.get_bus_voltage_corner_min_done() is Corner.SVS2


@pytest.mark.parametrize("name", SETTERS)
def test_a_setter_sets_one_setting_and_its_getter_tells_of_it(name: str) -> None:
    profile = PerfProfile()
    set_value: Callable[..., None] = getattr(profile, name)
    get_value: Callable[..., Any] = getattr(profile, name.replace("set_", "get_", 1))
    value = other_value(get_value())
    of_phase = not re.search("async|hysteresis|rpc|sleep_disable", name)
    if of_phase:
        set_value(value, "init")
        assert get_value("init") == value and get_value("execute") != value and get_value("deinit") != value
    set_value(value)
    assert get_value() == value
    assert changed(profile) == keys_of(name)
    assert of_phase == (set(KINDS["general"]).isdisjoint(changed(profile)))


def changed(profile: PerfProfile) -> set[str]:
    """The keys of which no section is as in a new profile."""
    fresh = PerfProfile()
    same = {
        key for section in KINDS for key in KINDS[section] if profile.value(section, key) == fresh.value(section, key)
    }
    return {key for section in KINDS for key in KINDS[section]} - same


def keys_of(name: str) -> set[str]:
    """The keys of what a setter sets, by its name."""
    corner = re.fullmatch(
        "set_(bus|core|dcvs)_voltage_corner_(?:dcvs_v_corner_)?(min|target|max)(?:_mv)?_(start|done)", name
    )
    if corner is None:
        return {KEYS[name.removeprefix("set_")]}
    rails = ("bus", "core") if corner[1] == "dcvs" else (corner[1],)
    return {f"{rail}_voltage_corner_{corner[2]}_{corner[3]}".upper() for rail in rails}


def other_value(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, Corner):
        return Corner.NOM
    return PowerMode.DUTY_CYCLE if isinstance(value, PowerMode) else 123


def test_every_setting_has_a_setter() -> None:
    own = [keys_of(name) for name in SETTERS if "dcvs_v_corner" not in name]
    assert set().union(*own) == {key for kinds in KINDS.values() for key in kinds}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("set_sleep_latency_start", 9, "from 10 to 65535 us, not 9"),
        ("set_sleep_latency_done", 65536, "from 10 to 65535 us, not 65536"),
        ("set_dsp_rpc_polling_time", 10_000, "from 0 to 9999 us"),
        ("set_dsp_hysteresis_time_us", -1, "from 0 to 60000000 us"),
        ("set_dsp_hysteresis_time", 60_001, "from 0 to 60000 ms"),
        ("set_dsp_hysteresis_time", 0.5, "a whole number of ms"),
        ("set_sleep_disable", True, "a whole number of ms"),
        ("set_enable_dcvs_start", 1, "true or false"),
        ("set_bus_voltage_corner_min_start", 7, "is a corner, not 7"),
        ("set_bus_voltage_corner_min_start", "NOMM", "the nearest is NOM"),
        ("set_power_mode_done", "ADJUST_UP", "the nearest is ADJUST_"),
    ],
)
def test_a_value_out_of_range_is_refused_and_changes_nothing(name: str, value: object, reason: str) -> None:
    profile = PerfProfile.from_preset("balanced")
    with pytest.raises(ValueError, match=reason):
        getattr(profile, name)(value)
    assert profile.name == "balanced"


def test_corners_out_of_order_are_named() -> None:
    profile = PerfProfile()
    profile.set_core_voltage_corner_min_mv_done(Corner.NOM, "execute")
    profile.set_core_voltage_corner_max_mv_done("SVS", "execute")
    profile.set_core_voltage_corner_target_mv_done("DISABLE", "execute")
    with pytest.raises(
        ValueError, match=r"execute: CORE_VOLTAGE_CORNER_MIN_DONE is NOM, above CORE_.*_MAX_DONE, .* SVS"
    ):
        profile.check()
    profile.set_core_voltage_corner_max_mv_done("NOM", "execute")
    profile.check()


def test_one_corner_for_both_keeps_the_order() -> None:
    profile = PerfProfile.from_preset("balanced")
    profile.set_dcvs_voltage_corner_dcvs_v_corner_max_start("SVS", "execute")
    assert profile.vote("execute", "start").core == Corners(Corner.SVS, Corner.SVS, Corner.SVS)
    assert profile.vote("init", "start").core.most is Corner.NOM_PLUS
    profile.set_dcvs_voltage_corner_dcvs_v_corner_target_start("DISABLE")
    assert profile.vote("execute", "start").bus == Corners(Corner.SVS, Corner.DISABLE, Corner.SVS)


@settings(max_examples=50, deadline=None)
@given(profiles())
def test_the_plain_form_is_the_profile(profile: PerfProfile) -> None:
    plain = profile.to_dict()
    assert all(type(value) in (bool, int, str) for values in plain.values() for value in values.values())
    assert PerfProfile.from_dict(plain) == profile


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        ([], "a mapping of sections, not"),
        ({"execute": 3}, "section execute is a mapping"),
        ({"exec": {}}, "the nearest is execute"),
        ({5: {}}, "no section '5'"),
        ({"init": {"POWERMODE": "x" * 1000}}, "the nearest is POWERMODE_"),
        ({"init": {"POWERMODE_DONE": "x" * 1000}}, r"POWERMODE_DONE of init: 'x{79}\.\.\. is no power mode"),
        ({"init": {"DSP_SLEEP_LATENCY_DONE_US": None}}, "a whole number of us, not None"),
        ({"init": {"CORE_VOLTAGE_CORNER_MIN_DONE": "NOM", "CORE_VOLTAGE_CORNER_MAX_DONE": "SVS"}}, "above"),
    ],
)
def test_what_comes_over_a_wire_is_checked(plain: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PerfProfile.from_dict(plain)


def test_a_copy_and_the_votes_of_before_do_not_change() -> None:
    profile = PerfProfile.from_preset("balanced")
    before, copy = profile.vote("execute", "start"), profile.copy()
    profile.set_bus_voltage_corner_max_start("MAX")
    assert copy == PerfProfile.from_preset("balanced") != profile
    assert profile.vote("execute", "start").bus.most is Corner.MAX
    assert before.bus.most is Corner.NOM_PLUS


def test_high_performance_is_of_the_start_vote_alone() -> None:
    profile = PerfProfile()
    profile.set_high_performance_mode(True, "execute")
    assert profile.vote("execute", "start") == Vote(high_performance=True)
    assert profile.vote("execute", "done") == NOTHING


@pytest.mark.parametrize("name", [name for name in SETTERS if not re.search("async|hysteresis|rpc", name)])
def test_a_profile_that_asks_for_anything_is_not_silent(name: str) -> None:
    profile = PerfProfile()
    assert profile.silent
    getter = name.replace("set_", "get_", 1)
    getattr(profile, name)(other_value(getattr(profile, getter)()))
    assert not profile.silent


@pytest.mark.parametrize(("phase", "moment"), [("general", "start"), ("run", "start"), ("init", "end")])
def test_there_is_no_other_vote(phase: Any, moment: Any) -> None:
    with pytest.raises(ValueError, match=r"no setting|no section|start and done"):
        PerfProfile().vote(phase, moment)


def test_a_profile_is_shown_by_what_it_changes() -> None:
    profile = PerfProfile.from_preset("low_balanced")
    assert repr(profile) == "<PerfProfile low_balanced>"
    profile.set_dsp_hysteresis_time(5)
    profile.set_sleep_latency_start(20)
    shown = repr(profile)
    assert "custom: low_balanced, but DSP_HYSTERESIS_TIME_US 5000, init DSP_SLEEP_LATENCY_START_US 20" in shown
    assert shown.endswith(", and 1 more>")


def test_every_spelling_names_its_corner_or_mode() -> None:
    for corner in Corner:
        name = corner_name(corner)
        assert {corner_of(each) for each in (name, name.removeprefix("SNPE_"), corner.name.lower())} == {corner}
    assert corner_of("MIN_VOLTAGE_CORNER") is Corner.MIN and corner_of("MAX_VOLTAGE_CORNER") is Corner.MAX
    for mode in PowerMode:
        name = power_mode_name(mode)
        assert {power_mode_of(each) for each in (name, name.removeprefix("SNPE_"), mode.value, mode.name)} == {mode}
