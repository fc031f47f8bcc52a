"""Test the result of comparing whole contexts, with a runner whose times the test decides."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputune.cache import WinnerRecord
from gputune.client.context import choice
from gputune.client.context.comparison import (
    Candidate,
    Choice,
    Estimate,
    Remembered,
    compare,
    estimated_alone,
    with_default,
    with_winner,
    worth_compiling,
)
from gputune.client.context.verifying.distance import Compared
from gputune.client.errors import TargetError
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.importer import read_model
from gputune.client.model.plan import Operation, Plan, Task
from gputune.client.tuning.budget import USED_UP, OutOfTime
from gputune.client.tuning.outcome import Outcome, untuned
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.kernels.ops.conv import ConvProblem
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import build, save

assert NULL_REPORT.identity is not None
IDENTITY = NULL_REPORT.identity
LAUNCH_NS = 10.0
ROUNDS = 12
DEFAULT, TUNED = {"FINALIST": -1}, {"FINALIST": 0}
Cost = Callable[[Task, Outcome], float]


@dataclass(eq=False)
class Loaded:
    plan: Plan
    outcomes: Mapping[str, Outcome]
    persistent: bool = False

    @property
    def graph(self) -> Any:
        return SimpleNamespace(launches=self.plan.operations, persistent=self.persistent)


class FakeRunner:
    """Contexts that exist in name only. cost: of an operation inside the model, in ns; beside: of a whole context, what
    an inference takes beside its operations and their launches; noise: by what share a round is slower at most."""

    def __init__(self, cost: Cost, beside: Callable[[Loaded], float] = lambda one: 100.0, noise: float = 0.0) -> None:
        self.cost, self.beside, self.noise = cost, beside, noise
        self.hurried = False
        self.share = "comparing"
        self.loaded: list[Loaded] = []
        self.freed: list[Loaded] = []
        self._random = random.Random(0)

    def load(self, plan: Plan, outcomes: Mapping[str, Outcome], persistent: bool = False) -> Loaded:
        self.loaded.append(Loaded(plan, outcomes, persistent))
        return self.loaded[-1]

    def has_time_for(self, turns: int) -> bool:
        return True

    def set_aside(self, context: Loaded) -> None:
        assert context not in self.freed

    def free(self, *contexts: Loaded) -> None:
        self.freed += contexts

    @contextmanager
    def comparing(self, seconds: float, contexts: int, least: int) -> Iterator[Callable[[], bool]]:
        """As many rounds as there are seconds."""
        left = iter(range(int(seconds)))
        yield lambda: next(left, None) is not None

    def round_ns(self, contexts: Sequence[Loaded]) -> list[float]:
        assert not set(map(id, contexts)) & set(map(id, self.freed))
        level = 1 + 0.3 * self._random.random()
        return [self._whole(one) * level * (1 + self.noise * self._random.random()) for one in contexts]

    def inference_ns(self, contexts: Sequence[Loaded]) -> list[list[float]]:
        return [list(own) for own in zip(*(self.round_ns(contexts) for _ in range(ROUNDS)), strict=True)]

    def _whole(self, one: Loaded) -> float:
        launches = 0.0 if one.persistent else LAUNCH_NS * len(one.plan.operations)
        return sum(self._operation(one, each) for each in one.plan.operations) + launches + self.beside(one)

    def task_ns(self, contexts: Sequence[Loaded]) -> list[dict[str, list[float]]]:
        assert not set(map(id, contexts)) & set(map(id, self.freed))
        assert not any(one.persistent for one in contexts), "a persistent kernel has no times of its parts"
        found = []
        for one in contexts:
            times: dict[str, float] = {}
            for each in one.plan.operations:
                key = task_key(each.task).digest
                times[key] = times.get(key, 0.0) + self._operation(one, each)
            found.append({key: [ns] * ROUNDS for key, ns in times.items()})
        return found

    def _operation(self, one: Loaded, operation: Operation) -> float:
        return self.cost(operation.task, one.outcomes[task_key(operation.task).digest])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Alternatives:
    """Three groups that may be fused: two of one task, and another."""
    return Alternatives(read_model(save(two_blocks(), tmp_path_factory.mktemp("model"))))


@pytest.fixture
def outcomes(model: Alternatives) -> dict[str, Outcome]:
    limits = device_limits(IDENTITY)
    found = [untuned(task, limits) for task in model.tasks]
    return {one.key: replace(one, configuration=TUNED, tuned_ns=1000.0) for one in found}


def defaults(outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    return {key: with_default(one, DEFAULT) for key, one in outcomes.items()}


def run(
    model: Alternatives,
    outcomes: Mapping[str, Outcome],
    runner: FakeRunner,
    finalists: Mapping[str, Sequence[WinnerRecord]] | None = None,
    persistent: bool = False,
    known: Candidate | None = None,
    certain: bool = True,
    earlier: Sequence[Any] = (),
    rounds: int = 48,
) -> Choice:
    given: Any = runner
    nothing: dict[str, list[WinnerRecord]] = {key: [] for key in outcomes}
    plain = Candidate("untuned", model.plan, (), defaults(outcomes), persistent)
    before = Remembered(known, certain, earlier)
    return compare(model, given, outcomes, {**nothing, **(finalists or {})}, plain, rounds, before)


def ops(plan: Plan) -> list[str]:
    return [each.task.op for each in plan.operations if each.task.op != "Transpose"]


def flat(task: Task, outcome: Outcome) -> float:
    """A fused kernel takes a little less than its parts; a default twice as long as what was tuned."""
    ns = 190.0 if task.op == "SeparableConv" else 100.0
    return 2 * ns if outcome.configuration == DEFAULT else ns


def winner(outcome: Outcome, number: int) -> WinnerRecord:
    return WinnerRecord({"FINALIST": number}, 1000.0 + number, 2000.0, "quick")


def finalists(outcomes: Mapping[str, Outcome], op: str, most: int = 3) -> dict[str, list[WinnerRecord]]:
    """So many finalists of every task of an op; the first has the outcome's own configuration."""
    return {
        key: [
            replace(winner(one, 0), configuration=one.configuration),
            *(winner(one, number) for number in range(1, most)),
        ]
        for key, one in outcomes.items()
        if one.op == op
    }


