"""Keep the durations of every test and fixture of a run in one file, and show what the last run of scripts/test took:

    scripts/test --report [FILE]

A line of the file is a JSON object: a phase of a test or the making of a fixture, with seconds of wall time and of
processor time. Processor time includes processes that have ended since; it cannot tell apart whose they were. Times in
the report are added over all processes of the run.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

KEPT = Path(__file__).parents[1] / "build" / "durations.jsonl"
PHASES = ("setup", "call", "teardown")
TESTS, FIXTURES = 50, 20
"""So many are shown, the dearest."""
LONG_S = 5.0
"""A case that takes longer is one of the night, unless a marker says for whom it is worth it in every run."""
TAKEN = pytest.StashKey[list[list[Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations_file", type=Path, help="the file for the durations of this run; it is replaced")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("durations_file")
    if path is not None and not hasattr(config, "workerinput"):  # processes of pytest-xdist send their reports
        path.parent.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(_Kept(path))


class _Kept:
    """The reports of all processes, written as they come, so that a run that is ended keeps what it had."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not hasattr(report, "cpu_s"):  # pytest-xdist makes one for a process that has ended
            return
        row = {"test": report.nodeid, "phase": report.when, "outcome": report.outcome}
        row |= {"wall_s": report.duration, "cpu_s": report.cpu_s, "may_be_long": report.may_be_long}
        self._write(row)
        for name, scope, wall_s, cpu_s in report.fixtures:
            self._write({"fixture": name, "scope": scope, "test": report.nodeid, "wall_s": wall_s, "cpu_s": cpu_s})

    def _write(self, row: dict[str, Any]) -> None:
        self.file.write(json.dumps(row) + "\n")

    def pytest_unconfigure(self) -> None:
        self.file.close()


def _cpu_s() -> float:
    """Return the processor time of this process and of its children that have ended, in seconds."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    began, cpu_s = time.perf_counter(), _cpu_s()
    try:
        return (yield)
    finally:
        took = [fixturedef.argname, fixturedef.scope, time.perf_counter() - began, _cpu_s() - cpu_s]
        # A fixture of a module or a session is charged to the test that was the first to ask for it.
        request.session.stash.setdefault(TAKEN, []).append(took)


class _Clock:
    """The processor time when the phase that runs now began; phases of one process follow one another."""

    began = 0.0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    _Clock.began = _cpu_s()
    yield


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    report.cpu_s = _cpu_s() - _Clock.began
    report.may_be_long = any(item.get_closest_marker(name) is not None for name in ("night", "long"))
    stash = item.session.stash
    report.fixtures, stash[TAKEN] = stash.get(TAKEN, []), []
    return report


def room(test: str) -> str:
    """Return the room of a test by its node id: tests/opencl/kernels/test_pool.py::... is opencl/kernels."""
    folders = Path(test.partition("::")[0]).parent.parts[1:]
    return "/".join(folders[: 2 if folders[:1] == ("opencl",) else 1]) or "tests"


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of durations; end the program with a line that says what is wrong with it."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        sys.exit(f"{path}: no run has kept its durations yet; run scripts/test")
    except json.JSONDecodeError as error:
        sys.exit(f"{path}: not a file of durations ({error}); run scripts/test")


def report(rows: list[dict[str, Any]]) -> str:
    """Return the tables as text."""
    import tool  # of scripts/, which pytest does not need

    tests: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys([*PHASES, "cpu"], 0.0))
    may_be_long = {row["test"] for row in rows if row.get("may_be_long")}
    fixtures: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if "fixture" in row:
            fixtures[row["fixture"], row["scope"], row["test"].partition("::")[0]].append(row["wall_s"])
        else:
            tests[row["test"]][row["phase"]] += row["wall_s"]
            tests[row["test"]]["cpu"] += row["cpu_s"]
    rooms: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name, took in tests.items():
        rooms[room(name)].append(took)

    def sums(several: list[dict[str, float]]) -> list[str]:
        return [f"{sum(took[each] for took in several):.1f}" for each in (*PHASES, "cpu")]

    head = ["set-up", "body", "tear-down", "processor"]
    by_cpu = sorted(rooms.items(), key=lambda pair: -sum(took["cpu"] for took in pair[1]))
    lines = [[name, str(len(several)), *sums(several)] for name, several in by_cpu]
    lines.append(["all", str(len(tests)), *sums(list(tests.values()))])
    parts = [tool.table(["room", "cases", *head], lines)]
    dearest = sorted(tests.items(), key=lambda pair: -sum(pair[1][phase] for phase in PHASES))
    parts.append(tool.table(["test", *head], [[name, *sums([took])] for name, took in dearest[:TESTS]]))
    long = [(name, took) for name, took in dearest if took["call"] > LONG_S and name not in may_be_long]
    title = f"more than {LONG_S:g} s, and neither `night` nor `long`"
    parts.append(tool.table([title, *head], [[name, *sums([took])] for name, took in long]))
    makers = sorted(fixtures.items(), key=lambda pair: -sum(pair[1]))[:FIXTURES]
    made = [
        [f"{name} ({scope}) of {file}", str(len(walls)), f"{sum(walls):.1f}"] for (name, scope, file), walls in makers
    ]
    parts.append(tool.table(["fixture", "made", "wall"], made))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/test --report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=KEPT, help="durations of another run")
    print(report(rows_of(parser.parse_args().file)))


if __name__ == "__main__":
    main()
