"""Test generations that compare whole contexts, on the null device as if it computed: what is chosen and remembered."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.cache import PerformanceCache
from gputune.client.context import context_runner
from gputune.client.context.context_runner import ContextRunner
from gputune.client.context.verifying.distance import Compared
from gputune.client.errors import TargetError, TuningError
from gputune.client.generation import generation
from gputune.client.progress import SILENT
from gputune.client.target.client import TargetClient
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.target.transport.credentials import Credentials
from gputune.client.tuning.measuring import finalists
from gputune.client.tuning.measuring.end_to_end import OPEN, EndToEnd
from gputune.client.tuning.measuring.intervals import paired_interval
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.client.tuning.measuring.sequential import Gain
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.tuner import Tuner
from gputune.kernels.ops.separable import SeparableFamily
from gputune.runtime.application.made_up_inputs import random_inputs
from gputune.runtime.context.format import open_context, read_header
from gputune.runtime.context.records import TensorRecord
from tests.client.commands import Gputune, Ran, config_file, read_json
from tests.client.contexts import small_context
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import save

TASK_NS = ContextRunner.task_ns


def by_kernels(runner: ContextRunner, contexts: Sequence[RemoteExecutor]) -> list[float]:
    """Whole inferences that take what their kernels do and 1 us per launch: those of the null device take the host's
    time."""
    opened = [RemoteExecutor(runner._target, runner._files[one], None, strict=True) for one in contexts]
    found = [sum(runner._task_times(one).values()) + 1000 * len(one.graph.launches) for one in opened]
    for one in opened:
        one.close()
    return found


def later_is_faster(runner: ContextRunner, contexts: Sequence[RemoteExecutor]) -> list[dict[str, list[float]]]:
    """In the chain each context but the first takes a tenth less than it does."""
    first, *others = TASK_NS(runner, contexts)
    return [first, *({key: [0.9 * ns for ns in samples] for key, samples in own.items()} for own in others)]


@pytest.fixture
def generate(
    gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, null_target: tuple[object, ...]
) -> Callable[..., tuple[Ran, Any]]:
    """Generates into a folder; returns how it ended and the summary."""
    monkeypatch.setattr(generation, "SIMULATED", frozenset())
    monkeypatch.setattr(ContextRunner, "round_ns", by_kernels)
    monkeypatch.setattr(context_runner, "ROUNDS", 2)
    monkeypatch.setattr(context_runner, "MOST_INFERENCES", 2)
    monkeypatch.setitem(EFFORTS, "quick", replace(EFFORTS["quick"], trials=8, light_trials=8))
    monkeypatch.setattr(ContextRunner, "task_ns", later_is_faster)
    monkeypatch.setattr(finalists, "NEAR", 10.0)
    # No machine is looked at before anything is measured, which would take most of the time of these tests.
    monkeypatch.setattr(generation, "Quiet", lambda machines, *how, **more: Quiet([], *how, **more))
    model = save(two_blocks(), tmp_path)

    def run(output: str, *arguments: object) -> tuple[Ran, Any]:
        summary = tmp_path / output / "summary.json"
        ran = gputune(
            "context-binary-generator", "--model", model, "--binary_file", "small", "--output_dir", tmp_path / output,
            "--config_file", config_file(tmp_path), *null_target, "--tuning_effort", "quick",
            "--summary_json", summary, "--log_level", "verbose", *arguments,
        )  # fmt: skip
        assert ran.code == 0, ran.err
        return ran, read_json(summary)

    return run


def operations(path: Path) -> list[str]:
    with open_context(path) as file:
        return [launch.operation for launch in file.header.graphs[0].launches]


@pytest.mark.slow
def test_a_choice_is_remembered_so_that_a_warm_generation_asks_for_nothing(generate: Any, tmp_path: Path) -> None:
    ran, first = generate("one")
    told = first["in_chain"]
    assert told["remembered"] is False
    assert told["groups"] == 3
    assert told["fused"], "a launch of the null device costs 3 us here, and its kernels next to nothing"
    assert told["changed"]
    assert "end to end, " in ran.err
    changed = {change["key"]: change["chosen"] for change in told["changed"]}
    for task in first["tasks"]:
        assert task["in_chain"] == (task["key"] in changed)
        assert task["configuration"] == changed.get(task["key"], task["configuration"])
    assert sum(task["weight"] for task in first["tasks"]) == len(operations(tmp_path / "one" / "small.bin"))

    ran, second = generate("two")
    totals = second["totals"]
    assert (totals["profile_requests"], totals["compile_requests"], totals["cache_misses"]) == (0, 0, 0)
    assert second["in_chain"] == {**told, "remembered": True}
    assert "as compared before" in ran.err
    one, two = (tmp_path / name / "small.bin" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_what_the_user_has_chosen_stays(generate: Any) -> None:
    _, first = generate("one")
    change = first["in_chain"]["changed"][0]
    pin = ",".join(f"{name}={value}" for name, value in change["winner"].items())
    _, second = generate("two", "--pin", f"{change['key']}={pin}")
    assert change["key"] not in {each["key"] for each in second["in_chain"]["changed"]}
    (task,) = (task for task in second["tasks"] if task["key"] == change["key"])
    assert task["configuration"] == change["winner"]


@pytest.mark.slow
def test_what_goes_wrong_costs_the_choice_only(generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> Any:
        raise TargetError("launch_failed", "the device is tired")

    with monkeypatch.context() as broken:
        broken.setattr(ContextRunner, "task_ns", failing)
        ran, summary = generate("one")
    assert "warning: whole contexts were not compared" in ran.err
    assert "the device is tired" in ran.err
    assert summary["in_chain"] is None
    assert not any(task["in_chain"] for task in summary["tasks"])
    assert len(operations(tmp_path / "one" / "small.bin")) == sum(task["weight"] for task in summary["tasks"])
    _, again = generate("two")
    assert again["in_chain"]["remembered"] is False, "a failure is not remembered"
    assert again["totals"]["profile_requests"] == 0
    monkeypatch.setitem(EFFORTS, "quick", replace(EFFORTS["quick"], contexts=3))  # more is to be compared
    monkeypatch.setattr(ContextRunner, "task_ns", failing)
    ran, third = generate("three")
    assert "the last choice stays" in ran.err
    assert third["in_chain"]["fused"] == again["in_chain"]["fused"]


@pytest.mark.slow
def test_a_budget_that_leaves_no_time_leaves_the_last_choice_in_the_comparison(generate: Any) -> None:
    _, first = generate("one")
    _, second = generate("two", "--tuning_effort", "normal", "--tuning_budget", "0.01s")
    candidates = second["in_chain"]["candidates"]
    assert candidates[0]["title"] == "the last choice"
    assert any(one["untuned"] for one in candidates)
    assert first["in_chain"]["fused"] and second["in_chain"]["fused"]


def test_a_budget_that_leaves_no_time_for_the_first_choice_still_ends_with_a_measured_gain(
    generate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The null device makes its times up: this default is a configuration that is slower than another of the few."""
    default = SeparableFamily.default
    monkeypatch.setattr(SeparableFamily, "default", lambda *given: default(*given) | {"KU": 1})
    ran, hurried = generate("one", "--tuning_budget", "0.01s")
    assert "not all whole contexts were compared" in ran.err
    assert [one["title"] for one in hurried["in_chain"]["candidates"]][:1] == ["estimated"]
    assert hurried["end_to_end"]["gain"]["low"] > 0
    assert ran.err.strip().splitlines()[-1].startswith("inference ")
    assert "SeparableConv" in {task["op"] for task in hurried["tasks"] if task["weight"]}


