"""Test what scripts rely on: the summary of a generation, its schema, and the gain below which a generation fails."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gputune.client.context.choice import Decision
from gputune.client.context.verifying.distance import Compared
from gputune.client.errors import CacheMiss, GainTooSmall, NothingCompared
from gputune.client.generation.request import GenerationRequest
from gputune.client.generation.summary import PHASES, check_gain, least_gained
from gputune.client.model.model_files import ModelFile
from gputune.client.model.plan import Plan
from gputune.client.options.config import Config
from gputune.client.options.tuning import CACHE_MODES, TuningOptions
from gputune.client.outputs import SCHEMA
from gputune.client.tuning.measuring.end_to_end import KEPT, EndToEnd
from gputune.client.tuning.measuring.sequential import Gain, gain_of
from gputune.client.tuning.search.effort import EFFORTS
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import STATUSES
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client import models
from tests.client.commands import Generate
from tests.client.summaries import SCHEMAS, problems, schema_of

FASTER = EndToEnd(2e6, Gain(1.08, 1.05, 1.12, 60), "tuned")
STAYED = EndToEnd(2e6, Gain(1.02, 0.99, 1.06, 60), "last")
UNTUNED = EndToEnd(2e6, Gain(1.04, 0.97, 1.12, 60), "untuned")
ALONE = EndToEnd(2e6, None, "untuned")
assert NULL_REPORT.identity is not None
NULL = NULL_REPORT.identity
REAL = replace(NULL, platform="somewhere", name="real")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_it_says_what_was_asked_for_and_what_was_made(generate: Generate, tmp_path: Path) -> None:
    ran = generate("--tuning_budget", "0.001s", "--log_level", "error", effort="quick")
    assert ran.code == 0
    cache, model = tmp_path / "cache" / "null-cu1.sqlite", tmp_path / "model.onnx"
    told = {
        "schema": SCHEMA,
        "device": "null",
        "device_tier": "null-cu1",
        "effort": "quick",
        "cache_mode": "use",
        "budget": {"seconds": 0.001, "used_up": True},
        "models": [{"path": str(model), "sha256": sha256(model), "weights": []}],
        "context": {"path": str(ran.context), "sha256": sha256(ran.context)},
        "performance_cache": {"path": str(cache), "sha256": sha256(cache)},
        "shipped_gain": None,
    }
    assert {name: ran.summary[name] for name in told} == told
    assert any("--tuning_budget was used up" in warning for warning in ran.summary["warnings"]), "shown or not"
    summary = generate("--tuning_budget", "10m", "--cache_mode", "off", effort="quick").summary
    assert summary["budget"] == {"seconds": 600, "used_up": False}
    assert (summary["performance_cache"], summary["warnings"]) == (None, [])


def test_weights_in_files_of_their_own_have_digests(generate: Generate, tmp_path: Path) -> None:
    path, data = tmp_path / "net.onnx", tmp_path / "w.data"
    onnx.save(models.conv_relu_gemm(), path, save_as_external_data=True, location=data.name, size_threshold=0)
    assert generate(model=path).summary["models"] == [
        {"path": str(path), "sha256": sha256(path), "weights": [{"path": str(data), "sha256": sha256(data)}]}
    ]


def test_a_gain_that_was_not_measured_is_not_enough_and_all_is_written(generate: Generate) -> None:
    ran = generate("--fail_under", "1.05", effort="quick")
    assert ran.code == CacheMiss.exit_code
    said = "error: --fail_under 1.05: no gain is recorded: null computes nothing; choose another device"
    assert ran.last_line == said
    assert ran.context.exists() and ran.summary["shipped_gain"] is None
    assert problems("context-binary-generator", ran.summary) == []


PLAN = cast(Plan, SimpleNamespace(name="g"))


def decided(*records: EndToEnd | None) -> list[Decision]:
    """Decisions with these records; nothing else of them is looked at."""
    return [Decision(PLAN, {}, end_to_end=record) for record in records]


def judged(
    least: float,
    *records: EndToEnd | None,
    decisions: Sequence[Decision] = (),
    device: DeviceIdentity = REAL,
    **asked: Any,
) -> None:
    """Checks the gain of a generation that has led to these records, or decisions."""
    request = GenerationRequest(
        models=[ModelFile(Path("m.onnx"), [{}])],
        binary_file=Path("m.bin"),
        config=asked.pop("config", Config()),
        effort=EFFORTS["quick"],
        performance_cache_dir=Path("cache"),
        tuning=TuningOptions(fail_under=least, **asked),
    )
    check_gain(request, decisions or decided(*records), device)


@pytest.mark.parametrize(
    ("least", "records"),
    [(1.08, [FASTER]), (1.02, [STAYED, FASTER]), (1.0, [UNTUNED]), (1.0, [ALONE]), (0.5, [FASTER, UNTUNED])],
)
def test_a_gain_that_is_large_enough_is_no_error(least: float, records: list[EndToEnd]) -> None:
    judged(least, *records)


@pytest.mark.parametrize(
    ("least", "records", "said"),
    [
        (1.1, [FASTER], f"1.0800 ({FASTER.line}); tune longer, or lower it; m.bin is written all the same"),
        (1.03, [FASTER, STAYED], f"1.0200 (the smallest of 2 graphs: {STAYED.line})"),
        (1.05, [UNTUNED], f"1.0000 ({UNTUNED.line}); tune longer"),
        (1.05, [replace(FASTER, gain=Gain(1.04999999, 1.01, 1.1, 60))], "1.04999999 ("),
    ],
)  # fmt: skip
def test_a_smaller_gain_is_an_error_that_says_it(least: float, records: list[EndToEnd], said: str) -> None:
    with pytest.raises(GainTooSmall) as raised:
        judged(least, *records)
    assert str(raised.value).startswith(f"--fail_under {least}: the recorded gain is {said}")
    assert raised.value.exit_code == 13


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"device": NULL}, "null computes nothing; choose another device"),
        ({"config": Config(memory_limit_hint=1)}, "memory_limit_hint has changed the context after it was compared"),
        ({"cache_mode": "frozen"}, "the frozen performance cache has none; generate with another cache_mode first"),
        ({}, "whole contexts were not compared, a warning says why; run the same command again"),
    ],
)  # fmt: skip
def test_without_a_record_of_each_graph_it_says_what_to_do(more: Mapping[str, Any], said: str) -> None:
    assert least_gained(decided(FASTER, None)) is None
    with pytest.raises(CacheMiss, match=f"^--fail_under 1: no gain is recorded: {said}"):
        judged(1.0, FASTER, None, **more)


def test_a_gain_of_contexts_whose_outputs_show_nothing_is_none() -> None:
    """They were compared by their times, which broken contexts have, too."""
    judged(1.0, decisions=[shows(7)])
    with pytest.raises(NothingCompared, match=r"^--fail_under 1: graph 'g': all 8 values of output 'y' are NaN"):
        judged(1.0, decisions=[shows(7), shows(8)])


def shows(blank: int) -> Decision:
    """A decision of a graph g, so many of whose 8 outputs are NaN."""
    return Decision(
        cast(Plan, SimpleNamespace(name="g")), {}, end_to_end=FASTER, outputs={"y": Compared(0.0, 8, blank)}
    )


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_a_schema_is_one(path: Path) -> None:
    Draft202012Validator.check_schema(schema_of(path.name.removesuffix(".schema.json")))


def test_the_schema_has_the_names_of_the_code() -> None:
    schema = schema_of("context-binary-generator")
    top, inner = schema["properties"], schema["$defs"]
    assert top["schema"]["const"] == SCHEMA
    assert top["effort"]["enum"] == list(EFFORTS)
    assert top["cache_mode"]["enum"] == list(CACHE_MODES)
    assert list(top["totals"]["properties"]["wall_seconds"]["properties"]) == list(PHASES)
    assert set(inner["end_to_end"]["properties"]["kept"]["enum"]) == set(KEPT)
    assert set(inner["task"]["properties"]["trials"]["propertyNames"]["enum"]) == set(STATUSES)


def test_a_name_that_the_schema_does_not_have_is_found(generate: Generate) -> None:
    summary = generate().summary
    assert problems("context-binary-generator", summary) == []
    (line,) = problems("context-binary-generator", summary | {"more": 1})
    assert "'more' was unexpected" in line
    del summary["context"]
    (line,) = problems("context-binary-generator", summary)
    assert "'context' is a required property" in line


ratios = st.lists(st.floats(0.01, 100), min_size=1, max_size=40)
records = st.builds(EndToEnd, st.floats(1.0, 1e12), st.none() | st.builds(gain_of, ratios), st.just("untuned"))


@given(records)
def test_every_record_is_what_the_schema_says(record: EndToEnd) -> None:
    schema = schema_of("context-binary-generator")
    told = {"$ref": "#/$defs/end_to_end", "$defs": schema["$defs"]}
    assert list(Draft202012Validator(told).iter_errors(record.to_dict())) == []
    assert record.shipped == 1.0 and not math.isnan(record.shipped)
