"""Test the profile log: it is read as written, and whatever is cut off or wrong is noticed."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.core.errors import MalformedLog
from gputune.runtime.backends.answers import in_order_of_time
from gputune.runtime.profiling.clocks import MOST_PPB
from gputune.runtime.profiling.levels import level_named
from gputune.runtime.profiling.log import LONGEST_NS, LogWriter, Record
from gputune.runtime.profiling.records import END_NS, Comparison, Span, StateSample
from tests.runtime.profiling import made_up
from tests.runtime.profiling.made_up import BEGUN_NS, CLOCK

NET = made_up.graph(["conv", "pool", "fc"])
CONTENT = made_up.written([NET], made_up.inferences(4, [100_000, 50_000, 20_000]))
ONE = made_up.inference([100_000, 50_000, 20_000])


def test_what_is_written_is_read() -> None:
    log = made_up.read(CONTENT)
    assert log.complete and log.header == made_up.header() and log.graphs == [NET]
    wanted = made_up.inferences(4, [100_000, 50_000, 20_000])
    assert [each.number for each in log.inferences] == [0, 1, 2, 3]
    for found, one in zip(log.inferences, wanted, strict=True):
        np.testing.assert_array_equal(found.parts, one.parts)
        np.testing.assert_array_equal(found.launches, one.launches)
        assert replace(found, parts=one.parts, launches=one.launches).__dict__ == one.__dict__


def test_other_records_are_read() -> None:
    records: list[Record] = [
        Span("init", 100, 5, 9),
        StateSample(7, {"cpu_mhz": 2000.5}),
        Comparison(0, (3,), (2,), (1,), "persistent"),
    ]
    stream = made_up._Kept()
    with LogWriter(stream, made_up.header()) as log:
        log.add_graph(NET)
        for record in records:
            log.add(record)
    found = made_up.read(stream.content)
    assert [*found.spans, *found.states, *found.comparisons] == records


@given(st.integers(0, len(CONTENT) - 1))
def test_a_log_that_was_cut_off_has_its_whole_records(cut: int) -> None:
    whole = [len(made_up.written([NET], made_up.inferences(n, [100_000, 50_000, 20_000]))) for n in range(5)]
    end = len(msgpack.packb(["end", {}]))
    wanted = sum(cut >= size - end for size in whole[1:])
    try:
        log = made_up.read(CONTENT[:cut])
    except MalformedLog:
        assert cut < whole[0]
    else:
        assert len(log.inferences) == wanted and not log.complete


@given(st.integers(0, len(CONTENT) - 1), st.integers(0, 255))
def test_a_log_that_was_changed_is_read_or_refused(place: int, byte: int) -> None:
    changed = bytearray(CONTENT)
    changed[place] = byte
    try:
        made_up.read(bytes(changed))
    except MalformedLog as error:
        assert len(str(error)) < 1000


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"launches": ONE.launches[:, ::-1]}, "a launch whose timestamps are not in order"),
        ({"launches": ONE.launches - 2 * BEGUN_NS}, "launches from -"),
        ({"launches": ONE.launches * [1, 1, 1, 1 << 28]}, "launches from"),
        ({"parts": ONE.parts + np.array([0, 0, 0, 10**9])}, "does not lie within it"),
        ({"begun_ns": 0, "ended_ns": LONGEST_NS + 1}, "an inference of"),
        ({"ended_ns": END_NS}, "ended_ns: value 1152921504606846976 is outside"),
        ({"clock": replace(CLOCK, rate_ppb=MOST_PPB + 1)}, "a clock with an impossible rate"),
        ({"clock": replace(CLOCK, bound_ns=-1)}, "a clock with an impossible rate"),
        ({"clock": replace(CLOCK, method="guessed")}, "a clock with an impossible rate"),
    ],
)
def test_what_no_clock_says_is_refused(changed: dict[str, Any], said: str) -> None:
    made_up.read(made_up.written([NET], [ONE]))
    with pytest.raises(MalformedLog, match=rf"made-up.log: record 2.*{said}"):
        made_up.read(made_up.written([NET], [replace(ONE, **changed)]))


def test_a_device_has_a_text_for_a_name_or_none() -> None:
    """Readers tell devices apart by it, and NaN is equal to nothing."""
    for device, good in (({}, True), ({"name": "x"}, True), ({"name": float("nan")}, False)):
        stream = made_up._Kept()
        LogWriter(stream, replace(made_up.header(), device=device)).close()
        with nullcontext() if good else pytest.raises(MalformedLog, match="the device's name is no text"):
            made_up.read(stream.content)


def test_what_is_no_log_is_refused() -> None:
    for content in (b"", b"\x00", b"{}", msgpack.packb(["gputune-profile", {"version": 2}]), b"\xc1" * 40):
        with pytest.raises(MalformedLog):
            made_up.read(content)


def test_an_event_takes_at_most_64_bytes() -> None:
    net = made_up.graph([f"op {number}" for number in range(39)])
    few, many = (len(made_up.written([net], made_up.inferences(count, [1000] * 39))) for count in (1, 101))
    assert (many - few) / (100 * 39) <= 64


def test_levels_have_the_names_of_the_original_tools() -> None:
    assert [level_named(name) for name in ("basic", "detailed", "qhas", "backend", "linting")][3:] == ["qhas", "qhas"]
    with pytest.raises(ValueError, match="no profiling level"):
        level_named("all")


def test_a_launch_that_ends_before_it_begins_takes_no_time() -> None:
    """As in the C runtime; what was stamped in front of the start is not behind it either."""
    rows = [[10, 20, 30, 25], [10, 40, 30, 35], [10, 20, 30, 45]]
    found = in_order_of_time(np.array(rows, np.int64))
    assert found.tolist() == [[10, 20, 30, 30], [10, 30, 30, 35], [10, 20, 30, 45]]
