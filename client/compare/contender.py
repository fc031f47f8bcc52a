"""A contender's process, which `turns` starts:

    python -m gputune.client.compare.contender ENGINE ARGUMENTS

ENGINE is one of engines.ENGINES, ARGUMENTS are what that takes, in JSON. It answers questions from its standard input,
line by line, in JSON. Its first line holds the engine's facts, or {"error"} if the engine cannot be opened; then it
answers {"do": "open"} with {} when it has closed the engine and opened it again, {"do": "block", "seconds"} with
{"samples_ns"}, and {"do": "outputs", "file"} with {"names"} of the arrays that it has written there.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from gputune.client.compare.engines import ENGINES, Engine

WARM_UP_S = 0.1
LEAST, MOST = 3, 500
"""Inferences of a block."""

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: which signal a process gets when the one that started it ends."""


def end_with_parent() -> None:
    """Has Linux end this process with the one that started it, however that ends: while it waits its turn it is stopped
    and does not see the end of its input. Elsewhere it has to be continued for that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def block(run: Callable[[], float], seconds: float, most: int = MOST) -> list[float]:
    """The nanoseconds that `run` says it has taken, again and again for so long, at most so often, after a warm-up."""
    warm_s = time.perf_counter() + min(WARM_UP_S, seconds)
    run()
    while time.perf_counter() < warm_s:
        run()
    samples_ns: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(samples_ns) < min(LEAST, most) or (len(samples_ns) < most and time.perf_counter() < end_s):
        samples_ns.append(run())
    return samples_ns


class Answering:
    """An engine that is opened again and again, and what it answers."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open = open_engine
        self._engine = open_engine()
        self.facts = self._engine.facts

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question."""
        if question["do"] == "open":
            self._engine.close()
            self._engine = self._open()
            return {}
        if question["do"] == "block":
            return {"samples_ns": block(self._engine.timed, question["seconds"])}
        found = self._engine.outputs()
        np.savez(question["file"], *found.values())
        return {"names": list(found)}


def main() -> None:
    end_with_parent()
    # Libraries write where they like: what this process has to say goes out by a way of its own.
    with os.fdopen(os.dup(1), "w") as out, suppress(BrokenPipeError, KeyboardInterrupt):
        os.dup2(2, 1)

        def say(content: Mapping[str, Any]) -> None:
            out.write(json.dumps(content) + "\n")
            out.flush()

        try:
            answering = Answering(functools.partial(ENGINES[sys.argv[1]], **json.loads(sys.argv[2])))
        except Exception as error:  # a library's errors have no class in common
            say({"error": f"{error} ({type(error).__name__})"})
            return
        say(answering.facts)
        for line in sys.stdin:
            say(answering.answer(json.loads(line)))


if __name__ == "__main__":
    main()
