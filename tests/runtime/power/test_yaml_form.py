"""Test perf profiles as YAML files: strict to read, stable to write, and consistent."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.yaml_form import parse_yaml, read_yaml, write_yaml
from gputune.runtime.power.records import Corner
from tests.runtime.power.profiles import profiles

SAMPLE = Path(__file__).with_name("sustained_high_performance.yaml").read_text(encoding="utf-8")
"""sustained_high_performance as the original's documentation has it, without indentation."""


@settings(max_examples=50, deadline=None)
@given(profiles())
def test_what_was_written_is_read(profile: PerfProfile) -> None:
    text = write_yaml(profile)
    assert parse_yaml(text) == profile
    assert write_yaml(parse_yaml(text)) == text


def test_the_sample_is_sustained_high_performance() -> None:
    profile = parse_yaml(SAMPLE)
    assert profile == PerfProfile.from_preset("sustained_high_performance")
    assert profile.name == "sustained_high_performance"
    written = [line.strip() for line in write_yaml(profile).splitlines()]
    assert sorted(written) == sorted(SAMPLE.split("\n")[:-1])


def test_indentation_comments_and_short_names_are_accepted() -> None:
    text = "# a profile\r\n\r\ninit:   # the first\r\n    BUS_VOLTAGE_CORNER_MIN_START: turbo # short\r\n"
    profile = parse_yaml(text + "execute:\n\n# none\nDSP_SLEEP_LATENCY_DONE_US: 10\ndeinit:")
    assert profile.get_bus_voltage_corner_min_start("init") is Corner.TURBO
    assert profile.get_sleep_latency_done("execute") == 10
    assert profile.get_sleep_latency_done("init") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "general:\nDSP_HYSTERESIS_TIME: 3",
            "line 2: general has no setting 'DSP_HYSTERESIS_TIME'; the nearest is DSP_HYS",
        ),
        ("execte:\n", "line 1: there is no section 'execte'; the nearest is execute"),
        (
            "init:\nDSP_HYSTERESIS_TIME_US: 3",
            "line 2: init has no setting 'DSP_HYSTERESIS_TIME_US'; it belongs to general",
        ),
        ("HIGH_PERFORMANCE_MODE: true", "line 1: HIGH_PERFORMANCE_MODE is before the first section"),
        ("init:\nHIGH_PERFORMANCE_MODE: true\n\nHIGH_PERFORMANCE_MODE: true", "line 4: .* is already in line 2"),
        ("init:\nexecute:\ninit:", "line 3: section init is already in line 1"),
        ("init:\n\tHIGH_PERFORMANCE_MODE: true", "line 2: there is a tab"),
        (
            "init:\n  HIGH_PERFORMANCE_MODE: true\n POWERMODE_DONE: DUTY_CYCLE",
            "line 3: POWERMODE_DONE is indented by 1",
        ),
        ("init:\n  execute:", "line 2: section execute is indented"),
        ("init: true", "line 1: section init has a value"),
        ("init:\nPOWERMODE_DONE:", "line 2: POWERMODE_DONE has no value"),
        ("init:\n- POWERMODE_DONE", "line 2: neither a section nor KEY: value"),
        ("init:\nPOWERMODE_DONE:DUTY_CYCLE", "line 2: neither a section nor KEY: value"),
        ("init:\nHIGH_PERFORMANCE_MODE: yes", "line 2: HIGH_PERFORMANCE_MODE of init: is true or false, not 'yes'"),
        ("init:\nPOWERMODE_DONE: 4", "line 2: POWERMODE_DONE of init: is a power mode, not 4"),
        ("init:\nDSP_SLEEP_LATENCY_DONE_US: 9", "line 2: .* is from 10 to 65535 us, not 9"),
        ("init:\nDSP_SLEEP_LATENCY_DONE_US: 0100", "line 2: .* is a whole number of us, not '0100'"),
        ("general:\nDSP_HYSTERESIS_TIME_US: -1", "line 2: .* is from 0 to 60000000 us, not -1"),
        ("init:\nBUS_VOLTAGE_CORNER_MIN_START: SNPE_DCVS_VOLTAGE_VCORNER_TURB", "line 2: .* the nearest is TURBO"),
        (
            "init:\nBUS_VOLTAGE_CORNER_MIN_START: NOM\nBUS_VOLTAGE_CORNER_MAX_START: SVS",
            "init: .*MIN_START is NOM, above",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_yaml(text)


def test_corners_out_of_order_are_not_written() -> None:
    profile = PerfProfile.from_preset("balanced")
    profile.set_bus_voltage_corner_max_start("SVS", "deinit")
    with pytest.raises(ValueError, match="deinit: BUS_VOLTAGE_CORNER_TARGET_START is NOM_PLUS, above"):
        write_yaml(profile)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(SAMPLE)), st.integers(0, 40), st.text(max_size=20))
def test_a_damaged_file_is_refused_or_a_profile(start: int, removed: int, inserted: str) -> None:
    try:
        profile = parse_yaml(SAMPLE[:start] + inserted + SAMPLE[start + removed :])
    except ValueError:
        return
    assert parse_yaml(write_yaml(profile)) == profile


def test_a_file_is_named_and_limited(tmp_path: Path) -> None:
    path = tmp_path / "perf.yaml"
    path.write_bytes(b"init:\n\xff")
    with pytest.raises(ValueError, match=r"perf\.yaml: line 2: byte 0xff is not UTF-8"):
        read_yaml(path)
    path.write_bytes(b"#" * 65537)
    with pytest.raises(ValueError, match="at most 65536 bytes"):
        read_yaml(path)
    path.write_bytes(b"\xef\xbb\xbf" + SAMPLE.encode())
    assert read_yaml(path) == parse_yaml(SAMPLE)
