"""Choose the context of a model: what is fused, which finalist each task runs, and in what form.

A choice belongs to a model on a device. It is stored with all configurations of its context, so it can be made again
whatever becomes of the tasks' own winners. It is also stored with every comparison: later comparisons with the same
untuned context add to it.

A comparison ends when each context that is left is faster than the untuned context for certain, or differs from it by
less than 1 % for certain, or when --compare_seconds are over (elimination.py). The last certain choice stays until
another context is faster for certain. Without a certain choice, the untuned context ships unless a tuned context is
faster for certain. If several are, and their order is not known, the last choice goes first, then the context of the
estimate.

A choice is open if the interval of its gain holds 1 and is wide. Then the next generation lets the untuned context and
the best tuned context take more turns, and times nothing else. A closed choice is not compared again while the winners
are the same. If a budget leaves no time to compare, the last choice is made again; without one the untuned context
ships.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gputune.cache import PLACES, ChainRecord, PerformanceCache, RecordError, WinnerRecord
from gputune.client.context.comparison import (
    Candidate,
    Choice,
    Estimate,
    Remembered,
    compare,
    with_default,
    with_winners,
)
from gputune.client.context.context_runner import ContextRunner, Outcomes
from gputune.client.context.elimination import ratios_from
from gputune.client.context.persistent import FORM
from gputune.client.context.verifying.distance import Compared
from gputune.client.errors import CacheMiss, GputuneError
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.fusion_groups import FusionGroup
from gputune.client.model.plan import Plan
from gputune.client.options.tuning import TuningOptions
from gputune.client.tuning.budget import OutOfTime
from gputune.client.tuning.measuring.end_to_end import KEPT, ONLY, OPEN, EndToEnd
from gputune.client.tuning.outcome import Outcome, untuned
from gputune.client.tuning.search.effort import Effort
from gputune.client.tuning.search.task_search import default_of, task_key
from gputune.client.tuning.tuner import Tuner
from gputune.core.errors import ContextError
from gputune.core.json_text import finite_number
from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import configuration_key

log = logging.getLogger(__name__)

TRY_AGAIN = "the same command tries again"


@dataclass(frozen=True)
class Decision:
    """What a context is made of: a plan, and the outcomes of the tasks of all plans."""

    plan: Plan
    outcomes: Outcomes
    persistent: bool = False
    """Whether persistent kernels stand for many launches."""
    summary: Mapping[str, Any] | None = None
    """What --summary_json says of the comparison; None where nothing was compared."""
    end_to_end: EndToEnd | None = None
    """The times of an inference, and how many times as fast it is as an untuned one; None if not measured."""
    outputs: Mapping[str, Compared] = field(default_factory=dict)
    """How much of each output, by its name, whole contexts were compared by; empty if that is not known."""
    unfinished: str = ""
    """The comparison for which a budget left no time, in words; empty if there is none."""

    @property
    def compared(self) -> Sequence[Mapping[str, Any]]:
        """The contexts that took turns, the one that ships among them; empty where none did."""
        found = (self.summary or {}).get("candidates")
        return found if isinstance(found, list) and self.end_to_end is not None else ()


def outcomes_of(decisions: Sequence[Decision]) -> list[Outcome]:
    """Return the outcomes of all graphs: each configuration of a task once, with its weight in all of them."""
    found: dict[tuple[str, str], Outcome] = {}
    for decision in decisions:
        weights = {task_key(task).digest: task.weight for task in decision.plan.tasks}
        for key, one in decision.outcomes.items():
            identity = key, configuration_key(one.configuration)
            before = found[identity].weight if identity in found else 0
            found[identity] = replace(one, weight=before + weights.get(key, 0))
    return list(found.values())


class InChain:
    """Decides for one model on one target."""

    def __init__(
        self,
        model: Alternatives,
        tuner: Tuner,
        cache: PerformanceCache,
        effort: Effort,
        options: TuningOptions,
        limits: DeviceLimits,
        persistent: bool = False,
    ) -> None:
        """effort: says how many finalists of a task are compared at most; options: what was asked for besides;
        persistent: whether persistent kernels are an alternative."""
        self._model = model
        self._tuner = tuner
        self._cache = cache
        self._contexts = effort.contexts
        self._seconds = effort.compare_seconds if options.compare_seconds is None else options.compare_seconds
        self._again = options.compare_again
        self._frozen = options.cache_mode == "frozen"
        self._limits = limits
        self._persistent = persistent
        self._tasks = {task_key(task).digest: task for task in model.tasks}

    @property
    def remembered(self) -> EndToEnd | None:
        """Return the record of the last choice in the cache. Raises CacheError."""
        record = self._cache.chain_of(self._digest())
        return None if record is None else EndToEnd.from_dict(record.measured.get("end_to_end"))

    def known(self, outcomes: Outcomes) -> Decision | None:
        """Return the choice that is remembered between these winners; None where it is to be made anew. Raises
        CacheError, and CacheMiss where the cache is frozen and remembers none."""
        record, known, told, same = self._last(outcomes)
        again = self._again or told is None or told.open or bool(record and record.measured.get("hurried"))
        if record is not None and known is not None and same and (self._frozen or not again):
            return self._decided(known, told, record.measured, "as compared before: ")
        if self._frozen:
            raise CacheMiss(
                "the performance cache is frozen and has no comparison of whole contexts for "
                f"{self._model.plan.name!r}; generate with another cache_mode first"
            )
        return None

    def _last(self, outcomes: Outcomes) -> tuple[ChainRecord | None, Candidate | None, EndToEnd | None, bool]:
        """Return the record of the last choice, its context where that still holds, what was measured, and whether it
        was made between these winners."""
        record = self._cache.chain_of(self._digest())
        if record is None:
            return None, None, None, False
        known = self._known(record, outcomes)
        told = EndToEnd.from_dict(record.measured.get("end_to_end"))
        return record, known, told, known is not None and record.measured.get("asked") == self._asked(outcomes)

    def decide(self, outcomes: Outcomes, runner: ContextRunner) -> Decision:
        """Return a new choice. Raises CacheError."""
        record, known, told, same = self._last(outcomes)
        finalists = {key: self._tuner.finalists(task, self._contexts) for key, task in self._tasks.items()}
        before = Remembered(known) if record is None else self._before(record, known, told, same, outcomes)
        default = self._untuned(outcomes)
        try:
            with runner:
                choice = compare(self._model, runner, outcomes, finalists, default, self._seconds, before)
        except OutOfTime:
            if record is not None and known is not None:
                decision = self._decided(known, told, record.measured, "as compared before: ")
                return replace(decision, unfinished="whole contexts were not compared, so the last choice stays")
            unfinished = "whole contexts were not compared, so the untuned context ships"
            return Decision(default.plan, default.outcomes, default.persistent, unfinished=unfinished)
        except (GputuneError, ContextError, OSError) as error:
            if record is not None and known is not None:
                log.warning(f"whole contexts were not compared, the last choice stays: {error}; {TRY_AGAIN}")
                return self._decided(known, told, record.measured, "as compared before: ")
            log.warning(
                "whole contexts were not compared, so no gain is known; each task runs its own winner, unfused: "
                f"{error}; {TRY_AGAIN}"
            )
            return Decision(self._model.plan, outcomes)
        record = self._recorded(choice, self._asked(outcomes), runner)
        self._cache.conclude_chain(self._digest(), record)
        decision = self._decided(choice.candidate, choice.end_to_end, record.measured, "")
        return replace(decision, unfinished="not all whole contexts were compared to the end" if choice.hurried else "")

    def _before(
        self, record: ChainRecord, known: Candidate | None, told: EndToEnd | None, same: bool, outcomes: Outcomes
    ) -> Remembered:
        """Return what a comparison may build on: everything, or with --compare_again the last choice alone, as one of
        several. told: what the record says; same: whether it chose between the winners of today."""
        if self._again:
            return Remembered(known)
        races = ratios_from(record.measured.get("races"))
        certain = told is not None and told.kept != "untuned" and told.gain is not None and told.gain.rounds > 0
        if told is None or not same or record.measured.get("hurried"):
            return Remembered(known, certain, races)
        rival = self._rival(record, outcomes)
        if rival is None and told.kept == "untuned":  # an earlier version has not said which it is
            return Remembered(known, certain, races)
        return Remembered(known, certain, races, rival, Estimate(record.times_ns, record.launch_ns))

    def _digest(self) -> str:
        """Return what a choice belongs to: the operations of the model, its tasks, where and with what code they are
        measured, and whether persistent kernels are an alternative."""
        operations = [(each.name, task_key(each.task).digest) for each in self._model.plan.operations]
        places = [(key, self._tuner.identity(task)) for key, task in self._tasks.items()]
        # Choices of earlier versions are others: contexts ran in Python, where a launch cost more.
        text = json.dumps(["choice in C", FORM if self._persistent else "", operations, places])
        return hashlib.sha256(text.encode()).hexdigest()

    def _asked(self, outcomes: Outcomes) -> str:
        """Between what is chosen: the winners, and how many finalists of each task are compared."""
        winners = [
            (
                sorted(outcomes[key].configuration.items()),
                self._tuner.rendered_sha256(task, outcomes[key]),
                outcomes[key].tuned_ns is not None,
                self._tuner.is_free(task),
            )
            for key, task in self._tasks.items()
        ]
        return hashlib.sha256(json.dumps([self._contexts, winners]).encode()).hexdigest()

    def _known(self, record: ChainRecord, outcomes: Outcomes) -> Candidate | None:
        """Return the choice that is remembered as a candidate; None if it does not hold any more."""
        return self._candidate("the last choice", record.winners, record.measured, outcomes)

    def _rival(self, record: ChainRecord, outcomes: Outcomes) -> Candidate | None:
        """Return the tuned context that did not ship; None where there is none, or none that holds."""
        told = record.measured.get("rival")
        found = told.get("winners") if isinstance(told, Mapping) else None
        if not isinstance(told, Mapping) or not isinstance(found, Mapping):
            return None
        try:
            winners = {str(key): WinnerRecord(**one) for key, one in found.items()}
        except (RecordError, TypeError):
            return None
        return self._candidate("the best tuned one", winners, told, outcomes)

    def _candidate(
        self, title: str, remembered: Mapping[str, WinnerRecord], measured: Mapping[str, Any], outcomes: Outcomes
    ) -> Candidate | None:
        """Return a context that is remembered; None where its groups or configurations do not hold any more. A task
        whose configuration the user has chosen runs that."""
        wanted = measured.get("fused")
        groups = tuple(
            group for group in self._model.groups if isinstance(wanted, list) and list(group.names) in wanted
        )
        if not isinstance(wanted, list) or len(groups) != len(wanted):
            return None
        plan = self._model.plan_with(groups)
        winners: dict[str, WinnerRecord] = {}
        for task in plan.tasks:
            key = task_key(task).digest
            winner = remembered.get(key)
            if winner is None or not self._tuner.still_holds(self._tasks[key], winner):
                return None
            if self._tuner.is_free(self._tasks[key]):
                winners[key] = winner
        persistent = self._persistent and measured.get("persistent") is True  # they may not have run
        return Candidate(title, plan, groups, with_winners(outcomes, winners), persistent)

    def making_seconds(self, seconds: float) -> float:
        """Return what it took last to make the untuned context with all of its programs. seconds: what it has taken
        now, 0 where programs were found. Raises CacheError."""
        digest = hashlib.sha256(f"making {self._digest()}".encode()).hexdigest()
        if seconds > 0:
            self._cache.conclude_chain(digest, ChainRecord({}, {}, 0.0, {"making_seconds": seconds}))
            return seconds
        record = self._cache.chain_of(digest)
        return (finite_number(record.measured.get("making_seconds")) or 0.0) if record is not None else 0.0

    @property
    def defaults(self) -> Candidate:
        """The context that effort none makes, as long as nothing is known of the tasks."""
        return self._untuned({key: untuned(task, self._limits) for key, task in self._tasks.items()})

    def _untuned(self, outcomes: Outcomes) -> Candidate:
        """Return the context that effort none makes."""
        defaults = {
            key: with_default(outcomes[key], default_of(task, self._limits)) for key, task in self._tasks.items()
        }
        groups = self._likely(outcomes)
        return Candidate("untuned", self._model.plan_with(groups), groups, defaults, self._persistent)

    def _likely(self, outcomes: Outcomes) -> tuple[FusionGroup, ...]:
        """Return what is fused without having been measured, less what does not work."""
        likely = self._model.likely(self._limits)
        return tuple(group for group in likely if not outcomes[task_key(group.task).digest].failed)

    def _recorded(self, choice: Choice, asked: str, runner: ContextRunner) -> ChainRecord:
        """Return the choice with all configurations that its context runs, and the tuned one that did not ship."""
        places = sorted({self._tuner.identity(task) for task in self._tasks.values()})
        rival = choice.rival and {
            "fused": [list(group.names) for group in choice.rival.groups],
            "persistent": choice.rival.persistent,
            "winners": {key: vars(one) for key, one in self._winners(choice.rival, choice.estimate).items()},
        }
        measured = {
            **choice.measured,
            "end_to_end": choice.end_to_end.to_dict(),
            "rival": rival,
            "load": runner.machine_load,
            OUTPUTS: {name: [one.values, one.blank] for name, one in runner.compared.items()},
            "asked": asked,
            "hurried": choice.hurried,
            PLACES: places,
        }
        winners = self._winners(choice.candidate, choice.estimate)
        return ChainRecord(winners, choice.estimate.times_ns, choice.estimate.launch_ns, measured)

    def _winners(self, candidate: Candidate, estimate: Estimate) -> dict[str, WinnerRecord]:
        """By task digest, what a context runs."""
        winners = {}
        for task in candidate.plan.tasks:
            key = task_key(task).digest
            one = candidate.outcomes[key]
            winners[key] = WinnerRecord(
                configuration=one.configuration,
                median_ns=one.tuned_ns or estimate.times_ns.get(key) or 1.0,
                default_ns=one.default_ns,
                effort="none",
                rendered_sha256=self._tuner.rendered_sha256(self._tasks[key], one),
            )
        return winners

    def _decided(self, chosen: Candidate, told: EndToEnd | None, measured: Mapping[str, Any], source: str) -> Decision:
        """Return the choice, and what is said of it."""
        fewer = len(self._model.plan.operations) - len(chosen.plan.operations)
        keys = {task_key(task).digest for task in chosen.plan.tasks}
        others = [(key, one) for key, one in chosen.outcomes.items() if one.in_chain and key in keys]
        parts = [] if told is None or told.gain is None else [KEPT[told.kept]]
        if self._model.groups:
            parts.append(f"fusing saves {fewer} operations" if fewer else "nothing is fused")
        if others and (told is None or told.kept != "untuned"):
            parts.append(f"{len(others)} of {len(keys)} tasks run another finalist")
        if self._persistent:
            parts.append("it has persistent kernels" if chosen.persistent else "it runs launches one by one")
        log.info(f"end to end, {source}{'; '.join(parts) or ('every task runs its winner' if told is None else ONLY)}")
        if told is not None and told.open:
            log.info(f"end to end, {OPEN}")
        for key, one in others:
            log.debug(f"end to end, {source}{one.op} {key[:10]}: {dict(one.configuration)}")
        outputs = _outputs(measured.get(OUTPUTS))
        for name in (name for name, one in outputs.items() if one.shows_nothing):
            log.warning(
                f"end to end: output {name!r} is NaN or infinite everywhere on random inputs, so only times were "
                "compared"
            )
        summary = {name: value for name, value in measured.items() if name not in _INNER}
        told_of = {**summary, "remembered": bool(source)}
        return Decision(chosen.plan, chosen.outcomes, chosen.persistent, told_of, told, outputs)


def _outputs(told: object) -> dict[str, Compared]:
    """Return how much of each output was compared; nothing where a record does not say it, or not in such numbers."""
    found: dict[str, Compared] = {}
    for name, numbers in told.items() if isinstance(told, Mapping) else ():
        if isinstance(numbers, list) and len(numbers) == 2 and all(type(each) is int for each in numbers):
            found[str(name)] = Compared(values=numbers[0], blank=numbers[1])
    return found


OUTPUTS = "outputs"
"""The name of what a record says of the outputs that were compared."""
_INNER = ("races", "rival", "asked", "hurried", "end_to_end", OUTPUTS, PLACES)
"""What a record holds for later comparisons, or what a decision says by itself."""
