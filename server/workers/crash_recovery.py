"""Decide which variant of a ProfileKernel request a crash is blamed on, and what is left to ask of the next worker.

A variant may crash the worker, or hang so that the watchdog ends it. Its trial is then a crash or a timeout, and the
next worker measures the others. The difficulty is to blame the right variant: a wrong verdict is stored in the
performance cache and keeps a good variant from ever being measured again. The evidence is how the process ended, and
the step and variant on the heartbeat page at that moment. The rules, in order:

1. The request as a whole had no time left: it ends with an error, and no variant is blamed.
2. It died while it compiled a program that several variants share. The culprit cannot be seen from outside, so no
   variant is blamed, and everything is asked again with a program for each.
3. The page names no variant, or a variant that has its verdict already. No variant can be blamed: the batch is tried
   again, and the second time (after SIGKILL, the third) the request ends with an error.
4. The variant is certainly the culprit when it missed a limit, when its own code was running (_RUNS), or when the
   worker had run nothing else of this batch: it gets its trial at once.
5. Otherwise an earlier variant may have damaged memory, which was only noticed now (while the next variant was built or
   its output was checked). It is not blamed, but *doubted*: in the next worker it comes first, before all that could
   have damaged anything. If the worker dies of it there, too, it was alone (4), or is suspected for the second time,
   which is enough.
6. SIGKILL that was not ours is no evidence, because a system takes memory back that way, nor is a lost agent: the same
   is tried again, and blamed after KILLS_FORGIVEN times.
7. The baseline is no variant that could be blamed, unless it is also a variant of the batch: the batch goes on without
   it.

The process need not die. After an invalid memory access, GPU drivers keep the process alive but fail every later call.
So when something fails, the worker tries the simplest commands (`Backend.lost`); if they fail, too, it ends itself
before it reports any failure.

It ends because each death concludes a variant, drops the baseline, gives up sharing programs or counts another
suspicion, and none of these goes on forever.

No input and output: supervisor.py runs it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from gputune.core.batches import Profiled, ProfileKernel, Remaining
from gputune.core.launches import Trial
from gputune.core.statuses import TrialStatus
from gputune.runtime.measuring.watcher import Step
from gputune.server.protocol.messages import Error, Progress
from gputune.server.worker.link import AGENT_AWAITED_SECONDS
from gputune.server.worker.watcher import EXPECTED_FACTOR, LAUNCH_FLOOR_SECONDS

_RUNS: tuple[Step, ...] = ("starting", "launching", "measuring")  # a death here is due to what is done there
_COMPILES: tuple[Step, ...] = ("building", "starting")  # here perhaps to others in its program
THE_AGENT = "the agent"
KILLS_FORGIVEN = 2  # SIGKILL comes from outside, and may come again by chance


@dataclass(frozen=True)
class Missed:
    """Name a limit that a worker has missed, by its name in Limits, and the seconds that it was allowed: less than the
    limit where they were scaled by what is known to work. step: what took so long, None for the request as a whole."""

    step: Step | None
    limit: str
    seconds: float
    scaled: bool = False

    @property
    def message(self) -> str:
        """Return one line for people."""
        what = "the request" if self.limit == "total_seconds" else self.step or "it"
        why = f"limit {self.limit}"
        if self.scaled:
            known = "expected" if self.step == "measuring" else "fastest"
            why = f"{EXPECTED_FACTOR}x the {known}, at least {LAUNCH_FLOOR_SECONDS:g} s"
        return f"{what} took longer than {self.seconds:.4g} s ({why})"


@dataclass(frozen=True)
class Death:
    """Tell how a worker ended, and what it was doing: the step, and the number of the variant.

    how: a phrase such as "SIGSEGV"; killed: by SIGKILL that was not ours, or because its agent was lost, which says
    nothing about the variant; missed: the limit that we have ended it for; ours: why we have ended it, for that or for
    another reason; agent: that was lost.
    """

    how: str
    step: Step | None
    variant: int | None
    killed: bool = False
    missed: Missed | None = None
    ours: str = ""
    agent: str = ""

    @property
    def message(self) -> str:
        """Return one line for people."""
        if self.missed is not None:
            return self.missed.message
        if self.agent:
            during = f", while {self.step}" if self.step else ""
            return (
                f"{self.agent} ended, or the connection to it{during}; waiting for it for {AGENT_AWAITED_SECONDS:g} s"
            )
        how = f"the worker was ended: {self.ours}" if self.ours else f"the worker ended with {self.how}"
        return how + (f" while {self.step}" if self.step else "")

    @property
    def final(self) -> bool:
        """Return whether the request has no time left."""
        return self.missed is not None and self.missed.limit == "total_seconds"

    @property
    def trial(self) -> Trial:
        """Return what becomes of a variant that is to blame."""
        status: TrialStatus = "crash" if self.missed is None else "timeout"
        return Trial(status, self.message)

    @property
    def error(self) -> Error:
        """Return the reply to a request that nothing can be blamed for but itself."""
        if self.missed is None:
            return Error("worker_died", self.message, {"ended_with": self.how})
        allowed = math.ceil(self.missed.seconds)
        return Error("worker_timeout", self.message, {"limit": self.missed.limit, "allowed": allowed})


class Batch:
    """Follow the variants of one request: ask a worker for what is `remaining`, until one lives to the end of it."""

    def __init__(self, request: ProfileKernel) -> None:
        self._left = Remaining(request)
        self._numbers, self._baseline = request.numbers, request.baseline_number
        self._together = request.together
        self._concluded: set[int] = set()  # by the worker that is at it
        self._suspected: Counter[int | None] = Counter()
        self._doubted: set[int] = set()  # may only have been at work when what another one had damaged was noticed

    def remaining(self) -> ProfileKernel | None:
        """Return the request for all that has no verdict yet; None when every variant has failed. What the worker says
        next is about this. Doubted variants come first."""
        self._concluded = set()
        asked = self._left.ask(first=self._doubted)
        return None if asked is None else replace(asked, together=self._together)

    def progress(self, message: Progress) -> Progress:
        """Return the worker's words about the whole request; a failure in them is kept."""
        if not self._left.hear(message.variant, message.trial):
            message = replace(message, variant=None, trial=None)
        if message.variant is not None:
            self._concluded.add(message.variant)
        total = len(self._numbers)
        done = min(total - len(self._left.asked) + message.done, total)
        return replace(message, done=done, total=total)

    def lost(self, death: Death, fresh: bool = True) -> Progress | None:
        """Draw the conclusion from a worker's death: what to tell the client before going on, or None when it
        would be no use to go on. fresh: the worker had done nothing before this batch."""
        if death.final:
            return None
        if self._together and death.step in _COMPILES:
            self._together = False
            return self._recovering(death, "the batch is tried again, with a program for each variant")
        culprit = self._culprit(death)
        self._suspected[culprit] += 1
        again = self._suspected[culprit] > (KILLS_FORGIVEN if death.killed else 1)
        if culprit is None:
            return None if again else self._recovering(death, "the batch is tried again")
        certain = death.missed is not None or death.step in _RUNS or (fresh and self._alone(culprit))
        if not certain and not death.killed:
            self._doubted.add(culprit)
        if (death.killed or not certain) and not again:
            return self._recovering(death, "what it worked on is tried again")
        self._left.failed[culprit] = death.trial
        if culprit not in self._numbers:
            return self._recovering(death, "the batch goes on without its baseline")
        told = self._recovering(death, "the batch goes on without it")
        return replace(told, variant=culprit, trial=death.trial)

    def result(self, reply: Profiled | None, recover_ns: int) -> Profiled:
        """Return the whole reply, of what remained (None when nothing did) and of what had failed before.

        recover_ns: what was spent on workers that died. Raises ValueError when the reply makes no sense.
        """
        whole = self._left.whole(reply)
        spent_ns = {"build": 0, "verify": 0, "measure": 0, **whole.spent_ns, "recover": recover_ns}
        return replace(whole, spent_ns=spent_ns)

    def _culprit(self, death: Death) -> int | None:
        """Return the variant or baseline that the page names; None where it has its verdict already, or is none of
        them."""
        known = death.variant in self._numbers or death.variant == self._baseline
        return death.variant if known and death.variant not in self._left.failed else None

    def _alone(self, culprit: int) -> bool:
        """Return whether this worker has run nothing else of this batch."""
        told = self._baseline in (None, culprit) or self._baseline in self._numbers
        return told and not self._concluded - {culprit}

    def _recovering(self, death: Death, then: str) -> Progress:
        done = len(self._numbers & self._left.failed.keys())
        return Progress("recovering", done, len(self._numbers), f"{death.message}; {then}")
