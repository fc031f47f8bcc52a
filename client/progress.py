"""What a user sees while a long command works: a bar with ETA on a terminal, plain lines otherwise.

Messages are records of the standard logging module, by loggers below "gputune": critical for what a person must do or
nothing goes on, warning, info, and debug for --log_level verbose. A command shows them by `reporting`; without it they
are the application's, if it handles them. Steps are told to a Progress.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TextIO

from rich import progress as bars
from rich.console import Console

from gputune.core.logs import LEVELS, printable

_PLAIN_INTERVAL_S = 5.0


class Progress(Protocol):
    """How far something long has come, in steps of whatever it counts; one at a time. Threads may share it."""

    def running(self, label: str, total: int, seconds: float | None = None) -> AbstractContextManager[None]:
        """As long as `total` steps are done, which may take so many seconds, None for as long as it takes."""

    def advance(self, steps: int, what: str) -> None:
        """Counts steps done; `what` says what is being worked on."""

    def shrink(self, steps: int) -> None:
        """Takes steps off the total that turned out not to be needed."""


class Silent:
    """A Progress that is not shown."""

    def running(self, label: str, total: int, seconds: float | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    def advance(self, steps: int, what: str) -> None: ...

    def shrink(self, steps: int) -> None: ...


SILENT = Silent()


class Reporter(logging.Handler):
    """Shows messages from a level of LEVELS on, and a Progress, on one text stream.

    The ETA comes from the pace of the steps done since the progress began.
    """

    def __init__(self, stream: TextIO, level: str = "info") -> None:
        super().__init__(LEVELS[level])
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._bar: bars.Progress | None = None
        self._bar_task: bars.TaskID | None = None
        self._label = ""
        self._total = 0
        self._done = 0
        self._began = 0.0
        self._said = 0.0
        self._seconds: float | None = None
        self._counting = threading.RLock()  # several targets report from threads of their own

    def emit(self, record: logging.LogRecord) -> None:
        """Shows a message in one line."""
        mark = "warning: " if record.levelno == logging.WARNING else ""
        self._print(f"{mark}{record.getMessage()}")

    @contextmanager
    def running(self, label: str, total: int, seconds: float | None = None) -> Iterator[None]:
        self._seconds = seconds
        self._label, self._total, self._done = label, total, 0
        self._began = self._said = time.monotonic()
        if self._console.is_terminal and self.level <= logging.INFO:
            self._bar = bars.Progress(
                bars.TextColumn("{task.description}", markup=False),
                bars.BarColumn(),
                bars.MofNCompleteColumn(),
                bars.TimeElapsedColumn(),
                bars.TextColumn("{task.fields[eta]}"),
                console=self._console,
                transient=True,
                auto_refresh=False,  # a thread that draws would disturb what is measured on a CPU device
            )
            self._bar_task = self._bar.add_task(label, total=total, eta="")
            self._bar.start()
        try:
            yield
        finally:
            if self._bar is not None:
                self._bar.stop()
                self._bar = self._bar_task = None

    def advance(self, steps: int, what: str) -> None:
        with self._counting:
            self._done += steps
            now = time.monotonic()
            if self._bar is not None and self._bar_task is not None:
                description = printable(f"{self._label} {what}")
                self._bar.update(self._bar_task, completed=self._done, description=description, eta=self._eta(now))
                self._bar.refresh()
            elif self.level <= logging.INFO and now - self._said >= _PLAIN_INTERVAL_S:
                self._said = now
                self._print(f"{self._label} {self._done}/{self._total} {self._eta(now)} {what}")

    def shrink(self, steps: int) -> None:
        with self._counting:
            self._total -= steps
            if self._bar is not None and self._bar_task is not None:
                self._bar.update(self._bar_task, total=self._total)

    def _eta(self, now: float) -> str:
        """The time left at the pace so far, or until no more is allowed."""
        if not self._done:
            return ""
        seconds = (now - self._began) / self._done * max(0, self._total - self._done)
        if self._seconds is not None:
            seconds = min(seconds, max(0.0, self._began + self._seconds - now))
        minutes, seconds = divmod(round(seconds), 60)
        return f"ETA {minutes}:{seconds:02d}"

    def _print(self, text: str) -> None:
        self._console.print(printable(text), markup=False)


@contextmanager
def reporting(stream: TextIO, level: str = "info") -> Iterator[Reporter]:
    """Shows messages from a level of LEVELS on, and the Progress that it gives, on a text stream."""
    reporter, logger = Reporter(stream, level), logging.getLogger("gputune")
    before = logger.level
    logger.addHandler(reporter)
    logger.setLevel(reporter.level)
    try:
        yield reporter
    finally:
        logger.setLevel(before)
        logger.removeHandler(reporter)
