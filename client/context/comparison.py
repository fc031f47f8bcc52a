"""Choose by whole contexts of a model which operations are fused and which finalist each task runs.

The kernel that is fastest alone need not be fastest in a network, where other kernels have just used caches and cores.
On a busy machine, a choice by few samples is a choice by chance. So contexts are loaded side by side on the target.

First their kernels are timed by the device's clock: without fusion, with everything fused, and with each task's first,
second and third finalist and its default. Other programs disturb this little. The result is the estimate.

Then a few candidates take turns in whole inferences (context_runner.py), in the very form that would ship:

* the context of the estimate
* the last choice
* a context fused as if launches cost what they do one by one
* a context without fusion
* the untuned context, whose time is the reference of the gain

elimination.py ends the turns.

The comparison does not decide whether persistent kernels ship. On a busy target they look slower than launches, and a
context that has them changes to launches by itself while launches are faster.
"""

from __future__ import annotations

import hashlib
import json
import logging
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gputune.cache import WinnerRecord
from gputune.client.context.context_runner import ContextRunner, Outcomes
from gputune.client.context.elimination import Comparison, Ratios, compare_contexts, rounds_needed
from gputune.client.context.persistent import FORM
from gputune.client.errors import TargetError, TuningError
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.fusion_groups import FusionGroup
from gputune.client.model.plan import Plan, Task
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.budget import USED_UP, OutOfTime
from gputune.client.tuning.measuring.end_to_end import EndToEnd
from gputune.client.tuning.measuring.intervals import paired_interval
from gputune.client.tuning.measuring.peaks import ASSUMED, ASSUMED_UNITS
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.search.task_search import task_key
from gputune.core.identity import DeviceIdentity
from gputune.kernels.catalogue import family_of
from gputune.kernels.space import Configuration, configuration_key

log = logging.getLogger(__name__)

ANY_LAUNCH_NS = 1e15
"""What a launch would have to cost for as much as possible to be fused."""

GUESSED_LAUNCH_NS = 5_000.0
"""What a launch is taken to cost beside its kernel before that is measured."""

INSIDE_NS = 500.0
"""What a launch is taken to cost as a part of a persistent kernel: its groups wait for each other once."""

MOST_SAVED_NS = 7_500.0
"""The time by which a launch costs more than a part of a persistent kernel, with PoCL on CPUs, where that is much."""

WORTH_COMPILING = 0.03
"""The share of an inference that persistent kernels must save to be compiled if nothing is measured: they take
about half as long to compile as all other programs."""

WORTH_ANOTHER = 0.02
"""A task's other finalists are tried inside the model where it takes this share of the kernels' time at least."""

Finalists = Mapping[str, Sequence[WinnerRecord]]
"""By task digest, its winner and what comes close to it; nothing where there is no choice."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A context that may be the one that ships. outcomes: of the plan's tasks and perhaps others, by task digest."""

    title: str
    plan: Plan
    groups: tuple[FusionGroup, ...]
    outcomes: Outcomes
    persistent: bool

    @cached_property
    def digest(self) -> str:
        """Identity among the contexts of a model: operations, configurations and form."""
        operations = []
        for each in self.plan.operations:
            key = task_key(each.task).digest
            operations.append([each.name, key, configuration_key(self.outcomes[key].configuration)])
        text = json.dumps([operations, FORM if self.persistent else ""])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Estimate:
    """What timing tasks inside contexts has led to. times_ns: by task digest, one operation's; launch_ns: what a launch
    costs beside its kernel; changed: by task digest, the finalists that were faster there than the winners."""

    times_ns: Mapping[str, float] = field(default_factory=dict)
    launch_ns: float = GUESSED_LAUNCH_NS
    changed: Mapping[str, WinnerRecord] = field(default_factory=dict)


