"""Run gputune-agent on this machine, with the driver of one of its devices."""

import contextlib
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from gputune.core.quirks import quirks_of
from gputune.runtime.devices.discovery import AGENT_PREFIX, AGENT_TOKEN_VARIABLE, DeviceReport, find
from gputune.runtime.devices.scratch import remove_scratch, scratch_folder
from tests.native.compiling import agent, opencl_library


class AgentProcess:
    """An agent that listens on a port of the loopback, which stays the same. compiled: a folder for what the driver
    compiles, which all connections share. Raises AssertionError if the agent cannot be compiled."""

    def __init__(self, report: DeviceReport, token: str, compiled: Path | None = None) -> None:
        assert report.identity is not None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.device = f"{AGENT_PREFIX}{self.address}"
        self._command = [str(agent()), "--listen", self.address]
        self._environment = {**opencl_library(), **os.environ, **report.environment(), "GPUTUNE_TOKEN": token}
        if compiled is not None and (folder := quirks_of(report.identity).compiled) is not None:
            self._environment |= {folder.folder: str(compiled), folder.finds: "1"}
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None
        self._start()

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

    def keep(self) -> None:
        """Start the agent again whenever it dies, as an init system would do."""

        def again() -> None:
            while not self._ended.is_set():
                self.process.wait()
                if not self._ended.is_set():
                    self._start()

        self._keeper = threading.Thread(target=again, daemon=True)
        self._keeper.start()

    def close(self) -> None:
        """End the agent."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self.process.terminate()
        self.process.wait()
        if self._keeper is not None:
            self._keeper.join()
