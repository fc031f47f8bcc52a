"""Run contenders in turns, each in its own process, and stop a process while another runs.

Threads that spin for more work, as onnxruntime's do, therefore take no core from the contender that is measured. Two
equal contexts in two processes differ by some per cent for as long as the processes live, so contexts that are compared
share a process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.client.errors import DeviceOrContextError
from gputune.core.opened import Closing

PROGRAM = "gputune.client.compare.contender"
LAST_WORDS = 500
"""Characters of a process's last messages that are quoted."""


class ProcessEnded(DeviceOrContextError):
    """A process of contenders has ended by itself."""


class Process(Closing):
    """A process of contenders. It is stopped except while it answers. If it has ended by itself, the next question
    finds a new one, in which no contender is open."""

    def __init__(self, program: str = PROGRAM, environment: Mapping[str, str] | None = None) -> None:
        """Start it. program: a module that answers as `contender` does; environment: what it has beside this
        process's."""
        self._command = [sys.executable, "-X", "faulthandler", "-m", program]
        self._environment = {**os.environ, **(environment or {})}
        self._start()

    def _start(self) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        pipe, environment = subprocess.PIPE, self._environment
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._words, env=environment)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def ask(self, name: str, **question: Any) -> dict[str, Any]:
        """Return the answer to a question about the contender of that name. Raises ProcessEnded."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"name": name, **question}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and reading its answer says how
        answer = self._answer(name)
        self._process.send_signal(signal.SIGSTOP)
        return answer

    def close(self) -> None:
        """End it. Doing so again does nothing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            if stream is not None:
                with suppress(BrokenPipeError):  # of a question that it has not read
                    stream.close()

    def _answer(self, name: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            code = self._process.wait()
            self._words.seek(0)
            words = self._words.read().decode(errors="replace").strip()[-LAST_WORDS:]
            self.close()
            self._start()
            raise ProcessEnded(f"{name} has ended with exit code {code}: {words or 'it says nothing'}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Contender:
    """A contender that is open in a process. facts: what it says of itself."""

    def __init__(self, name: str, process: Process, engine: str, arguments: Mapping[str, Any]) -> None:
        """Open it. name: of which there is one in the process; engine, arguments: as contender.py takes them. Raises
        DeviceOrContextError that says why it cannot run."""
        self.name = name
        self.heard: Callable[[Mapping[str, object]], object] = lambda state: None
        """Hears the state of its process "before" and "after" each block."""
        self._process = process
        self._how: dict[str, Any] = {"engine": engine, "arguments": dict(arguments)}
        self.facts = self.open_again()

    def beside(self, name: str, **arguments: object) -> Contender:
        """Open another contender in its process, with other arguments. Raises DeviceOrContextError."""
        return Contender(name, self._process, self._how["engine"], {**self._how["arguments"], **arguments})

    def open_again(self) -> dict[str, Any]:
        """Close its engine, open it again, and return its facts. Raises DeviceOrContextError."""
        facts = self._process.ask(self.name, do="open", **self._how)
        if "error" in facts:
            raise DeviceOrContextError(f"{self.name} does not run: {facts['error']}")
        return facts

    def block_ns(self, seconds: float) -> list[float]:
        """Return the time of each inference in a block of so many seconds, after a warm-up. Raises ProcessEnded."""
        answer = self._process.ask(self.name, do="block", seconds=seconds)
        self.heard(answer["state"])
        samples: list[float] = answer["samples_ns"]
        return samples

    def outputs(self, draw: int = 0) -> dict[str, npt.NDArray[Any]]:
        """Return its outputs by name on the random inputs of a draw. Raises ProcessEnded."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "outputs.npz"
            names = self._process.ask(self.name, do="outputs", draw=draw, file=str(file))["names"]
            with np.load(file) as arrays:
                return {name: arrays[f"arr_{place}"] for place, name in enumerate(names)}
