"""Test that a record with impossible contents cannot be made, and that a row survives a round trip."""

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.cache import RecordError, TrialRecord, WinnerRecord
from gputune.cache.record import trial_from_row, trial_to_row, winner_from_row, winner_to_row
from gputune.core.statuses import STATUSES

from .conftest import FAILED, WINNER

times = st.floats(min_value=1e-3, max_value=1e15)
configurations = st.dictionaries(st.text(max_size=4), st.integers(-5, 2**40), max_size=3)


@given(
    configuration=configurations,
    status=st.sampled_from(STATUSES),
    samples=st.lists(times, min_size=1, max_size=9),
    compile_ns=st.none() | times,
    message=st.text(max_size=20),
)
def test_a_trial_survives_its_row(**values: Any) -> None:
    samples = values.pop("samples")
    record = TrialRecord(samples_ns=samples, measured={"rounds": [1, {"a": None}]}, **values)
    assert record.median_ns == statistics.median(samples)
    assert record.minimum_ns == min(samples)
    assert trial_from_row(trial_to_row(record)) == record


def test_failures_and_winners_survive_their_rows() -> None:
    assert trial_from_row(trial_to_row(FAILED)) == FAILED
    assert winner_from_row(winner_to_row(WINNER)) == WINNER


def test_spread_is_a_share_of_the_median() -> None:
    assert TrialRecord({}, "ok", [90.0, 100.0, 120.0]).spread == pytest.approx(0.3)


GOOD_TRIAL: dict[str, Any] = {"configuration": {"MWG": 1}, "status": "ok", "samples_ns": [1.0, 3.0]}
GOOD_WINNER: dict[str, Any] = {"configuration": {}, "median_ns": 1.0, "default_ns": 2.0, "effort": "full"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"configuration": {"MWG": 1.5}}, "MWG = 1.5"),
        ({"configuration": {"MWG": True}}, "MWG = True"),
        ({"configuration": [1]}, "configuration is"),
        ({"status": "inf"}, "status is 'inf'"),
        ({"status": None}, "status is None"),
        ({"samples_ns": []}, "samples_ns is empty"),
        ({"samples_ns": [1.0, math.inf]}, "samples_ns is inf"),
        ({"samples_ns": [1.0, math.nan]}, "samples_ns is nan"),
        ({"samples_ns": [0.0]}, "samples_ns is 0"),
        ({"samples_ns": [-1.0]}, "samples_ns is -1.0"),
        ({"median_ns": 5.0}, "median_ns is 5.0, but the samples give 2.0"),
        ({"minimum_ns": 2.0}, "minimum_ns is 2.0, but the samples give 1.0"),
        ({"spread": -0.1}, "spread"),
        ({"status": "crash", "samples_ns": [], "median_ns": 4.0}, "statistics without"),
        ({"compile_ns": math.inf}, "compile_ns"),
        ({"compile_ns": "soon"}, "compile_ns"),
        ({"message": b"x"}, "message"),
        ({"message": "\udc80"}, "message"),
        ({"measured": {"x": math.nan}}, "measured"),
        ({"measured": {"x": object()}}, "measured"),
        ({"rendered_sha256": "0" * 63}, "rendered_sha256"),
        ({"rendered_sha256": "X" * 64}, "rendered_sha256"),
        ({"rendered_sha256": None}, "rendered_sha256"),
    ],
)
def test_impossible_trials_are_refused(change: dict[str, Any], text: str) -> None:
    TrialRecord(**GOOD_TRIAL)
    with pytest.raises(RecordError, match=text):
        TrialRecord(**{**GOOD_TRIAL, **change})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"median_ns": 0}, "median_ns"),
        ({"median_ns": None}, "median_ns"),
        ({"default_ns": math.inf}, "default_ns"),
        ({"effort": 3}, "effort"),
        ({"trials": {"inf": 1}}, "'inf'"),
        ({"trials": {"ok": -1}}, "-1"),
        ({"trials": {"ok": 1.0}}, "1.0"),
        ({"rendered_sha256": "abc"}, "rendered_sha256"),
    ],
)
def test_impossible_winners_are_refused(change: dict[str, Any], text: str) -> None:
    WinnerRecord(**GOOD_WINNER)
    with pytest.raises(RecordError, match=text):
        WinnerRecord(**{**GOOD_WINNER, **change})