def worth_compiling(plan: Plan, device: DeviceIdentity) -> bool:
    """Return whether persistent kernels may save WORTH_COMPILING of an inference. Kernels are taken to run at the
    roofline of such a device, which is more than they reach; so that is the most that can be saved."""
    faster = max(1.0, device.compute_units / ASSUMED_UNITS)
    kernels_ns = sum(one.weight * ASSUMED.roofline_ns(family_of(one.op).work(one.problem)) for one in plan.tasks)
    saved_ns = len(plan.operations) * MOST_SAVED_NS
    share = saved_ns / (saved_ns + kernels_ns / faster) if saved_ns else 0.0
    if share < WORTH_COMPILING:
        log.info(f"persistent kernels would save at most {share:.1%} of an inference: they are not compiled")
    return share >= WORTH_COMPILING


def gainful(model: Alternatives, times_ns: Mapping[str, float], launch_ns: float) -> tuple[FusionGroup, ...]:
    """Return the groups that are faster fused by these times by task digest."""
    return model.gainful(lambda task: times_ns.get(task_key(task).digest), launch_ns)


def with_winner(outcome: Outcome, winner: WinnerRecord) -> Outcome:
    """Return the outcome of a task, but with another finalist than its winner."""
    if configuration_key(winner.configuration) == configuration_key(outcome.configuration):
        return outcome
    return replace(outcome, configuration=winner.configuration, tuned_ns=winner.median_ns, in_chain=True)


def with_default(outcome: Outcome, default: Configuration) -> Outcome:
    """Return the outcome of a task, but with its default configuration."""
    if configuration_key(default) == configuration_key(outcome.configuration):
        return outcome
    return replace(outcome, configuration=default, tuned_ns=outcome.default_ns, in_chain=True)


def with_winners(outcomes: Outcomes, winners: Mapping[str, WinnerRecord]) -> dict[str, Outcome]:
    """Return the outcomes, some of them with other finalists."""
    return {**outcomes, **{key: with_winner(outcomes[key], one) for key, one in winners.items() if key in outcomes}}


def estimated_alone(
    model: Alternatives, outcomes: Outcomes, persistent: bool, likely: Collection[FusionGroup] = ()
) -> Candidate:
    """Return the context that the tasks' times alone speak for, where no context could be timed. likely: groups that
    are fused where a time of them is not known."""
    times_ns = {key: one.tuned_ns for key, one in outcomes.items() if one.tuned_ns is not None}
    groups = gainful(model, times_ns, INSIDE_NS if persistent else GUESSED_LAUNCH_NS)
    fused = {name for group in groups for name in group.names}
    for group in likely:
        known = all(task_key(task).digest in times_ns for task in (group.task, *group.replaces))
        if not known and fused.isdisjoint(group.names):
            groups = (*groups, group)
            fused.update(group.names)
    return Candidate("estimated", model.plan_with(groups), groups, outcomes, persistent)


@dataclass(frozen=True)
class Remembered:
    """What earlier generations know of whole contexts of the model. choice: the one that shipped last; certain: whether
    that was a tuned one for certain; races: the comparisons so far; rival: the tuned context that did not ship although
    it may be faster; estimate: of the last comparison, None if its contexts are not to be compared once more."""

    choice: Candidate | None = None
    certain: bool = False
    races: Sequence[Ratios] = ()
    rival: Candidate | None = None
    estimate: Estimate | None = None


NOTHING = Remembered()


@dataclass(frozen=True)
class Choice:
    """What a comparison has led to. rival: the tuned context whose gain is told although it does not ship; measured:
    what was compared, as plain JSON values; hurried: a budget has kept it from comparing everything."""

    candidate: Candidate
    end_to_end: EndToEnd
    rival: Candidate | None
    estimate: Estimate
    measured: Mapping[str, Any]
    hurried: bool


