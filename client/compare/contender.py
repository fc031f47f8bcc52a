"""Run contenders in a process that `turns` starts:

    python -m gputune.client.compare.contender

The process answers questions from its standard input, in JSON, line by line:

| question | answer |
|---|---|
| {"do": "open", "name", "engine", "arguments"} | the engine's facts, or {"error"} if it cannot be opened |
| {"do": "block", "name", "seconds"} | {"samples_ns", "state"} |
| {"do": "outputs", "name", "draw", "file"} | {"names"} of the arrays that it has written to the file |

"open" first closes the contender that had this name. "engine" is a key of engines.ENGINES, and "arguments" are what
that engine takes. "draw" says which random inputs are meant. "state" is the load of this process "before" and "after"
the block.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from gputune.client.compare.engines import ENGINES, Engine
from gputune.runtime.arrays import numbers
from gputune.runtime.devices import load

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: which signal a process gets when the one that started it ends."""


def end_with_parent() -> None:
    """Has Linux end this process with the one that started it, however that ends: while it waits its turn it is stopped
    and does not see the end of its input. Elsewhere it has to be continued for that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Answering:
    """Hold the engines of this process by name, and answer questions. kinds: makes engines, by the names in
    questions."""

    def __init__(self, kinds: Mapping[str, Callable[..., Engine]]) -> None:
        self._kinds = kinds
        self._engines: dict[str, Engine] = {}

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question."""
        name = question["name"]
        if question["do"] == "open":
            return self._open(name, question["engine"], question["arguments"])
        engine = self._engines[name]
        if question["do"] == "block":
            before = load.read()
            samples_ns = engine.block_ns(question["seconds"])
            return {"samples_ns": samples_ns, "state": {"before": before, "after": load.read()}}
        found = engine.outputs(question["draw"])
        np.savez(question["file"], *(numbers(each, each.dtype.name) for each in found.values()))
        return {"names": list(found)}

    def _open(self, name: str, engine: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if (before := self._engines.pop(name, None)) is not None:
            before.close()
        try:
            self._engines[name] = self._kinds[engine](**arguments)
        except Exception as error:  # a library's errors have no class in common
            return {"error": f"{error} ({type(error).__name__})"}
        return dict(self._engines[name].facts)


def main(kinds: Mapping[str, Callable[..., Engine]] = ENGINES) -> None:
    """Answer until the input ends."""
    end_with_parent()
    # Libraries write where they like: what this process has to say goes out by a way of its own.
    with os.fdopen(os.dup(1), "w") as out, suppress(BrokenPipeError, KeyboardInterrupt):
        os.dup2(2, 1)

        def say(content: Mapping[str, Any]) -> None:
            out.write(json.dumps(content) + "\n")
            out.flush()

        answering = Answering(kinds)
        for line in sys.stdin:
            say(answering.answer(json.loads(line)))


if __name__ == "__main__":
    main()
