"""Run gputune-agent on this machine, with the driver of one of its devices."""

import contextlib
import os
import secrets
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import tool
from gputune.core.quirks import quirks_of
from gputune.runtime.devices.discovery import AGENT_PREFIX, AGENT_TOKEN_VARIABLE, DeviceReport, find
from gputune.runtime.devices.scratch import remove_scratch, scratch_folder
from tests.native.compiling import agent, opencl_library


class Kept(ABC):
    """A process that starts again whenever it dies, once `keep` was called, as an init system would do."""

    process: subprocess.Popen[str]

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Start the process."""

    def keep(self) -> None:
        """Start it again whenever it dies."""

        def again() -> None:
            while not self._ended.is_set():
                self.process.wait()
                if not self._ended.is_set():
                    self._start()

        self._keeper = threading.Thread(target=again, daemon=True)
        self._keeper.start()

    def close(self) -> None:
        """End it."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self.process.terminate()
        self.process.wait()
        if self._keeper is not None:
            self._keeper.join()


class AgentProcess(Kept):
    """An agent that listens on a port of the loopback, which stays the same. compiled: a folder for what the driver
    compiles, which all connections share. Raises AssertionError if the agent cannot be compiled."""

    def __init__(self, report: DeviceReport, token: str, compiled: Path | None = None) -> None:
        assert report.identity is not None
        self.address = f"127.0.0.1:{tool.free_port()}"
        self.device = f"{AGENT_PREFIX}{self.address}"
        self._command = [str(agent()), "--listen", self.address]
        self._environment = {**opencl_library(), **os.environ, **report.environment(), "GPUTUNE_TOKEN": token}
        if compiled is not None and (folder := quirks_of(report.identity).compiled) is not None:
            self._environment |= {folder.folder: str(compiled), folder.finds: "1"}
        super().__init__()

    @classmethod
    @contextlib.contextmanager
    def on(cls, device: str | None) -> Iterator["AgentProcess"]:
        """Run an agent with a token of its own, which commands find in the environment, and a folder in memory for what
        it compiles."""
        os.environ[AGENT_TOKEN_VARIABLE] = token = secrets.token_hex(16)
        folder = scratch_folder()
        agent = cls(find(device).report, token, folder)
        try:
            yield agent
        finally:
            agent.close()
            if folder is not None:
                remove_scratch(folder)

    def _start(self) -> None:
        self.process = subprocess.Popen(self._command, env=self._environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()  # it listens
