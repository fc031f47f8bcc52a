"""Contenders that take turns: each is a process of its own, which is stopped while another one runs, so that threads
which spin for more work, as onnxruntime's do, take no core from the one that is measured."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gputune.client.errors import DeviceOrContextError

LAST_WORDS = 500
"""Characters of a process's last messages that are quoted."""


class Contender:
    """A running contender. It is stopped except while it answers. facts: what it says of itself."""

    def __init__(self, name: str, engine: str, arguments: Mapping[str, Any]) -> None:
        """Starts it and waits until it is ready. engine, arguments: as contender.py takes them. Raises
        DeviceOrContextError that says why it cannot run."""
        self.name = name
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", "gputune.client.compare.contender", engine, json.dumps(dict(arguments))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words)
        try:
            self.facts = self._answer()
            if "error" in self.facts:
                raise DeviceOrContextError(f"{name} does not run: {self.facts['error']}")
        except BaseException:
            self.close()
            raise
        self._process.send_signal(signal.SIGSTOP)

    def open_again(self) -> None:
        """Closes its engine and opens it again. Raises DeviceOrContextError."""
        self._ask(do="open")

    def block_ns(self, seconds: float) -> list[float]:
        """What each inference of a block of so many seconds takes, after a warm-up. Raises DeviceOrContextError."""
        samples: list[float] = self._ask(do="block", seconds=seconds)["samples_ns"]
        return samples

    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """What it computes, by name. Raises DeviceOrContextError."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "outputs.npz"
            names = self._ask(do="outputs", file=str(file))["names"]
            with np.load(file) as arrays:
                return {name: arrays[f"arr_{place}"] for place, name in enumerate(names)}

    def close(self) -> None:
        """Ends it. Doing so again does nothing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and reading its answer says how
        answer = self._answer()
        self._process.send_signal(signal.SIGSTOP)
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            code = self._process.wait()
            self._words.seek(0)
            words = self._words.read().decode(errors="replace").strip()[-LAST_WORDS:]
            raise DeviceOrContextError(f"{self.name} has ended with exit code {code}: {words or 'it says nothing'}")
        answer: dict[str, Any] = json.loads(line)
        return answer
