"""Show the progress of a long command: a bar with ETA on a terminal, plain lines otherwise.

Messages are records of the standard logging module, from loggers below "gputune". Critical is for what a person must do
before work can continue, then warning and info, and debug for --log_level verbose. A command shows them through
`reporting`; otherwise they are left to the application's own handlers. Steps are reported to a Progress.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import ParamSpec, Protocol, TextIO, TypeVar

from rich import progress as bars
from rich.console import Console

from gputune.client.durations import minutes
from gputune.core.logs import LEVELS, printable

log = logging.getLogger(__name__)

_PLAIN_INTERVAL_S = 5.0
_LOGGED_INTERVAL_S = 15.0
_LABEL: ContextVar[str] = ContextVar("label", default="")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@contextmanager
def labelled(label: str) -> Iterator[None]:
    """Let every message of this thread begin with what it is about, where several things are done at the same
    time."""
    token = _LABEL.set(label)
    try:
        yield
    finally:
        _LABEL.reset(token)


def keeping_label(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`work` for another thread, whose messages get the label that this one has now."""
    label = _LABEL.get()

    def labelled_work(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with labelled(label):
            return work(*arguments, **named)

    return labelled_work


class Progress(Protocol):
    """How far something long has come, in steps of whatever it counts; one at a time. Threads may share it."""

    def running(self, label: str, total: int, seconds: float | None = None) -> AbstractContextManager[None]:
        """As long as `total` steps are done, which may take so many seconds, None for as long as it takes."""

    def advance(self, steps: int, what: str) -> None:
        """Count steps done; `what` says what is being worked on."""

    def shrink(self, steps: int) -> None:
        """Take steps off the total that turned out not to be needed."""


class Silent:
    """A Progress that is not shown."""

    def running(self, label: str, total: int, seconds: float | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    def advance(self, steps: int, what: str) -> None: ...

    def shrink(self, steps: int) -> None: ...


SILENT = Silent()


class _Pace:
    """How many steps are done of how many, and since when. seconds: in which all has to be over, None for no limit."""

    def __init__(self, total: int = 0, seconds: float | None = None) -> None:
        self.total, self.done = total, 0
        self.began = self.said = time.monotonic()
        self._seconds = seconds

    def due(self, interval_seconds: float) -> bool:
        """Return whether it is time to say it again."""
        now = time.monotonic()
        if now - self.said < interval_seconds:
            return False
        self.said = now
        return True

    @property
    def eta(self) -> str:
        """The time left at the pace so far, or until no more is allowed; nothing where both are over."""
        if not self.done:
            return ""
        now = time.monotonic()
        seconds = (now - self.began) / self.done * max(0, self.total - self.done)
        if self._seconds is not None:
            seconds = min(seconds, max(0.0, self.began + self._seconds - now))
        return f"ETA {minutes(seconds)}" if round(seconds) or self.done >= self.total else ""

    def line(self, label: str, what: str) -> str:
        """Return what is shown where there is no bar."""
        return " ".join(filter(None, (label, f"{self.done}/{self.total}", self.eta, what)))


class LoggedProgress:
    """A Progress that is told as messages, now and then: for one of several things that are done at the same time."""

    def __init__(self) -> None:
        self._label, self._pace = "", _Pace()
        self._counting = threading.Lock()

    @contextmanager
    def running(self, label: str, total: int, seconds: float | None = None) -> Iterator[None]:
        self._label, self._pace = label, _Pace(total, seconds)
        yield

    def advance(self, steps: int, what: str) -> None:
        with self._counting:
            self._pace.done += steps
            if self._pace.due(_LOGGED_INTERVAL_S):
                log.info(self._pace.line(self._label, what))

    def shrink(self, steps: int) -> None:
        with self._counting:
            self._pace.total -= steps


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
        self._pace = _Pace()
        self._counting = threading.RLock()  # several targets report from threads of their own

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message in one line."""
        mark = "warning: " if record.levelno == logging.WARNING else ""
        label = f"{about}: " if (about := _LABEL.get()) else ""
        self._print(f"{mark}{label}{record.getMessage()}")

    @contextmanager
    def running(self, label: str, total: int, seconds: float | None = None) -> Iterator[None]:
        self._label, self._pace = label, _Pace(total, seconds)
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
            pace = self._pace
            pace.done += steps
            if self._bar is not None and self._bar_task is not None:
                description = printable(f"{self._label} {what}")
                self._bar.update(self._bar_task, completed=pace.done, description=description, eta=pace.eta)
                self._bar.refresh()
            elif self.level <= logging.INFO and pace.due(_PLAIN_INTERVAL_S):
                self._print(pace.line(self._label, what))

    def shrink(self, steps: int) -> None:
        with self._counting:
            self._pace.total -= steps
            if self._bar is not None and self._bar_task is not None:
                self._bar.update(self._bar_task, total=self._pace.total)

    def _print(self, text: str) -> None:
        self._console.print(printable(text), markup=False)


@contextmanager
def gathered_warnings() -> Iterator[list[str]]:
    """Gather what is warned of meanwhile, each warning once; what threads with another label warn of is left out."""
    label = _LABEL.get()
    told: list[str] = []

    def gather(record: logging.LogRecord) -> None:
        if _LABEL.get() == label and (message := record.getMessage()) not in told:
            told.append(message)

    handler, logger = logging.Handler(logging.WARNING), logging.getLogger("gputune")
    handler.emit = gather  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


@contextmanager
def reporting(stream: TextIO, level: str = "info") -> Iterator[Reporter]:
    """Show messages from a level of LEVELS on, and the Progress that it gives, on a text stream."""
    reporter, logger = Reporter(stream, level), logging.getLogger("gputune")
    before = logger.level
    logger.addHandler(reporter)
    logger.setLevel(min(reporter.level, logging.WARNING))  # others may gather warnings that are not shown
    try:
        yield reporter
    finally:
        logger.setLevel(before)
        logger.removeHandler(reporter)
