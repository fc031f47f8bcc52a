"""Make a device over adb a target: put a program there, start it, reach it, and stop it at the end.

    with_phone = AdbTarget.start(None, None, None)
    ... with_phone.host, with_phone.port, with_phone.token ...
    with_phone.stop()

The program is a target server for the device's Python, or an agent: then the target server is an embedded one on this
machine, and ends when the agent does, so that both are started again. Every app of the device can reach its loopback
ports, so the program always gets its own token. The token is sent as a file that only the shell user can read, and
never on a command line.
"""

from __future__ import annotations

import logging
import math
import secrets
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gputune.client.errors import TargetError
from gputune.client.target.adb.agent import NAME as AGENT
from gputune.client.target.adb.agent import Agent
from gputune.client.target.adb.bundle import bundle_bytes
from gputune.client.target.adb.device import AdbDevice, find, reconnect
from gputune.client.target.adb.files import PRIVATE, DeviceFiles
from gputune.client.target.adb.process import START_SECONDS, STOP_SECONDS, HeldServer
from gputune.client.target.adb.way import Way, choose_way
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.transport.credentials import Credentials
from gputune.client.target.transport.target_connection import dial
from gputune.runtime.devices.discovery import AGENT_PREFIX, AGENT_TOKEN_VARIABLE
from gputune.server.protocol.messages import DEFAULT_PORT

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
HELLO_SECONDS = 10.0
TYPING_SECONDS = 600.0
REVIVE_SECONDS = 300.0
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"  # no letter that looks like another one or like a digit
_TYPED_LENGTH = 20  # 99 bits
_LEAST_SECONDS = 1.0  # for a step that has begun before the time is up
_NO_SERVER = ("unreachable", "not_a_target_server", "connection_lost")
_WAITING_HELPS = ("adb_no_device", "adb_offline", "adb_not_ready", "adb_failed", *_NO_SERVER)
"""Errors of a device that is away or is coming back; a forwarded port that leads nowhere answers like none of ours."""