def compare(
    model: Alternatives,
    runner: ContextRunner,
    outcomes: Outcomes,
    finalists: Finalists,
    untuned: Candidate,
    seconds: float,
    before: Remembered = NOTHING,
) -> Choice:
    """Choose the context that ships, by RULE of end_to_end.py.

    untuned: the context of the default configurations, in the form that it would have without tuning; seconds: what the
    turns may take, once there are enough of them for an interval; before: what is known. Where no time is left for an
    estimate, what the tasks' times alone speak for is compared instead. Raises what ContextRunner does, OutOfTime where
    no time is left for a round of the untuned context and another one.
    """
    contexts = _Contexts(runner, untuned)
    estimate, likeliest = before.estimate or Estimate(), [] if before.rival is None else [before.rival]
    if before.estimate is None:
        runner.share = "estimating"
        try:
            estimate = _estimate(model, runner, outcomes, finalists)
            likeliest = _candidates(model, outcomes, estimate, untuned.persistent)
        except OutOfTime:
            likeliest = [estimated_alone(model, outcomes, untuned.persistent, untuned.groups)]
        runner.share = "comparing"
    last = None if before.choice is None else contexts.add(before.choice)
    for place, one in enumerate(likeliest):
        count = len(contexts.candidates) + 1
        if not place or runner.has_time_for(count * rounds_needed(count)):  # fewer contexts rather than no answer
            contexts.add(one)
    count = len(contexts.candidates)
    if count > 1:
        log.info(f"comparing {count} whole contexts, the untuned one among them")
    elif runner.hurried:
        raise OutOfTime(USED_UP)
    with runner.comparing(seconds, count, rounds_needed(count)) as more:
        certain = last if before.certain else None
        preferred = list(contexts.candidates)
        comparison = compare_contexts(preferred, contexts.untuned, contexts.run, more, before.races, certain)
    chosen = contexts.candidates[comparison.chosen]
    rival = contexts.candidates.get(comparison.tuned or "")
    measured = {
        "contexts": max(map(len, finalists.values()), default=0),
        "groups": len(model.groups),
        "fused": [list(group.names) for group in chosen.groups],
        "launch_ns": estimate.launch_ns,
        "persistent": chosen.persistent,
        "changed": [_change(outcomes[key], one) for key, one in chosen.outcomes.items() if one.in_chain],
        "candidates": _told(comparison, contexts.candidates.values(), contexts.untuned),
        "races": [*map(dict, before.races), dict(comparison.ratios)],
    }
    return Choice(
        chosen, comparison.end_to_end, None if rival is chosen else rival, estimate, measured, hurried=runner.hurried
    )


class _Contexts:
    """The candidates by their digests, each of which has run; the untuned one is the last of them."""

    def __init__(self, runner: ContextRunner, untuned: Candidate) -> None:
        self._runner = runner
        self._loaded: dict[str, RemoteExecutor] = {}
        self._last = self._load(untuned)
        if self._last is None:
            raise TuningError("the untuned context does not run on the target")
        self._candidates: dict[str, Candidate] = {}

    @property
    def untuned(self) -> str:
        """The digest of the untuned context."""
        assert self._last is not None
        return self._last.digest

    @property
    def candidates(self) -> Mapping[str, Candidate]:
        """Those that are loaded, in order, the untuned one last unless it is one of the others, too."""
        assert self._last is not None
        return {**self._candidates, **({} if self.untuned in self._candidates else {self.untuned: self._last})}

    def add(self, one: Candidate) -> str | None:
        """Load a candidate, and return the digest of what it is then; None for one that cannot be loaded, which is left
        out with a warning, and if there is no time."""
        try:
            if (usable := self._load(one)) is None:
                return None
        except OutOfTime:
            return None
        self._candidates.setdefault(usable.digest, usable)
        return usable.digest

    def run(self, digests: Sequence[str]) -> list[float]:
        """Time a round of whole inferences; what is not asked for is freed."""
        gone = [digest for digest in self._loaded if digest not in digests]
        self._runner.free(*(self._loaded.pop(digest) for digest in gone))
        return self._runner.round_ns([self._loaded[digest] for digest in digests])

    def _load(self, one: Candidate) -> Candidate | None:
        """Return the candidate as it runs: launches one by one where nothing of it can be persistent, or what is does
        not run."""
        if one.digest in self._loaded:
            return one
        try:
            one, context = as_it_runs(self._runner, one)
        except TargetError as error:
            log.warning(f"a context is left out of the comparison ({one.title}): {error}")
            return None
        if one.digest in self._loaded:
            self._runner.free(context)
        else:
            self._runner.set_aside(context)
            self._loaded[one.digest] = context
        return one


