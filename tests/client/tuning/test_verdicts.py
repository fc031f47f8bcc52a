"""Test that what is said of a task before a generation, anywhere, is what the tuner then does.

What can differ from the time when tasks were tuned is drawn: launches, effort, failures that are tried again, settings
and limits of the device, options for single tasks, the cache mode.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.cache import PerformanceCache
from gputune.client.errors import CacheMiss, TuningError
from gputune.client.generation.explaining import fields_of, lines_of, summary_line
from gputune.client.model.plan import Task
from gputune.client.options.tuning import CACHE_MODES, TuningOptions
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.search.cache_hit import Verdict
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.tuner import Tuner
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Instance
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.top import TopProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.space import Configuration
from gputune.server.protocol.messages import Progress
from tests.client.answering_target import AnsweringTarget
from tests.client.fake_target import failed, ok

FEW = {
    name: replace(EFFORTS[name], trials=trials, light_trials=trials, patience=None, finalists=1)
    for name, trials in (("quick", 3), ("normal", 5))
}
TASKS = (
    Task("TopK", TopProblem(1, 6, 5, 3), 2),
    Task("Softmax", SoftmaxProblem(3, 10, 1), 1),
    Task("Transpose", TransposeProblem(1, 3, 2, 2, "NCHW", "NHWC"), 1),
)
OP_WITH = {"EACH": "TopK", "KEEP": "Softmax", "VR": "Transpose"}
LITTLE_ROOM = {"max_work_group_size": 2, "max_allocation_bytes": 1 << 12, "local_memory_bytes": 64}
PLACES = st.lists(st.integers(0, len(TASKS) - 1), unique=True).map(tuple)


@dataclass(frozen=True)
class Case:
    """tuned: the places of the tasks that a first generation tunes, at effort_before; failing: those of which some
    variants fail then; edited: those whose kernels have changed since, or, with `but_default`, all but what their
    defaults render to; only, pinned, retry, mode: what is asked of the second generation."""

    tuned: tuple[int, ...]
    effort_before: str
    failing: tuple[int, ...]
    edited: tuple[int, ...]
    but_default: bool
    little_room: bool
    setting: str
    effort: str
    only: tuple[int, ...]
    pinned: int | None
    pin_works: bool
    retry: bool
    mode: str


CASES = st.builds(
    Case,
    tuned=st.just((0, 1, 2)) | PLACES,
    effort_before=st.sampled_from(tuple(FEW)),
    failing=PLACES,
    edited=st.just(()) | PLACES,
    but_default=st.booleans(),
    little_room=st.booleans(),
    setting=st.sampled_from(("1", "1", "1", "0")),
    effort=st.sampled_from(tuple(FEW)),
    only=st.just(()) | PLACES,
    pinned=st.none() | st.integers(0, len(TASKS) - 1),
    pin_works=st.booleans(),
    retry=st.booleans(),
    mode=st.sampled_from(CACHE_MODES),
)


class Counting(AnsweringTarget):
    """Counts the profile requests of each op. Of some ops, variants whose numbers have an odd sum fail; never those of
    `defaults`."""

    def __init__(self, case: Case, setting: str, little_room: bool = False) -> None:
        super().__init__(self._answer)
        self.server = {"settings": {"POCL_AFFINITY": setting}}
        self.device |= LITTLE_ROOM if little_room else {}
        self._failing = {TASKS[place].op for place in case.failing}
        self.asked: Counter[str] = Counter()
        self.defaults: list[Configuration] = []

    def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
        self.asked[_op_of(request.variants[0].configuration)] += 1
        return super().measure_kernel(request, on_progress)

    def _answer(self, configuration: Mapping[str, int]) -> Trial:
        fails = _op_of(configuration) in self._failing and _is_odd(configuration) and configuration not in self.defaults
        return failed("runtime") if fails else ok(100.0 + sum(configuration.values()))


def _op_of(configuration: Mapping[str, int]) -> str:
    return next(op for name, op in OP_WITH.items() if name in configuration)


def _is_odd(configuration: Mapping[str, int]) -> bool:
    return sum(configuration.values()) % 2 == 1


def _tuner(target: Counting, cache: PerformanceCache, effort: str, options: TuningOptions) -> Tuner:
    tuner = Tuner([target], cache, FEW[effort], options=options)  # type: ignore[list-item]
    target.defaults = [tuner._search(task).default for task in TASKS]
    return tuner


@contextmanager
def _edited(case: Case) -> Iterator[None]:
    """Another template behind some tasks."""

    def edit(render: Callable[..., Instance], default: Configuration) -> Callable[..., Instance]:
        def edited(self: object, problem: object, configuration: Configuration) -> Instance:
            instance = render(self, problem, configuration)
            if case.but_default and dict(configuration) == default:
                return instance
            return replace(instance, main=replace(instance.main, options=instance.main.options + " -DNEWER"))

        return edited

    with ExitStack() as stack:
        for task in (TASKS[place] for place in case.edited):
            kind = type(family_of(task.op))
            limits = Tuner([Counting(case, "1")], mock.Mock(), FEW["quick"])._limits  # type: ignore[list-item]
            default = family_of(task.op).default(task.problem, limits.unbounded)
            stack.enter_context(mock.patch.object(kind, "render", edit(kind.render, default)))
        yield


def _options(case: Case, tuner: Tuner) -> TuningOptions:
    """What is asked of the second generation."""
    pins: dict[str, dict[str, int]] = {}
    if case.pinned is not None:
        space = tuner._search(TASKS[case.pinned]).space
        odd = next((c for c in space.configurations() if _is_odd(c)), None)
        pins = {TASKS[case.pinned].op: space.first() if case.pin_works or odd is None else odd}
    return TuningOptions(
        only=tuple(TASKS[place].op for place in case.only),
        pins=pins,
        strategy="random",
        retry_failures=("runtime",) if case.retry else (),
        cache_mode=case.mode,
    )


@contextmanager
def _cache(
    case: Case, path: Path, began: float, opened: Callable[[Path], PerformanceCache]
) -> Iterator[PerformanceCache]:
    """The cache as a generation of this mode sees it that began at a time."""
    with tempfile.TemporaryDirectory() as nothing:
        where = Path(nothing) / path.name if case.mode == "off" else path
        with opened(where) as cache:
            cache.seen_since = began if case.mode == "refresh" else 0.0
            yield cache


def _tune(tuner: Tuner) -> Sequence[Outcome] | Exception:
    try:
        return tuner.tune(TASKS)
    except (CacheMiss, TuningError) as error:
        return error


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(CASES)
def test_what_is_said_of_a_task_is_what_is_done_with_it(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "device.sqlite"
        with PerformanceCache.open(path) as cache:
            tasks = [TASKS[place] for place in case.tuned]
            _tuner(Counting(case, "1"), cache, case.effort_before, TuningOptions(strategy="random")).tune(tasks)
        with _edited(case):
            _second_generation(case, path, time.time())


def _second_generation(case: Case, path: Path, began: float) -> None:
    target = Counting(case, case.setting, case.little_room)
    options = _options(case, Tuner([target], mock.Mock(), FEW[case.effort]))  # type: ignore[list-item]
    opened = PerformanceCache.open_readonly if case.mode == "frozen" else PerformanceCache.open
    with (
        _cache(case, path, began, PerformanceCache.open_copy) as copy,
        _cache(case, path, began, opened) as cache,
    ):
        tuner = _tuner(target, cache, case.effort, options)
        try:
            verdicts = tuner.verdicts(TASKS)
        except TuningError as error:
            assert "the pinned configuration does not work" in str(error)
            assert str(_tune(tuner)) == str(error)
            assert not target.asked
            return
        assert _tuner(target, copy, case.effort, options).verdicts(TASKS) == verdicts, "explain looks at a copy"
        _check_words(verdicts)
        _check_sense(case, verdicts, tuner)
        outcomes = _tune(tuner)
        _check_deeds(case, verdicts, target, outcomes)
        if case.mode in ("use", "refresh") and not case.retry and not isinstance(outcomes, Exception):
            again = _tuner(target, cache, case.effort, options).verdicts(TASKS)
            assert not any(verdict.measures for verdict in again.values()), "a generation leaves nothing to measure"


def _check_words(verdicts: Mapping[Task, Verdict]) -> None:
    """The summary line and both forms of explain count and name the same."""
    hits = [verdict for verdict in verdicts.values() if verdict.kind == "hit"]
    assert summary_line(verdicts.values()).startswith(f"{len(hits)} of {len(TASKS)} tasks are known")
    *lines, last = lines_of(verdicts, {})
    assert last == summary_line(verdicts.values())
    told = fields_of(verdicts, {})
    assert [task["measures"] for task in told["tasks"]] == [verdict.measures for verdict in verdicts.values()]
    for line, task, verdict in zip(lines, told["tasks"], verdicts.values(), strict=True):
        assert line.split()[0] == task["kind"] == verdict.kind
        assert verdict.kind in ("hit", "new") or verdict.why, "it is said why"
        assert verdict.why in line or verdict.kind == "hit"


def _check_sense(case: Case, verdicts: Mapping[Task, Verdict], tuner: Tuner) -> None:
    """Verdicts that follow from the case alone."""
    lost = case.setting == "0" or case.mode in ("off", "refresh")
    lower = FEW[case.effort_before].rank < FEW[case.effort].rank
    for place, (task, verdict) in enumerate(verdicts.items()):
        if verdict.pin is not None:
            continue
        if verdict.winner is not None:
            assert tuner._search(task).space.violations(verdict.winner.configuration) == []
            default = family_of(task.op).default(task.problem, tuner._limits.unbounded)
            assert place not in case.edited or verdict.winner.configuration == default, "its launches have changed"
        if case.only and place not in case.only:
            assert not verdict.measures
        elif lost or place not in case.tuned or lower or (place in case.edited and not case.but_default):
            assert verdict.measures
        elif not case.little_room and place not in case.edited and not (case.retry and place in case.failing):
            assert verdict.kind == "hit", task


def _check_deeds(
    case: Case, verdicts: Mapping[Task, Verdict], target: Counting, outcomes: Sequence[Outcome] | Exception
) -> None:
    """What the target was asked for."""
    measured = {task.op for task, verdict in verdicts.items() if verdict.measures}
    if case.mode == "frozen":
        assert not target.asked
        assert isinstance(outcomes, CacheMiss) == bool(measured)
        return
    if isinstance(outcomes, Exception):  # a pin that turned out not to work; what comes after it was not measured
        assert case.pinned is not None and TASKS[case.pinned].op in measured
        assert set(target.asked) <= measured
        return
    assert set(target.asked) == measured
    for task, outcome in zip(TASKS, outcomes, strict=True):
        verdict = verdicts[task]
        assert outcome.hit == (verdict.kind == "hit")
        assert (outcome.measured > 0) == verdict.measures
        if verdict.kind == "hit":
            used = verdict.pin or (verdict.winner and verdict.winner.configuration)
            assert outcome.configuration == used
        if verdict.kind == "default":
            assert outcome.tuned_ns is None
