"""Test generations that compare whole contexts, on the null device as if it computed: what is chosen and remembered."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.context import comparison, context_runner
from gputune.client.context.choice import InChain
from gputune.client.context.comparison import Estimate, Remembered
from gputune.client.context.context_runner import ContextRunner
from gputune.client.errors import TargetError
from gputune.client.generation import generation, generator
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.budget import Budget
from gputune.client.tuning.measuring import finalists
from gputune.client.tuning.measuring.end_to_end import OPEN, EndToEnd
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.client.tuning.measuring.sequential import Gain
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.tuner import Tuner
from gputune.kernels.ops.separable import SeparableFamily
from gputune.runtime.context.format import open_context, read_header
from tests.client.commands import Generate, Generated
from tests.client.model.test_alternatives import two_blocks

TASK_NS, ROUND_NS = ContextRunner.task_ns, ContextRunner.round_ns


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
def generate(generate: Generate, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Generated, Any]]:
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
    generate.model = two_blocks()

    def run(output: str, *arguments: object) -> tuple[Generated, Any]:
        ran = generate("--log_level", "verbose", *arguments, effort="quick", output=output)
        assert ran.code == 0, ran.err
        return ran, ran.summary

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


@pytest.mark.night
def test_a_budget_that_leaves_no_time_makes_the_last_choice_again(
    generate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared with others when there is time."""
    _, first = generate("one")
    _, second = generate("two", "--tuning_effort", "normal", "--tuning_budget", "0.01s")
    assert first["in_chain"]["fused"] and second["in_chain"]["fused"] == first["in_chain"]["fused"]
    assert second["in_chain"]["remembered"] and second["budget"]["used_up"]
    monkeypatch.setitem(EFFORTS, "quick", replace(EFFORTS["quick"], contexts=3))  # more is to be compared
    _, third = generate("three", "--tuning_budget", "0.01s")
    assert third["in_chain"]["remembered"] is True
    assert generate("four")[1]["in_chain"]["remembered"] is False
    assert generate("five")[1]["in_chain"]["remembered"] is True


def test_a_budget_that_leaves_no_time_ships_the_untuned_context(generate: Any) -> None:
    """The one that effort none makes; one line says so."""
    ran, hurried = generate("one", "--tuning_budget", "0.01s")
    warnings = [line for line in ran.err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: making the untuned context takes all of --tuning_budget: nothing is tuned or compared"
    ]
    assert (hurried["in_chain"], hurried["end_to_end"], hurried["budget"]["used_up"]) == (None, None, True)
    assert not any(sum(task["trials"].values()) for task in hurried["tasks"])
    assert "SeparableConv" in {task["op"] for task in hurried["tasks"] if task["weight"]}, "fused as effort none does"


