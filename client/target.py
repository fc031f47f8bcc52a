"""Which target server to use, and a server of our own when there is none.

The rule: --target HOST:PORT, else TARGET_SERVER_SOCKET, else a gputune server that answers on this machine's
default port, else an embedded server: a child process that lives as long as we do.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO

from gputune.client.target_client import TargetClient, TargetError, address_text, probe
from gputune.server.protocol.messages import DEFAULT_PORT

VARIABLE = "TARGET_SERVER_SOCKET"
DEVICE_VARIABLE = "GPUTUNE_DEVICE"
PROBE_SECONDS = 0.3
STOP_SECONDS = 5.0
DYING_SECONDS = 0.5  # a connection breaks off a moment before its process is gone
LAST_LINES = 3
_LISTENING = re.compile(r"gputune target server listening on (\S+) \(device: (.*)\)")
_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\[\]\s]+)\]|(?P<plain>[^\[\]:\s]+)):(?P<port>[0-9]{1,5})")


def parse_address(text: str, origin: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT or [IPV6]:PORT. Raises TargetError (bad_address) that names the origin."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise TargetError(
            "bad_address",
            f"{origin}: {text!r} is not HOST:PORT with a port from 1 to 65535, for example "
            f"127.0.0.1:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}",
        )
    return match["bracketed"] or match["plain"], int(match["port"])


@dataclass
class Target:
    """A target server to connect to. Close it at the end: that stops an embedded server.

    `explanation` says in lines for people which server it is and what was passed over.
    """

    host: str
    port: int
    explanation: tuple[str, ...]
    server: EmbeddedServer | None = None

    def connect(self) -> TargetClient:
        """A new connection. Raises TargetError."""
        last_words = None if self.server is None else self.server.last_words
        return TargetClient.connect(self.host, self.port, last_words=last_words)

    def close(self) -> None:
        """Stops the embedded server, if there is one."""
        if self.server is not None:
            self.server.stop()

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def choose_target(
    option: str | None,
    environment: Mapping[str, str],
    device: str | None = None,
    default_port: int = DEFAULT_PORT,
    log_level: str | None = None,
) -> Target:
    """The target by the rule above.

    option: what --target says; environment: where TARGET_SERVER_SOCKET and GPUTUNE_DEVICE are looked up;
    device: what --device says; log_level: of a server of our own. A device can only be chosen for a server of
    our own, so a server that happens to answer on the default port is passed over. An address contradicts
    --device, and GPUTUNE_DEVICE, which may be meant for something else, does not apply to it. Raises TargetError.
    """
    by_variable = environment.get(DEVICE_VARIABLE, "").strip()
    variable = environment.get(VARIABLE, "").strip()
    for text, origin in ((option, "--target"), (variable or None, VARIABLE)):
        if text is None:
            continue
        if device is not None:
            raise TargetError(
                "contradiction",
                f"{origin} names the server {text}, which has chosen its device; drop --device or {origin}",
            )
        host, port = parse_address(text, origin)
        lines = [f"target server {address_text(host, port)} (from {origin})"]
        if by_variable:
            lines.append(f"{DEVICE_VARIABLE} does not apply: this server has chosen its device")
        return Target(host, port, tuple(lines))
    wanted, asking = (by_variable or None, DEVICE_VARIABLE) if device is None else (device, "--device")
    if wanted is not None:
        passed_over = f"a server on the default port was not looked for, because {asking} asks for a device"
    else:
        where = address_text("127.0.0.1", default_port)
        try:
            software = probe("127.0.0.1", default_port, PROBE_SECONDS)
        except TargetError as error:
            passed_over = f"no target server on {where}"
            if error.name != "unreachable":
                passed_over = f"passed over: {error.reason}"
        else:
            return Target("127.0.0.1", default_port, (f"target server {where} ({software} answers there)",))
    server = EmbeddedServer.start(wanted, log_level)
    first = f"embedded target server {address_text(server.host, server.port)}"
    return Target(server.host, server.port, (first, passed_over, *server.explanation), server)


class EmbeddedServer:
    """A target server in a child process on a free port of this machine.

    It stops when the pipe to its standard input closes: when `stop` is called, or when this process ends in
    any way. It has a session of its own, so that Ctrl-C reaches this process only.
    """

    def __init__(
        self, process: subprocess.Popen[str], errors: IO[bytes], host: str, port: int, lines: tuple[str, ...]
    ) -> None:
        self.host = host
        self.port = port
        self.explanation = lines
        self._process = process
        self._errors = errors

    @classmethod
    def start(cls, device: str | None = None, log_level: str | None = None) -> EmbeddedServer:
        """Starts a server and waits until it listens. Raises TargetError (server_not_started)."""
        command = [sys.executable, "-m", "gputune.server", "--port", "0", "--exit_with_parent"]
        if device is not None:
            command += ["--device", device]
        if log_level is not None:
            command += ["--log_level", log_level]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            return cls._wait(process, errors)
        except BaseException as error:
            _stop(process)
            with errors:
                if not isinstance(error, EOFError):
                    raise
                reason = _tail(errors, 1) or f"it ended with exit code {process.returncode}"
            raise TargetError("server_not_started", f"the embedded server did not start: {reason}") from None

    @classmethod
    def _wait(cls, process: subprocess.Popen[str], errors: IO[bytes]) -> EmbeddedServer:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            if match := _LISTENING.fullmatch(line.strip()):
                host, port = parse_address(match[1], "the embedded server")
                return cls(process, errors, host, port, tuple(lines))
            lines.append(line.strip())
        raise EOFError

    def last_words(self) -> str:
        """How the server ended and the last lines that it wrote; nothing while it runs."""
        try:
            code = self._process.wait(DYING_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        said = "" if self._errors.closed else _tail(self._errors, LAST_LINES)
        return f"the embedded server ended with {how}" + (f": {said}" if said else "")

    def stop(self) -> None:
        """Stops the server and waits for its end. May be called twice."""
        _stop(self._process)
        self._errors.close()


def _tail(file: IO[bytes], count: int) -> str:
    """The last lines of what an ended process wrote, in one."""
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
        step()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            break
    process.stdout.close()
