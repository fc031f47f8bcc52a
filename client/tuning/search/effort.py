"""Define tuning effort: what each level spends on a task, in one table, so that levels stay comparable."""

from dataclasses import dataclass

from gputune.cache.record import EFFORTS as NAMES
from gputune.client.options.tuning import COMPARE_SECONDS


@dataclass(frozen=True)
class Effort:
    """What is spent on the tasks of a model.

    `trials` are the configurations that a convolution or matrix product brings along, `light_trials` those of a task
    that only moves or reduces data; None means the whole space, and no task brings more than the `share` of its space
    or FEW, whichever is more. All of it is one budget, from which the tasks with most to gain are served first, none
    with more than MOST times what it has brought. `patience` stops a task when that many trials in a row brought
    nothing better; `worth` does when a batch is expected to gain less than this share of an inference, where
    `least_gain` is the share of its time that any task may gain, however good it seems: with PoCL on two shared cores,
    tasks that were given up because they seemed to be at the roofline had 4 to 9 % more to gain. Finalists of several
    batches are measured again, side by side. `samples` is what those in front get at most. In the end as many finalists
    of each task as there are `contexts`, and its default, are timed inside the whole model; one is nothing to compare.
    Whole contexts take turns for at most so many `compare_seconds`, unless --compare_seconds says otherwise.
    """

    name: str
    trials: int | None
    light_trials: int | None
    share: float
    patience: int | None
    worth: float
    least_gain: float
    finalists: int
    samples: int
    sample_ns: int
    warm_up_ns: int
    contexts: int
    compare_seconds: float

    @property
    def rank(self) -> int:
        """Its place among all: a more thorough one has a greater rank."""
        return NAMES.index(self.name)


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort(
            name="none",
            trials=0,
            light_trials=0,
            share=0.0,
            patience=None,
            worth=0.0,
            least_gain=0.0,
            finalists=0,
            samples=0,
            sample_ns=0,
            warm_up_ns=0,
            contexts=1,
            compare_seconds=0.0,
        ),
        Effort(
            name="quick",
            trials=8,
            light_trials=8,
            share=1.0,
            patience=None,
            worth=0.01,
            least_gain=0.02,
            finalists=3,
            samples=7,
            sample_ns=1_000_000,
            warm_up_ns=50_000_000,
            contexts=2,
            compare_seconds=COMPARE_SECONDS["quick"],
        ),
        Effort(
            name="normal",
            trials=96,
            light_trials=48,
            share=0.1,
            patience=64,
            worth=0.0005,
            least_gain=0.08,
            finalists=6,
            samples=24,
            sample_ns=1_000_000,
            warm_up_ns=200_000_000,
            contexts=3,
            compare_seconds=COMPARE_SECONDS["normal"],
        ),
        Effort(
            name="full",
            trials=None,
            light_trials=None,
            share=1.0,
            patience=None,
            worth=0.0,
            least_gain=0.08,
            finalists=8,
            samples=24,
            sample_ns=2_000_000,
            warm_up_ns=300_000_000,
            contexts=3,
            compare_seconds=COMPARE_SECONDS["full"],
        ),
    )
}

FEW = 96
"""A space is never too small to measure so many of its configurations, where they may pay."""

MOST = 4
"""A task may get so many times the trials that it has brought, where others do not need theirs."""


def trials_for(effort: Effort, heavy: bool, space_size: int) -> int:
    """Return how many trials a task brings along."""
    bound = effort.trials if heavy else effort.light_trials
    return min(most_trials(effort, space_size), space_size if bound is None else bound)


def finalists_for(effort: Effort, space_size: int) -> int:
    """Return how many configurations of a task are measured once more in the end, its default among them."""
    return min(effort.finalists + 1, space_size) if effort.finalists else 0


def most_trials(effort: Effort, space_size: int) -> int:
    """Return how many of its configurations may be measured at most, whatever is left of the trial budget."""
    bound = space_size if effort.trials is None else MOST * effort.trials
    return min(space_size, bound, max(FEW, int(effort.share * space_size)))
