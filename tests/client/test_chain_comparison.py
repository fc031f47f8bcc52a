"""What whole contexts lead to, with a race whose times the test decides."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputune.cache import ChainRecord, WinnerRecord
from gputune.client.alternatives import Alternatives
from gputune.client.chain_comparison import compare, plan_by, with_winner
from gputune.client.errors import TargetError
from gputune.client.importer import read_model
from gputune.client.plan import Operation, Plan, Task
from gputune.client.progress import Reporter
from gputune.client.tuning.outcome import Outcome, untuned
from gputune.client.tuning.task_search import device_limits, task_key
from gputune.runtime.devices import NULL_REPORT

from .models import build, save
from .test_alternatives import two_blocks

assert NULL_REPORT.identity is not None
IDENTITY = NULL_REPORT.identity
LAUNCH_NS = 10.0
ROUNDS = 12
Cost = Callable[[Task, Outcome], float]


@dataclass(eq=False)
class Loaded:
    plan: Plan
    outcomes: Mapping[str, Outcome]
    persistent: bool = False

    @property
    def graph(self) -> Any:
        return SimpleNamespace(launches=self.plan.operations, persistent=self.persistent)


class FakeRace:
    """Contexts that exist in name only. cost: of an operation in the chain, in ns; beside: of a whole context, what an
    inference takes beside its operations and their launches; noise: of each round, by what share it is slower."""

    def __init__(self, cost: Cost, beside: Callable[[Loaded], float] = lambda one: 100.0) -> None:
        self.cost, self.beside = cost, beside
        self.loaded: list[Loaded] = []
        self.freed: list[Loaded] = []

    def load(self, plan: Plan, outcomes: Mapping[str, Outcome], persistent: bool = False) -> Loaded:
        self.loaded.append(Loaded(plan, outcomes, persistent))
        return self.loaded[-1]

    def free(self, *contexts: Loaded) -> None:
        self.freed += contexts

    def inference_ns(self, contexts: Sequence[Loaded]) -> list[list[float]]:
        assert not set(map(id, contexts)) & set(map(id, self.freed))
        whole = [
            sum(self._operation(one, each) + LAUNCH_NS for each in one.plan.operations) + self.beside(one)
            for one in contexts
        ]
        return [[ns * (1 + 0.3 * (number % 3)) for number in range(ROUNDS)] for ns in whole]

    def task_ns(self, contexts: Sequence[Loaded]) -> list[dict[str, list[float]]]:
        assert not set(map(id, contexts)) & set(map(id, self.freed))
        found = []
        for one in contexts:
            times: dict[str, float] = {}
            for each in one.plan.operations:
                key = task_key(each.task).digest
                times[key] = times.get(key, 0.0) + self._operation(one, each)
            found.append({key: [ns] * ROUNDS for key, ns in times.items()})
        return found

    def binary(self, outcome: Outcome) -> bytes:
        return outcome.binary or repr(sorted(outcome.configuration.items())).encode()

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
    return {one.key: replace(one, tuned_ns=1000.0, binary=b"harvested") for one in found}


def run(
    model: Alternatives,
    outcomes: Mapping[str, Outcome],
    race: FakeRace,
    finalists: Mapping[str, Sequence[WinnerRecord]] | None = None,
    persistent: bool = False,
) -> ChainRecord:
    given: Any = race
    nothing: dict[str, list[WinnerRecord]] = {key: [] for key in outcomes}
    return compare(model, given, Reporter(io.StringIO()), outcomes, {**nothing, **(finalists or {})}, persistent)


def ops(plan: Plan) -> list[str]:
    return [each.task.op for each in plan.operations if each.task.op != "Transpose"]


def flat(task: Task, outcome: Outcome) -> float:
    return 190.0 if task.op == "SeparableConv" else 100.0


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


class TestFusing:
    def test_what_is_faster_in_the_chain_is_fused_and_the_times_lead_there_again(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        race = FakeRace(flat)
        record = run(model, outcomes, race)
        assert len(race.loaded) == 2, "everything is fused, so that there is nothing else to load"
        assert ops(plan_by(model, record.times_ns, record.launch_ns)) == ["SeparableConv"] * 3
        assert record.launch_ns == pytest.approx(LAUNCH_NS * 1.3, rel=0.6)
        assert len(record.measured["fused"]) == 3
        assert record.measured["gain_by_fusing"]["low"] > 1
        assert not record.winners

    def test_what_is_faster_alone_is_not_fused_when_it_is_slower_in_the_chain(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        alone = {
            key: replace(one, tuned_ns=1.0 if one.op == "SeparableConv" else 1000.0) for key, one in outcomes.items()
        }
        record = run(model, alone, FakeRace(lambda task, _: 400.0 if task.op == "SeparableConv" else 100.0))
        assert ops(plan_by(model, record.times_ns, record.launch_ns)) == ["DepthwiseConv", "MatMul"] * 3
        assert record.measured["fused"] == []
        assert record.measured["gain_by_fusing"] is None

    def test_each_group_is_judged_alone(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        last = model.groups[-1].task.problem

        def cost(task: Task, outcome: Outcome) -> float:
            return 150.0 if task.problem == last else 400.0 if task.op == "SeparableConv" else 100.0

        race = FakeRace(cost)
        record = run(model, outcomes, race)
        assert ops(plan_by(model, record.times_ns, record.launch_ns))[-3:] == [
            "DepthwiseConv",
            "MatMul",
            "SeparableConv",
        ]
        assert len(race.loaded) == 3
        assert record.measured["fused"] == [list(model.groups[-1].names)]

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
            race = FakeRace(lambda task, _, costs=costs: costs.get(task.op, 200.0))  # type: ignore[misc]
            record = run(model, outcomes, race)
            assert best in ops(plan_by(model, record.times_ns, record.launch_ns))
            assert len(race.loaded) == 3

    def test_whole_inferences_have_the_last_word(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        record = run(model, outcomes, FakeRace(flat, lambda one: 100.0 * (len(one.plan.operations) < 6)))
        assert not record.times_ns
        assert ops(plan_by(model, record.times_ns, record.launch_ns)) == ["DepthwiseConv", "MatMul"] * 3
        assert record.measured["gain_by_fusing"]["low"] < 1

    def test_what_was_not_tuned_is_not_fused(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        race = FakeRace(flat)
        unknown = {
            key: replace(one, tuned_ns=None) if one.op == "SeparableConv" else one for key, one in outcomes.items()
        }
        assert not run(model, unknown, race).times_ns
        assert not race.loaded, "there is nothing to compare"


class TestFinalists:
    def test_a_task_gets_what_is_faster_in_the_chain(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        """The second is faster than the winner, the third still more so, for products; else both are slower."""

        def cost(task: Task, outcome: Outcome) -> float:
            number = outcome.configuration.get("FINALIST", 0)
            return 100.0 - 10 * number if task.op == "MatMul" else 100.0 + 10 * number

        race = FakeRace(lambda task, one: 1e6 if task.op == "SeparableConv" else cost(task, one))
        given = finalists(outcomes, "MatMul") | finalists(outcomes, "DepthwiseConv", 2)
        record = run(model, outcomes, race, given)
        products = {key for key, one in outcomes.items() if one.op == "MatMul"}
        assert set(record.winners) == products
        for key, chosen in record.winners.items():
            assert chosen == replace(given[key][2], binary=b"[('FINALIST', 2)]")
        mixed = race.loaded[-1].outcomes
        assert {key for key, one in mixed.items() if one.in_chain} == products
        assert {key for key, one in mixed.items() if one.binary == b"harvested"} == set(outcomes) - products
        assert {change["key"] for change in record.measured["changed"]} == products
        assert record.measured["gain_by_finalists"]["low"] > 1

    def test_nothing_changes_without_a_gain_of_the_whole(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        def cost(task: Task, outcome: Outcome) -> float:
            return 100.0 - outcome.configuration.get("FINALIST", 0)

        def beside(one: Loaded) -> float:
            return 100.0 + 100.0 * any("FINALIST" in each.configuration for each in one.outcomes.values())

        record = run(model, outcomes, FakeRace(cost, beside), finalists(outcomes, "SeparableConv", 2))
        assert not record.winners
        assert record.measured["gain_by_finalists"]["low"] < 1

    def test_a_tie_keeps_the_winner(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        race = FakeRace(flat)
        record = run(model, outcomes, race, finalists(outcomes, "SeparableConv"))
        assert not record.winners
        assert record.measured["gain_by_finalists"] is None
        assert len(race.loaded) == 4, "plain, fused, and two with other finalists"


class TestPersistence:
    @pytest.mark.parametrize(("saved", "persistent"), [(200.0, True), (0.0, False), (-200.0, False)])
    def test_persistent_kernels_are_kept_where_whole_inferences_are_faster(
        self, model: Alternatives, outcomes: dict[str, Outcome], saved: float, persistent: bool
    ) -> None:
        race = FakeRace(flat, lambda one: 300.0 - saved * one.persistent)
        record = run(model, outcomes, race, persistent=True)
        assert record.measured["persistent"] is persistent
        assert (record.measured["gain_by_persistence"]["low"] > 1) is persistent
        before, after = race.loaded[-2:]
        assert (before.persistent, after.persistent) == (False, True)
        assert ops(before.plan) == ops(after.plan) == ["SeparableConv"] * 3, "what was chosen before"

    def test_they_are_not_tried_where_they_are_no_alternative(
        self, model: Alternatives, outcomes: dict[str, Outcome]
    ) -> None:
        race = FakeRace(flat)
        record = run(model, outcomes, race)
        assert (record.measured["persistent"], record.measured["gain_by_persistence"]) == (False, None)
        assert not any(one.persistent for one in race.loaded)

    def test_one_that_does_not_run_costs_nothing_else(self, model: Alternatives, outcomes: dict[str, Outcome]) -> None:
        class Hangs(FakeRace):
            def load(self, plan: Plan, outcomes: Mapping[str, Outcome], persistent: bool = False) -> Loaded:
                if persistent:
                    raise TargetError("timeout", "it waits for ever")
                return super().load(plan, outcomes)

        record = run(model, outcomes, Hangs(flat), persistent=True)
        assert record.measured["persistent"] is False
        assert len(record.measured["fused"]) == 3


def test_an_outcome_says_whether_it_is_not_the_winner_alone(outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    outcome = next(iter(outcomes.values()))
    assert with_winner(outcome, winner(outcome, 1)).in_chain
    same = replace(winner(outcome, 0), configuration=dict(outcome.configuration))
    assert not with_winner(outcome, same).in_chain
