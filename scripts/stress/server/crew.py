"""Run threads that repeat one action until they are stopped, and list promises kept and broken."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from stress.server.observed import MIB, Usage

SHOWN = 20
PAUSE_SECONDS = 0.2


class Stop(Protocol):
    """What threading and multiprocessing call an event."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def wait(self, timeout: float) -> bool: ...


class Crew:
    """rounds: how often each member has done its thing; failures: what went wrong, which ends no member's work."""

    def __init__(self, stop: Stop | None = None) -> None:
        self.stop = threading.Event() if stop is None else stop
        self.rounds: Counter[str] = Counter()
        self.failures: list[str] = []
        self._threads: list[threading.Thread] = []

    def add(self, name: str, once: Callable[[], object]) -> None:
        """Starts a member. A name is one member's; `once` ends the member by returning False."""
        self._threads.append(threading.Thread(target=self._work, args=(name, once), name=name))
        self._threads[-1].start()

    def join(self) -> None:
        """Waits until all members have ended. Ctrl-C tells them to stop, and is done with then."""
        try:
            for thread in self._threads:
                thread.join()
        except KeyboardInterrupt:
            self.stop.set()
            for thread in self._threads:
                thread.join()

    def _work(self, name: str, once: Callable[[], object]) -> None:
        while not self.stop.is_set():
            try:
                if once() is False:
                    return
                self.rounds[name] += 1
            except Exception as error:  # a member of the crew reports and goes on, whatever it was
                if not self.stop.is_set():
                    self.failures.append(f"{name}: {type(error).__name__}: {error}")
                    self.stop.wait(PAUSE_SECONDS)


def _excerpt(log: str, mark: str) -> str:
    place = log.index(mark)
    return log[max(place - 200, 0) : place + 3000]


class Promises:
    """What was promised and whether it was kept, printed as it becomes known."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.kept: list[str] = []

    def check(self, kept: bool, text: str) -> None:
        """One promise with its figures."""
        (self.kept if kept else self.broken).append(text)
        print(f"  {'ok   ' if kept else 'WRONG'}  {text}", flush=True)

    def none_failed(self, failures: list[str], what: str) -> None:
        """Nothing may have gone wrong; the first failures are printed."""
        self.check(not failures, f"{what}: {len(failures)} failures")
        for failure in failures[:SHOWN]:
            print(f"         {failure}")

    def no_defect(self, log: str) -> None:
        """Nothing unexpected was raised, as a server's log tells; else the first traceback is printed."""
        found = next((mark for mark in ("Traceback", "a defect") if mark in log), None)
        self.check(
            found is None, "no defect in the server's log" + ("" if found is None else f": {_excerpt(log, found)}")
        )

    def no_leak(self, name: str, before: Usage, after: Usage, leak_bytes: int, descriptors: int) -> None:
        """Memory and descriptors of a process may have grown by so much and no more."""
        grown, opened = after.resident_bytes - before.resident_bytes, after.descriptors - before.descriptors
        self.check(
            grown <= leak_bytes and opened <= descriptors,
            f"{name}: {before} before, {after} after (at most {leak_bytes / MIB:.0f} MiB and {descriptors} more)",
        )

    def report(self, figures: dict[str, Any], file: Path | None) -> int:
        """Writes the figures and the promises when a file is asked for; the exit code."""
        if file is not None:
            result = {**figures, "kept": self.kept, "broken": self.broken}
            file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return 1 if self.broken else 0
