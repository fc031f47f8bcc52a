"""Test that traces and tables show what ran, to the nanosecond."""

import csv
from dataclasses import fields, replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.client.options.viewer import Features
from gputune.client.viewer.profile import Profile, profile_of
from gputune.client.viewer.traces.chrome_trace import write_chrome_trace
from gputune.client.viewer.traces.csv_table import COLUMNS, write_csv
from gputune.client.viewer.traces.rows import Rows, layout_of
from gputune.client.viewer.traces.timeline import Timeline
from gputune.core.errors import MalformedLog
from gputune.runtime.profiling.records import INIT, Span, StateSample
from tests.client.viewer.made_up_profiles import NAMES, log_of, overlapping_profile, rich_profile
from tests.client.viewer.read_back import Trace, check_nesting, read_chrome
from tests.runtime.profiling import made_up
from tests.runtime.profiling.made_up import BEGUN_NS

ALL = Features(**{each.name: True for each in fields(Features)})
NONE = Features(**{each.name: False for each in fields(Features)})
TIMES = st.integers(0, 10**7)


def chrome(profile: Profile, features: Features, folder: Path) -> Trace:
    write_chrome_trace(Timeline(profile, features), folder / "trace.json")
    return read_chrome(folder / "trace.json")


def table(profile: Profile, folder: Path) -> list[dict[str, str]]:
    write_csv(profile, folder / "table.csv")
    with (folder / "table.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def ns(row: dict[str, str]) -> int:
    return int(Decimal(row["Time"]) * 1000)


def test_tracks_show_what_ran(tmp_path: Path) -> None:
    profile = rich_profile()
    drawn = chrome(profile, ALL, tmp_path)
    (process,) = drawn.processes
    assert {name for _, name in (*drawn.slices, *drawn.counts)} == {
        "phases", "phases (2)", "host thread 1", "queue wait", "device", "runtrace", "preemptions of thread 1",
        "preemptions of thread 7", "gpu_mhz", "temperature_c", "arena 0 of net", "bandwidth",
    }  # fmt: skip
    launches = drawn.slices[process, "device"]
    inference = profile.graphs[0].inferences[0]
    assert [(name, begun, ended) for name, _, begun, ended, _ in launches[:4]] == [
        (name, *row) for name, row in zip(NAMES, inference.launches_ns()[:, 2:].tolist(), strict=True)
    ]
    arguments = dict(launches[0][4])
    assert arguments["onnx_nodes"] == "conv1 (Conv), conv1/bias"
    assert (arguments["model"], arguments["configuration"], arguments["flops"]) == (
        "net.onnx",
        "MR=4, VW=16",
        1_000_000,
    )
    host = [name for name, *_ in drawn.slices[process, "host thread 1"][:7]]
    assert host == ["net", "host", "write x", "enqueue", "wait", "read y", "host"]
    about = dict(drawn.slices[process, "host thread 1"][0][4])
    assert (about["number"], about["joule"], about["profiler_ns"], about["form"]) == (0, 0.25, 900, "launches")


def test_launches_inside_persistent_kernels_have_a_track_of_their_own(tmp_path: Path) -> None:
    profile = rich_profile()
    (graph,) = profile.graphs
    marked = made_up.marked([9_000] * len(NAMES), begun_ns=max(one.ended_ns for one in graph.inferences) + 5_000)
    before = chrome(profile, ALL, tmp_path)
    drawn = chrome(replace(profile, graphs=[replace(graph, marked=[marked])]), ALL, tmp_path)
    (process,) = drawn.processes
    inside = drawn.slices[process, "inside persistent kernels"]
    assert [(name, begun, ended) for name, _, begun, ended, _ in inside] == [
        (name, *row) for name, row in zip(NAMES, marked.launches_ns().tolist(), strict=True)
    ]
    host = drawn.slices.pop((process, "host thread 1"))
    assert len(host) > len(before.slices[process, "host thread 1"])
    del drawn.slices[process, "inside persistent kernels"]
    assert {name for _, name in drawn.slices} == {name for _, name in before.slices} - {"host thread 1"}
    assert all(rows == before.slices[track] for track, rows in drawn.slices.items())


def test_a_zoom_shows_the_phases_that_lie_at_least_partly_in_it(tmp_path: Path) -> None:
    """One that began before the zoom and ends after it is over all of it."""
    ms = 1_000_000
    zoomed = "over all of it", "ends in it", "begins in it", "ends where it begins", "begins where it ends", "in it"
    moments = (0, 9), (1, 4), (4, 8), (1, 3), (5, 8), (4, 4)
    away = ("before it", 0, 2), ("after it", 6, 9)
    spans = [(name, *moment) for name, moment in zip(zoomed, moments, strict=True)]
    records = [Span(name, INIT, BEGUN_NS + begun * ms, BEGUN_NS + ended * ms) for name, begun, ended in (*spans, *away)]
    inferences = [made_up.inference([1000], begun_ns=BEGUN_NS + at * ms) for at in (1, 4, 7)]
    states = [StateSample(BEGUN_NS + at * ms, {"gpu_mhz": float(at)}) for at in range(9)]
    logs = [log_of([made_up.graph(["a"])], [*records, *inferences, *states])]
    zoomed_profile = profile_of(logs, None, (3.0, 5.0))
    drawn = chrome(zoomed_profile, ALL, tmp_path)
    phases = [row for (_, track), rows in drawn.slices.items() if track.startswith("phases") for row in rows]
    assert sorted(name for name, *_ in phases) == sorted(zoomed)
    assert sum(row["Message"] == "INIT" for row in table(zoomed_profile, tmp_path)) == len(zoomed)
    assert drawn.count("launch") == 1
    (process,) = drawn.processes
    assert [value for _, value in drawn.counts[process, "gpu_mhz"]] == [3, 4, 5]


def test_waits_and_gaps_are_what_lies_between_launches(tmp_path: Path) -> None:
    profile = rich_profile()
    drawn = chrome(profile, ALL, tmp_path)
    (process,) = drawn.processes
    gaps = sum(one.gaps_ns for one in profile.graphs[0].accounts)
    runs = drawn.slices[process, "runtrace"]
    assert sum(ended - begun for name, _, begun, ended, _ in runs if name == "gap") == gaps
    assert sum(ended - begun for name, _, begun, ended, _ in runs if name == "executing") == drawn.took_ns("launch")
    waits = drawn.slices[process, "queue wait"][:4]
    rows = profile.graphs[0].inferences[0].launches_ns()
    assert [begun for _, _, begun, _, _ in waits] == [rows[0, 0], *rows[:3, 3]]
    assert [dict(row[4])["queued_to_started_ns"] for row in waits] == (rows[:, 2] - rows[:, 0]).tolist()


def test_memory_is_what_runs_at_a_time_needs(tmp_path: Path) -> None:
    profile = rich_profile()
    drawn = chrome(profile, ALL, tmp_path)
    (process,) = drawn.processes
    begun = profile.graphs[0].inferences[0].launches_ns()[:, 2].tolist()
    ended = profile.graphs[0].inferences[0].launches_ns()[:, 3].tolist()
    assert drawn.counts[process, "arena 0 of net"][:5] == [
        *zip(begun, (256, 512, 768, 512), strict=True),
        (ended[-1], 0),
    ]
    rates = drawn.counts[process, "bandwidth"][:4]
    assert rates == [(begun[0], 1_250_000_000), (ended[0], 0), (begun[1], round(50_000 / 7_001 * 1e9)), (ended[1], 0)]


def test_a_view_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    profile = rich_profile()
    assert profile.schematic is not None
    (plan,) = profile.schematic.graphs
    view = replace(next(one for one in plan.tensors if one.name == "relu:0"), name="reshaped")
    viewed = replace(plan, tensors=(*plan.tensors, view), aliases={"reshaped": "relu:0"})
    other = profile_of(profile.logs, replace(profile.schematic, graphs=(viewed,)))
    assert chrome(other, ALL, tmp_path).counts == chrome(profile, ALL, tmp_path).counts


CHANGED = {
    "enable_input_output_flow_events": {"input-output"},
    "enable_sequencer_flow_events": {"sequencer"},
    "runtrace": {"runtrace", "preemptions", "gpu_mhz", "temperature_c"},
    "memory_info": {"arena", "bandwidth"},
    "traceback": {"onnx_nodes"},
    "htp_json": set(),
    "qhas_schema": set(),
    "qhas_json": set(),
}
"""For each feature, words one of which is in each line that it adds or changes."""


@pytest.mark.parametrize("start", [ALL, NONE])
@pytest.mark.parametrize("name", CHANGED)
def test_a_feature_changes_its_own_and_nothing_else(name: str, start: Features, tmp_path: Path) -> None:
    def lines(features: Features) -> set[str]:
        write_chrome_trace(Timeline(rich_profile(), features), tmp_path / "trace.json")
        found = (tmp_path / "trace.json").read_text().splitlines()
        return {line.rstrip(",") for line in found if "sort_index" not in line}

    off, on = (lines(replace(start, **{name: value})) for value in (False, True))
    added, gone = on - off, off - on
    words = CHANGED[name]
    assert bool(added) == bool(words)
    assert all(any(word in line for word in words) for line in added)
    assert len(gone) == (len(added) if name == "traceback" else 0)
    assert all(any(word in line for line in added) for word in words)


def test_arrows_follow_tensors_and_the_queue(tmp_path: Path) -> None:
    drawn = chrome(rich_profile([[10, 10, 10, 10]]), ALL, tmp_path)
    (process,) = drawn.processes
    names = {begun: name for name, _, begun, _, _ in drawn.slices[process, "device"]}
    found = {(kind, names[start], names[end]) for (_, kind, start), (_, _, end) in drawn.flows.values()}
    row = list(pairwise(NAMES))
    assert found == {(kind, *pair) for kind in ("input-output", "sequencer") for pair in row} | {
        ("input-output", "conv1", "add")
    }


def test_what_overlaps_has_tracks_of_its_own(tmp_path: Path) -> None:
    profile = overlapping_profile()
    drawn = chrome(profile, ALL, tmp_path)
    assert drawn.processes == [f"{number}: net.bin on {made_up.device().name}" for number in (1, 2)]
    tracks = {name for process, name in drawn.slices if process == drawn.processes[0]}
    assert {"host thread 1", "host thread 2", "device", "device (2)", "device (3)"} <= tracks
    assert drawn.count("launch") == 16
    assert drawn.took_ns("launch") == sum(int(graph.launches_ns.sum()) for graph in profile.graphs)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(TIMES, min_size=4, max_size=4), min_size=1, max_size=4), TIMES)
