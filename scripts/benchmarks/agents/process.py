"""Run processes that listen on this machine: gputune-agent with the driver of a device, and a relay."""

import contextlib
import os
import secrets
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import tool
from gputune.core.quirks import quirks_of
from gputune.runtime.devices.discovery import AGENT_PREFIX, AGENT_TOKEN_VARIABLE, DeviceReport, find
from gputune.runtime.devices.scratch import remove_scratch, scratch_folder
from tests.native.compiling import agent, opencl_library


class Kept:
    """A process that starts again whenever it dies, once `keep` was called, as an init system would do. log: takes what
    it says, where it may start without saying so."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None = None) -> None:
        self._command, self._environment, self._log = command, environment, log
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None
        self._start()

    def _start(self) -> None:
        if self._log is None:
            self.process = subprocess.Popen(self._command, env=self._environment, stdout=subprocess.PIPE, text=True)
            assert self.process.stdout is not None
            self.process.stdout.readline()  # it listens
        else:
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log, text=True)

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
        environment = {**opencl_library(), **os.environ, **report.environment(), "GPUTUNE_TOKEN": token}
        if compiled is not None and (folder := quirks_of(report.identity).compiled) is not None:
            environment |= {folder.folder: str(compiled), folder.finds: "1"}
        super().__init__([str(agent()), "--listen", self.address], environment)

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


class Relay(Kept):
    """A relay of an address, which it keeps some milliseconds away; whoever ends its process cuts all connections."""

    def __init__(self, address: str, milliseconds: float = 0.0) -> None:
        port = str(tool.free_port())
        self.address = f"127.0.0.1:{port}"
        command = [*tool.module("benchmarks.agents.relay"), address, str(milliseconds), port]
        super().__init__(command, tool.environment())
