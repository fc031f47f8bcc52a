"""Test what a user sees while a command works, to the byte."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gputune.client import progress
from gputune.client.progress import LoggedProgress, keeping_label, labelled, reporting
from gputune.core.logs import LEVELS

LINES = {
    logging.CRITICAL: "type this",
    logging.WARNING: "warning: mind",
    logging.INFO: "done 5 %",
    logging.DEBUG: "one",
}


@pytest.mark.parametrize("level", LEVELS)
def test_messages_are_lines_from_a_level_on(level: str) -> None:
    stream, log = io.StringIO(), logging.getLogger("gputune.test")
    with reporting(stream, level):
        for at, line in LINES.items():
            log.log(at, line.removeprefix("warning: "))
    log.warning("after its end")
    assert stream.getvalue() == "".join(f"{line}\n" for at, line in LINES.items() if at >= LEVELS[level])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [100.0]
    monkeypatch.setattr("gputune.client.progress.time.monotonic", lambda: now[0])
    yield now


@pytest.mark.parametrize(
    ("level", "seen"), [("info", "tuning 2/10 ETA 0:24 Conv\ntuning 4/8 ETA 0:12 Conv\n"), ("warn", "")]
)
def test_a_progress_is_lines_where_there_is_no_terminal(clock: list[float], level: str, seen: str) -> None:
    stream = io.StringIO()
    with reporting(stream, level) as progress, progress.running("tuning", 10):
        progress.advance(1, "Conv")  # too early for a line
        clock[0] += 6
        progress.advance(1, "Conv")
        clock[0] += 6
        progress.shrink(2)
        progress.advance(2, "Conv")
    assert stream.getvalue() == seen


def test_the_time_left_ends_with_what_is_allowed(clock: list[float]) -> None:
    stream = io.StringIO()
    with reporting(stream) as progress, progress.running("tuning", 1000, 90.0):
        clock[0] += 30
        progress.advance(1, "Conv")
    assert stream.getvalue() == "tuning 1/1000 ETA 1:00 Conv\n"


def test_messages_of_parallel_work_say_what_they_are_about(clock: list[float]) -> None:
    stream, log = io.StringIO(), logging.getLogger("gputune.test")

    def work(tier: str) -> None:
        with labelled(f"m.onnx on {tier}"), ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(keeping_label(log.warning), "mind") for _ in range(2)]:
                done.result()
            progress = LoggedProgress()
            with progress.running("tuning", 4):
                clock[0] += 20
                progress.advance(1, "Conv")

    with reporting(stream):
        for tier in ("a", "b"):
            work(tier)
        log.info("all done")
    lines = [line for tier in ("a", "b") for line in (
        *[f"warning: m.onnx on {tier}: mind"] * 2, f"m.onnx on {tier}: tuning 1/4 ETA 1:00 Conv"
    )]  # fmt: skip
    assert stream.getvalue().splitlines() == [*lines, "all done"]


def test_a_library_says_nothing_by_itself() -> None:
    code = "import logging, gputune.client; logging.getLogger('gputune.client.tuning').warning('mind')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


@pytest.mark.parametrize(
    ("done", "passed", "seconds", "eta"),
    [
        (0, 5.0, None, ""),
        (5, 10.0, None, "ETA 0:30"),
        (5, 10.0, 20.0, "ETA 0:10"),
        (5, 10.0, 10.0, ""),
        (19, 300.0, 20.0, ""),
        (20, 300.0, 20.0, "ETA 0:00"),
    ],
)
def test_an_eta_is_never_nothing_before_the_end(
    monkeypatch: pytest.MonkeyPatch, done: int, passed: float, seconds: float | None, eta: str
) -> None:
    """What was expected to be over, and is not, has none: nobody knows how long it takes."""
    now = [0.0]
    monkeypatch.setattr("gputune.client.progress.time.monotonic", lambda: now[0])
    pace = progress._Pace(20, seconds)
    pace.done, now[0] = done, passed
    assert pace.eta == eta
    assert pace.line("tuning", "Conv").split() == ["tuning", f"{done}/20", *eta.split(), "Conv"]
