"""The profile log: what is written is read, and whatever is cut off or wrong is noticed."""

from dataclasses import replace

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.core.errors import MalformedLog
from gputune.runtime.profiling.log import LogWriter, Record
from gputune.runtime.profiling.records import Comparison, Span, StateSample, level_named
from tests.runtime.profiling import made_up

NET = made_up.graph(["conv", "pool", "fc"])
CONTENT = made_up.written([NET], made_up.inferences(4, [100_000, 50_000, 20_000]))


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
