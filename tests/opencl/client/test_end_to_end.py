"""Test the whole way on a real device: tune, write, run, compare with onnxruntime; a warm cache; another server; a
kill."""

import contextlib
import itertools
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gputune.cache import PerformanceCache
from gputune.client.cli.main import main
from gputune.client.errors import ConfigError, GainTooSmall
from gputune.client.tuning.search.effort import EFFORTS, most_trials
from gputune.client.tuning.search.task_search import BATCH
from gputune.core.statuses import STATUSES
from gputune.kernels.family import Array
from gputune.kernels.space import configuration_key
from gputune.runtime.backends import Backend
from tests.client import models
from tests.client.commands import Gputune, config_file, read_json
from tests.client.summaries import problems
from tests.opencl.contexts import loaded
from tests.waiting import becomes

INPUT = np.random.default_rng(3).standard_normal((1, 3, 9, 7)).astype(np.float32)


def generator_arguments(folder: Path, output: str, log_level: str = "warn") -> list[str]:
    return [
        "context-binary-generator", "--model", str(folder / "model.onnx"), "--binary_file", "small",
        "--output_dir", str(folder / output), "--config_file", str(config_file(folder)), "--tuning_effort", "quick",
        "--summary_json", str(folder / output / "summary.json"), "--log_level", log_level,
    ]  # fmt: skip


def generate(folder: Path, output: str) -> Any:
    """Runs the generator in this process; returns its summary."""
    with pytest.raises(SystemExit) as ended:
        main(generator_arguments(folder, output))
    assert ended.value.code == 0
    return read_json(folder / output / "summary.json")


def run(backend: Backend, path: Path) -> Array:
    with loaded(backend, path) as executor:
        (result,) = executor.run({"x": INPUT}).values()
    return result


def stored_batches(folder: Path) -> list[int]:
    """How many trials each batch in the cache has; those of a batch are stored at one time."""
    (file,) = (folder / "cache").glob("*.sqlite")
    connection = sqlite3.connect(file)
    rows = connection.execute("SELECT count(*) FROM trial GROUP BY stored_at ORDER BY stored_at").fetchall()
    connection.close()
    return [count for (count,) in rows]


@contextlib.contextmanager
def logging_server(log: Path) -> Iterator[str]:
    """The address of a server of our own, which says at the end of each connection what was asked of it."""
    command = [sys.executable, "-m", "gputune.server", "--port", "0", "--exit_with_parent", "--log_level", "info"]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        assert server.stdin is not None and server.stdout is not None
        for line in server.stdout:
            if match := re.search(r"listening on (\S+) ", line):
                yield match[1]
                server.stdin.close()
                return
    raise AssertionError(log.read_text())


def profile_requests(log: Path) -> int:
    """How many batches the server was asked for by a client that has gone."""
    found: list[str] = []

    def closed() -> bool:
        found.extend(re.findall(r"closed after .*?(\d+) profile", log.read_text()))
        return bool(found)

    assert becomes(closed), log.read_text()
    return int(found[0])