def as_it_runs(runner: ContextRunner, one: Candidate) -> tuple[Candidate, RemoteExecutor]:
    """Load a candidate; return it as it runs, and its context: launches one by one where nothing of it can be
    persistent, or what is does not run. Raises what ContextRunner does."""
    try:
        context = runner.load(one.plan, one.outcomes, one.persistent)
    except TargetError as error:
        if not one.persistent:
            raise
        log.warning(f"persistent kernels are left out of a context ({one.title}): {error}")
        return as_it_runs(runner, replace(one, persistent=False))
    return replace(one, persistent=bool(one.persistent and context.graph.persistent)), context


def _estimate(model: Alternatives, runner: ContextRunner, outcomes: Outcomes, finalists: Finalists) -> Estimate:
    """Time all tasks inside contexts without fusion and with everything fused in one way, and finalists inside the
    context that these speak for."""
    covers = _covers(model, outcomes)
    if not covers and not any(len(own) > 1 for own in finalists.values()):
        return Estimate()
    if covers:
        log.info(f"timing contexts without fusion and with {' and '.join(map(_groups, covers))} fused")
    with _loaded(runner, [(plan, outcomes) for plan in (model.plan, *map(model.plan_with, covers))]) as contexts:
        tasks = runner.task_ns(contexts)
        times_ns: dict[str, float] = {}
        for plan, own in reversed(list(zip([model.plan, *map(model.plan_with, covers)], tasks, strict=True))):
            times_ns |= _each(plan, own)
        launch_ns = _launch_ns(contexts[:2], runner.inference_ns(contexts[:2]), tasks[:2])
    plan = model.plan_with(gainful(model, times_ns, launch_ns))
    try:
        changed = _finalists(plan, runner, outcomes, finalists, times_ns)
    except OutOfTime:
        changed = {}
    return Estimate(times_ns, launch_ns, changed)


@contextmanager
def _loaded(runner: ContextRunner, wanted: Iterable[tuple[Plan, Outcomes]]) -> Iterator[list[RemoteExecutor]]:
    """Load contexts, and free them whatever happens."""
    contexts: list[RemoteExecutor] = []
    try:
        for plan, outcomes in wanted:
            contexts.append(runner.load(plan, outcomes))
        yield contexts
    finally:
        runner.free(*contexts)


def _candidates(model: Alternatives, outcomes: Outcomes, estimate: Estimate, persistent: bool) -> list[Candidate]:
    """Return the contexts that may ship, most promising first. Launches cost nearly nothing inside a persistent kernel,
    so that fewer operations may be worth fusing there.

    Persistent kernels are no matter of comparison: a context that has them runs by launches when those are faster (the
    circuit breaker), and they look slower where the target was busy while contexts were compared."""
    tuned = with_winners(outcomes, estimate.changed)
    inside, apart = (gainful(model, estimate.times_ns, ns) for ns in (INSIDE_NS, estimate.launch_ns))
    ways: list[tuple[str, tuple[FusionGroup, ...]]] = [("estimated", inside if persistent else apart)]
    if persistent:
        ways.append(("fused as for launches", apart))
    ways.append(("nothing fused", ()))
    return [Candidate(title, model.plan_with(groups), groups, tuned, persistent) for title, groups in ways]


def _covers(model: Alternatives, outcomes: Outcomes) -> list[tuple[FusionGroup, ...]]:
    """Return sets of groups that can be fused together, until each task of a group that was tuned is in one of them.
    Groups that share operations are in different sets; those that save most launches come first."""
    covers: list[tuple[FusionGroup, ...]] = []
    covered: set[str] = set()

    def known(task: Task) -> float | None:
        key = task_key(task).digest
        return None if key in covered or outcomes[key].tuned_ns is None else 1.0

    while cover := model.gainful(known, ANY_LAUNCH_NS):
        covers.append(cover)
        covered.update(task_key(group.task).digest for group in cover)
    return covers