def test_all_files_have_the_same_times(
    tmp_path_factory: pytest.TempPathFactory, times: list[list[int]], gap: int
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    profile = rich_profile(times, gap)
    took_ns = sum(map(sum, times))
    assert chrome(profile, NONE, folder).took_ns("launch") == took_ns
    rows = table(profile, folder)
    assert sum(ns(row) for row in rows if row["Message"] == "NODE") == took_ns
    assert sum(ns(row) for row in rows if row["Message"] == "EXECUTE DEVICE") == took_ns
    whole = [row for row in rows if row["Message"].startswith("EXECUTE")]
    assert sum(ns(row) for row in whole if row["Event Level"] == "ROOT") == profile.graphs[0].account.elapsed_ns
    assert sum(ns(row) for row in whole if row["Event Level"] == "SUB-EVENT") == profile.graphs[0].account.elapsed_ns


def test_the_table_has_the_columns_and_words_of_the_original(tmp_path: Path) -> None:
    rows = table(rich_profile(), tmp_path)
    assert tuple(rows[0]) == COLUMNS
    assert {row["Message"] for row in rows} == {
        "INIT", "FINALIZE", "EXECUTE", "EXECUTE PREPROCESS", "EXECUTE QUEUE WAIT", "EXECUTE DEVICE", "NODE",
        "EXECUTE POSTPROCESS",
    }  # fmt: skip
    node = next(row for row in rows if row["Message"] == "NODE")
    assert (node["Event Identifier"], node["Unit of Measurement"], node["Time"]) == ("conv1:OpId_0", "US", "40.000")


@pytest.mark.parametrize("nested", [True, False])
def test_slices_that_all_overlap_are_refused_in_time(nested: bool) -> None:
    begun = np.arange(100_000)
    with pytest.raises(MalformedLog, match="more than 1000 slices overlap at 1000 ns"):
        layout_of(begun, begun + 200_000, nested)
    rows = Rows()
    with pytest.raises(MalformedLog, match="more than 1000 slices overlap at 500 ns"):
        for at_ns in begun.tolist():
            rows.place(at_ns, at_ns + 200_000, height=2)


@given(st.lists(st.tuples(TIMES, TIMES, st.integers(1, 4)), max_size=30))
def test_blocks_get_the_first_rows_that_are_free(blocks: list[tuple[int, int, int]]) -> None:
    rows, placed = Rows(), list[tuple[int, int, int]]()
    for begun_ns, took_ns, height in sorted(blocks):
        row = rows.place(begun_ns, begun_ns + took_ns, height)
        taken = {place for first, end, ended_ns in placed if ended_ns > begun_ns for place in range(first, end)}
        assert row == next(at for at in range(200) if not taken.intersection(range(at, at + height)))
        placed.append((row, row + height, begun_ns + took_ns))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9), st.booleans())
def test_rows_hold_what_is_nested_or_disjoint(spans: list[tuple[int, int]], nested: bool) -> None:
    begun = np.array([begun for begun, _ in spans], np.int64)
    ended = begun + np.array([took for _, took in spans], np.int64)
    layout = layout_of(begun, ended, nested)
    places = [row.tolist() for row in layout.places()]
    assert sorted(place for row in places for place in row) == list(range(len(spans)))
    for row in places:
        check_nesting([("", "", int(begun[place]), int(ended[place]), ()) for place in row])
        if not nested:
            assert all(ended[before] <= begun[after] for before, after in pairwise(row))
