"""Write what a phase records: one JSON file, complete at any moment, with the card, the driver and the date in it."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpu.card import CARD

MARGIN = 0.9
"""A phase is to end by itself after this part of its box."""


class Record:
    """A phase's results on their way into a file. folder: for other files, which are kept, too."""

    def __init__(self, path: Path, seconds: float, rehearse: bool) -> None:
        self.rehearse = rehearse
        self._path = path
        self._end = time.monotonic() + seconds * MARGIN - 1.0
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._data: dict[str, Any] = {"phase": path.stem, "date": now, "rehearsal": rehearse}
        self._data |= json.loads(os.environ.get(CARD, "{}"))
        self.folder = path.with_suffix("")
        self.folder.mkdir(exist_ok=True)
        self._write()

    @property
    def left(self) -> float:
        """Seconds until the phase should end."""
        return self._end - time.monotonic()

    def put(self, *keys: str, value: Any) -> None:
        """Keep a value below these keys."""
        inner = self._data
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value
        self._write()

    def get(self, *keys: str) -> Any:
        """Return what was kept below these keys; None where nothing was."""
        inner: Any = self._data
        for key in keys:
            inner = inner.get(key) if isinstance(inner, dict) else None
        return inner

    def say(self, line: str) -> None:
        """Keep a line for people, which the day prints."""
        self._data.setdefault("says", []).append(line)
        self._write()

    def attempt(self, name: str, work: Callable[[], Any]) -> None:
        """Keep under a name what `work` returns, or the error that it ends with."""
        try:
            self.put(name, value=work())
        except Exception as error:
            traceback.print_exc()
            self.put("error", name, value=brief(error))

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._data, default=str), encoding="utf-8")
        partial.replace(self._path)


def run(phase: Callable[[Record], None]) -> None:
    """Runs a phase as the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    phase(Record(options.record, options.seconds, options.rehearse))


def spread(samples: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Return the median of samples, their quartiles and their number."""
    if len(samples) < 2:
        return {"median": round(samples[0], digits), "n": len(samples)} if samples else {"n": 0}
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return {"median": round(middle, digits), "q1": round(low, digits), "q3": round(high, digits), "n": len(samples)}


def brief(error: BaseException) -> str:
    """Return an error in one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:600]