class AdbTarget:
    """Run a target server on a device, or one here for the agent there: `host` and `port` on this machine, `token` for
    it.

    `explanation` says in lines for people which device it is, what runs there and what the server said.
    """

    def __init__(
        self,
        device: AdbDevice,
        way: Way,
        bundle: Path | None,
        options: Sequence[str],
        token: str | None,
    ) -> None:
        self.host = LOOPBACK
        self.port = 0
        typed = way.agent is None and way.python is None
        self._known_token = typed and token is not None
        self.token = (token or _token_to_type()) if typed else secrets.token_hex(32)
        self.explanation: tuple[str, ...] = ()
        self._device = device
        self._way = way
        self._bundle = b"" if way.agent is not None else bundle_bytes() if bundle is None else _read(bundle)
        self._options = tuple(options)
        self._server: HeldServer | None = None
        self._embedded: EmbeddedServer | None = None  # for an agent
        self._forwarded = 0
        self._left_over: set[int] = set()  # forwarded ports that could not be taken back
        self._deadline = math.inf  # of a revival

    @classmethod
    def start(
        cls,
        serial: str | None,
        python: str | None,
        bundle: Path | None,
        options: Sequence[str] = (),
        token: str | None = None,
        agent: Path | None = None,
    ) -> AdbTarget:
        """Find the device, choose the way, put a program there, start it and wait for the server's hello.

        serial: which device, if there are several; python: the device's Python, "termux" for one that a person starts,
        None to look for an agent and then for a Python; bundle: a file to use in place of what is installed here;
        options: more options of the target server; token: of the server that a person starts, or has started before;
        agent: the program to use on the device in place of Python. Raises TargetError.
        """
        device = find(serial)
        target = cls(device, choose_way(device, python, agent), bundle, options, token)
        try:
            target._connect()
        except BaseException:
            target.stop()
            raise
        return target

    def revive(self) -> tuple[str, int]:
        """Wait for the device after a lost cable or a restart, and start the server again; return (host, port).

        Raises TargetError when that has not worked for REVIVE_SECONDS, and at once when waiting would not help.
        """
        serial = self._device.serial
        log.info(f"waiting for device {serial}")
        self.stop()
        self._deadline = time.monotonic() + REVIVE_SECONDS
        pause = FIRST_PAUSE_SECONDS
        try:
            while True:
                try:
                    self._device = find(serial)
                    self._connect()
                    return self.host, self.port
                except TargetError as error:
                    self.stop()
                    if error.name not in _WAITING_HELPS or time.monotonic() + pause > self._deadline:
                        raise
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                reconnect(serial)
        finally:
            self._deadline = math.inf

    def last_words(self) -> str:
        """Return what an ended server wrote last; nothing while it runs."""
        words = "" if self._server is None else self._server.last_words()
        return words or ("" if self._embedded is None else self._embedded.last_words())

    def stop(self) -> None:
        """Stop the server and take the forwarded port back, if the device is still there. May be called twice."""
        if self._embedded is not None:
            self._embedded.stop()
            self._embedded = None
        if self._server is not None:
            if not self._server.stop():
                serial = self._device.serial
                log.warning(
                    f"{self._server.what} has not ended within {STOP_SECONDS:.0f} s; look for it by "
                    f"`adb -s {serial} shell ps -A`"
                )
            self._server = None
        if self._forwarded:
            self._left_over.add(self._forwarded)
            self._take_back(self._forwarded)
        self.port = self._forwarded = 0

    def _connect(self) -> None:
        agent, python = self._way.agent, self._way.python
        if agent is not None:
            lines = self._serve_by_agent(agent)
        elif python is not None:
            lines = self._serve_by_python(python)
        else:
            self._meet_typed(self._install_bundle())
            lines = ("its server was started by hand and is left running",)
        for port in self._left_over - {self._forwarded}:
            self._take_back(port)
        what = "target server" if agent is None else AGENT
        where = f"{what} on device {self._device.serial}, forwarded by adb to {LOOPBACK}:{self._forwarded}"
        self.explanation = (where, self._way.why, *lines)

    def _serve_by_agent(self, agent: Agent) -> tuple[str, ...]:
        """Start the agent there and its target server here, and return what that says."""
        path = self._files.install(agent.content, "agent", "agent-{}", 0o755)
        held = self._server = self._hold([path, "--listen", "0"], AGENT)
        self._forward(held.port)
        device = f"{AGENT_PREFIX}{LOOPBACK}:{self._forwarded}"
        variables = {AGENT_TOKEN_VARIABLE: self.token}
        try:
            server = EmbeddedServer.start(device, self._options, self.token, variables)
        except TargetError as error:
            if ended := held.last_words():
                raise TargetError("adb_failed", ended) from None
            raise TargetError(
                error.name, f"{error.reason} (the agent is {agent.path}, which has to be of this gputune)"
            ) from None
        self._embedded, self.host, self.port = server, server.host, server.port
        # Its worker would look for the agent for some time: a client hears at once that the device is lost.
        held.when_ended(server.kill)
        return (f"embedded target server {self.host}:{self.port}", *server.explanation)

    def _serve_by_python(self, python: str) -> tuple[str, ...]:
        """Start the target server there, greet it, and return what it says."""
        self._server = self._hold([python, self._install_bundle(), "--port", "0", *self._options], "target server")
        self._forward(self._server.port)
        self._greet()
        return self._server.lines

    def _forward(self, port: int) -> None:
        self.port = self._forwarded = self._device.forward(port)

    def _take_back(self, port: int) -> None:
        """Take a forwarded port back; try once more after the next connection when the device does not answer now."""
        with suppress(TargetError):
            self._device.unforward(port)
            self._left_over.discard(port)

    def _left(self, seconds: float) -> float:
        """Return so many seconds, or fewer where a revival has no more of them."""
        return max(_LEAST_SECONDS, min(seconds, self._deadline - time.monotonic()))

    @property
    def _files(self) -> DeviceFiles:
        return DeviceFiles(self._device, self._left)

    def _install_bundle(self) -> str:
        return self._files.install(self._bundle, "target server", "server-{}.pyz", 0o644)

    def _hold(self, program: Sequence[str], what: str) -> HeldServer:
        """Start a program that takes --token_file and --exit_with_parent, and wait until it listens."""
        with self._files.token(self.token) as token:
            command = shlex.join([*program, "--exit_with_parent", "--token_file", token])
            # Android has no /tmp, and the shell's own folder cannot be written.
            return HeldServer(self._device, f"env TMPDIR={PRIVATE} {command}", self._left(START_SECONDS), what)

    def _meet_typed(self, bundle: str) -> None:
        """Ask a person to start the server in Termux, and wait until it says hello."""
        self._forward(DEFAULT_PORT)
        serial = self._device.serial
        if self._answers():  # it has outlived the cable, or was started for an earlier command
            return
        command = shlex.join(["python", bundle, *self._options])
        if self._known_token:  # which is not shown, since it is not ours
            log.critical(f"type this in Termux on device {serial}, in one line, your token in place of TOKEN:")
            log.critical(f"    GPUTUNE_TOKEN=TOKEN {command}")
        else:
            log.critical(f"type this in Termux on device {serial}, in one line:")
            log.critical(f"    GPUTUNE_TOKEN={self.token} {command}")
        seconds = self._left(TYPING_SECONDS)
        deadline = time.monotonic() + seconds
        while not self._answers():
            if time.monotonic() > deadline:
                text = f"no server was started in Termux on device {serial} within {seconds / 60:.0f} minutes"
                raise TargetError("server_not_started", text)
            time.sleep(FIRST_PAUSE_SECONDS)
            self._forward_again()

    def _forward_again(self) -> None:
        """Forward the port again if a lost cable has taken it: it may be plugged in before the command is typed."""
        try:
            if self._forwarded not in self._device.forwards():
                self._forward(DEFAULT_PORT)
        except TargetError:
            reconnect(self._device.serial)

    def _greet(self) -> None:
        """Shake hands with the server, so that no time is spent on one that is not ours. Raises TargetError."""
        dial(self.host, self.port, self._left(HELLO_SECONDS), Credentials(self.token)).close()

    def _answers(self) -> bool:
        """Return whether our server is there. Raises TargetError (adb_port_taken) when it is another one."""
        try:
            self._greet()
        except TargetError as error:
            if error.name in _NO_SERVER:
                return False
            text = f"port {DEFAULT_PORT} of device {self._device.serial} belongs to another server: {error.reason}"
            raise TargetError(
                "adb_port_taken", f"{text}; stop it in Termux with Ctrl-C, or give its token by GPUTUNE_TOKEN"
            ) from None
        return True


def _token_to_type() -> str:
    return "".join(secrets.choice(_LEGIBLE) for _ in range(_TYPED_LENGTH))


def _read(bundle: Path) -> bytes:
    try:
        return bundle.read_bytes()
    except OSError as error:
        raise TargetError("adb_failed", f"bundle {bundle} cannot be read: {error.strerror or error}") from None
