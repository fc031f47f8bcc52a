"""Test which nodes of real models run on the device, and which in onnxruntime; scripts/models/zoo
--in_onnxruntime runs them all."""

import os
from collections import Counter

import numpy as np
import pytest

from models.in_onnxruntime import zoo
from models.in_onnxruntime.cut_cases import Excluded, check_telling
from models.in_onnxruntime.entries import ENTRIES, NODES, cut_of, nodes_of
from tests.conftest import NO_CI


def test_the_table_has_every_model() -> None:
    assert list(NODES) == list(ENTRIES)


DAILY = {"text recogniser", "silero-vad", "classifier with float64 inside"}
"""A model of one part, of several, and one with float64 inside; all others are of the night."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in DAILY else pytest.mark.night) for name in ENTRIES]
)
def test_as_many_nodes_run_on_the_device_as_the_table_says(name: str) -> None:
    try:
        cut = cut_of(ENTRIES[name])
    except SystemExit as ended:
        if os.environ.get("CI", "").lower() not in NO_CI:
            pytest.fail(f"{ended.code}; under CI this is a failure", pytrace=False)
        pytest.skip(str(ended.code))
    assert nodes_of(cut) == NODES[name]


@pytest.mark.parametrize(
    ("deviation", "own", "failure", "right"),
    [
        (9e-5, 0.0, "", True),
        (2e-4, 1e-4, "", False),
        (2e-4, 3e-4, "", True),
        (float("nan"), 0.0, "", False),
        (0.0, 0.0, "gputune runs {}, and 1 parts were cut", False),
    ],
)
def test_what_is_right(deviation: float, own: float, failure: str, right: bool) -> None:
    """An output may be off as far as onnxruntime's own without its optimizations."""
    result = zoo.Result(0.5, deviation, own, {"some": Counter({"Conv": 2})}, failure)
    assert result.right == right
    assert result.cells[-1] == (failure or "Conv 2")


def test_a_case_whose_outputs_show_nothing_is_excluded() -> None:
    blank, some = np.full(3, np.nan, np.float32), np.array([np.nan, 1], np.float32)
    for outputs in ([], [some], [blank, some], [blank, np.ones(3, np.int64)], [[blank]]):
        check_telling(outputs)
    with pytest.raises(Excluded, match="so nothing is compared"):
        check_telling([blank, -blank / 0.0])
