"""Test that property tests repeat themselves in the suite, and explore with scripts/fuzz."""

import argparse
import importlib.util
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuzz
from stress import graphs
from stress.fuzz import cases
from tests.strategies.graphs.comparing import AGREES, FAILED, Outcome


def drawn() -> list[int]:
    """The examples of a property test."""
    numbers: list[int] = []

    @given(st.integers())
    def collect(number: int) -> None:
        numbers.append(number)

    collect()
    return numbers


def test_the_examples_of_a_property_test_are_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = drawn()
    assert len(first) >= settings.get_profile("repeatable").max_examples
    path = tmp_path / "late.py"
    path.write_text(f"CONSTANTS = {list(range(7_000_000, 7_000_050))}")
    spec = importlib.util.spec_from_file_location("late", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "late", module)
    assert drawn() == first


@pytest.mark.parametrize("profile", ["repeatable", "exploring"])
def test_no_property_test_depends_on_the_speed_of_the_machine_or_on_earlier_runs(profile: str) -> None:
    chosen = settings.get_profile(profile)
    assert (chosen.deadline, chosen.database) == (None, None)
    assert chosen.derandomize is (profile == "repeatable")


def test_exploring_runs_only_property_tests_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    codes = iter((0, 1))

    def run(command: list[str], **_: object) -> object:
        ran.append(command)
        return type("Done", (), {"returncode": next(codes)})

    monkeypatch.setattr("stress.fuzz.tests.subprocess.run", run)
    assert fuzz.main(["tests", "--seed", "7", "--count", "3", "-k", "bytes", "tests/cache"]) == 1
    assert [[word for word in command if "seed" in word] for command in ran] == [
        ["--hypothesis-seed=7"], ["--hypothesis-seed=8"],
    ]  # fmt: skip
    assert ran[0][-3:] == ["-k", "bytes", "tests/cache"]
    assert ran[0][ran[0].index("hypothesis") - 1] == "-m"


def test_every_run_says_its_seed_and_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stress.fuzz.tests.subprocess.run", lambda *_, **__: type("Done", (), {"returncode": 1}))
    assert fuzz.main(["tests", "-k", "a or b"]) == 1
    said = capsys.readouterr()
    seed = said.out.split()[-1]
    assert said.err == f"repeat with: scripts/fuzz tests --seed {seed} -k 'a or b'\n"


def test_random_graphs_are_compared_and_those_that_fail_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzz.main(["graphs", "--seed", "10", "--count", "2"]) == 0
    assert "{'agrees': 2}" in capsys.readouterr().out
    found = {10: Outcome(10, AGREES), 11: Outcome(11, FAILED, "seed 11: wrong", "Conv")}
    monkeypatch.setattr(graphs, "outcome_of", lambda seed, *_: found[seed])
    monkeypatch.setattr(graphs, "FOLDER", tmp_path)
    assert fuzz.main(["graphs", "--seed", "10", "--count", "2"]) == 1
    assert f"seed 11: wrong; alone: Conv; {tmp_path / 'graph-11.onnx'}" in capsys.readouterr().out
    assert (tmp_path / "graph-11.onnx").exists()


def test_a_case_that_fails_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cases, "MOST_BYTES", 1 << 46)  # this process may have more than a command
    drawn: list[float] = []

    def examine(chance: random.Random) -> str:
        drawn.append(chance.random())
        if len(drawn) == 3:
            raise KeyError("not found")
        return "fine"

    assert cases.explore("native", argparse.Namespace(seed=7, count=4, case=None), examine) == 1
    said = capsys.readouterr().out
    assert "KeyError: 'not found'" in said and "4 cases, 1 broken: {'fine': 3}" in said
    assert "repeat with: scripts/fuzz native --seed 7 --case 2\n" in said
    assert cases.explore("native", argparse.Namespace(seed=7, count=4, case=2), examine) == 0
    assert drawn[-1] == drawn[2]
