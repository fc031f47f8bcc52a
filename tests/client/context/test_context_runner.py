"""Test contexts in turns on a null server: what is timed, what is shown, and when it ends."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gputune.client.context import context_runner
from gputune.client.context.context_runner import ContextRunner
from gputune.client.context.verifying.distance import Compared
from gputune.client.errors import TargetError, TuningError
from gputune.client.progress import SILENT, Silent
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.budget import Budget, OutOfTime
from gputune.client.tuning.measuring.intervals import paired_interval
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.runtime.application.made_up_inputs import random_inputs
from gputune.runtime.context.records import TensorRecord
from tests.client.contexts import small_context
from tests.shared_server import SharedServer


@pytest.fixture
def client(null_server: SharedServer) -> Iterator[TargetClient]:
    with null_server.connect() as client:
        yield client


class TestContextRunner:
    """On a null server, which computes zeros and whose kernels take what a model says."""

    @pytest.fixture
    def make(self, client: TargetClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ContextRunner]:
        """A runner whose files are all the same small context."""
        monkeypatch.setattr("gputune.client.context.builder.build", lambda *what: None)

        def make(**how: Any) -> ContextRunner:
            return ContextRunner(client, client, lambda _, path: small_context(path), **how)

        return make

    def test_something_may_come_before_anything_is_measured(self, make: Any) -> None:
        states = itertools.count()
        quiet = Quiet([lambda: {"clock_seconds": next(states), "load_1_minute": 3.0}], SILENT, sleep=lambda _: None)
        runner = make(quiet=quiet)
        assert next(states) == 0, "nobody has looked yet"
        with runner:
            assert next(states) > 1
            assert runner.machine_load == quiet.record.to_dict()
            assert runner.machine_load["end"] == 3.0
        assert make().machine_load is None

    @pytest.mark.parametrize(
        ("compute", "draw", "blank"), [(np.negative, 0, 0), (np.log, 1, 0), (lambda x: x * np.nan, 0, 8)]
    )
    def test_its_inputs_let_outputs_be_compared(
        self, make: Any, monkeypatch: pytest.MonkeyPatch, compute: Any, draw: int, blank: int
    ) -> None:
        def run(executor: RemoteExecutor, inputs: Any) -> Any:
            executor.round_trip_ns.append(10**9)
            with np.errstate(invalid="ignore"):
                return {"y": compute(inputs["x"]).ravel()}, 10**9

        monkeypatch.setattr(RemoteExecutor, "run_timed", run)
        with make() as running:
            running.load(None, {})
            assert running.compared == {"y": Compared(0.0, 8, blank)}
            found = running._inputs["x"]
            np.testing.assert_array_equal(found, random_inputs([TensorRecord("x", (2, 4))], draw)["x"])

    @pytest.mark.slow
    def test_it_times_contexts_in_turns_and_leaves_nothing_behind(self, make: Any, client: TargetClient) -> None:
        before = client.status().memory_bytes
        with make() as running:
            contexts = [running.load(None, {}) for _ in range(2)]
            tasks, whole = running.task_ns(contexts), running.inference_ns(contexts)
            assert client.status().memory_bytes > before
            for one in contexts:
                running.set_aside(one)
            assert client.status().memory_bytes == before
            fresh = running.round_ns(contexts)
            assert client.status().memory_bytes == before, "each turn opens its context and closes it"
            running.free(contexts[0])
        assert [list(times) for times in tasks] == [["0" * 64]] * 2
        assert tasks[0] == tasks[1], "the null device takes the same time for the same launch"
        assert [len(times["0" * 64]) for times in tasks] == [context_runner.ROUNDS] * 2
        assert [len(samples) for samples in whole] == [context_runner.ROUNDS] * 2
        assert min(map(min, whole)) > 0 and len(fresh) == 2 and min(fresh) > 0
        with pytest.raises(TargetError, match="there is no context"):
            contexts[1].run_timed({"x": np.zeros((2, 4), np.float32)})
        assert client.status().memory_bytes == before

    def test_each_round_draws_the_order_of_its_turns(self, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of two equal contexts either one looks faster as a fair coin falls."""
        turns: list[Any] = []

        def turn_ns(_: ContextRunner, context: Any) -> int:
            turns.append(context)
            return len(turns)

        monkeypatch.setattr(ContextRunner, "_turn_ns", turn_ns)
        monkeypatch.setattr(RemoteExecutor, "__init__", lambda own, _, path, *__, **___: setattr(own, "path", path))
        monkeypatch.setattr(RemoteExecutor, "close", lambda own: None)
        runner = make()
        runner._files = {place: place for place in range(3)}
        for _ in range(60):
            assert sorted(runner.round_ns([0, 1, 2])) == [len(turns) - 2, len(turns) - 1, len(turns)]
        orders = {tuple(one.path for one in turns[first : first + 3]) for first in range(0, 180, 3)}
        assert len(orders) == 6

    def test_contexts_that_do_not_agree_end_it(self, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        run_timed = RemoteExecutor.run_timed
        with make() as running:
            running.load(None, {})
            monkeypatch.setattr(
                RemoteExecutor, "run_timed", lambda *what: ({"y": run_timed(*what)[0]["y"] + np.float32(1)}, 5)
            )
            with pytest.raises(TuningError, match="do not agree on output 'y'"):
                running.load(None, {})

    def test_it_ends_with_its_share_of_the_budget(self, make: Any) -> None:
        now = [0.0]
        budget = Budget(100.0, lambda: now[0])
        budget.keep("finalizing", 20.0)
        budget.keep("comparing", 50.0)
        with make(budget=budget) as running:
            context = running.load(None, {})
            running.set_aside(context)
            running.turn_seconds = 10.0
            now[0] = 71.0
            with pytest.raises(OutOfTime), running.comparing(1000.0, 1, 1) as more:
                assert more()
                running.round_ns([context])  # a turn would end after 80 s
            assert running.hurried
            running.turn_seconds = 1.0
            assert len(running.round_ns([context])) == 1
            running.share = "estimating"
            with pytest.raises(OutOfTime):
                running.load(None, {})

    def test_a_share_that_ends_early_leaves_the_rounds_that_an_estimate_needs(self, make: Any) -> None:
        for ends, enough in ((context_runner.LEAST_ROUNDS, True), (context_runner.LEAST_ROUNDS - 1, False)):
            turns = [0]

            def turn(context: Any, turns: list[int] = turns) -> int:
                turns[0] += 1
                return turns[0]

            def clock(turns: list[int] = turns) -> float:
                return float(turns[0])

            with make(budget=Budget(float(ends), clock)) as running:
                if enough:
                    assert running._in_turns("timing", ["one"], turn) == [[*range(1, ends + 1)]]
                else:
                    with pytest.raises(OutOfTime):
                        running._in_turns("timing", ["one"], turn)

    @pytest.mark.parametrize("persistent", [False, True])
    def test_a_context_is_built_as_it_ships(self, make: Any, monkeypatch: Any, persistent: bool) -> None:
        """Where tensors lie is part of the source of persistent kernels, which are not to be compiled once more."""
        built: list[tuple[Any, ...]] = []
        monkeypatch.setattr("gputune.client.context.builder.build", lambda *what: built.append(what))
        with make(memory_search_steps=7, shared_memory=False, form="buffers") as running:
            running.load(None, {}, persistent)
        assert built[0][3:] == (persistent, "buffers", SILENT, 7 if persistent else 0, False)

    def test_rounds_are_shown_with_about_how_many_there_will_be(self, make: Any, monkeypatch: Any) -> None:
        shown = Shown()
        monkeypatch.setattr(ContextRunner, "_fresh_turn_ns", lambda *what: 1.0)
        running = make(progress=shown)
        with running.comparing(1000.0, 2, 3) as more:
            for contexts in (2, 2, 1, 1):
                running.round_ns(["one", "other"][:contexts])
                assert more()
        assert shown.told[0] == ("comparing contexts", 6)
        assert [what for _, what in shown.told[1:4]] == ["round 1 of about 3"] * 2 + ["round 2 of about 3"]
        assert shown.told[-1][1].startswith("round 4 of at most ")
        assert shown.total > 1000 and shown.done == 6, "as many rounds as there is time for"


class Shown(Silent):
    """A progress that remembers what it shows."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, Any]] = []
        self.done = self.total = 0

    def running(self, label: str, total: int, seconds: float | None = None) -> Any:
        self.total = total
        self.told.append((label, total))
        return super().running(label, total, seconds)

    def advance(self, steps: int, what: str) -> None:
        self.done += steps
        self.told.append((steps, what))

    def shrink(self, steps: int) -> None:
        self.total -= steps


def test_neighbouring_turns_are_compared() -> None:
    """Whatever the device does from round to round, the one is twice as fast."""
    drifting = [100.0 * 1.5**number for number in range(12)]
    interval = paired_interval([2 * ns for ns in drifting], drifting)
    assert (interval.low, interval.high) == (2.0, 2.0)
    assert paired_interval(drifting, drifting[::-1]).low < 1 < paired_interval(drifting, drifting[::-1]).high
