"""Test the record of what tuning gains: its times, its words, and its JSON."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from gputune.client.options.tuning import RULE
from gputune.client.tuning.measuring.end_to_end import (
    KEPT,
    EndToEnd,
    gain_from_dict,
)
from gputune.client.tuning.measuring.sequential import Gain
from gputune.core.json_text import json_text, json_value
from tests.client.commands import Gputune

UNKNOWN = Gain(1.08, 0.0, math.inf, 9)
FASTER, EQUAL, SLOWER = Gain(1.08, 1.05, 1.12, 60), Gain(1.0, 0.97, 1.04, 60), Gain(0.93, 0.9, 0.97, 60)
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (EndToEnd(2.16e6, FASTER, "tuned"), "inference 2.000 ms, untuned 2.160 ms: 1.08 times as fast (1.05–1.12)"),
        (
            EndToEnd(2e5, EQUAL, "last"),
            f"inference 0.2000 ms, untuned 0.2000 ms: no difference found (0.97–1.04); {KEPT['last']}",
        ),
        (
            EndToEnd(1.86e9, SLOWER, "untuned"),
            f"inference 1860 ms; best tuned 2000 ms: 0.93 times as fast (0.90–0.97); {KEPT['untuned']}",
        ),
        (EndToEnd(12e6, None, "untuned"), "inference 12.00 ms: the untuned context ships: tuning has led to no other"),
    ],
)  # fmt: skip
def test_the_line_for_people(record: EndToEnd, line: str) -> None:
    assert record.line == line


def test_the_quotient_of_the_times_is_the_gain() -> None:
    told = EndToEnd(0.226e6, Gain(1.03, 0.95, 1.09, 40), "untuned").to_dict()
    assert told["untuned_ns"] / told["tuned_ns"] == pytest.approx(told["gain"]["median"], rel=1e-12)


def test_what_more_rounds_may_change_is_open() -> None:
    narrow = Gain(1.0, 0.992, 1.008, 900)
    opened = {one: EndToEnd(1e6, one, "untuned").open for one in (FASTER, EQUAL, SLOWER, UNKNOWN, narrow)}
    assert opened == {FASTER: False, EQUAL: True, SLOWER: False, UNKNOWN: True, narrow: False}
    assert not EndToEnd(1e6, None, "untuned").open


@pytest.mark.parametrize("gain", [FASTER, EQUAL, UNKNOWN, None])
def test_it_survives_json(gain: Gain | None) -> None:
    record = EndToEnd(1e6, gain, "untuned" if gain is not FASTER else "tuned")
    written = json_text(record.to_dict())
    assert "Infinity" not in written
    assert EndToEnd.from_dict(json_value(written)) == record


def test_an_end_that_is_not_known_is_null() -> None:
    assert UNKNOWN.to_dict() == {"median": 1.08, "low": None, "high": None, "rounds": 9}
    assert gain_from_dict(UNKNOWN.to_dict()) == UNKNOWN


def test_what_earlier_versions_wrote_is_read_and_open() -> None:
    """They called the gain of the untuned context by itself a gain of 1, and divided times of other samples."""
    old: dict[str, Any] = {"untuned_ns": 2e6, "tuned_ns": 2.5e6, "gain": {"median": 1.25, "low": 1.1, "high": 1.3}}
    for change, kept, said in (
        ({}, "tuned", "1.25 times as fast (1.10–1.30)"),
        ({"gain": {"median": 1.04, "low": 0.9, "high": 1.2}}, "last", "no difference found (0.90–1.20)"),
        ({"gain": {"median": 1.0, "low": 1.0, "high": 1.0}}, "untuned", "not known after 0 rounds"),
    ):
        found = EndToEnd.from_dict({**old, **change})
        assert found is not None and found.gain is not None
        assert (found.kept, found.open, found.gain.words) == (kept, True, said)
        assert found.tuned_ns == 2e6 / found.gain.median


GOOD = EndToEnd(1e6, FASTER, "tuned").to_dict()


@pytest.mark.parametrize(
    "value",
    [
        None, 7, [], {}, {**GOOD, "untuned_ns": 0}, {**GOOD, "untuned_ns": True}, {**GOOD, "untuned_ns": 10**400},
        {**GOOD, "kept": "best"}, {**GOOD, "kept": None}, {**GOOD, "kept": ["tuned"]}, {**GOOD, "gain": None},
        {**GOOD, "gain": 1.2}, {**GOOD, "gain": {**GOOD["gain"], "low": 1.1}}, {**GOOD, "gain": {"median": 1.0}},
        {**GOOD, "gain": {**GOOD["gain"], "rounds": -1}}, {**GOOD, "gain": {**GOOD["gain"], "rounds": "9"}},
        {**GOOD, "gain": {**GOOD["gain"], "median": 0}}, {**GOOD, "gain": {**GOOD["gain"], "high": math.nan}},
    ],
)  # fmt: skip
def test_what_cannot_be_a_measurement_is_none(value: object) -> None:
    assert EndToEnd.from_dict(value) is None


def test_the_rule_stands_in_the_docs_and_in_the_help(gputune: Gputune) -> None:
    docs = (ROOT / "docs" / "how_tuning_works.md").read_text(encoding="utf-8")
    helped = gputune("context-binary-generator", "--help").out
    for text in (docs, helped):
        assert RULE in re.sub(r"\s+", " ", text)
