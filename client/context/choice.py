"""The choice of a model's context: what is fused, which finalist each task runs, and in what form.

A choice belongs to a model on a device. It is remembered with all configurations that the context runs, so that it can
be made again whatever becomes of the tasks' own winners, and with every comparison, so that later ones add to it. Where
the winners are those that were compared, nothing is compared again, unless a budget had cut that short.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.cache import PLACES, ChainRecord, PerformanceCache, WinnerRecord
from gputune.client.context.comparison import Candidate, Choice, best_tuned, compare, with_default, with_winners
from gputune.client.context.context_runner import ContextRunner, Outcomes
from gputune.client.context.elimination import ratios_from
from gputune.client.context.persistent import FORM
from gputune.client.errors import CacheMiss, GputuneError
from gputune.client.model.alternatives import Alternatives, Group
from gputune.client.model.plan import Plan
from gputune.client.tuning.search.effort import Effort
from gputune.client.tuning.search.task_search import default_of, task_key
from gputune.client.tuning.tuner import Tuner
from gputune.core.errors import ContextError
from gputune.kernels.family import DeviceLimits

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

    @property
    def end_to_end(self) -> Mapping[str, Any] | None:
        """What an inference takes and by what it is faster than untuned; None where that was not measured."""
        found = (self.summary or {}).get("end_to_end")
        return found if isinstance(found, Mapping) else None

    @property
    def compared(self) -> Sequence[Mapping[str, Any]]:
        """The contexts that took turns, the one that ships among them, with their times; empty where none did."""
        found = (self.summary or {}).get("candidates")
        return found if isinstance(found, list) and self.end_to_end is not None else ()


class InChain:
    """Decides for one model on one target."""

    def __init__(
        self,
        model: Alternatives,
        tuner: Tuner,
        cache: PerformanceCache,
        effort: Effort,
        limits: DeviceLimits,
        persistent: bool = False,
        frozen: bool = False,
    ) -> None:
        """effort: says how many finalists of a task are compared at most, and in how many rounds; persistent: whether
        persistent kernels are an alternative; frozen: nothing may be compared any more."""
        self._model = model
        self._tuner = tuner
        self._cache = cache
        self._contexts, self._rounds = effort.contexts, effort.rounds
        self._limits = limits
        self._persistent = persistent
        self._frozen = frozen
        self._tasks = {task_key(task).digest: task for task in model.tasks}

    def decide(self, outcomes: Outcomes, runner: ContextRunner) -> Decision:
        """The choice that is remembered, or a new one. Raises CacheError, and CacheMiss where the cache is frozen and
        remembers no choice between these winners."""
        digest, asked = self._digest(), self._asked(outcomes)
        record = self._cache.chain_of(digest)
        known = None if record is None else self._known(record, outcomes)
        if record is not None and known is not None and record.measured.get("asked") == asked:
            complete = self._frozen or not record.measured.get("hurried")
            if complete:
                return self._decided(known, record.measured, "as compared before: ")
        if self._frozen:
            raise CacheMiss(
                f"the performance cache is frozen and does not hold what is fastest in {self._model.plan.name!r}; "
                "generate with another cache_mode first"
            )
        finalists = {key: self._tuner.finalists(task, self._contexts) for key, task in self._tasks.items()}
        plain = self._untuned(outcomes)
        earlier = [] if record is None else ratios_from(record.measured.get("races"))
        try:
            with runner:
                choice = compare(self._model, runner, outcomes, finalists, plain, known, earlier, self._rounds)
        except (GputuneError, ContextError, OSError) as error:
            if record is not None and known is not None:
                log.warning(f"whole contexts were not compared, the last choice stays: {error}; {TRY_AGAIN}")
                return self._decided(known, record.measured, "as compared before: ")
            log.warning(
                "whole contexts were not compared, so that no gain is known; each task runs its own winner, unfused: "
                f"{error}; {TRY_AGAIN}"
            )
            return Decision(self._model.plan, outcomes)
        if choice.hurried:
            log.warning("--tuning_budget was used up: not all whole contexts were compared; the same command goes on")
        record = self._recorded(choice, asked)
        self._cache.conclude_chain(digest, record)
        return self._decided(choice.candidate, record.measured, "")

    def _digest(self) -> str:
        """What a choice belongs to: the operations of the model, its tasks, where and with what code they are measured,
        and whether persistent kernels are an alternative."""
        operations = [(each.name, task_key(each.task).digest) for each in self._model.plan.operations]
        places = [(key, self._tuner.identity(task)) for key, task in self._tasks.items()]
        # Choices of earlier versions are others: launches one by one may have been chosen because a machine was busy.
        form = [FORM, "wherever they run"] if self._persistent else ""
        text = json.dumps(["choice", form, operations, places])
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
        """The choice that is remembered as a candidate; None where its groups or configurations do not hold any more.
        A task whose configuration the user has chosen runs that."""
        wanted = record.measured.get("fused")
        groups = tuple(
            group for group in self._model.groups if isinstance(wanted, list) and list(group.names) in wanted
        )
        if not isinstance(wanted, list) or len(groups) != len(wanted):
            return None
        plan = self._model.plan_with(groups)
        winners: dict[str, WinnerRecord] = {}
        for task in plan.tasks:
            key = task_key(task).digest
            winner = record.winners.get(key)
            if winner is None or not self._tuner.still_holds(self._tasks[key], winner):
                return None
            if self._tuner.is_free(self._tasks[key]):
                winners[key] = winner
        persistent = self._persistent and record.measured.get("persistent") is True  # they may not have run
        return Candidate("the last choice", plan, groups, with_winners(outcomes, winners), persistent)

    def _untuned(self, outcomes: Outcomes) -> Candidate:
        """The context that effort none makes."""
        defaults = {
            key: with_default(outcomes[key], default_of(task, self._limits)) for key, task in self._tasks.items()
        }
        groups = self._likely(outcomes)
        return Candidate("untuned", self._model.plan_with(groups), groups, defaults, self._persistent)

    def _likely(self, outcomes: Outcomes) -> tuple[Group, ...]:
        """What is fused without having been measured, less what does not work."""
        likely = self._model.likely(self._limits)
        return tuple(group for group in likely if not outcomes[task_key(group.task).digest].failed)

    def _recorded(self, choice: Choice, asked: str) -> ChainRecord:
        """The choice with all configurations that its context runs."""
        winners = {}
        for task in choice.candidate.plan.tasks:
            key = task_key(task).digest
            one = choice.candidate.outcomes[key]
            winners[key] = WinnerRecord(
                configuration=one.configuration,
                median_ns=one.tuned_ns or choice.estimate.times_ns.get(key) or 1.0,
                default_ns=one.default_ns,
                effort="none",
                rendered_sha256=self._tuner.rendered_sha256(self._tasks[key], one),
            )
        places = sorted({self._tuner.identity(task) for task in self._tasks.values()})
        measured = {**choice.measured, "asked": asked, "hurried": choice.hurried, PLACES: places}
        return ChainRecord(winners, choice.estimate.times_ns, choice.estimate.launch_ns, measured)

    def _decided(self, chosen: Candidate, measured: Mapping[str, Any], source: str) -> Decision:
        """The choice, and what is said of it."""
        fewer = len(self._model.plan.operations) - len(chosen.plan.operations)
        keys = {task_key(task).digest for task in chosen.plan.tasks}
        others = [(key, one) for key, one in chosen.outcomes.items() if one.in_chain and key in keys]
        parts = [f"{fewer} operations fewer by fusing" if fewer else "nothing is fused"] if self._model.groups else []
        if by_untuned := best_tuned(measured):
            parts.insert(0, f"the untuned context is kept: the best tuned one took {by_untuned:.3f} times as long")
        elif others:
            parts.append(f"{len(others)} of {len(keys)} tasks run another finalist")
        if self._persistent:
            parts.append("persistent kernels" if chosen.persistent else "launches one by one")
        log.info(f"end to end, {source}{', '.join(parts) or 'every task runs its winner'}")
        for key, one in others:
            log.debug(f"end to end, {source}{one.op} {key[:10]}: {dict(one.configuration)}")
        told = {name: value for name, value in measured.items() if name not in ("races", "asked", "hurried", PLACES)}
        return Decision(chosen.plan, chosen.outcomes, chosen.persistent, {**told, "remembered": bool(source)})
