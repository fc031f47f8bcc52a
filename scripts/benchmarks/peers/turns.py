"""Let contenders take turns: each is a process of its own and stands still while another runs.

A process that waits its turn is stopped by a signal, so threads that spin for more work, as onnxruntime's do, cannot
take a core from the one that is measured.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import tool
from benchmarks.tuning.tools import NotTimed

PROGRAM = "benchmarks.peers.contenders"
LAST_WORDS = 500


@dataclass(frozen=True)
class Entry:
    """A contender to be started: `kind` is one of contenders.KINDS, `arguments` are what that takes, as JSON has them.
    environment: what its process has beside this one's. may_fail: the others go on without it where it cannot start, as
    an engine does not that cannot read a model."""

    name: str
    kind: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    may_fail: bool = False


class Contender:
    """A running contender. It stands still except while it answers."""

    def __init__(self, entry: Entry) -> None:
        """Starts it and waits until it is ready. Raises NotTimed with its last words when it ends instead."""
        self.name = entry.name
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [*tool.module(PROGRAM), entry.kind, json.dumps(dict(entry.arguments))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={**tool.environment(), **entry.environment},
        )
        try:
            self.facts = self._answer()
        except NotTimed:
            self.close()
            raise
        self._process.send_signal(signal.SIGSTOP)

    def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer to one question. Raises NotTimed."""
        assert self._process.stdin is not None
        with self._awake():
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            return self._answer()

    def block(self, seconds: float, most: int) -> list[float]:
        """Nanoseconds of each run in a block of so many seconds, at most so many of them, after a warm-up."""
        samples: list[float] = self.ask(do="block", seconds=seconds, most=most)["samples_ns"]
        return samples

    def close(self) -> None:
        """Ends it. May be called twice."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            if stream is not None:
                stream.close()

    @contextmanager
    def _awake(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGSTOP)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            code = self._process.wait()  # its last words may come after the end of its answers
            self._words.seek(0)
            words = self._words.read().decode(errors="replace").strip()[-LAST_WORDS:]
            raise NotTimed(f"{self.name} has ended with exit code {code}: {words}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def running(entries: Sequence[Entry]) -> Iterator[list[Contender]]:
    """All of them started that can, one after the other, and ended at the end. Raises NotTimed."""
    with ExitStack() as stack:
        contenders = []
        for entry in entries:
            try:
                contender = Contender(entry)
            except NotTimed as error:
                if not entry.may_fail:
                    raise
                print(f"goes on without {entry.name}: {str(error).splitlines()[-1]}", flush=True)
                continue
            stack.callback(contender.close)
            contenders.append(contender)
        yield contenders