@dataclass(frozen=True)
class Killed:
    """A generation that was killed while it tuned: what it had said, had asked for and had stored by then."""

    heard: list[str]
    asked: int
    batches: list[int]
    stored: dict[str, int]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Killed, Any]:
    """A folder, a generation into it that was killed, and the summary of the same command given again, which leaves a
    tuned context in one/ and a warm cache."""
    folder = tmp_path_factory.mktemp("tuned")
    models.save(models.conv_relu_gemm(), folder)
    log = folder / "server.log"
    with logging_server(log) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TARGET_SERVER_SOCKET", address)
        command = [sys.executable, "-m", "gputune.client.cli.main", *generator_arguments(folder, "one", "verbose")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as generator:
            assert generator.stderr is not None
            trials = (line for line in generator.stderr if re.search(rf" \{{.*: ({'|'.join(STATUSES)}), ", line))
            heard = list(itertools.islice(trials, BATCH + 1))  # the second batch is measured, the third may be
            generator.kill()
            assert generator.wait() == -signal.SIGKILL, "it was done before it could be killed"
        asked, batches = profile_requests(log), stored_batches(folder)
        with PerformanceCache.open_readonly(next((folder / "cache").glob("*.sqlite"))) as cache:
            found = {one.task.op: cache.trials_of(one.task, one.validity) for one in cache.tasks()}
        stored = {op: len({configuration_key(trial.configuration) for trial in trials}) for op, trials in found.items()}
        return folder, Killed(heard, asked, batches, stored), generate(folder, "one")


@pytest.fixture
def tuned(resumed: tuple[Path, Killed, Any]) -> tuple[Path, Any]:
    """A folder with a tuned context in one/ and a warm cache, and the summary of the generation."""
    folder, _, summary = resumed
    return folder, summary


def configurations(summary: Any) -> Any:
    return {task["key"]: task["configuration"] for task in summary["tasks"]}


@pytest.mark.long("it is the whole way, and no other test tunes a model with convolutions")
def test_a_tuned_context_agrees_with_onnxruntime(tuned: tuple[Path, Any], backend: Backend) -> None:
    folder, summary = tuned
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    want = session.run(None, {"x": INPUT})[0]
    np.testing.assert_allclose(run(backend, folder / "one" / "small.bin"), want, rtol=0, atol=1e-4 * np.abs(want).max())
    for task in summary["tasks"]:
        assert task["tuned_ns"] > 0
        # one that was chosen for its time inside the model may be slower than the default alone
        assert task["in_chain"] or task["tuned_ns"] <= task["default_ns"]
        assert (
            min(task["space_size"], BATCH // 4)
            <= task["trials"]["ok"]
            <= most_trials(EFFORTS["quick"], task["space_size"])
        )


@pytest.mark.usefixtures("_reached")
def test_a_warm_cache_needs_no_measuring_and_no_compiling(tuned: tuple[Path, Any]) -> None:
    """The same context comes through another server, which runs already."""
    folder, first = tuned
    second = generate(folder, "two")
    totals = second["totals"]
    assert (totals["profile_requests"], totals["compile_requests"], totals["cache_misses"]) == (0, 0, 0)
    assert configurations(first) == configurations(second)
    assert (folder / "one" / "small.bin").read_bytes() == (folder / "two" / "small.bin").read_bytes()


@pytest.mark.usefixtures("_reached")
@pytest.mark.parametrize(("least", "code"), [(1000.0, GainTooSmall.exit_code), (0.001, 0)])
def test_a_frozen_cache_is_judged_by_the_gain_that_it_holds(
    tuned: tuple[Path, Any], capsys: pytest.CaptureFixture[str], least: float, code: int
) -> None:
    folder, _ = tuned
    words = ["--cache_mode", "frozen", "--fail_under", str(least), "--compare_seconds", "0.1"]
    with pytest.raises(SystemExit) as ended:
        main([*generator_arguments(folder, "judged"), *words])
    assert ended.value.code == code
    summary = read_json(folder / "judged" / "summary.json")
    assert problems("context-binary-generator", summary) == []
    told = summary["end_to_end"]
    assert summary["shipped_gain"] == (1.0 if told["kept"] == "untuned" else told["gain"]["median"])
    assert summary["totals"]["profile_requests"] == 0
    assert (folder / "judged" / "small.bin").exists(), "all is written before it is judged"
    said = capsys.readouterr().err.strip().splitlines()
    assert not code or said[-1].startswith("error: --fail_under 1000: the recorded gain is ")


def test_results_in_shared_buffers_are_those_of_copies(
    tuned: tuple[Path, Any], backend: Backend, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, _ = tuned
    np.save(folder / "x.npy", INPUT)
    (folder / "list.txt").write_text(f"{folder / 'x.npy'}\n{folder / 'x.npy'}\n")
    context = folder / "one" / "small.bin"
    ran = Gputune(capfd)(
        "net-run", "--retrieve_context", context, "--input_list", folder / "list.txt",
        "--output_dir", folder / "results", "--npy", "--shared_buffer",
    )  # fmt: skip
    if ran.code == ConfigError.exit_code:
        assert "shares no memory with its host" in ran.err
        return
    assert ran.code == 0, ran.err
    copied = run(backend, context)
    for number in range(2):
        (result,) = (folder / "results" / f"Result_{number}").glob("*.npy")
        assert np.load(result).tobytes() == copied.tobytes()


def test_a_killed_generator_loses_at_most_the_batch_in_flight(resumed: tuple[Path, Killed, Any]) -> None:
    _, killed, summary = resumed
    assert len(killed.heard) == BATCH + 1
    assert killed.asked - len(killed.batches) <= 1
    assert max(killed.batches) <= BATCH
    assert {task["op"]: task["resumed"] for task in summary["tasks"] if task["resumed"]} == killed.stored
    assert sum(killed.stored.values()) > BATCH
    for task in (task for task in summary["tasks"] if not task["hit"]):
        finalists = min(EFFORTS["quick"].finalists + 1, task["trials"]["ok"])
        again = task["resumed"] + task["measured"] - sum(task["trials"].values())
        assert again in (0, finalists), "only finalists of several batches are measured twice"
