"""What a user sees while a long command works: a bar with ETA on a terminal, plain lines otherwise."""

import threading
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gputune.core.printable import printable

LEVELS = ("error", "warn", "info", "verbose")
_PLAIN_INTERVAL_S = 5.0


class Reporter:
    """Messages by level, and one progress at a time, on one text stream.

    Steps are whatever the caller counts (trials when tuning); the ETA comes from the pace of the steps done in this
    run; steps that turn out not to be needed are taken off the total.
    """

    def __init__(self, stream: TextIO, level: str = "info") -> None:
        self.level = level
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._bar_task: TaskID | None = None
        self._label = ""
        self._total = 0
        self._done = 0
        self._began = 0.0
        self._said = 0.0
        self._seconds: float | None = None
        self._lock = threading.RLock()  # several targets report from threads of their own

    def tell(self, text: str) -> None:
        """What a person must do: shown at every level, in one line, so that it can be copied."""
        self._console.print(printable(text), markup=False)

    def warn(self, text: str) -> None:
        self._say(1, f"warning: {text}")

    def info(self, text: str) -> None:
        self._say(2, text)

    def verbose(self, text: str) -> None:
        self._say(3, text)

    def _say(self, level: int, text: str) -> None:
        if level <= LEVELS.index(self.level):
            self._console.print(printable(text), markup=False)

    def begin(self, label: str, total: int, seconds: float | None = None) -> None:
        """Starts a progress of `total` steps that may take so many seconds, None for as long as it takes."""
        self._seconds = seconds
        self._label, self._total, self._done = label, total, 0
        self._began = self._said = time.monotonic()
        if self._console.is_terminal and self.level in ("info", "verbose"):
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[eta]}"),
                console=self._console,
                transient=True,
                auto_refresh=False,  # a thread that draws would disturb what is measured on a CPU device
            )
            self._bar_task = self._bar.add_task(label, total=total, eta="")
            self._bar.start()

    def advance(self, steps: int, what: str) -> None:
        """Counts steps done; `what` says what is being worked on."""
        with self._lock:
            self._done += steps
            now = time.monotonic()
            if self._bar is not None and self._bar_task is not None:
                description = printable(f"{self._label} {what}")
                self._bar.update(self._bar_task, completed=self._done, description=description, eta=self.eta(now))
                self._bar.refresh()
            elif now - self._said >= _PLAIN_INTERVAL_S:
                self._said = now
                self.info(f"{self._label} {self._done}/{self._total} {self.eta(now)} {what}")

    def shrink(self, steps: int) -> None:
        """Takes steps off the total that turned out not to be needed."""
        with self._lock:
            self._total -= steps
            if self._bar is not None and self._bar_task is not None:
                self._bar.update(self._bar_task, total=self._total)

    def eta(self, now: float) -> str:
        """The time left at the pace so far, or until no more is allowed."""
        if not self._done:
            return ""
        seconds = (now - self._began) / self._done * max(0, self._total - self._done)
        if self._seconds is not None:
            seconds = min(seconds, max(0.0, self._began + self._seconds - now))
        minutes, seconds = divmod(round(seconds), 60)
        return f"ETA {minutes}:{seconds:02d}"

    def end(self) -> None:
        """Ends the progress."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._bar_task = None

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
