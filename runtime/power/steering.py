"""Bring a device to a vote and back, by all actuators that are found for it. No file makes it fail or wait.

An actuator knows in which order its files are written, and reads the result back, because drivers clamp values without
an error. Each actuator works on a thread of its own; after LIMIT_S together they go on in the background. Controls that
refuse to be written are one warning, which says what would allow it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gputune.core.identity import DeviceIdentity
from gputune.runtime.power.actuators import kinds
from gputune.runtime.power.actuators.base import (
    SLOW,
    UNKNOWN,
    Access,
    Actuator,
    Kind,
    NoActuator,
    Problem,
    Write,
    advice_for,
    content_of,
    refusal_of,
)
from gputune.runtime.power.records import NOTHING, PowerMode, Vote

_PROCESSOR = ("cpufreq",)
_OTHER = ("devfreq",)
"""The kinds of controls of a GPU for which no kind is made."""
_LATENCY = "cpu_latency"

LIMIT_S = 0.015
"""How long a vote may wait for files, all actuators together."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Applied:
    """What became of a vote. requested and effective: numbers by `ACTUATOR.NAME` with the unit at the end, effective
    as read back; without those of an actuator that is slow."""

    vote: Vote
    requested: Mapping[str, float]
    effective: Mapping[str, float]
    problems: tuple[Problem, ...]


def find_actuators(
    identity: DeviceIdentity | None,
    root: Path = Path("/"),
    before_write: Callable[[Write], None] | None = None,
) -> list[Actuator]:
    """Return what steers a device, found by its type and vendor and by the files below a root; one that steers nothing
    where there is none. Without an identity, everything that is there; several of a kind are numbered. before_write:
    see actuators.base.Access."""
    return _found(families_of(identity), Access(root, before_write))


def find_steering(identity: DeviceIdentity | None, root: Path = Path("/")) -> Steering:
    """Return what find_actuators finds, as one, with a key for votes on it."""
    return _steering(families_of(identity), root)


def all_steerings(root: Path = Path("/")) -> list[Steering]:
    """Return a steering for each kind of device with controls that outlive a process, whether a driver for the device
    works or not."""
    known = [_PROCESSOR, *((kind.name, *kind.also) for kind in _of_vendors()), _OTHER]
    found = {steering.key: steering for steering in (_steering((*families, _LATENCY), root) for families in known)}
    return [steering for steering in found.values() if steering.originals()]


def families_of(identity: DeviceIdentity | None) -> Sequence[str]:
    """Return the kinds of controls that may steer a device: a processor's for one of type CPU, its vendor's for another
    one, and how deep a processor sleeps for all, because each launch waits for that. All kinds without an identity."""
    if identity is None:
        return (*(kind.name for kind in _of_vendors()), *_OTHER, *_PROCESSOR, _LATENCY)
    if identity.device_type == "cpu":
        return (*_PROCESSOR, _LATENCY)
    called = f"{identity.vendor} {identity.name}".lower()
    found = next(((kind.name, *kind.also) for kind in _of_vendors() if re.search(kind.gpus, called)), _OTHER)
    return (*found, _LATENCY)


def _of_vendors() -> list[Kind]:
    return [kind for kind in kinds().values() if kind.gpus]


def _steering(families: Sequence[str], root: Path) -> Steering:
    actuators = _found(families, Access(root))
    names = "+".join(actuator.name for actuator in actuators)
    return Steering(actuators, key=names if root == Path("/") else f"{names} {root.resolve()}")


def _found(families: Sequence[str], access: Access) -> list[Actuator]:
    found = [actuator for name in families for actuator in kinds()[name].find(access)]
    for name, count in Counter(actuator.name for actuator in found).items():
        for number, actuator in enumerate(each for each in found if each.name == name and count > 1):
            actuator.name = f"{name}_{number}"
    return found or [NoActuator()]


@dataclass(frozen=True)
class ControlState:
    """A control now. content: None where it cannot be read; refusal: the errno's name that a write would fail with,
    empty where it would not."""

    actuator: str
    path: Path
    content: str | None
    refusal: str

    @property
    def advice(self) -> str:
        """What would allow writes; empty where they are."""
        return advice_for(self.refusal, Write(self.path, "")) if self.refusal else ""


