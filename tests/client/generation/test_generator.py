"""Test the generator end to end on the null device: caching, resuming, summaries, and errors before any tuning."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputune.cache import PerformanceCache, TrialRecord
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.tuning import task_tuning
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.search.effort import EFFORTS, most_trials, trials_for
from gputune.client.tuning.search.task_search import BATCH
from gputune.kernels.catalogue import family_of
from gputune.runtime.context.format import read_header
from gputune.server.protocol.connection import Connection
from tests.client import models
from tests.client.commands import Gputune, Ran, config_file, read_json
from tests.client.model.test_alternatives import two_blocks


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.save(models.conv_relu_gemm(), tmp_path)


@pytest.fixture
def generate(
    gputune: Gputune, model: Path, tmp_path: Path, null_target: tuple[object, ...]
) -> Callable[..., tuple[Ran, Any]]:
    """Generates into a folder; returns how it ended and the summary."""

    def run(output: str, *arguments: object, embedded: bool = False, **config: object) -> tuple[Ran, Any]:
        summary = tmp_path / output / "summary.json"
        target = ("--device", "null") if embedded else null_target
        ran = gputune(
            "context-binary-generator", "--model", model, "--binary_file", "small", "--output_dir", tmp_path / output,
            "--config_file", config_file(tmp_path, **config), *target, "--tuning_effort", "quick",
            "--summary_json", summary, *arguments,
        )  # fmt: skip
        return ran, read_json(summary) if summary.exists() else None

    return run


def configurations(summary: Any) -> Any:
    return {task["key"]: task["configuration"] for task in summary["tasks"]}


def test_a_second_generation_asks_the_target_for_nothing(generate: Any, tmp_path: Path) -> None:
    ran, first = generate("one")
    assert ran.code == 0, ran.err
    assert {task["hit"] for task in first["tasks"]} == {False}
    assert first["totals"]["profile_requests"] > 0
    pool = sum(trials_for(EFFORTS["quick"], family_of(task["op"]).heavy, task["space_size"]) for task in first["tasks"])
    assert sum(sum(task["trials"].values()) for task in first["tasks"]) <= pool
    for task in first["tasks"]:
        measured = sum(task["trials"].values())
        assert min(task["space_size"], BATCH // 2) <= measured <= most_trials(EFFORTS["quick"], task["space_size"])
        assert 0 < task["tuned_ns"] <= task["default_ns"]
        assert task["drift"] == 1.0, "the null device keeps its speed"

    ran, second = generate("two")
    assert ran.code == 0, ran.err
    totals = second["totals"]
    assert (totals["profile_requests"], totals["compile_requests"], totals["cache_misses"]) == (0, 0, 0)
    assert totals["cache_hits"] == len(second["tasks"]) == len(first["tasks"])
    assert configurations(first) == configurations(second)
    assert all(task["drift"] is None for task in second["tasks"])
    one, two = (tmp_path / name / "small.bin" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_invalidation_measures_everything_again_once(generate: Any) -> None:
    generate("one")
    _, again = generate("two", invalidate_performance_cache=True)
    assert again["totals"]["cache_hits"] == 0
    _, third = generate("three")
    assert third["totals"]["cache_misses"] == 0


def test_an_interrupted_generation_measures_only_what_is_missing(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    ran, _ = generate("one", invalidate_performance_cache=True)
    assert ran.code == 130
    assert "the same command resumes" in ran.err
    assert not list((tmp_path / "one").glob("*.bin"))
    (path,) = (tmp_path / "cache").glob("*.sqlite")
    with PerformanceCache.open_readonly(path) as cache:
        stored = sum(sum(task.trials.values()) for task in cache.tasks())
    assert stored == sum(calls)

    monkeypatch.setattr(TaskRunner, "measure", measure)
    ran, summary = generate("two", invalidate_performance_cache=True)
    assert "resuming" in ran.err
    assert sum(task["resumed"] for task in summary["tasks"]) == stored
    for task in summary["tasks"]:
        finalists = task["measured"] + task["resumed"] - sum(task["trials"].values())
        assert 0 <= finalists <= 5, "only the finalists are measured twice"


def test_failures_are_measured_again_when_asked_for(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    _, first = generate("one")
    failures = sum(task["trials"].get("device_limits", 0) for task in first["tasks"])
    assert failures
    monkeypatch.setattr(task_tuning, "_record", record)
    _, second = generate("two")
    assert second["totals"]["cache_misses"] == 0
    _, third = generate("three", "--retry_failures", "device_limits,crash")
    retried = [task for task in third["tasks"] if not task["hit"]]
    assert sum(task["measured"] for task in retried) >= failures
    assert all(task["trials"] == {"ok": sum(task["trials"].values())} for task in retried)
    _, fourth = generate("four", "--retry_failures")
    assert fourth["totals"]["cache_misses"] == 0


@pytest.mark.slow
def test_a_server_that_is_killed_costs_the_batch_in_flight(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    ran, summary = generate("one", embedded=True)
    assert ran.code == 0, ran.err
    assert "the embedded server ended with SIGKILL" in ran.err
    assert "is back after" in ran.err
    assert all(set(task["trials"]) == {"ok"} for task in summary["tasks"])
    batches = sum(-(-sum(task["trials"].values()) // BATCH) + 1 for task in summary["tasks"])
    assert summary["totals"]["profile_requests"] <= batches + 1


@pytest.mark.slow
def test_effort_none_uses_defaults_and_no_cache(gputune: Gputune, model: Path, tmp_path: Path) -> None:
    ran = gputune(
        "context-binary-generator", "--model", model, "--binary_file", tmp_path / "plain", "--device", "null",
        "--tuning_effort", "none", "--summary_json", tmp_path / "summary.json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    summary = read_json(tmp_path / "summary.json")
    assert summary["totals"]["profile_requests"] == 0
    assert summary["totals"]["compile_requests"] == len(summary["tasks"])
    assert all(task["trials"] == {} and task["tuned_ns"] is None for task in summary["tasks"])
    assert (tmp_path / "plain.bin").exists()


@pytest.mark.slow
def test_effort_none_fuses_what_is_expected_to_be_faster(gputune: Gputune, tmp_path: Path) -> None:
    ran = gputune(
        "context-binary-generator", "--model", models.save(two_blocks(), tmp_path), "--binary_file", tmp_path / "plain",
        "--device", "null", "--tuning_effort", "none", "--summary_json", tmp_path / "summary.json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    weights = {task["op"]: task["weight"] for task in read_json(tmp_path / "summary.json")["tasks"]}
    assert weights.keys() == {"Transpose", "SeparableConv"}


def test_net_run_says_that_a_null_context_computes_nothing(generate: Any, gputune: Gputune, tmp_path: Path) -> None:
    generate("one")
    inspected = gputune("context-binary-utility", "--context_binary", tmp_path / "one" / "small.bin", "--json")
    (graph,) = json.loads(inspected.out)["graphs"]
    (entry,) = graph["inputs"]
    size = 4
    for dimension in entry["shape"]:
        size *= dimension
    (tmp_path / "x.raw").write_bytes(bytes(size))
    (tmp_path / "inputs.txt").write_text(f"{entry['name']}:={tmp_path / 'x.raw'}\n", encoding="utf-8")
    ran = gputune(
        "net-run", "--retrieve_context", tmp_path / "one" / "small.bin", "--input_list", tmp_path / "inputs.txt",
        "--output_dir", tmp_path / "out", "--num_inferences", "3", "--summary_json", tmp_path / "run.json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "computes nothing" in ran.err
    summary = read_json(tmp_path / "run.json")
    assert len(summary["inference_ns"]) == 3
    assert summary["device"] == "null"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["Result_0"]


def unsupported() -> onnx.ModelProto:
    return models.build("(float[1,4] x) => (float[1,4] y)", "y = Det(x)")


class TestErrorsBeforeTuning:
    """Each gives one clear line and its exit code, without a performance cache having been touched."""

    @pytest.fixture(autouse=True)
    def _untouched(self, tmp_path: Path) -> Any:
        yield
        assert not list((tmp_path / "cache").glob("*"))

    @pytest.fixture
    def fails(self, gputune: Gputune, model: Path, tmp_path: Path) -> Callable[..., Ran]:
        def run(**replaced: object) -> Ran:
            if "config_file" not in replaced:
                replaced["config_file"] = config_file(tmp_path)
            options: dict[str, object] = {
                "model": model, "binary_file": "small", "output_dir": tmp_path / "out", "device": "null", **replaced,
            }  # fmt: skip
            words = [word for name, value in options.items() if value for word in (f"--{name}", value)]
            ran = gputune("context-binary-generator", *words)
            assert len([line for line in ran.err.splitlines() if line.startswith("error: ")]) == 1, ran.err
            assert "Traceback" not in ran.err
            return ran

        return run

    def test_missing_model(self, fails: Any, tmp_path: Path) -> None:
        ran = fails(model=tmp_path / "nowhere.onnx")
        assert ran.code == 3
        assert re.search("nowhere.onnx.*(does not exist|No such file)", ran.last_line)

    def test_corrupt_model(self, fails: Any, tmp_path: Path) -> None:
        (tmp_path / "broken.onnx").write_bytes(b"\x08\x07garbage" * 50)
        ran = fails(model=tmp_path / "broken.onnx")
        assert ran.code == 3
        assert "broken.onnx" in ran.last_line

    def test_unwritable_output_folder(self, fails: Any, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way", encoding="utf-8")
        ran = fails(output_dir=tmp_path / "file" / "out")
        assert ran.code == 6
        assert "cannot be written" in ran.last_line

    def test_unknown_config_key(self, fails: Any, tmp_path: Path) -> None:
        ran = fails(config_file=config_file(tmp_path, tuning_mod=True))
        assert ran.code == 2
        assert "did you mean 'tuning_mode'" in ran.last_line

    def test_cache_key_without_tuning_mode(self, fails: Any, tmp_path: Path) -> None:
        ran = fails(config_file=config_file(tmp_path, tuning_mode=False))
        assert ran.code == 2
        assert 'needs "tuning_mode": true' in ran.last_line

    def test_unreachable_target(self, fails: Any) -> None:
        ran = fails(target="127.0.0.1:9", device=None)
        assert ran.code == 4
        assert "127.0.0.1:9" in ran.last_line

    @pytest.mark.slow
    def test_version_mismatch(self, fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        server = EmbeddedServer.start("null")
        monkeypatch.setattr(Connection.__init__, "__defaults__", (None, 99))
        try:
            ran = fails(target=f"{server.host}:{server.port}", device=None)
        finally:
            server.stop()
        assert ran.code == 4
        assert "version_mismatch" in ran.last_line

    @pytest.mark.slow
    def test_a_token_that_differs(self, fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        server = EmbeddedServer.start("null")
        try:
            missing = fails(target=f"{server.host}:{server.port}", device=None)
            monkeypatch.setenv("GPUTUNE_TOKEN", "not the one of this server")
            wrong = fails(target=f"{server.host}:{server.port}", device=None)
        finally:
            server.stop()
        assert (missing.code, wrong.code) == (4, 4)
        assert "token_required" in missing.last_line
        assert "authentication_failed" in wrong.last_line

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"token_file": "nowhere"}, "--token_file: .*nowhere cannot be read"),
            ({"tls_cert": "c.pem"}, "--tls_cert and --tls_key belong together"),
            ({"adb_python": "python3"}, "give --adb, too"),
            (
                {"retry_failures": "all", "tuning_effort": "none", "config_file": None},
                "--retry_failures: tuning is off",
            ),
        ],
    )
    def test_options_that_do_not_fit(self, fails: Any, options: Any, words: str) -> None:
        ran = fails(**options)
        assert ran.code == 2
        assert re.search(words, ran.last_line)

    def test_an_unknown_status(self, gputune: Gputune) -> None:
        ran = gputune(
            "context-binary-generator", "--model", "m", "--binary_file", "b", "--retry_failures", "timeout,hang"
        )
        assert ran.code == 2
        assert "'hang' is not one of constraints, compile" in ran.err

    def test_unsupported_op(self, fails: Any, tmp_path: Path) -> None:
        onnx_model = unsupported()
        onnx_model.graph.node[0].name = "the_determinant"
        ran = fails(model=models.save(onnx_model, tmp_path))
        assert ran.code == 3
        assert "Det" in ran.last_line
        assert "the_determinant" in ran.last_line
        assert "; instead: " in ran.last_line and "an op package that lowers Det" in ran.last_line

    def test_several_unsupported_ops_have_their_own_advice(self, fails: Any, tmp_path: Path) -> None:
        body = "a = Det(x) b = NonZero(x) c = Cast<to=1>(b)"
        model = models.build("(float[4,4] x) => (float[] a, float[i,j] c)", body)
        ran = fails(model=models.save(model, tmp_path))
        assert ran.code == 3
        assert (
            "; instead of Det: " in ran.last_line and "; instead of NonZero: end the model before it" in ran.last_line
        )

    def test_dynamic_shapes(self, fails: Any, tmp_path: Path) -> None:
        dynamic = models.build("(float[N,4] x) => (float[N,4] y)", "y = Relu(x)")
        ran = fails(model=models.save(dynamic, tmp_path))
        assert ran.code == 3
        assert "--input_dimensions" in ran.last_line


def test_inner_tensors_as_outputs(generate: Any, tmp_path: Path) -> None:
    """What was measured of a task serves every set of outputs, and a tensor that is kept changes its task alone."""
    _, plain = generate("plain")
    named = ("--set_output_tensors", "c", "--input_output_tensor_mem_type", "c=memhandle")
    ran, kept = generate("kept", *named)
    assert ran.code == 0, ran.err
    assert "graph 'small': outputs in addition to the model's own: 1, which take 0.0 MiB" in ran.err
    (graph,) = read_header(tmp_path / "kept" / "small.bin").graphs
    assert [(one.name, one.shape, one.memory_type) for one in graph.outputs] == [
        ("y", (1, 5), "raw"),
        ("c", (1, 4, 5, 7), "memhandle"),
    ]
    hits = {task["key"]: task["hit"] for task in kept["tasks"]}
    assert {key for key, hit in hits.items() if hit} == hits.keys() & {task["key"] for task in plain["tasks"]}
    assert 0 < sum(hits.values()) < len(hits)
    ran, _ = generate("all", "--enable_intermediate_outputs")
    assert ran.code == 0, ran.err
    assert [one.name for one in read_header(tmp_path / "all" / "small.bin").graphs[0].outputs] == ["y", "r"]
    ran, _ = generate("wrong", "--set_output_tensors", "cc")
    assert (ran.code, "computes no tensor 'cc'; the nearest are 'c'" in ran.last_line) == (2, True)
