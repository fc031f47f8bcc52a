"""What the contexts of a model say when they run in turns: what is fused, and which finalist of each task is kept."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gputune.cache import ChainRecord, WinnerRecord
from gputune.client.alternatives import Alternatives, Group
from gputune.client.context_race import ContextRace, Outcomes
from gputune.client.errors import TargetError
from gputune.client.plan import Plan, Task
from gputune.client.progress import Reporter
from gputune.client.remote_executor import RemoteExecutor
from gputune.client.tuning.intervals import Interval, paired_interval
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.task_search import task_key
from gputune.kernels.space import configuration_key

ANY_LAUNCH_NS = 1e15
"""What a launch would have to cost for as much as possible to be fused."""

Finalists = Mapping[str, Sequence[WinnerRecord]]
"""By task digest, its winner and what comes close to it; nothing where there is no choice."""


@dataclass(frozen=True)
class Fusing:
    """A plan, its context where there is one already, and what has led to it: the fields of ChainRecord."""

    plan: Plan
    context: RemoteExecutor | None = None
    groups: tuple[Group, ...] = ()
    times_ns: Mapping[str, float] = field(default_factory=dict)
    launch_ns: float = 0.0
    gain: Interval | None = None


def plan_by(model: Alternatives, times_ns: Mapping[str, float], launch_ns: float) -> Plan:
    """The plan that these times by task digest lead to; the plain one without any."""
    return model.choose(lambda task: times_ns.get(task_key(task).digest), launch_ns)


def with_winner(outcome: Outcome, winner: WinnerRecord) -> Outcome:
    """The outcome of a task, but with another finalist than its winner."""
    return replace(
        outcome,
        configuration=winner.configuration,
        tuned_ns=winner.median_ns,
        binary=winner.binary,
        in_chain=configuration_key(winner.configuration) != configuration_key(outcome.configuration),
    )


def compare(
    model: Alternatives,
    race: ContextRace,
    reporter: Reporter,
    outcomes: Outcomes,
    finalists: Finalists,
    persistent: bool,
) -> ChainRecord:
    """What is chosen in the chain, binaries included. persistent: whether the device may run persistent kernels. Raises
    what ContextRace does."""
    fusing = _fuse(model, race, reporter, outcomes)
    winners, gain = _pick(fusing, race, reporter, outcomes, finalists)
    by_persistence = _persist(fusing.plan, race, reporter, _with(outcomes, winners)) if persistent else None
    measured = {
        "contexts": max(map(len, finalists.values()), default=0),
        "groups": len(model.groups),
        "fused": [list(group.names) for group in fusing.groups],
        "launch_ns": fusing.launch_ns,
        "gain_by_fusing": _told(fusing.gain),
        "gain_by_finalists": _told(gain),
        "persistent": by_persistence is not None and by_persistence.low > 1,
        "gain_by_persistence": _told(by_persistence),
        "changed": [_change(outcomes[key], winner) for key, winner in winners.items()],
    }
    return ChainRecord(winners, fusing.times_ns, fusing.launch_ns, measured)


def _fuse(model: Alternatives, race: ContextRace, reporter: Reporter, outcomes: Outcomes) -> Fusing:
    """Which groups pay by the times of their tasks in the chain, if whole inferences say so, too."""
    covers = _covers(model, outcomes)
    if not covers:
        return Fusing(model.plan)
    reporter.info(f"comparing contexts without fusion and with {' and '.join(map(_groups, covers))} fused")
    plans = [model.plan, *map(model.plan_with, covers)]
    contexts = [race.load(plan, outcomes) for plan in plans]
    tasks = race.task_ns(contexts)
    times_ns: dict[str, float] = {}
    for plan, own in zip(reversed(plans), reversed(tasks), strict=True):
        times_ns |= _each(plan, own)
    launch_ns = _launch_ns(contexts[:2], race.inference_ns(contexts[:2]), tasks[:2])
    chosen = model.gainful(lambda task: times_ns.get(task_key(task).digest), launch_ns)
    plain, *fused = contexts
    place = covers.index(chosen) if chosen in covers else None
    race.free(*(context for number, context in enumerate(fused) if number != place))
    if not chosen:
        return Fusing(model.plan, plain, launch_ns=launch_ns)
    plan = model.plan_with(chosen)
    context = race.load(plan, outcomes) if place is None else fused[place]
    before, after = race.inference_ns([plain, context])
    gain = paired_interval(before, after)
    if gain.low <= 1:
        race.free(context)
        return Fusing(model.plan, plain, launch_ns=launch_ns, gain=gain)
    race.free(plain)
    return Fusing(plan, context, chosen, times_ns, launch_ns, gain)


def _covers(model: Alternatives, outcomes: Outcomes) -> list[tuple[Group, ...]]:
    """Groups that can be fused together, until each task of a group that was tuned is in one of them. Groups that share
    operations are in different ones; those that save most launches come first."""
    covers: list[tuple[Group, ...]] = []
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
    """What a launch costs beside the time of its kernel: by how much less an inference takes beside its kernels in the
    second context, which has fewer launches, and at most what that is per launch in the first."""
    beside = [
        statistics.median(whole) - sum(map(statistics.median, own.values()))
        for whole, own in zip(inference_ns, tasks, strict=True)
    ]
    first, second = (len(context.graph.launches) for context in contexts)
    saved = (beside[0] - beside[1]) / (first - second) if first > second else beside[0] / first
    return max(0.0, min(saved, beside[0] / first))


def _each(plan: Plan, tasks: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """By task digest, what one operation takes in the chain."""
    weights = {task_key(task).digest: task.weight for task in plan.tasks}
    medians = {key: statistics.median(samples) for key, samples in tasks.items()}
    return {key: median_ns / weights[key] for key, median_ns in medians.items() if median_ns > 0}


def _pick(
    fusing: Fusing, race: ContextRace, reporter: Reporter, outcomes: Outcomes, finalists: Finalists
) -> tuple[dict[str, WinnerRecord], Interval | None]:
    """The finalists that are faster than the winners in the chain, if whole inferences with all of them are, too; and
    by how much these are."""
    plan = fusing.plan
    keys = [task_key(task).digest for task in plan.tasks]
    several = {key: finalists[key] for key in keys if len(finalists[key]) > 1}
    if not several:
        return {}, None
    most = max(map(len, several.values()))
    reporter.info(f"comparing {most} contexts, which have other finalists of {len(several)} of {len(keys)} tasks")
    first = fusing.context or race.load(plan, outcomes)
    others = [
        race.load(plan, _with(outcomes, {key: own[place] for key, own in several.items() if place < len(own)}))
        for place in range(1, most)
    ]
    times = race.task_ns([first, *others])
    race.free(*others)
    chosen: dict[str, WinnerRecord] = {}
    for key, own in several.items():
        gains = [(paired_interval(times[0][key], times[place][key]).low, place) for place in range(1, len(own))]
        gain, place = max(gains)
        if gain > 1:
            chosen[key] = own[place]
    if not chosen:
        return {}, None
    mixed = _with(outcomes, chosen)
    before, after = race.inference_ns([first, race.load(plan, mixed)])
    gain_of_all = paired_interval(before, after)
    if gain_of_all.low <= 1:
        return {}, gain_of_all
    return {key: replace(winner, binary=race.binary(mixed[key])) for key, winner in chosen.items()}, gain_of_all


def _persist(plan: Plan, race: ContextRace, reporter: Reporter, outcomes: Outcomes) -> Interval | None:
    """By how much whole inferences are faster by persistent kernels; None where there are none, or they fail."""
    reporter.info("comparing launches one by one with persistent kernels, which stand for many of them")
    one_by_one = race.load(plan, outcomes)
    try:
        persistent = race.load(plan, outcomes, persistent=True)
        if not persistent.graph.persistent:
            return None
        before, after = race.inference_ns([one_by_one, persistent])
    except TargetError as error:
        reporter.warn(f"launches stay apart: a persistent kernel does not run: {error}")
        return None
    return paired_interval(before, after)


def _with(outcomes: Outcomes, winners: Mapping[str, WinnerRecord]) -> dict[str, Outcome]:
    return {**outcomes, **{key: with_winner(outcomes[key], winner) for key, winner in winners.items()}}


def _told(gain: Interval | None) -> dict[str, float] | None:
    return None if gain is None else {"low": gain.low, "high": gain.high}


def _change(outcome: Outcome, winner: WinnerRecord) -> dict[str, Any]:
    return {
        "key": outcome.key,
        "op": outcome.op,
        "winner": dict(outcome.configuration),
        "winner_alone_ns": outcome.tuned_ns,
        "chosen": dict(winner.configuration),
        "chosen_alone_ns": winner.median_ns,
    }


def _groups(groups: Sequence[Group]) -> str:
    return f"{len(groups)} group{'s' * (len(groups) > 1)}"