class Steering:
    """Applies votes with some actuators; those of several threads one after the other.

    Each actuator works on a thread of its own. One whose files take longer than the limit goes on in the background,
    in order, and the last vote given meanwhile follows; it is a problem SLOW until it is done. These threads are no
    daemons, so that an interpreter that ends still brings the clocks back.
    """

    def __init__(self, actuators: Sequence[Actuator], limit_s: float = LIMIT_S, key: str = "") -> None:
        """key: names the controls, the same in all processes and for all drivers of a device."""
        self.key = key
        self.actuators = tuple(actuators)
        self._limit_s = limit_s
        self._workers = [_Worker(actuator) for actuator in self.actuators]
        self._lock = threading.Lock()
        self._adopted = False
        self._warned: set[tuple[str, str]] = set()

    def originals(self) -> dict[str, str]:
        """Return what every control that outlives this process contains now, by path: to be kept before the first
        write."""
        found: dict[str, str] = {}
        for actuator in self.actuators:
            if not actuator.of_this_process:
                found |= actuator.read()
        return found

    def adopt(self, originals: Mapping[str, str]) -> None:
        """Take contents read earlier, by this process or another, for those from before any vote: what a vote leaves
        alone goes back to them. Without it, those at the first vote count."""
        for actuator in self.actuators:
            actuator.adopt(originals)
        self._adopted = True

    def apply(self, vote: Vote, own: Vote | None = None) -> Applied:
        """Brings the device to a vote, and says what became of it; a kind of problem is logged once.

        vote: the strongest of all processes. own: the strongest of this one, for controls that the kernel holds per
        process; the same without it.
        """
        mine = vote if own is None else own
        with self._lock:
            if not self._adopted:
                self.adopt(self.originals())
            found = self._run(lambda actuator: _applied(actuator, mine if actuator.of_this_process else vote))
        self._warn(found.problems)
        return Applied(vote, found.requested, found.effective, found.problems)

    def restore(self, originals: Mapping[str, str]) -> list[Problem]:
        """Brings these contents back, as `originals` gave them; a control that has gone since then is no problem. What
        is a problem SLOW is not done yet: `wait` says when. Paths that are no controls of this device are left as they
        are."""
        with self._lock:
            problems = list(self._run(lambda actuator: _restored(actuator, originals)).problems)
        known = {str(path) for actuator in self.actuators for path in actuator.paths}
        problems += [
            Problem("power", Path(path), UNKNOWN, "no control of this device; left as it is")
            for path in originals
            if path not in known and Path(path).exists()
        ]
        self._warn(problems)
        return problems

    def wait(self, limit_s: float) -> bool:
        """Wait for actuators that are slow, and say whether all are done."""
        until = time.monotonic() + limit_s
        return all(worker.done(max(until - time.monotonic(), 0.0)) for worker in self._workers)

    def effective(self) -> dict[str, float]:
        """Wait for slow files, and return what is in force now, by the names of `Applied`."""
        return {f"{each.name}.{name}": value for each in self.actuators for name, value in each.effective().items()}

    def planned(self, votes: Sequence[Vote]) -> list[list[Write]]:
        """Return what would be written for each of some votes, one after the other from the state now, and last for the
        way back; nothing is. What the controls contain now counts as their originals from then on."""
        after: dict[Path, str] = {}
        originals = self.originals()
        self.adopt(originals)
        plans: list[Callable[[Actuator], list[Write]]] = [partial(_plan, vote, after) for vote in votes]
        plans.append(partial(_plan_back, originals, after))
        found: list[list[Write]] = []
        for plan in plans:
            found.append([write for actuator in self.actuators for write in plan(actuator)])
            after |= {write.path: write.value for write in found[-1]}
        return found

    def controls(self) -> list[ControlState]:
        """Return the state of every control that a vote may change."""
        return [
            ControlState(actuator.name, path, contents.get(str(path)) or content_of(path), refusal_of(path))
            for actuator, contents in ((each, each.read()) for each in self.actuators)
            for path in actuator.paths
        ]

    def ignored(self, vote: Vote) -> list[str]:
        """Return the fields of a vote that ask for something and that no actuator here makes anything of."""
        honoured = {name for actuator in self.actuators for name in actuator.honours}
        if vote.power_mode is PowerMode.DUTY_CYCLE:  # of DSPs only
            honoured.discard("power_mode")
        return [name for name in vars(vote) if getattr(vote, name) != getattr(NOTHING, name) and name not in honoured]

    def close(self) -> None:
        """Let go of what only this process holds; files stay as they are."""
        for actuator in self.actuators:
            actuator.close()

    def _run(self, job: _Job) -> _Outcome:
        """Has every actuator do something, for as long as the limit allows together."""
        for worker in self._workers:
            worker.give(job)
        until = time.monotonic() + self._limit_s
        found = [worker.outcome(max(until - time.monotonic(), 0.0)) for worker in self._workers]
        return _Outcome(
            problems=tuple(problem for each in found for problem in each.problems),
            requested={name: value for each in found for name, value in each.requested.items()},
            effective={name: value for each in found for name, value in each.effective.items()},
        )

    def _warn(self, problems: Sequence[Problem]) -> None:
        """Log one line for each actuator and kind of problem that has not been logged yet."""
        kinds = {(problem.actuator, problem.error): problem for problem in reversed(problems)}
        for kind, problem in reversed(kinds.items()):
            if kind not in self._warned:
                self._warned.add(kind)
                others = sum((each.actuator, each.error) == kind for each in problems) - 1
                _log.warning("%s%s", problem.line, f" (and {others} more)" if others else "")


