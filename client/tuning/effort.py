"""Tuning effort: what each level spends on a task. One table, so that levels stay comparable."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """What is spent on one task.

    `trials` bounds the configurations measured per convolution or matrix product, `light_trials` those of tasks that
    only move or reduce data; None means the whole space. `patience` stops a task when that many trials in a row
    brought nothing better. The finalists are measured again, side by side.
    """

    name: str
    rank: int
    trials: int | None
    light_trials: int | None
    patience: int | None
    finalists: int
    samples: int
    sample_ns: int
    warm_up_ns: int


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("none", 0, 0, 0, None, 0, 0, 0, 0),
        Effort("quick", 1, 24, 8, None, 4, 3, 1_000_000, 100_000_000),
        Effort("normal", 2, 96, 24, 64, 6, 5, 1_000_000, 200_000_000),
        Effort("full", 3, None, None, None, 8, 7, 2_000_000, 300_000_000),
    )
}

HEAVY_OPS = frozenset({"Conv", "DepthwiseConv", "MatMul"})
"""Ops whose time is arithmetic; they get `trials`, all others `light_trials`."""


def trials_for(effort: Effort, op: str, space_size: int) -> int:
    """How many configurations of a task are measured at most."""
    bound = effort.trials if op in HEAVY_OPS else effort.light_trials
    return space_size if bound is None else min(bound, space_size)
