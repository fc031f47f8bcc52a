"""Divide the wall time of a generation between what it does, in order: one clock, of which each step has a share.

A step may take what is left, less what is kept back for all steps after it. What a step leaves unused is there for the
next one. So tuning ends early enough for comparing, and comparing for finalizing. How much is kept back follows from
what the same work has just taken on this machine (client/context/reserves.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Literal, Protocol, get_args

from gputune.client.errors import TargetError, TuningError

Share = Literal["tuning", "estimating", "comparing", "other graphs", "finalizing"]
SHARES: tuple[Share, ...] = get_args(Share)
"""In the order in which they are used. Other graphs of a context are estimated and compared after the present one."""

USED_UP = "--tuning_budget is used up"


class OutOfTime(TuningError):
    """The budget leaves no time for this."""


class Target(Protocol):
    """What can be told to give up: a TargetClient."""

    def giving_up(self, over: Callable[[], bool]) -> AbstractContextManager[None]: ...


class Budget:
    """The seconds that a generation may take, from now on or since it has begun. None is no limit.

    program_seconds: what it takes now to compile a program, 0 while that is not known."""

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] | None = None, begun: float | None = None
    ) -> None:
        self.seconds = seconds
        self.program_seconds = 0.0
        self._clock = clock or time.monotonic
        self._ends = math.inf if seconds is None else (self._clock() if begun is None else begun) + seconds
        self._kept = dict.fromkeys(SHARES, 0.0)

    @property
    def limited(self) -> bool:
        """Return whether there is a limit at all."""
        return self.seconds is not None

    def keep(self, share: Share, seconds: float) -> None:
        """Keep so many seconds back for a share, in the place of what was kept for it before."""
        self._kept[share] = seconds

    def divide(self, graphs: int) -> None:
        """Let the present one of so many graphs have its part of what is left."""
        if self.limited:
            left = max(0.0, self._ends - self._clock() - self._kept["finalizing"])
            self._kept["other graphs"] = left - left / graphs
            self._kept["comparing"] = min(self._kept["comparing"], left / graphs / 2)

    def left(self, share: Share) -> float:
        """Return the seconds that are left of a share: until the first that comes after it must begin."""
        later = SHARES[SHARES.index(share) + 1 :]
        return self._ends - self._clock() - sum(self._kept[one] for one in later)

    def limit(self, share: Share) -> float | None:
        """Return the same for people, None without a limit."""
        return max(0.0, self.left(share)) if self.limited else None

    def is_over(self, share: Share) -> bool:
        """Return whether nothing is left of a share."""
        return self.left(share) <= 0

    @contextmanager
    def bounding(self, target: Target, share: Share) -> Iterator[None]:
        """Have a target give up what is under way when nothing is left of a share. Raises OutOfTime if it did."""
        if not self.limited:
            yield
            return
        try:
            with target.giving_up(partial(self.is_over, share)):
                yield
        except TargetError as error:
            if error.name != "cancelled":
                raise
            raise OutOfTime(USED_UP) from None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let time pass that does not count."""
        begun = self._clock()
        try:
            yield
        finally:
            self._ends += self._clock() - begun
