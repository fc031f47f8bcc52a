"""Trials of variants that were timed once, because their machine code is the same, name each other by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputune.core.launches import Trial

SAME_AS = "same_as"


def renumbered(trial: Trial, numbers: Sequence[int]) -> Trial:
    """The trial with the number of its twin in a batch that variant i of the measured one is number numbers[i] of."""
    twin = trial.measured.get(SAME_AS)
    if type(twin) is not int or not 0 <= twin < len(numbers):
        return trial
    return replace(trial, measured={**trial.measured, SAME_AS: numbers[twin]})