@pytest.mark.slow
def test_what_a_budget_has_cut_short_is_compared_when_there_is_time(
    generate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate("one")
    monkeypatch.setitem(EFFORTS, "quick", replace(EFFORTS["quick"], contexts=3))  # more is to be compared
    assert generate("two", "--tuning_budget", "0.01s")[1]["in_chain"]["remembered"] is False
    assert generate("three", "--cache_mode", "frozen")[1]["in_chain"]["remembered"] is True
    assert generate("four")[1]["in_chain"]["remembered"] is False
    assert generate("five")[1]["in_chain"]["remembered"] is True


@pytest.mark.parametrize("works", [True, False])
def test_without_time_for_anything_what_is_likely_is_fused_unless_it_has_failed(
    generate: Any, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    def unmeasured(task: Any, limits: Any) -> Any:
        return replace(untuned(task, limits), trials={} if works else {"crash": 3})

    monkeypatch.setattr(Tuner, "tune", lambda tuner, tasks, *_: [unmeasured(task, tuner._limits) for task in tasks])
    monkeypatch.setattr(Tuner, "finalists", lambda *_: [])
    _, summary = generate("one", "--tuning_budget", "0.01s")
    fused = {task["op"] for task in summary["tasks"] if task["weight"]}
    assert ("SeparableConv" in fused) == works


def test_outputs_that_show_nothing_are_said(generate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain of such contexts is not enough for --fail_under."""
    run = ContextRunner._run_once

    def blank(runner: ContextRunner, executor: RemoteExecutor) -> None:
        run(runner, executor)
        runner.compared = {name: replace(one, blank=one.values) for name, one in runner.compared.items()}

    monkeypatch.setattr(ContextRunner, "_run_once", blank)
    ran, summary = generate("one", "--tuning_budget", "0.01s")
    name = next(iter(read_header(Path(summary["context"]["path"])).graphs[0].outputs)).name
    said = f"output {name!r} is NaN or infinite everywhere on random inputs, so only times were compared"
    assert said in ran.err and any(said in text for text in summary["warnings"])
    with pytest.raises(AssertionError, match=f"all .* values of output {name!r} are NaN or infinite on both sides"):
        generate("two", "--tuning_budget", "0.01s", "--fail_under", "0.1")


@pytest.mark.slow
def test_the_gain_is_told_last(generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeparableFamily, "pays", lambda *arguments: False)  # all that the simulated device gains by
    ran, summary = generate("one")
    told = summary["end_to_end"]
    assert (told["kept"], told["open"]) == ("tuned", False)
    assert told["gain"]["low"] <= told["gain"]["median"] <= told["gain"]["high"]
    assert ran.err.strip().splitlines()[-1] == EndToEnd(told["untuned_ns"], Gain(**told["gain"]), "tuned").line
    with open_context(tmp_path / "one" / "small.bin") as file:
        (found,) = file.header.configuration["end_to_end"].values()
    contexts = found.pop("contexts")
    assert found == told
    assert contexts == summary["in_chain"]["candidates"] and len(contexts) > 1
    assert [one["gain"] for one in contexts if one["untuned"] or one["chosen"]] == [told["gain"], None]


@pytest.mark.slow
def test_code_that_has_changed_since_is_compared_again(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = generate("one")
    assert first["in_chain"]["changed"]
    monkeypatch.setattr("gputune.client.tuning.tuner.Tuner.still_holds", lambda *arguments: False)
    _, again = generate("two")
    assert again["in_chain"]["remembered"] is False


@pytest.mark.slow
def test_persistent_kernels_that_did_not_run_are_not_shipped_by_what_is_remembered(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ContextRunner.load

    def hanging(runner: ContextRunner, plan: Any, outcomes: Any, persistent: bool = False, **how: Any) -> Any:
        if persistent:
            raise TargetError("timeout", "they wait for ever")
        return load(runner, plan, outcomes, **how)

    monkeypatch.setattr(generation, "groups_at_once", lambda device: 2)
    monkeypatch.setattr(ContextRunner, "load", hanging)
    for output, remembered in (("one", False), ("two", True)):
        ran, summary = generate(output)
        assert (summary["in_chain"]["remembered"], summary["in_chain"]["persistent"]) == (remembered, False)
        assert "persistent kernels are left out of a context" in ran.err or remembered
        with open_context(tmp_path / output / "small.bin") as file:
            assert not file.header.graphs[0].persistent
        assert "launches one by one" in ran.err


def slower(runner: ContextRunner, contexts: Sequence[Any]) -> list[float]:
    """Rounds in which the context that was loaded first, the untuned one, is faster than the others."""
    return [1e6 + 2e4 * (one is not next(iter(runner._files))) for one in contexts]


def test_a_choice_without_any_gain_says_so(generate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how far the best tuned context was behind, also where it is remembered."""
    monkeypatch.setattr(ContextRunner, "round_ns", slower)
    for output in ("one", "two"):
        ran, summary = generate(output)
        told = summary["end_to_end"]
        assert (told["kept"], told["open"], told["gain"]["rounds"]) == ("untuned", False, 15)
        assert told["gain"]["median"] == pytest.approx(1 / 1.02, rel=1e-5)
        assert "the untuned context ships: no tuned context is faster for certain" in ran.err
        assert "0.98 times as fast (0.98–0.98)" in ran.err
        assert "another finalist" not in ran.err
    assert summary["in_chain"]["remembered"]


class Busy:
    """Rounds of a busy machine, where every second context looks much slower than it is."""

    def __init__(self, gain: float) -> None:
        self.gain, self.rounds, self.contexts = gain, 0, 0

    def __call__(self, runner: ContextRunner, contexts: Sequence[Any]) -> list[float]:
        self.rounds, self.contexts = self.rounds + 1, len(contexts)
        tuned = 1e6 / self.gain if self.rounds % 20 else 3e6
        return [1e6 * (1 + self.rounds % 2) if one is next(iter(runner._files)) else tuned for one in contexts]


def runs(monkeypatch: pytest.MonkeyPatch, gain: float) -> Busy:
    """Has whole inferences take what a busy machine makes of them from now on."""
    busy = Busy(gain)
    monkeypatch.setattr(ContextRunner, "round_ns", lambda *what: busy(*what))
    return busy


HURRY = ("--compare_seconds", "0.0000001")


def test_an_open_choice_gets_more_rounds_and_a_closed_one_none(generate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The untuned context and the best tuned one go on, and nothing else is timed."""
    runs(monkeypatch, 1.0)
    ran, first = generate("one", *HURRY)
    told = first["end_to_end"]
    assert (told["kept"], told["open"], told["gain"]["rounds"]) == ("untuned", True, 15)
    assert f"end to end, {OPEN}" in ran.err
    ran, frozen = generate("two", *HURRY, "--cache_mode", "frozen")
    assert frozen["end_to_end"] == told and f"end to end, {OPEN}" in ran.err
    assert frozen["in_chain"]["remembered"]

    monkeypatch.setattr(ContextRunner, "task_ns", None)
    busy = runs(monkeypatch, 1.0)
    _, second = generate("three", *HURRY)
    assert (busy.rounds, busy.contexts) == (13, 2)
    assert second["end_to_end"]["gain"]["rounds"] == 15 + 13
    assert second["totals"]["profile_requests"] == second["totals"]["compile_requests"] == 0
    busy = runs(monkeypatch, 4.0)
    _, third = generate("four")
    assert (third["end_to_end"]["kept"], third["end_to_end"]["open"]) == ("tuned", False)
    assert third["in_chain"]["remembered"] is False and busy.rounds > 13
    busy = runs(monkeypatch, 1.0)
    _, fourth = generate("five", *HURRY)
    assert busy.rounds == 0 and fourth["end_to_end"] == third["end_to_end"]


def test_contexts_are_compared_again_when_asked_without_what_was_before(
    generate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, 4.0)
    _, first = generate("one")
    assert first["end_to_end"]["kept"] == "tuned"
    busy = runs(monkeypatch, 1.0)
    _, again = generate("two", "--compare_again", *HURRY)
    assert busy.rounds == again["end_to_end"]["gain"]["rounds"]
    assert (again["end_to_end"]["kept"], again["totals"]["profile_requests"]) == ("untuned", 0)
    assert all(task["hit"] for task in again["tasks"])
    for mode in ("frozen", "refresh", "off"):
        with pytest.raises(AssertionError, match=f"--compare_again: cache_mode '{mode}'"):
            generate("three", "--compare_again", "--cache_mode", mode)


OLD_GAIN = {"median": 1.04, "low": 0.87, "high": 1.24}


def test_what_earlier_versions_chose_is_open(generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They did not say how certain they were; their rounds count."""
    runs(monkeypatch, 4.0)
    _, first = generate("one")
    (path,) = (tmp_path / "cache").glob("*.sqlite")
    with PerformanceCache.open(path) as cache:
        ((digest, (record, _)),) = cache.contents_of_chains().items()
        measured = {**record.measured, "end_to_end": {"untuned_ns": 2e6, "tuned_ns": 1.9e6, "gain": OLD_GAIN}}
        del measured["rival"]
        cache.conclude_chain(digest, replace(record, measured=measured))
    _, frozen = generate("two", "--cache_mode", "frozen")
    assert (frozen["end_to_end"]["kept"], frozen["end_to_end"]["open"]) == ("last", True)
    busy = runs(monkeypatch, 4.0)
    _, again = generate("three")
    assert busy.rounds > 0
    assert again["end_to_end"]["gain"]["rounds"] > first["end_to_end"]["gain"]["rounds"]
    assert (again["end_to_end"]["kept"], again["end_to_end"]["open"]) == ("tuned", False)


def test_without_fusion_where_nothing_is_compared(generate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    _, summary = generate("one")
    assert summary["in_chain"] is None
    assert {task["op"] for task in summary["tasks"]} == {"Transpose", "DepthwiseConv", "MatMul"}


@pytest.fixture(scope="module")
def client() -> Iterator[TargetClient]:
    server = EmbeddedServer.start("null")
    try:
        with TargetClient.connect(server.host, server.port, Credentials(token=server.token)) as client:
            yield client
    finally:
        server.stop()


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

    def test_it_ends_with_the_budget(self, make: Any) -> None:
        with make(deadline=time.monotonic() - 1) as running:
            needed = running.load(None, {}, needed=True)
            assert len(running.inference_ns([needed])[0]) == context_runner.LEAST_ROUNDS
            with running.comparing(1000.0) as more:
                assert not more()
            with pytest.raises(TuningError, match="budget is used up"):
                running.load(None, {})


def test_neighbouring_turns_are_compared() -> None:
    """Whatever the device does from round to round, the one is twice as fast."""
    drifting = [100.0 * 1.5**number for number in range(12)]
    interval = paired_interval([2 * ns for ns in drifting], drifting)
    assert (interval.low, interval.high) == (2.0, 2.0)
    assert paired_interval(drifting, drifting[::-1]).low < 1 < paired_interval(drifting, drifting[::-1]).high
