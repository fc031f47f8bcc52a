"""Test what is kept back of a budget, by what the untuned contexts take on a clock that the test moves."""

import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any, Self

import pytest

from gputune.client.context.elimination import rounds_needed
from gputune.client.context.reserves import ESTIMATING_SHARE, LEAST_SHARE, MOST_SHARE, SPREAD, Foretelling, insure
from gputune.client.errors import TargetError
from gputune.client.progress import SILENT
from gputune.client.tuning.budget import Budget

ROUNDS = rounds_needed(2)


class Machine:
    """Whose untuned context takes `compiling` and `packing` seconds to make, unless its programs are found, and `turn`
    seconds for a turn."""

    def __init__(self, compiling: float, packing: float, turn: float = 0.1, found: bool = False) -> None:
        self.now = 0.0
        self.compiling, self.packing, self.turn, self.found = compiling, packing, turn, found
        self.counts = Counter(compiled=0)
        self.compiling_seconds = 0.0
        self.remembered = 0.0
        self.turn_seconds = self.making_seconds = 0.0
        self.fails = False

    def clock(self) -> float:
        return self.now

    def remembers(self, seconds: float) -> float:
        self.remembered = seconds or self.remembered
        return self.remembered

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None: ...

    def load(self, *what: Any) -> Any:
        if not self.found:
            self.now += self.compiling
            self.compiling_seconds += self.compiling
            self.counts["compiled"] += 10
        self.now += self.packing
        self.making_seconds = self.packing + (0.0 if self.found else self.compiling)
        if self.fails:
            raise TargetError("launch_failed", "the device is tired")
        self.turn_seconds = self.turn
        return SimpleNamespace(graph=SimpleNamespace(persistent=()))

    def insure(self, budget: Budget, graphs: int = 1, *, anew: bool = False, verifies: bool = False) -> bool:
        chooser = SimpleNamespace(defaults=None, making_seconds=self.remembers)
        made: Any = [(chooser, self)] * graphs
        programs: Any = self
        return insure(budget, made, programs, anew=anew, verifies=verifies)


@pytest.fixture(autouse=True)
def _plain_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_runs(runner: Machine, one: Any) -> Any:
        return one, runner.load()

    monkeypatch.setattr("gputune.client.context.reserves.as_it_runs", as_it_runs)


def test_what_comes_after_tuning_is_kept_back_by_what_the_untuned_context_takes() -> None:
    machine = Machine(compiling=20.0, packing=5.0)
    budget = Budget(120.0, machine.clock)
    assert machine.insure(budget)
    rest = 120 - 25 - 5
    assert budget.left("other graphs") == rest, "packing is what finalizing takes, too"
    answer = SPREAD * 25 + 2 * ROUNDS * 0.1
    assert budget.left("estimating") == pytest.approx(rest - answer)
    assert budget.left("tuning") == pytest.approx(rest - answer - ESTIMATING_SHARE * rest)
    assert budget.program_seconds == 2.0


@pytest.mark.parametrize(("turn", "kept"), [(0.001, LEAST_SHARE * 90), (0.5, SPREAD * 25 + ROUNDS), (2.0, 0.0)])
def test_comparing_gets_what_an_answer_takes_or_nothing(turn: float, kept: float) -> None:
    """Where whole contexts are so slow that there is no answer this time, tuning gets all."""
    machine = Machine(compiling=20.0 if turn > 0.1 else 0.0, packing=5.0, turn=turn)
    budget = Budget(120.0 if turn > 0.1 else 100.0, machine.clock)
    machine.insure(budget)
    assert budget.left("comparing") - budget.left("estimating") == pytest.approx(kept)
    assert kept <= MOST_SHARE * 90


def test_the_cache_remembers_what_it_takes_where_programs_are_found() -> None:
    machine = Machine(compiling=20.0, packing=5.0)
    machine.insure(Budget(120.0, machine.clock))
    machine.found, machine.now = True, 0.0
    budget = Budget(120.0, machine.clock)
    machine.insure(budget)
    answer = SPREAD * 25 + 2 * ROUNDS * 0.1
    assert budget.left("comparing") - budget.left("estimating") == pytest.approx(answer)
    assert budget.program_seconds == 0.0


@pytest.mark.parametrize(("how", "kept"), [({"anew": True}, 25.0), ({"verifies": True}, 5.2)])
def test_finalizing_is_what_must_be_done_again(how: dict[str, bool], kept: float) -> None:
    machine = Machine(compiling=20.0, packing=5.0)
    budget = Budget(120.0, machine.clock)
    machine.insure(budget, **how)
    assert budget.left("finalizing") - budget.left("other graphs") == pytest.approx(kept)


@pytest.mark.parametrize("fails", [False, True])
def test_where_the_untuned_context_takes_all_that_is_said(caplog: pytest.LogCaptureFixture, fails: bool) -> None:
    """It is made all the same; one that does not run is not known to."""
    machine = Machine(compiling=100.0, packing=30.0)
    machine.fails = fails
    budget = Budget(120.0, machine.clock)
    assert not machine.insure(budget)
    assert budget.is_over("tuning") and budget.is_over("comparing")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["making the untuned context takes all of --tuning_budget: nothing is tuned or compared"]


@pytest.mark.parametrize(("each", "told"), [(4.0, 0), (6.0, 1)])
def test_what_will_take_too_long_is_foretold_once(caplog: pytest.LogCaptureFixture, each: float, told: int) -> None:
    machine = Machine(0.0, 0.0)
    shown = Foretelling(SILENT, Budget(100.0, machine.clock))
    with shown.running("compiling", 20):
        for number in range(12):
            machine.now += each
            shown.advance(1, "")
            assert len(caplog.messages) == (told if number >= 4 else 0), "the longest come first"
    if told:
        assert "may take 1:30 more, and 1:10 of --tuning_budget are left: then nothing is tuned" in caplog.text