def _launch_ns(
    contexts: Sequence[RemoteExecutor],
    inference_ns: Sequence[Sequence[float]],
    tasks: Sequence[Mapping[str, Sequence[float]]],
) -> float:
    """Return what a launch costs beside the time of its kernel: by how much less an inference takes beside its kernels
    in the second context, which has fewer launches, and at most what that is per launch in the first."""
    beside = [
        statistics.median(whole) - sum(map(statistics.median, own.values()))
        for whole, own in zip(inference_ns, tasks, strict=True)
    ]
    launches = [len(context.graph.launches) for context in contexts]
    each = beside[0] / launches[0]
    if len(contexts) > 1 and launches[0] > launches[1]:
        each = min(each, (beside[0] - beside[1]) / (launches[0] - launches[1]))
    return max(0.0, each)


def _each(plan: Plan, tasks: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """By task digest, what one operation takes inside the model."""
    weights = {task_key(task).digest: task.weight for task in plan.tasks}
    medians = {key: statistics.median(samples) for key, samples in tasks.items()}
    return {key: median_ns / weights[key] for key, median_ns in medians.items() if median_ns > 0}


def _finalists(
    plan: Plan,
    runner: ContextRunner,
    outcomes: Outcomes,
    finalists: Finalists,
    times_ns: Mapping[str, float],
) -> dict[str, WinnerRecord]:
    """Return the finalists of the plan's tasks that are faster than the winners inside it for certain."""
    shares = {task_key(task).digest: task.weight * times_ns.get(task_key(task).digest, 0.0) for task in plan.tasks}
    least = WORTH_ANOTHER * sum(shares.values())
    several = {key: finalists[key] for key, share in shares.items() if share >= least and len(finalists[key]) > 1}
    if not several:
        return {}
    most = max(map(len, several.values()))
    log.info(f"timing other finalists of {len(several)} of {len(shares)} tasks inside the model")
    others = [{key: own[place] for key, own in several.items() if place < len(own)} for place in range(most)]
    with _loaded(runner, [(plan, with_winners(outcomes, winners)) for winners in others]) as contexts:
        times = runner.task_ns(contexts)
    chosen: dict[str, WinnerRecord] = {}
    for key, own in several.items():
        gains = [(paired_interval(times[0][key], times[place][key]).low, place) for place in range(1, len(own))]
        gain, place = max(gains)
        if gain > 1:
            chosen[key] = own[place]
    return chosen


def _told(comparison: Comparison, candidates: Iterable[Candidate], untuned: str) -> list[dict[str, Any]]:
    """Return what was compared, as plain JSON values. untuned: the digest of the untuned context; fused: groups of
    operations; gain: how many times as fast as the untuned context it is, null for that itself; left: whether no other
    context was faster for certain."""
    return [
        {
            "title": one.title,
            "untuned": one.digest == untuned,
            "chosen": one.digest == comparison.chosen,
            "operations": len(one.plan.operations),
            "fused": len(one.groups),
            "persistent": one.persistent,
            "gain": comparison.gains[one.digest].to_dict() if one.digest in comparison.gains else None,
            "left": one.digest in comparison.left,
        }
        for one in candidates
    ]


def _change(outcome: Outcome, chosen: Outcome) -> dict[str, Any]:
    return {
        "key": outcome.key,
        "op": outcome.op,
        "winner": dict(outcome.configuration),
        "winner_alone_ns": outcome.tuned_ns,
        "chosen": dict(chosen.configuration),
        "chosen_alone_ns": chosen.tuned_ns,
    }


def _groups(groups: Sequence[FusionGroup]) -> str:
    return f"{len(groups)} group{'s' * (len(groups) > 1)}"
