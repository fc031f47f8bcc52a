"""Start a private target server: a child process that ends with this process."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import IO

from gputune.client.errors import DeviceOrContextError, TargetError
from gputune.client.target.transport.credentials import TOKEN_VARIABLE
from gputune.runtime.devices.discovery import AGENT_PREFIX
from gputune.server.options import NO_DEVICE_THERE

STOP_SECONDS = 5.0
DYING_SECONDS = 0.5  # a connection breaks off a moment before its process is gone
LAST_LINES = 3
_LISTENING = "gputune target server listening on "


class EmbeddedServer:
    """Run a target server on a free port of this machine.

    It stops when the pipe to its standard input closes: when `stop` is called, or when this process ends in
    any way. It has a session of its own, so that Ctrl-C reaches this process only. Any program on this machine can
    reach the port, so it has a token that only this process knows.

    host, port, token: how to reach it; explanation: what it said about its device.
    """

    def __init__(
        self,
        device: str | None,
        options: Sequence[str],
        token: str | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.token = token or secrets.token_hex(32)
        self._variables = {**variables, TOKEN_VARIABLE: self.token}
        self._command = [sys.executable, "-m", "gputune.server", "--port", "0", "--exit_with_parent"]
        if device is not None:
            self._command += ["--device", device]
        self._command += options
        self._behind_agent = (device or "").startswith(AGENT_PREFIX)
        self._launch()

    @classmethod
    def start(
        cls,
        device: str | None = None,
        options: Sequence[str] = (),
        token: str | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> EmbeddedServer:
        """Start a server and wait until it listens.

        options: more of them; token: else a new one; variables: beside this process's own.
        Raises TargetError (server_not_started, no_device, no_agent, no_agent_device)."""
        return cls(device, options, token, variables)

    def _launch(self) -> None:
        try:
            errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
            try:
                self._process = self._popen(errors)
            except BaseException:
                errors.close()
                raise
        except OSError as error:
            raise _not_started(str(error)) from None
        self._errors = errors
        try:
            self.host, self.port, self.explanation = _wait(self._process)
        except BaseException as error:
            _stop(self._process)
            code = self._process.returncode
            with self._errors:
                if not isinstance(error, EOFError):
                    raise
                reason = _tail(self._errors, 1).removeprefix("error: ") or f"it ended with exit code {code}"
            if code == DeviceOrContextError.exit_code:
                name = "no_agent_device" if NO_DEVICE_THERE in reason else "no_agent"
                raise TargetError(name if self._behind_agent else "no_device", reason) from None
            raise _not_started(reason) from None

    def _popen(self, errors: IO[bytes]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **self._variables},
            text=True,
            start_new_session=True,
        )

    def revive(self) -> tuple[str, int]:
        """Start the server again, with the same token, after ending what is left of it. Returns its new host and port.

        Raises TargetError (server_not_started, no_device, no_agent, no_agent_device)."""
        self.kill()
        self.stop()
        self._launch()
        return self.host, self.port

    def last_words(self) -> str:
        """Return how the server ended and the last lines that it wrote; nothing while it runs."""
        try:
            code = self._process.wait(DYING_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        said = "" if self._errors.closed else _tail(self._errors, LAST_LINES)
        return f"the embedded server ended with {how}" + (f": {said}" if said else "")

    def kill(self) -> None:
        """End the server at once, from any thread; `stop` is called all the same."""
        self._process.kill()

    def stop(self) -> None:
        """Stop the server and wait for its end. May be called twice."""
        _stop(self._process)
        self._errors.close()


def _wait(process: subprocess.Popen[str]) -> tuple[str, int, tuple[str, ...]]:
    """Return host and port once it listens, and what it said before. Raises EOFError when it ends first."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        if line.startswith(_LISTENING):
            host, _, port = line.removeprefix(_LISTENING).split()[0].rpartition(":")
            return host.strip("[]"), int(port), tuple(lines)
        lines.append(line.strip())
    raise EOFError


def _not_started(reason: str) -> TargetError:
    return TargetError("server_not_started", f"the embedded server did not start: {reason}")


def _tail(file: IO[bytes], count: int) -> str:
    """Return the last lines of what an ended process wrote, in one."""
    file.seek(0)
    return " | ".join(file.read().decode(errors="replace").strip().splitlines()[-count:])


def _stop(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    steps: tuple[Callable[[], None], ...] = (
        process.stdin.close,
        lambda: process.send_signal(signal.SIGTERM),
        process.kill,
    )
    for step in steps:
        with suppress(BrokenPipeError):
            step()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            break
    process.stdout.close()