FUSED, APART = ["SeparableConv"] * 3, ["DepthwiseConv", "MatMul"] * 3


class TestFusing:
    def test_what_is_faster_is_fused(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        choice = run(model, outcomes, FakeRunner(flat))
        assert ops(choice.candidate.plan) == FUSED
        assert choice.estimate.launch_ns == pytest.approx(LAUNCH_NS * 1.3, rel=0.6)
        assert len(choice.measured["fused"]) == 3
        gain = choice.end_to_end.gain
        assert gain is not None and choice.end_to_end.kept == "tuned"
        assert 1.5 < gain.low <= gain.median <= gain.high < 2.5

    def test_what_is_faster_alone_is_not_fused_when_it_is_slower_inside_the_model(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        alone = {
            key: replace(one, tuned_ns=1.0 if one.op == "SeparableConv" else 1000.0) for key, one in outcomes.items()
        }
        choice = run(model, alone, FakeRunner(lambda task, _: 400.0 if task.op == "SeparableConv" else 100.0))
        assert ops(choice.candidate.plan) == APART
        assert choice.measured["fused"] == []

    def test_each_group_is_judged_alone(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        last = model.groups[-1].task.problem

        def cost(task: Task, outcome: Outcome) -> float:
            return 150.0 if task.problem == last else 400.0 if task.op == "SeparableConv" else 100.0

        choice = run(model, outcomes, FakeRunner(cost))
        assert ops(choice.candidate.plan)[-3:] == ["DepthwiseConv", "MatMul", "SeparableConv"]
        assert choice.measured["fused"] == [list(model.groups[-1].names)]

    def test_groups_that_share_operations_are_tried_in_turn(self, tmp_path: Path) -> None:
        """A block may be fused whole or without its first convolution: each way has a context, and times of its own."""
        body = """e = Conv(x, w) f = Clip(e, low, high) d = Conv<group=16, pads=[1,1,1,1]>(f, v) g = Clip(d, low, high)
                  y = Conv(g, u)"""
        weights: Any = {
            "w": (16, 4, 1, 1), "v": (16, 1, 3, 3), "u": (4, 16, 1, 1), "low": np.float32(0), "high": np.float32(6),
        }  # fmt: skip
        block = build("(float[1,4,7,5] x) => (float[1,4,7,5] y)", body, weights)
        model = Alternatives(read_model(save(block, tmp_path)))
        assert len(model.groups) == 2
        limits = device_limits(IDENTITY)
        outcomes = {one.key: replace(one, tuned_ns=1.0) for one in (untuned(task, limits) for task in model.tasks)}
        for best in ("InvertedResidual", "SeparableConv"):
            costs = {"InvertedResidual": 500.0, "SeparableConv": 500.0, best: 10.0}
            runner = FakeRunner(lambda task, _, costs=costs: costs.get(task.op, 200.0))  # type: ignore[misc]
            assert best in ops(run(model, outcomes, runner).candidate.plan)

    def test_whole_inferences_have_the_last_word(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        choice = run(model, outcomes, FakeRunner(flat, lambda one: 500.0 * (len(one.plan.operations) < 6)))
        assert ops(choice.candidate.plan) == APART

    def test_where_whole_inferences_leave_it_open_the_estimate_decides(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        choice = run(model, outcomes, FakeRunner(flat, noise=0.9))
        titles = [one["title"] for one in choice.measured["candidates"] if one["left"]]
        assert {"estimated", "nothing fused"} <= set(titles)
        assert ops(choice.candidate.plan) == FUSED

    def test_what_was_not_tuned_is_not_fused(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        unknown = {
            key: replace(one, tuned_ns=None) if one.op == "SeparableConv" else one for key, one in outcomes.items()
        }
        runner = FakeRunner(flat)
        assert ops(run(model, unknown, runner).candidate.plan) == APART
        assert all(ops(one.plan) == APART for one in runner.loaded)


class TestUntuned:
    def test_it_ships_where_everything_else_is_slower(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        def worse(task: Task, outcome: Outcome) -> float:
            ns = 600.0 if task.op == "SeparableConv" else 150.0
            return 100.0 if outcome.configuration == DEFAULT else ns

        choice = run(model, outcomes, FakeRunner(worse))
        assert all(one.configuration == DEFAULT for one in choice.candidate.outcomes.values())
        told = choice.end_to_end
        assert told.gain is not None and (told.kept, told.open) == ("untuned", False)
        assert told.gain.high < 1 / 1.2
        assert choice.rival is not None and choice.rival.outcomes is not choice.candidate.outcomes
        (chosen,) = (one for one in choice.measured["candidates"] if one["chosen"])
        assert chosen["untuned"] and chosen["gain"] is None

    def test_it_ships_where_nothing_is_certain_and_the_best_tuned_one_is_remembered(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        equal = FakeRunner(lambda task, one: 210.0 if task.op == "SeparableConv" else 100.0, noise=0.5)
        choice = run(model, outcomes, equal)
        assert (choice.end_to_end.kept, choice.end_to_end.open) == ("untuned", True)
        assert choice.rival is not None
        runner = FakeRunner(flat)
        given: Any = runner
        plain = Candidate("untuned", model.plan, (), defaults(outcomes), False)
        before = Remembered(choice.candidate, False, [], choice.rival, Estimate())
        again = compare(model, given, outcomes, dict.fromkeys(outcomes, ()), plain, 48, before)
        assert len(runner.loaded) == 2, "tasks are not timed once more, and no other context is compared"
        assert again.candidate.digest == choice.rival.digest and again.rival is None

    def test_no_rival_is_remembered_where_a_tuned_one_ships(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        assert run(model, outcomes, FakeRunner(flat)).rival is None


class TestTheLastChoice:
    def known(self, model: Alternatives, outcomes: dict[str, Outcome]) -> Candidate:
        return Candidate("the last choice", model.plan, (), outcomes, False)

    def test_it_stays_while_nothing_is_faster_for_certain(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        choice = run(model, outcomes, FakeRunner(flat, noise=0.9), known=self.known(model, outcomes))
        assert ops(choice.candidate.plan) == APART
        assert ops(run(model, outcomes, FakeRunner(flat, noise=0.9)).candidate.plan) == FUSED

    def test_it_goes_when_something_is(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        assert ops(run(model, outcomes, FakeRunner(flat), known=self.known(model, outcomes)).candidate.plan) == FUSED

    def test_comparisons_of_before_count(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        known = self.known(model, outcomes)
        earlier = [run(model, outcomes, FakeRunner(flat), known=known).measured["races"][-1]]
        again = run(model, outcomes, FakeRunner(flat, noise=0.2), known=known, earlier=earlier * 4)
        assert ops(again.candidate.plan) == FUSED
        assert len(again.measured["races"]) == 5


class TestFinalists:
    def test_a_task_gets_what_is_faster_inside_the_model(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        """The second is faster than the winner, the third still more so, for products; else both are slower."""

        def cost(task: Task, outcome: Outcome) -> float:
            number = outcome.configuration.get("FINALIST", 0)
            return 100.0 - 10 * number if task.op == "MatMul" else 100.0 + 10 * number

        runner = FakeRunner(lambda task, one: 1e6 if task.op == "SeparableConv" else cost(task, one))
        given = finalists(outcomes, "MatMul") | finalists(outcomes, "DepthwiseConv", 2)
        choice = run(model, outcomes, runner, given)
        products = {key for key, one in outcomes.items() if one.op == "MatMul"}
        assert set(choice.estimate.changed) == products
        changed = {key: one for key, one in choice.candidate.outcomes.items() if one.in_chain}
        assert set(changed) == products
        assert all(one.configuration == {"FINALIST": 2} for one in changed.values())
        assert {change["key"] for change in choice.measured["changed"]} == products

    def test_a_tie_keeps_the_winner(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        choice = run(model, outcomes, FakeRunner(flat), finalists(outcomes, "SeparableConv"))
        assert not any(one.in_chain for one in choice.candidate.outcomes.values())

    def test_a_task_that_takes_next_to_nothing_is_not_tried(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        def cost(task: Task, outcome: Outcome) -> float:
            return (1.0 if task.op == "MatMul" else 1000.0) - outcome.configuration.get("FINALIST", 0) / 10

        choice = run(model, outcomes, FakeRunner(cost), finalists(outcomes, "MatMul"))
        assert not choice.estimate.changed


class TestPersistence:
    @pytest.mark.parametrize("saved", [200.0, -500.0])
    def test_persistent_kernels_are_kept_also_where_the_target_is_busy(
        self, model: Alternatives, outcomes: dict[str, Outcome], saved: float
    ) -> None:
        """Beside other programs they are slower than launches, which the executor goes over to by itself."""
        runner = FakeRunner(flat, lambda one: 600.0 - saved * one.persistent)
        choice = run(model, outcomes, runner, persistent=True)
        assert choice.candidate.persistent is choice.measured["persistent"] is True

    def test_they_are_kept_where_it_is_open(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        """They save what launches cost, so the estimate speaks for them."""
        assert run(model, outcomes, FakeRunner(flat, noise=0.9), persistent=True).candidate.persistent

    def test_they_are_not_tried_where_they_are_no_alternative(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        runner = FakeRunner(flat)
        assert run(model, outcomes, runner).measured["persistent"] is False
        assert not any(one.persistent for one in runner.loaded)

    def test_one_that_does_not_run_costs_nothing_else(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        class Hangs(FakeRunner):
            def load(self, plan: Plan, outcomes: Mapping[str, Outcome], persistent: bool = False) -> Loaded:
                if persistent:
                    raise TargetError("timeout", "it waits for ever")
                return super().load(plan, outcomes)

        choice = run(model, outcomes, Hangs(flat), persistent=True)
        assert choice.measured["persistent"] is False
        assert ops(choice.candidate.plan) == FUSED

    def test_a_context_of_which_nothing_can_be_persistent_is_one_of_launches(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        class Apart(FakeRunner):
            def load(self, plan: Plan, outcomes: Mapping[str, Outcome], persistent: bool = False) -> Loaded:
                return super().load(plan, outcomes)

        choice = run(model, outcomes, Apart(flat), persistent=True)
        assert not any(one["persistent"] for one in choice.measured["candidates"])
        assert len({one["title"] for one in choice.measured["candidates"]}) == len(choice.measured["candidates"])


class TestNoTime:
    class Late(FakeRunner):
        """In which time is over when some contexts are loaded."""

        most = 0

        def load(self, plan: Plan, outcomes: Mapping[str, Outcome], persistent: bool = False) -> Loaded:
            if len(self.loaded) >= self.most:
                self.hurried = True
                raise OutOfTime(USED_UP)
            return super().load(plan, outcomes, persistent)

    def test_what_could_be_loaded_is_compared(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        runner = self.Late(flat)
        runner.most = 4
        choice = run(model, outcomes, runner, persistent=True)
        assert [one["title"] for one in choice.measured["candidates"]] == ["estimated", "untuned"]
        assert ops(choice.candidate.plan) == FUSED
        assert choice.hurried
        assert runner.share == "comparing"

    @pytest.mark.parametrize("most", [0, 1])
    def test_nothing_is_compared_without_time_for_another_context(
        self, model: Alternatives, outcomes: dict[str, Outcome], most: int
    ) -> None:
        """Before the untuned context, or after it."""
        runner = self.Late(flat)
        runner.most = most
        with pytest.raises(OutOfTime):
            run(model, outcomes, runner, persistent=True)

    def test_an_estimate_for_which_time_is_short_leaves_nothing_loaded(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        class Short(FakeRunner):
            def task_ns(self, contexts: Sequence[Loaded]) -> list[dict[str, list[float]]]:
                assert self.share == "estimating"
                self.hurried = True
                raise OutOfTime(USED_UP)

        runner = Short(flat)
        choice = run(model, outcomes, runner, persistent=True)
        assert [one["title"] for one in choice.measured["candidates"]] == ["estimated", "untuned"]
        assert choice.hurried and choice.end_to_end.gain is not None and choice.end_to_end.gain.low > 1
        assert runner.freed[:2] == runner.loaded[1:3], "what was to be timed"

    def test_with_time_nothing_is_hurried(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        assert not run(model, outcomes, FakeRunner(flat), persistent=True).hurried

    def test_times_of_single_kernels_are_an_estimate(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        alone = {
            key: replace(one, tuned_ns=150.0 if one.op == "SeparableConv" else 100.0) for key, one in outcomes.items()
        }
        guess = estimated_alone(model, alone, persistent=True)
        assert (ops(guess.plan), guess.persistent) == (FUSED, True)


def test_an_outcome_says_whether_it_is_not_the_winner_alone(outcomes: dict[str, Outcome]) -> None:
    outcome = next(iter(outcomes.values()))
    assert with_winner(outcome, winner(outcome, 1)).in_chain
    same = replace(winner(outcome, 0), configuration=dict(outcome.configuration))
    assert with_winner(outcome, same) == outcome


@pytest.mark.parametrize("told", [None, [], {"y": 8}, {"y": [8]}, {"y": [8, True]}, {"y": [8, "8"]}])
def test_what_a_record_says_of_outputs_is_believed_only_in_whole_numbers(told: object) -> None:
    assert choice._outputs(told) == {}
    assert choice._outputs({"y": [8, 7]}) == {"y": Compared(0.0, 8, 7)}


@pytest.mark.parametrize(
    ("operations", "side", "units", "worth"),
    [
        (3, 1, 2, True),  # launches take longer than kernels
        (3, 64, 2, False),
        (3, 64, 64, True),  # where kernels are fast
        (0, 64, 2, False),
    ],
)
def test_persistent_kernels_are_compiled_unmeasured_where_launches_count(
    operations: int, side: int, units: int, worth: bool, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task("Conv", ConvProblem(1, side, side, 64, 64, (3, 3), pads=(1, 1, 1, 1)), operations)
    plan = Plan("main", (), (), tuple(Operation(f"{n}", task, {}, "y") for n in range(operations)), {}, {}, {})
    device = replace(IDENTITY, compute_units=units)
    with caplog.at_level("INFO", logger="gputune"):
        assert worth_compiling(plan, device) is worth
    assert worth != ("they are not compiled" in caplog.text)
