"""Make the untuned contexts first where time is limited, and keep back what must come after tuning.

The untuned context ships if nothing is faster for certain, so no budget can be shorter than it takes to make. What it
takes now, on this machine with its load, says what the same work takes later: a tuned context is made like it and takes
turns like it, and what ships is packed and written like it. The cache remembers how long it took when its programs had
to be compiled, as those of a tuned context have to be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gputune.client.context.choice import InChain
from gputune.client.context.comparison import as_it_runs
from gputune.client.context.context_runner import LEAST_ROUNDS, ContextRunner
from gputune.client.context.elimination import rounds_needed
from gputune.client.context.kernel_repository import KernelRepository
from gputune.client.durations import minutes
from gputune.client.errors import GputuneError
from gputune.client.progress import Progress
from gputune.client.tuning.budget import Budget
from gputune.core.errors import ContextError

log = logging.getLogger(__name__)

LEAST_SHARE, MOST_SHARE = 0.15, 0.6
"""Of what is left after the untuned context, what is kept back to compare whole contexts at least, and at most: where
an answer takes more, there will be none this time, and tuning gets all."""

ESTIMATING_SHARE = 0.15
"""Of the same, what is kept back at most to time kernels inside contexts."""

ESTIMATED = 3
"""Contexts that are made for an estimate, or more."""

SPREAD = 1.5
"""A tuned context may take so many times as long to make as the untuned one: other programs come and go."""

FORETOLD_SECONDS, FORETOLD_SHARE, TOO_EARLY = 5.0, 0.25, 2.0
"""So long must programs have been compiled before it is said how long the others may take. Those that take longest come
first: before this share of them is done, it may be so many times less."""


def insure(
    budget: Budget,
    graphs: Sequence[tuple[InChain, ContextRunner]],
    programs: KernelRepository,
    *,
    anew: bool,
    verifies: bool,
) -> bool:
    """Make the untuned contexts, whatever it takes, and keep back time for what comes after tuning. Return whether time
    is left for anything else.

    graphs: each with a runner that has no budget; anew: programs may have to be compiled again for the context that
    ships; verifies: it is run after it was written. Raises CacheError."""
    before, compiled, compiling = budget.left("finalizing"), programs.counts["compiled"], programs.compiling_seconds
    turns = from_nothing = packing = 0.0
    for chooser, runner in graphs:
        turns += _turn(chooser, runner)
        packing += runner.making_seconds
    made = before - budget.left("finalizing")
    compiled, compiling = programs.counts["compiled"] - compiled, programs.compiling_seconds - compiling
    for chooser, _ in graphs:
        from_nothing += chooser.making_seconds(made / len(graphs) if compiled else 0.0)
    budget.program_seconds = compiling / compiled if compiled else 0.0
    packing = max(0.0, packing - compiling)
    budget.keep("finalizing", packing + (compiling if anew else 0.0) + (2 * turns if verifies else 0.0))
    rest = max(0.0, budget.left("other graphs"))
    answer = SPREAD * max(made, from_nothing) + 2 * rounds_needed(2) * turns
    budget.keep("comparing", max(answer, LEAST_SHARE * rest) if answer <= MOST_SHARE * rest else 0.0)
    estimate = ESTIMATED * (packing + 2 * LEAST_ROUNDS * turns)
    budget.keep("estimating", min(estimate, ESTIMATING_SHARE * rest))
    if not rest:
        log.warning("making the untuned context takes all of --tuning_budget: nothing is tuned or compared")
    return rest > 0


def _turn(chooser: InChain, runner: ContextRunner) -> float:
    """Make an untuned context; return the seconds that a turn of it takes."""
    try:
        with runner:
            as_it_runs(runner, chooser.defaults)
    except (GputuneError, ContextError, OSError) as error:
        log.debug(f"the untuned context does not run: {error}")
    return runner.turn_seconds


class Foretelling(Progress):
    """A progress of making the untuned context, which says once that no time may be left after it."""

    def __init__(self, shown: Progress, budget: Budget) -> None:
        self._shown = shown
        self._budget = budget
        self._begun = self._total = self._done = 0.0
        self.told = False

    @contextmanager
    def running(self, label: str, total: int, seconds: float | None = None) -> Iterator[None]:
        self._begun, self._total, self._done = self._budget.left("finalizing"), total, 0
        with self._shown.running(label, total, seconds):
            yield

    def advance(self, steps: int, what: str) -> None:
        self._shown.advance(steps, what)
        self._done += steps
        left = self._budget.left("finalizing")
        took = self._begun - left
        needs = took / self._done * (self._total - self._done)
        if self._done < FORETOLD_SHARE * self._total:
            needs /= TOO_EARLY
        if not self.told and took >= FORETOLD_SECONDS and needs > left:
            self.told = True
            log.warning(
                f"making the untuned context may take {minutes(needs)} more, and {minutes(max(0.0, left))} of "
                "--tuning_budget are left: then nothing is tuned or compared"
            )

    def shrink(self, steps: int) -> None:
        self._shown.shrink(steps)
