"""Time the phases of a generation and write them to a profile log.

Phases have names such as "finalize", and phases within them names such as "finalize/compiling". The log has the format
of an inference log but holds no inferences. It is written phase by phase, so that an aborted generation shows how far
it came.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gputune.client.durations import minutes
from gputune.client.outputs import writing
from gputune.client.progress import Progress
from gputune.client.tuning.budget import Budget
from gputune.core.version import software_version
from gputune.runtime.profiling.levels import LOG_NAME, Level
from gputune.runtime.profiling.log import LogWriter
from gputune.runtime.profiling.records import DEINIT, FINALIZE, INIT, NODE, LogHeader, Span

IN_WORDS = {
    "init": "checking",
    "untuned": "the untuned context",
    "tune": "tuning",
    "chain": "comparing",
    "finalize": "finalizing",
}
"""The phases that may take long."""

_IDENTIFIERS = {"init": INIT, "finalize": FINALIZE, "deinit": DEINIT}


@dataclass(frozen=True)
class Profiling:
    """What is recorded of a generation beside its schematic. level: basic for whole phases, any other also for what
    lies within them. folder: of the log."""

    level: Level
    folder: Path

    @property
    def log_file(self) -> Path:
        return self.folder / LOG_NAME


class Clock:
    """What has taken how long, by the host's clock. Phases are begun and ended by one thread."""

    def __init__(self, budget: Budget | None = None) -> None:
        """budget: of the wall time, None without a limit."""
        self.budget = budget or Budget()
        self.begun_ns = time.perf_counter_ns()
        self.begun_unix_ns = time.time_ns()
        self.spans: list[Span] = []
        """What has ended, in that order."""
        self.ended: Callable[[Span], None] = lambda span: None
        """Hears of each phase when it ends."""
        self._open: list[str] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase, which lies within those that have not ended."""
        self._open.append(name)
        path = "/".join(self._open)
        begun_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._open.pop()
            self.spans.append(Span(path, _IDENTIFIERS.get(path, NODE), begun_ns, time.perf_counter_ns()))
            self.ended(self.spans[-1])

    @property
    def seconds(self) -> dict[str, float]:
        """Wall seconds of each whole phase, and "total" until now."""
        sums: Counter[str] = Counter()
        for span in self.spans:
            sums[span.name] += span.ended_ns - span.begun_ns
        sums["total"] = time.perf_counter_ns() - self.begun_ns
        return {name: ns / 1e9 for name, ns in sums.items()}

    @property
    def line(self) -> str:
        """What took how long until now, for people: the phases that took a second or more."""
        seconds = self.seconds
        said = [f"{IN_WORDS[name]} {minutes(seconds[name])}" for name in IN_WORDS if seconds.get(name, 0.0) >= 1]
        return f"took {minutes(seconds['total'])}" + (f": {', '.join(said)}" if said else "")


class TimedProgress(Progress):
    """A progress whose parts are phases, too."""

    def __init__(self, shown: Progress, clock: Clock) -> None:
        self._shown = shown
        self._clock = clock

    @contextmanager
    def running(self, label: str, total: int, seconds: float | None = None) -> Iterator[None]:
        with self._clock.phase(label), self._shown.running(label, total, seconds):
            yield

    def advance(self, steps: int, what: str) -> None:
        self._shown.advance(steps, what)

    def shrink(self, steps: int) -> None:
        self._shown.shrink(steps)


class PhaseLog:
    """The log of a generation's phases. It is begun when the device is known, with the phases before that; where none
    is reached, at its end, and its header names no device."""

    def __init__(self, wishes: Profiling, clock: Clock) -> None:
        self._wishes = wishes
        self._clock = clock
        self._writer: LogWriter | None = None

    def begin(self, device: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        """device: DeviceIdentity.to_dict(); settings: those of the target. Raises OutputError."""
        self._writer = self._begun(device, settings)
        for span in self._clock.spans:
            self._add(span)
        self._clock.ended = self._add

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is None:
            self.begin({}, {})
        self._clock.ended = lambda span: None
        if self._writer is not None:
            with writing(self._wishes.log_file):
                self._writer.close()

    def _begun(self, device: Mapping[str, Any], settings: Mapping[str, str]) -> LogWriter:
        header = LogHeader(
            level=self._wishes.level,
            software=software_version(),
            device=device,
            begun_ns=self._clock.begun_ns,
            begun_unix_ns=self._clock.begun_unix_ns,
            settings=settings,
        )
        path = self._wishes.log_file
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return LogWriter(path.open("wb"), header)

    def _add(self, span: Span) -> None:
        if self._writer is not None and ("/" not in span.name or self._wishes.level != "basic"):
            with writing(self._wishes.log_file):
                self._writer.add(span)