class Slow:
    """A clock, and a target that takes seconds of it: for each program, each trial, and each turn of a context. What is
    under way is given up when the client does not want it any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: int, trial: int, turn: int) -> None:
        self.now = 0.0
        compile_kernels, measure_kernel = TargetClient.compile_kernels, TargetClient.measure_kernel
        run_once = ContextRunner._run_once

        def compiles(client: TargetClient, requests: Sequence[Any], compiled: Any) -> None:
            for number, request in enumerate(requests):
                self.takes(client, program)
                compile_kernels(client, [request], lambda _, reply, place=number: compiled(place, reply))  # type: ignore[misc]

        def measures(client: TargetClient, request: Any, *heard: Any) -> Any:
            self.takes(client, trial * len(request.variants))
            return measure_kernel(client, request, *heard)

        def runs_once(runner: ContextRunner, context: Any) -> None:
            run_once(runner, context)
            runner.turn_seconds = turn

        def turns(runner: ContextRunner, context: Any) -> float:
            self.takes(runner._target, turn)
            runner.turn_seconds = turn
            return 1e6 + self.now % 7

        monkeypatch.setattr(TargetClient, "compile_kernels", compiles)
        monkeypatch.setattr(TargetClient, "measure_kernel", measures)
        monkeypatch.setattr(ContextRunner, "_run_once", runs_once)
        monkeypatch.setattr(ContextRunner, "_fresh_turn_ns", turns)
        monkeypatch.setattr(ContextRunner, "round_ns", ROUND_NS)
        monkeypatch.setattr(generator, "Budget", lambda seconds, **_: Budget(seconds, lambda: self.now, begun=self.now))
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def takes(self, client: TargetClient, seconds: int) -> None:
        over, client._session.over = client._session.over, None
        try:
            for _ in range(seconds):
                self.now += 1
                if over is not None and over():
                    raise TargetError("cancelled", "the client has cancelled the request")
        finally:
            client._session.over = over


@pytest.mark.parametrize(
    ("program", "trial", "turn", "tunes", "compares"),
    [
        pytest.param(0, 0, 0, True, True, id="idle", marks=pytest.mark.night),
        pytest.param(2, 1, 1, True, True, id="busy"),
        pytest.param(1, 20, 1, True, True, id="slow trials"),
        pytest.param(1, 40, 1, False, False, id="a trial too slow for any"),
        pytest.param(1, 1, 25, True, False, id="slow turns"),
        pytest.param(12, 1, 1, True, False, id="compiles too slow for others", marks=pytest.mark.night),
        pytest.param(60, 1, 1, False, False, id="slow compiler"),
    ],
)
def test_a_budget_bounds_the_whole_generation_however_slow_the_machine(
    generate: Any, monkeypatch: pytest.MonkeyPatch, program: int, trial: int, turn: int, tunes: bool, compares: bool
) -> None:
    """Only the untuned context may take longer, and then nothing else is done."""
    slow = Slow(monkeypatch, program, trial, turn)
    _, summary = generate("one", "--tuning_budget", "2m")
    totals = summary["totals"]
    assert slow.now <= max(120, program * totals["compile_requests"])
    assert (totals["profile_requests"] > 0) == tunes
    told = summary["end_to_end"]
    assert (told is not None and told["gain"] is not None and told["gain"]["low"] is not None) == compares
    assert summary["budget"]["used_up"] == (program > 0)


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
    ran, summary = generate("one", *HURRY)
    name = next(iter(read_header(Path(summary["context"]["path"])).graphs[0].outputs)).name
    said = f"output {name!r} is NaN or infinite everywhere on random inputs, so only times were compared"
    assert said in ran.err and any(said in text for text in summary["warnings"])
    with pytest.raises(AssertionError, match=f"all .* values of output {name!r} are NaN or infinite on both sides"):
        generate("two", *HURRY, "--fail_under", "0.1")


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


def test_where_tuning_has_led_to_no_other_context_nothing_is_compared(
    generate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few inferences tell its time, and one line the reason."""
    monkeypatch.setattr(InChain, "_before", lambda *what: Remembered(None, estimate=Estimate()))
    monkeypatch.setattr(comparison, "_estimate", lambda *what: Estimate())
    monkeypatch.setattr(comparison, "_candidates", lambda *what: [])
    rounds: list[int] = []

    def round_ns(runner: ContextRunner, contexts: Sequence[Any]) -> list[float]:
        rounds.append(len(contexts))
        return [1e6] * len(contexts)

    monkeypatch.setattr(ContextRunner, "round_ns", round_ns)
    for output in ("one", "two"):
        ran, summary = generate(output)
        assert len(rounds) == 3
        assert (summary["end_to_end"]["gain"], summary["end_to_end"]["open"]) == (None, False)
        assert "whole contexts" not in ran.err and ran.err.count("no tuned context") == 0
        assert ran.err.count("tuning has led to no other") == 1
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
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with pytest.raises(
        AssertionError, match="--compare_again measures no task, and --retry_failures measures failures"
    ):
        generate("three", "--compare_again", "--retry_failures")
    with pytest.raises(AssertionError, match=r"--compare_again measures no task, .* does not hold 6 tasks: Tran"):
        generate("three", "--compare_again", "--performance_cache_dir", tmp_path / "another")


OLD_GAIN = {"median": 1.04, "low": 0.87, "high": 1.24}


@pytest.mark.night
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
