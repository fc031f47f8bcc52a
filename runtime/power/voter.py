"""Cast the votes of one instance over its life: before and after it is made, around each inference, and at its end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from gputune.core.opened import Closing
from gputune.runtime.power.arbiter import Arbiter
from gputune.runtime.power.background import background
from gputune.runtime.power.profiles.settings import MOMENTS, PHASES, Moment, Phase
from gputune.runtime.power.records import Vote


class Profile(Protocol):
    """What an instance wants to vote; a perf_profile.PerfProfile is one."""

    @property
    def silent(self) -> bool:
        """Whether it never votes, and opens no file."""

    @property
    def hysteresis_us(self) -> int:
        """How long an inference's start vote stays in force after it, in case another follows."""

    @property
    def async_voting(self) -> bool:
        """Whether votes are cast in the background, and inferences do not wait for them."""

    def vote(self, phase: Phase, moment: Moment) -> Vote:
        """Return what is voted before or after a phase."""


class Voter(Closing):
    """Votes for one instance: `start` and `done` around init, each inference and deinit, `close` behind that.

    profile: read now, not as it is changed later; arbiter: gives the device's when it is needed, never for a silent
    profile; share_votes: with the other instances of this process that share theirs, the last vote counts. The start
    vote is in force until the last of several phases that run at once is done. A vote equal to the one in force makes
    no system call. May be used by several threads.
    """

    def __init__(self, profile: Profile, arbiter: Callable[[], Arbiter], share_votes: bool = False) -> None:
        self._make_arbiter = arbiter
        self._share = share_votes
        self._lock = threading.Lock()  # of what is below, never held while votes are cast
        self._casting = threading.Lock()
        self._background = background()
        self._arbiter: Arbiter | None = None
        self._instance = -1
        self._votes: dict[tuple[Phase, Moment], Vote] = {}
        self._closed = False
        self._running = 0
        self._phase: Phase | None = None
        self._wanted: Vote | None = None
        self._dropped: Vote | None = None
        self._drop_at = math.inf
        self._done_since_run = False
        self.set_profile(profile)

    def set_profile(self, profile: Profile) -> None:
        """Vote by another profile from now on: while nothing runs its done vote follows at once, else at the end."""
        votes = (
            {} if profile.silent else {(each, when): profile.vote(each, when) for each in PHASES for when in MOMENTS}
        )
        with self._casting:
            with self._lock:
                self._votes = {} if self._closed else votes
                self._async, self._hysteresis_s = profile.async_voting, profile.hysteresis_us / 1e6
                if not self._votes or (self._phase is not None and not self._running):
                    self._want(self._votes.get((self._phase or "init", "done")))
            self._register()
        self._cast(asynchronous=False)

    def start(self, phase: Phase) -> None:
        """Casts the start vote of a phase. Raises ForkedProcess."""
        with self._lock:
            self._phase = phase
            self._running += 1
            self._want(self._votes.get((phase, "start")))
        self._cast(self._async)

    def done(self, phase: Phase) -> None:
        """Casts the done vote of a phase; that of an inference when the hysteresis is over and no other has started.
        To be called for what failed, too. Raises ForkedProcess."""
        with self._lock:
            self._running = max(self._running - 1, 0)
            if self._running:
                return
            vote = self._votes.get((phase, "done"))
            if phase == "execute" and self._hysteresis_s > 0 and vote is not None:
                self._dropped = vote
                self._drop_at = time.monotonic() + self._hysteresis_s
                self._done_since_run = True
                self._background.call(self, self._drop_at)
                return
            self._want(vote)
        self._cast(self._async)

    def close(self) -> None:
        """Withdraws the vote. May be called twice; in a fork it does nothing."""
        if self._background is not background():
            return
        with self._casting:
            with self._lock:
                self._closed = True
                self._votes = {}
                self._want(None)
            self._register()

    def run(self, now: float) -> float:
        """Casts what is due."""
        with self._lock:
            if self._drop_at <= now:
                self._want(self._dropped)
            again = self._drop_at
            if self._done_since_run and again == math.inf:
                again = now + self._hysteresis_s  # so that the next inference's end need not wake this thread
            self._done_since_run = False
        self._cast(asynchronous=False)
        return again

    def _want(self, vote: Vote | None) -> None:
        self._wanted = vote
        self._drop_at = math.inf

    def _cast(self, asynchronous: bool) -> None:
        """Casts the vote that is wanted, now or in the background."""
        vote, arbiter = self._wanted, self._arbiter
        if vote is None or arbiter is None:
            return
        if asynchronous:
            if arbiter.vote_of(self._instance) != vote:
                self._background.call(self, time.monotonic())
            return
        with self._casting:
            vote = None
            while vote is not self._wanted:  # it may change meanwhile, by a start that does not wait
                vote = self._wanted
                if vote is not None:
                    arbiter.cast(self._instance, vote)

    def _register(self) -> None:
        """Register an instance that will vote, and withdraw one that will not any more."""
        if self._votes and self._arbiter is None:
            self._arbiter = self._make_arbiter()
            self._instance = self._arbiter.register(self._share)
        elif not self._votes and self._arbiter is not None:
            self._arbiter.withdraw(self._instance)
            self._arbiter = None
