"""Test the summary: its form matches the schema, and its sums match the log."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validators

from gputune.client.viewer.profile import Profile, profile_of
from gputune.client.viewer.schematic import RooflinePeaks
from gputune.client.viewer.summary import SCHEMA, SECTIONS, summary_of
from gputune.runtime.profiling.log import Log
from gputune.runtime.profiling.records import Comparison, LogHeader, Span, StateSample
from tests.client.viewer.made_up_plans import plan, schematic
from tests.runtime.profiling import made_up

NAMES = ["a", "b", "b", "c"]
TIMES = st.lists(st.integers(0, 10**7), min_size=len(NAMES), max_size=len(NAMES))
WHOLE = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda checker, value: type(value) is int)
VALIDATOR = validators.extend(Draft202012Validator, type_checker=WHOLE)(SCHEMA)
"""For which 1.0 is no integer."""


def wrong(summary: Any) -> list[str]:
    """In what a summary is not as the schema says."""
    return [f"{one.json_path} {one.message}" for one in VALIDATOR.iter_errors(summary)]


def profile(rows: Sequence[Sequence[int]], planned: bool = True, zoom: tuple[float, float] | None = None) -> Profile:
    """Two graphs of the same launches; the second one has not run."""
    graphs = [made_up.graph(NAMES), made_up.graph(["alone"], "other")]
    records = [made_up.inference(row, number=number) for number, row in enumerate(rows)]
    log = made_up.read(made_up.written(graphs, records))
    log.header = LogHeader(**{**log.header.__dict__, "unavailable": {"cycles": "the system does not allow it"}})
    log.comparisons.append(Comparison(0, (30, 20, 10), (10, 20, 10), (5, 5, 5), "persistent"))
    log.comparisons.append(Comparison(0, (), (), (), "launches"))
    log.states += [
        StateSample(made_up.BEGUN_NS, {"clock_mhz": 100.0}),
        StateSample(made_up.BEGUN_NS, {"clock_mhz": 3.0}),
    ]
    log.spans.append(Span("init/load", 100, made_up.BEGUN_NS - 50, made_up.BEGUN_NS))
    plans = [plan(graphs[0], [(0, 2), (1, 2)], ops=["Conv", "Conv", "Add"], alone_ns=[None, 5.0, 6.0])]
    described = schematic(*plans, peaks=RooflinePeaks(1e6, 10.0, "measured")) if planned else None
    return profile_of([log], described, zoom or (None, None))


def section(summary: Mapping[str, Any], name: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in summary[name]]


@pytest.mark.slow
@given(st.lists(TIMES, max_size=4), st.booleans())
def test_it_is_as_the_schema_says_and_adds_up_to_the_log(rows: list[list[int]], planned: bool) -> None:
    of = profile(rows, planned)
    summary = json.loads(json.dumps(summary_of(of), allow_nan=False))
    assert wrong(summary) == []
    elapsed_ns = sum(one.elapsed_ns for log in of.logs for one in log.inferences)
    assert sum(row["elapsed_total_ns"] for row in summary["overall"]) == elapsed_ns
    assert sum(row["total_ns"] for row in summary["account"]) == elapsed_ns
    for name in ("op_instances", "op_types"):
        assert sum(row["total_ns"] for row in summary[name]) == sum(map(sum, rows))
    assert summary["overall"][0]["kernels_total_ns"] == sum(map(sum, rows))
    by_name = {row["operation"]: row["total_ns"] for row in summary["op_instances"] if row["graph"] == 0}
    assert by_name == {
        "a": sum(row[0] for row in rows),
        "b": sum(row[1] + row[2] for row in rows),
        "c": sum(row[3] for row in rows),
    }


def test_each_section_says_what_the_profile_does() -> None:
    summary = summary_of(profile([[1000, 2000, 3000, 1000], [1000, 2000, 5000, 2000]]))
    assert section(summary, "op_types", "graph", "op", "operations", "launches", "median_ns") == [
        (0, "Conv", 2, 3, 7000.0),
        (0, "Add", 1, 1, 1500.0),
        (1, None, 1, 1, 0.0),
    ]
    assert section(summary, "dominant_path", "operation", "median_ns", "ended_ns") == [
        ("b", 6000.0, 6000.0),
        ("c", 1500.0, 7500.0),
    ]
    slack = section(summary, "op_instances", "operation", "slack_ns", "alone_ns", "onnx_nodes", "least_ns", "most_ns")
    assert slack[0] == ("a", 5000.0, None, ["a"], 1000, 1000)
    assert slack[1] == ("b", 0.0, 5.0, ["b"], 5000, 7000)
    assert section(summary, "peaks", "gbytes_per_s", "gflops_per_s") == [(10.0, 1e6)]
    forms = section(summary, "comparisons", "unprofiled_ns", "profiled_ns", "usual_ns", "usual_by_unprofiled")
    assert forms == [(10.0, 10.0, 5.0, 0.5)], "turns without inferences are none"
    assert section(summary, "clocks", "method", "inferences", "bound_ns") == [("bracketed", 2, 2000)]
    assert section(summary, "counters", "counter", "total") == [("task_clock_ns", 14)]
    assert section(summary, "unavailable_counters", "counter", "reason") == [("cycles", "the system does not allow it")]
    assert section(summary, "states", "value", "samples", "least", "most") == [("clock_mhz", 2, 3.0, 100.0)]
    assert section(summary, "phases", "name", "begun_ns", "elapsed_ns") == [("init/load", made_up.BEGUN_NS - 50, 50)]
    assert [row["rank"] for row in summary["findings"]] == list(range(1, 1 + len(summary["findings"])))


def test_a_zoom_is_stated() -> None:
    of = profile([[1000] * 4], zoom=(0.0, 500.0))
    summary = summary_of(of)
    assert summary["zoom_ns"] == [of.begun_ns, of.begun_ns + 500_000_000]
    assert wrong(summary) == []


@pytest.mark.parametrize(
    ("section", "column", "value"), [("overall", "launches", 1.5), ("findings", "text", None), ("account", "more", 1)]
)
def test_the_schema_refuses_another_form(section: str, column: str, value: object) -> None:
    summary = summary_of(profile([[1000] * 4]))
    summary[section][0][column] = value
    assert len(wrong(summary)) == 1
    del summary[section]
    assert wrong(summary) == [f"$ {section!r} is a required property"]


def test_every_column_with_a_time_names_its_unit() -> None:
    assert not [name for each in SECTIONS.values() for name in each.columns if name.endswith(("_time", "_ms", "_us"))]


def test_several_logs_are_told_apart() -> None:
    logs: list[Log] = [profile([[1000] * 4]).logs[0], profile([[2000] * 4]).logs[0]]
    summary = summary_of(profile_of(logs, None))
    assert section(summary, "overall", "graph", "log", "kernels_total_ns") == [
        *((0, 0, 4000), (1, 0, 0)),
        *((2, 1, 8000), (3, 1, 0)),
    ]
    assert np.isclose(sum(row["share"] for row in summary["account"] if row["graph"] == 2), 1)
