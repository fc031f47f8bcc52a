"""Tuned in the chain: what is fused, and which of a task's finalists runs, is decided by whole contexts of the model.

First the plan without fusion and those with everything fused in one way run in turns. What each task takes in there,
and what a launch costs beside its kernel, decide which groups are fused; that plan replaces the plain one when whole
inferences are faster by it for certain. Then contexts with every task's first, second, third finalist run in turns; a
task gets the one that is faster than its winner in there for certain, and the context of all these replaces that of the
winners in the same way. Last, where the device allows it, launches one by one are held against persistent kernels. What
was chosen is remembered for these operations and winners, so that nothing is compared twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gputune.cache import PLACES, ChainRecord, PerformanceCache
from gputune.client.alternatives import Alternatives
from gputune.client.chain_comparison import compare, plan_by, with_winner
from gputune.client.context_race import ContextRace, Outcomes
from gputune.client.errors import CacheMiss, GputuneError
from gputune.client.persistent import FORM
from gputune.client.plan import Plan
from gputune.client.progress import Reporter
from gputune.client.tuning.task_search import task_key
from gputune.client.tuning.tuner import Tuner
from gputune.runtime.errors import ContextError


@dataclass(frozen=True)
class Decision:
    """What a context is made of: a plan, and the outcomes of the tasks of all plans."""

    plan: Plan
    outcomes: Outcomes
    persistent: bool = False
    """Whether persistent kernels stand for many launches."""
    summary: Mapping[str, Any] | None = None
    """What --summary_json says of the comparison; None where nothing was compared."""


class InChain:
    """Decides for one model on one target."""

    def __init__(
        self,
        model: Alternatives,
        tuner: Tuner,
        cache: PerformanceCache,
        reporter: Reporter,
        contexts: int,
        persistent: bool = False,
        frozen: bool = False,
    ) -> None:
        """contexts: how many finalists of a task are compared at most; persistent: whether persistent kernels are an
        alternative; frozen: nothing may be compared any more."""
        self._model = model
        self._tuner = tuner
        self._cache = cache
        self._reporter = reporter
        self._contexts = contexts
        self._persistent = persistent
        self._frozen = frozen
        self._tasks = {task_key(task).digest: task for task in model.tasks}

    def decide(self, outcomes: Outcomes, race: ContextRace) -> Decision:
        """The choice that is remembered, or a new one. What goes wrong is a warning, and the plain plan with the
        winners is what remains. Raises CacheError, and CacheMiss where it is frozen and remembers nothing."""
        digest = self._digest(outcomes)
        record = self._cache.chain_of(digest)
        if record is not None and self._still_holds(record):
            return self._decided(record, outcomes, remembered=True)
        if self._frozen:
            raise CacheMiss(
                f"the performance cache is frozen and does not hold what is fastest in {self._model.plan.name!r}; "
                "generate with another cache_mode first"
            )
        finalists = {key: self._tuner.finalists(task, self._contexts) for key, task in self._tasks.items()}
        try:
            with race:
                record = compare(self._model, race, self._reporter, outcomes, finalists, self._persistent)
        except (GputuneError, ContextError, OSError) as error:
            self._reporter.warn(f"nothing is chosen in the chain; what is fastest alone is used, unfused: {error}")
            return Decision(self._model.plan, outcomes)
        places = sorted({self._tuner.identity(task) for task in self._tasks.values()})
        record = replace(record, measured={**record.measured, PLACES: places})
        self._cache.conclude_chain(digest, record)
        complete = {key: replace(outcome, binary=race.binary(outcome)) for key, outcome in outcomes.items()}
        return self._decided(record, complete, remembered=False)

    def _digest(self, outcomes: Outcomes) -> str:
        """What a choice belongs to: the operations of the model, what won each of its tasks, and on what device."""
        operations = [(each.name, task_key(each.task).digest) for each in self._model.plan.operations]
        winners = [
            (
                self._tuner.identity(task),
                sorted(outcomes[key].configuration.items()),
                self._tuner.rendered_sha256(task, outcomes[key]),
                sorted(outcomes[key].trials.items()),
                outcomes[key].tuned_ns is not None,
                self._tuner.is_free(task),
            )
            for key, task in self._tasks.items()
        ]
        asked = [self._contexts, FORM] if self._persistent else self._contexts
        text = json.dumps([asked, operations, list(self._tasks), winners])
        return hashlib.sha256(text.encode()).hexdigest()

    def _still_holds(self, record: ChainRecord) -> bool:
        """Whether what is remembered leads to the plan that was raced, and its winners are what they were."""
        groups = self._model.gainful(lambda task: record.times_ns.get(task_key(task).digest), record.launch_ns)
        if [list(group.names) for group in groups] != record.measured.get("fused"):
            return False
        return all(
            key in self._tasks and self._tuner.still_holds(self._tasks[key], winner)
            for key, winner in record.winners.items()
        )

    def _decided(self, record: ChainRecord, outcomes: Outcomes, remembered: bool) -> Decision:
        """The record applied, and said."""
        plan = plan_by(self._model, record.times_ns, record.launch_ns)
        chosen = {key: with_winner(outcomes[key], winner) for key, winner in record.winners.items()}
        before = "in the chain, as compared before: " if remembered else "in the chain: "
        measured = record.measured
        fewer = len(self._model.plan.operations) - len(plan.operations)
        if self._model.groups:
            fused = f"{fewer} operations fewer by fusing" if fewer else "nothing is fused"
            launch = f"a launch costs {record.launch_ns / 1000:.1f} us beside its kernel"
            self._reporter.info(f"{before}{fused}{_gain(measured.get('gain_by_fusing'))}; {launch}")
        other = f"{len(chosen)} of {len(plan.tasks)} tasks do not run what is fastest alone"
        self._reporter.info(f"{before}{other}{_gain(measured.get('gain_by_finalists'))}")
        if self._persistent:
            how = "persistent kernels" if measured.get("persistent") else "launches one by one"
            self._reporter.info(f"{before}{how}{_gain(measured.get('gain_by_persistence'))}")
        for key, outcome in chosen.items():
            self._reporter.verbose(f"{before}{outcome.op} {key[:10]}: {dict(outcome.configuration)}")
        summary = {**measured, "remembered": remembered}
        return Decision(plan, {**outcomes, **chosen}, measured.get("persistent") is True, summary)


def _gain(gain: object) -> str:
    """What an inference gains, for people."""
    ends = [gain.get(end) for end in ("low", "high")] if isinstance(gain, Mapping) else []
    if not ends or not all(isinstance(end, int | float) for end in ends):
        return ""
    return f" ({ends[0]:.3f} to {ends[1]:.3f} times as fast)"