@dataclass(frozen=True)
class _Outcome:
    problems: tuple[Problem, ...] = ()
    requested: Mapping[str, float] = field(default_factory=dict)
    effective: Mapping[str, float] = field(default_factory=dict)


_Job = Callable[[Actuator], _Outcome]


class _Worker:
    """Has one actuator work on a thread of its own, one job after the other; a job given while one runs takes the place
    of the one that waits."""

    def __init__(self, actuator: Actuator) -> None:
        self._actuator = actuator
        self._change = threading.Condition()
        self._next: _Job | None = None
        self._found = _Outcome()
        self._busy = False
        self._behind = False

    def give(self, job: _Job) -> None:
        """Has a job done, at once or after the one that runs."""
        with self._change:
            self._next = job
            self._behind = self._busy
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._work, name=f"power {self._actuator.name}").start()

    def outcome(self, limit_s: float) -> _Outcome:
        """Return what came of the last job; a problem SLOW where it is not done in time. One that had to wait for an
        earlier job is not waited for."""
        if self.done(0.0 if self._behind else limit_s):
            return self._found
        return _Outcome((self._problem(SLOW, "takes long; it goes on in the background"),))

    def done(self, limit_s: float) -> bool:
        """Return whether there is nothing left to do, at the latest after this time."""
        with self._change:
            return self._change.wait_for(lambda: not self._busy, limit_s)

    def _work(self) -> None:
        while (job := self._taken()) is not None:
            try:
                self._found = job(self._actuator)
            except Exception as error:  # whatever a driver's files made of it: votes go on, and no inference fails
                self._found = _Outcome((self._problem(type(error).__name__, " ".join(str(error).split())),))

    def _problem(self, error: str, advice: str) -> Problem:
        path = self._actuator.at or next(iter(self._actuator.paths), Path())
        return Problem(self._actuator.name, path, error, advice)

    def _taken(self) -> _Job | None:
        with self._change:
            job, self._next = self._next, None
            if job is None:
                self._busy = False
                self._change.notify_all()
            return job


def _plan(vote: Vote, after: Mapping[Path, str], actuator: Actuator) -> list[Write]:
    return actuator.plan(vote, after)


def _plan_back(originals: Mapping[str, str], after: Mapping[Path, str], actuator: Actuator) -> list[Write]:
    return actuator.plan_back(originals, after)


def _applied(actuator: Actuator, vote: Vote) -> _Outcome:
    problems = actuator.write(actuator.plan(vote))
    return _Outcome(
        problems=tuple(problems),
        requested={f"{actuator.name}.{name}": value for name, value in actuator.requested(vote).items()},
        effective={f"{actuator.name}.{name}": value for name, value in actuator.effective().items()},
    )


def _restored(actuator: Actuator, originals: Mapping[str, str]) -> _Outcome:
    problems = actuator.write(actuator.plan_back(originals))
    return _Outcome(tuple(problem for problem in problems if problem.error not in ("ENOENT", "ENODEV")))
