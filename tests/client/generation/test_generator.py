"""Test the generator end to end on the null device: caching, resuming, summaries, and errors before any tuning."""

import re
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache, TrialRecord
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.tuning import task_tuning
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.search.effort import EFFORTS, most_trials, trials_for
from gputune.client.tuning.search.task_search import BATCH
from gputune.kernels.catalogue import family_of
from gputune.server.protocol.connection import Connection
from tests.client import models
from tests.client.commands import Generate
from tests.client.model.test_alternatives import two_blocks


def configurations(summary: Any) -> Any:
    return {task["key"]: task["configuration"] for task in summary["tasks"]}


def test_a_second_generation_asks_the_target_for_nothing(generate: Generate) -> None:
    ran = generate(effort="quick", output="one")
    assert ran.code == 0, ran.err
    first = ran.summary
    assert {task["hit"] for task in first["tasks"]} == {False}
    assert first["totals"]["profile_requests"] > 0
    pool = sum(trials_for(EFFORTS["quick"], family_of(task["op"]).heavy, task["space_size"]) for task in first["tasks"])
    assert sum(sum(task["trials"].values()) for task in first["tasks"]) <= pool
    for task in first["tasks"]:
        measured = sum(task["trials"].values())
        assert min(task["space_size"], BATCH // 2) <= measured <= most_trials(EFFORTS["quick"], task["space_size"])
        assert 0 < task["tuned_ns"] <= task["default_ns"]
        assert task["drift"] == 1.0, "the null device keeps its speed"

    again = generate(effort="quick", output="two")
    assert again.code == 0, again.err
    second = again.summary
    totals = second["totals"]
    assert (totals["profile_requests"], totals["compile_requests"], totals["cache_misses"]) == (0, 0, 0)
    assert totals["cache_hits"] == len(second["tasks"]) == len(first["tasks"])
    assert configurations(first) == configurations(second)
    assert all(task["drift"] is None for task in second["tasks"])
    assert ran.context.read_bytes() == again.context.read_bytes()


def test_invalidation_measures_everything_again_once(generate: Generate) -> None:
    generate(effort="quick")
    again = generate(effort="quick", invalidate_performance_cache=True)
    assert again.summary["totals"]["cache_hits"] == 0
    assert generate(effort="quick").summary["totals"]["cache_misses"] == 0


def test_an_interrupted_generation_measures_only_what_is_missing(
    generate: Generate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the third batch; the rerun keeps all before it, though it invalidates, too."""
    measure = TaskRunner.measure
    calls: list[int] = []

    def breaking(bench: Any, batch: Any, *rest: Any) -> Any:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(len(batch))
        return measure(bench, batch, *rest)

    monkeypatch.setattr(TaskRunner, "measure", breaking)
    ran = generate(effort="quick", invalidate_performance_cache=True)
    assert ran.code == 130
    assert "the same command resumes" in ran.err
    assert not ran.context.exists()
    (path,) = (tmp_path / "cache").glob("*.sqlite")
    with PerformanceCache.open_readonly(path) as cache:
        stored = sum(sum(task.trials.values()) for task in cache.tasks())
    assert stored == sum(calls)

    monkeypatch.setattr(TaskRunner, "measure", measure)
    ran = generate(effort="quick", invalidate_performance_cache=True)
    summary = ran.summary
    assert "resuming" in ran.err
    assert sum(task["resumed"] for task in summary["tasks"]) == stored
    for task in summary["tasks"]:
        finalists = task["measured"] + task["resumed"] - sum(task["trials"].values())
        assert 0 <= finalists <= 5, "only the finalists are measured twice"


def test_failures_are_measured_again_when_asked_for(generate: Generate, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the first generation had run out of memory; the null device itself fails nothing."""
    record = task_tuning._record

    def failing(*what: Any) -> Any:
        stored = record(*what)
        if max(stored.configuration.values()) < 8:
            return stored
        return TrialRecord(
            stored.configuration, "device_limits", message="full", rendered_sha256=stored.rendered_sha256
        )

    monkeypatch.setattr(task_tuning, "_record", failing)
    first = generate(effort="quick").summary
    failures = sum(task["trials"].get("device_limits", 0) for task in first["tasks"])
    assert failures
    monkeypatch.setattr(task_tuning, "_record", record)
    assert generate(effort="quick").summary["totals"]["cache_misses"] == 0
    third = generate("--retry_failures", "device_limits,crash", effort="quick").summary
    retried = [task for task in third["tasks"] if not task["hit"]]
    assert sum(task["measured"] for task in retried) >= failures
    assert all(task["trials"] == {"ok": sum(task["trials"].values())} for task in retried)
    assert generate("--retry_failures", effort="quick").summary["totals"]["cache_misses"] == 0


@pytest.mark.slow
@pytest.mark.own("it is killed")
def test_a_server_that_is_killed_costs_the_batch_in_flight(generate: Generate, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[EmbeddedServer] = []
    started = EmbeddedServer.start

    def start(*arguments: Any) -> EmbeddedServer:
        killed.append(started(*arguments))
        return killed[-1]

    measure = TaskRunner.measure

    def killing(bench: Any, *arguments: Any) -> Any:
        killed[0]._process.kill()
        monkeypatch.setattr(TaskRunner, "measure", measure)
        return measure(bench, *arguments)

    monkeypatch.setattr(EmbeddedServer, "start", start)
    monkeypatch.setattr(TaskRunner, "measure", killing)
    ran = generate(effort="quick", target=("--device", "null"))
    assert ran.code == 0, ran.err
    summary = ran.summary
    assert "the embedded server ended with SIGKILL" in ran.err
    assert "is back after" in ran.err
    assert all(set(task["trials"]) == {"ok"} for task in summary["tasks"])
    batches = sum(-(-sum(task["trials"].values()) // BATCH) + 1 for task in summary["tasks"])
    assert summary["totals"]["profile_requests"] <= batches + 1


def test_effort_none_uses_defaults_and_no_cache(generate: Generate) -> None:
    ran = generate()
    summary = ran.summary
    assert summary["totals"]["profile_requests"] == 0
    assert summary["totals"]["compile_requests"] == len(summary["tasks"])
    assert all(task["trials"] == {} and task["tuned_ns"] is None for task in summary["tasks"])
    assert ran.context.exists()


def test_effort_none_fuses_what_is_expected_to_be_faster(generate: Generate) -> None:
    weights = {task["op"]: task["weight"] for task in generate(model=two_blocks()).summary["tasks"]}
    assert weights.keys() == {"Transpose", "SeparableConv"}


NOWHERE, DYNAMIC = Path("nowhere.onnx"), models.build("(float[N,4] x) => (float[N,4] y)", "y = Relu(x)")
DETERMINANT = models.build("(float[4,4] x) => (float[] y)", "y = Det(x)")
DETERMINANT.graph.node[0].name = "the_determinant"
TWO_UNSUPPORTED = models.build(
    "(float[4,4] x) => (float[] a, float[i,j] c)", "a = Det(x) b = NonZero(x) c = Cast<to=1>(b)"
)


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ({"model": NOWHERE}, 3, "nowhere.onnx.*(does not exist|No such file)"),
        ({"model": Path(__file__)}, 3, "test_generator.py"),
        ({"output": "config.json/out"}, 6, "cannot be written"),
        ({"tuning_mod": True}, 2, "did you mean 'tuning_mode'"),
        ({"target": ("--target", "127.0.0.1:9")}, 4, "127.0.0.1:9"),
        ({"model": DETERMINANT}, 3, "(?=.*the_determinant).*Det.*; instead: .*an op package that lowers Det"),
        ({"model": TWO_UNSUPPORTED}, 3, "; instead of Det: .*; instead of NonZero: end the model before it"),
        ({"model": DYNAMIC}, 3, "--input_dimensions"),
    ],
)
def test_what_is_wrong_is_one_line_before_any_tuning(
    generate: Generate, tmp_path: Path, how: dict[str, Any], code: int, words: str
) -> None:
    ran = generate(**{"effort": "quick", "target": ("--device", "null"), **how})
    assert ran.code == code, ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("error: ")]) == 1, ran.err
    assert re.search(words, ran.last_line) and "Traceback" not in ran.err
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("protocol", "token", "name"),
    [
        (99, None, "version_mismatch"),
        (None, "", "token_required"),
        (None, "not the one of this server", "authentication_failed"),
    ],
)
def test_a_server_that_refuses_ends_it_before_any_tuning(
    generate: Generate, monkeypatch: pytest.MonkeyPatch, protocol: int | None, token: str | None, name: str
) -> None:
    if protocol is not None:
        monkeypatch.setattr(Connection.__init__, "__defaults__", (None, protocol))
    if token is not None:
        monkeypatch.setenv("GPUTUNE_TOKEN", token)
    ran = generate(effort="quick", target=generate.target[: 4 if token is None else 2])
    assert (ran.code, name in ran.last_line) == (4, True), ran.err
    assert not (generate.folder / "cache").exists()


