"""Check whether other programs keep a machine busy before something is measured there, wait for quiet, and record it.

runtime.devices.load reads a machine's state, here or on a target; a target server may send anything. Two states say how
much of the processors other programs had in between.

The load average is only shown. For a minute it includes programs that have ended and this program's own work, so that a
measurement would seem busy after its own preparations. It is used only if a system counts no idle time.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.progress import Progress
from gputune.core.json_text import finite_number
from gputune.runtime.devices.load import CLOCK, IDLE, LOAD, OWN, PROCESSORS, SWITCHES

log = logging.getLogger(__name__)

BUSY = 0.25
"""If other programs have more than this share of the processors, the machine is busy. A kernel that needs them all
takes a third longer then at least, and how much longer changes with every launch, since each waits for its slowest
part; most gains are smaller than that."""

LOOK_S, LONGER_LOOK_S = 0.4, 1.0
"""How long a look takes, of 40 ticks of most systems' clocks; if the machine seems busy, another one says whether that
was only a moment."""

CALM_S = 5.0
"""A machine that was busy is quiet once it has been so for this long: programs that build something pause meanwhile."""

State = Mapping[str, object]
Read = Callable[[], State]


@dataclass(frozen=True)
class Load:
    """How busy a machine is. processors: those that a program may use, 0 where nothing is known of them; average: the
    load of the last minute; others: the share of the processors that other programs keep from one that needs them;
    each None where the system does not say."""

    processors: float
    average: float | None
    others: float | None

    @property
    def busy(self) -> bool:
        """Return whether measured times are unreliable."""
        return self.others is not None and self.others > BUSY

    @property
    def words(self) -> str:
        """Such as "load 13.4 on 2 processors"."""
        processors = f"{self.processors:g} processor{'s' * (self.processors != 1)}"
        average = "a load that is not known" if self.average is None else f"load {self.average:.1f}"
        return f"{average} on {processors}" if self.processors else average

    @property
    def line(self) -> str:
        """What is told of a busy machine."""
        return f"{self.words}: other programs take {self.others or 0:.0%} of the time, so measured times are unreliable"


def between(before: State, after: State, whole: bool = True) -> Load:
    """Return the load between two states of a machine.

    whole: whether what is measured needs all processors, as it does on a CPU. Elsewhere it needs one, for the host."""
    average, processors = _number(after, LOAD), _number(after, PROCESSORS) or 0.0
    needed = processors if whole else min(processors, 1.0)
    seconds, idle, own = (_difference(before, after, name) for name in (CLOCK, IDLE, OWN))
    others = None
    if needed and seconds and idle is not None:
        others = (needed - (idle + (own or 0.0)) / seconds) / needed
    elif needed and average is not None:  # the processors could all have been busy with this program until now
        others = (average - processors) / needed
    return Load(processors, average, None if others is None else min(max(others, 0.0), 1.0))


class LoadRecord:
    """What is kept of the load of a measurement, in one form in all records."""

    def __init__(self) -> None:
        self._first: Load | None = None
        self._heard: list[float] = []
        self._switches: list[float] = []

    def begin(self, load: Load) -> None:
        """Take in the load before anything was measured."""
        self._first = self._first or load

    def hear(self, before: State, after: State) -> None:
        """Take in the states of the process that has measured something, before and after it."""
        if (average := _number(after, LOAD)) is not None:
            self._heard.append(average)
        switches = _difference(before, after, SWITCHES)
        if switches is not None and switches >= 0:  # less, where the process was started again
            self._switches.append(switches)

    def hear_batch(self, state: Mapping[str, object]) -> None:
        """Take in the state of a batch's reply: the process "before" and "after" it."""
        before, after = state.get("before"), state.get("after")
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            self.hear(before, after)

    @property
    def busy(self) -> bool:
        """Whether the machine was busy at first, or later for half of the time with twice as much as its processors
        can do, of which at most half is this program's own work."""
        if (first := self._first) is None:
            return False
        often = 0 < 2 * first.processors < statistics.median(self._heard or [0.0])
        return first.busy or often

    @property
    def words(self) -> str:
        """Such as "load 13.4 on 2 processors", by the median of the averages."""
        first = self._first or Load(0.0, None, None)
        averages = self._averages
        return Load(first.processors, statistics.median(averages) if averages else None, None).words

    @property
    def _averages(self) -> list[float]:
        begin = None if self._first is None else self._first.average
        return [*([] if begin is None else [begin]), *self._heard]

    def advice(self, nothing_certain: bool) -> str:
        """Return what to do when nothing was certain because the machine was busy, else nothing."""
        if not (nothing_certain and self.busy):
            return ""
        return (
            f"nothing was certain: the machine was busy ({self.words}); run the same command again when it is quieter; "
            "it continues from here"
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; null is what no system has said. begin, median, end: averages of the load of a minute;
        others: the share of the processors that other programs had before anything was measured."""
        averages, first = self._averages, self._first
        return {
            "processors": first.processors or None if first else None,
            "begin": averages[0] if averages else None,
            "median": statistics.median(averages) if averages else None,
            "end": averages[-1] if averages else None,
            "others": None if first is None or first.others is None else round(first.others, 3),
            "busy": self.busy,
            "involuntary_switches": int(sum(self._switches)) if self._switches else None,
        }


class Quiet:
    """Whether machines are quiet before the first measurement; no machines are always. record: what was seen."""

    def __init__(
        self,
        machines: Sequence[Read],
        progress: Progress,
        minutes: int | None = None,
        *,
        whole: bool = True,
        since: State | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """minutes: how long to wait at most for a busy machine, None for not at all; whole: as of `between`; since: if
        this process measures, on the only machine, an earlier state of it, so that a look need not begin now."""
        self.record = LoadRecord()
        self._machines = list(machines)
        self._progress = progress
        self._minutes = minutes
        self._whole = whole
        self._since = since
        self._sleep = sleep
        self._states: list[State] | None = None

    def settle(self) -> None:
        """Warn if the busiest machine is busy; with minutes wait first until it has become quiet, at most so long. Do
        nothing if this was called before."""
        if not self._machines or self._states is not None:
            return
        load = self._look(LOOK_S, self._since)
        if load.busy:
            load = self._look(LONGER_LOOK_S)
        if not load.busy:
            log.debug(f"{load.words}: quiet enough to measure")
        elif self._minutes is None:
            log.warning(f"{load.line}; --wait_for_quiet 10 waits for up to 10 minutes until they end")
        else:
            load = self._wait(self._minutes, load)
        self.record.begin(load)
        self._states = [read() for read in self._machines]

    def end(self) -> None:
        """Take in the load at the end of what was measured, if anything was."""
        for before, read in zip(self._states or (), self._machines, strict=bool(self._states)):
            self.record.hear({} if self._since is None else before, read())

    def _look(self, seconds: float, since: State | None = None) -> Load:
        """Return the load of the busiest machine while this program does nothing for so long, or since then."""
        before = [read() if since is None else since for read in self._machines]
        gone_s = 0.0 if since is None else _difference(since, self._machines[0](), CLOCK) or 0.0
        self._sleep(max(0.0, seconds - gone_s))
        pairs = zip(before, self._machines, strict=True)
        loads = [between(first, read(), self._whole) for first, read in pairs]
        return max(loads, key=lambda load: (load.others or 0.0, load.average or 0.0))

    def _wait(self, minutes: int, load: Load) -> Load:
        log.info(f"{load.line}; waiting until they end, for up to {minutes} minutes")
        left_s = 60.0 * minutes
        with self._progress.running("waiting for quiet, seconds", 60 * minutes, left_s):
            while load.busy and left_s > 0:
                load = self._look(CALM_S)
                left_s -= CALM_S
                self._progress.advance(round(CALM_S), load.words)
        waited = f"waited for {minutes - left_s / 60:.1f} minutes"
        if load.busy:
            log.warning(f"{waited}, and the machine was busy all the time: {load.line}")
        else:
            log.info(f"{waited}; the machine is quiet")
        return load


def _number(state: State, name: str) -> float | None:
    return finite_number(state.get(name))


def _difference(before: State, after: State, name: str) -> float | None:
    first, second = _number(before, name), _number(after, name)
    return None if first is None or second is None else second - first