def test_inner_tensors_as_outputs(generate: Generate) -> None:
    """What was measured of a task serves every set of outputs, and a tensor that is kept changes its task alone."""
    plain = generate(effort="quick").summary
    named = ("--set_output_tensors", "c", "--input_output_tensor_mem_type", "c=memhandle")
    ran = generate(*named, effort="quick")
    (graph,) = ran.header.graphs
    assert "graph 'small': outputs in addition to the model's own: 1, which take 0.0 MiB" in ran.err
    assert [(one.name, one.shape, one.memory_type) for one in graph.outputs] == [
        ("y", (1, 5), "raw"),
        ("c", (1, 4, 5, 7), "memhandle"),
    ]
    hits = {task["key"]: task["hit"] for task in ran.summary["tasks"]}
    assert {key for key, hit in hits.items() if hit} == hits.keys() & {task["key"] for task in plain["tasks"]}
    assert 0 < sum(hits.values()) < len(hits)
    ran = generate("--enable_intermediate_outputs", effort="quick")
    assert [one.name for one in ran.header.graphs[0].outputs] == ["y", "r"]
    ran = generate("--set_output_tensors", "cc", effort="quick")
    assert (ran.code, "computes no tensor 'cc'; the nearest are 'c'" in ran.last_line) == (2, True)
