"""Put a target server on a device over adb, start it, reach it, and stop it at the end.

    with_phone = AdbTarget.start(None, None, None)
    ... with_phone.host, with_phone.port, with_phone.token ...
    with_phone.stop()

All files on the device are in FOLDER. Every app of the device can reach its loopback ports, so the server always gets
its own token. The token is sent as a file that only the shell user can read, and never on a command line.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gputune.client.errors import TargetError
from gputune.client.target.adb.bundle import bundle_bytes
from gputune.client.target.adb.device import SHELL_SECONDS, AdbDevice, find, reconnect
from gputune.client.target.adb.process import START_SECONDS, STOP_SECONDS, HeldServer
from gputune.client.target.adb.python import choose_python
from gputune.client.target.transport.connection import dial
from gputune.client.target.transport.credentials import Credentials
from gputune.server.protocol.messages import DEFAULT_PORT

log = logging.getLogger(__name__)

FOLDER = "/data/local/tmp/gputune"
PRIVATE = f"{FOLDER}/private"  # tokens and temporary files, closed to everyone but the shell user
HELLO_SECONDS = 10.0
TYPING_SECONDS = 600.0
REVIVE_SECONDS = 300.0
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"  # no letter that looks like another one or like a digit
_TYPED_LENGTH = 20  # 99 bits
_DAYS_KEPT = 30
_LEAST_SECONDS = 1.0  # for a step that has begun before the time is up
_NO_SERVER = ("unreachable", "not_a_target_server", "connection_lost")
_WAITING_HELPS = ("adb_no_device", "adb_offline", "adb_not_ready", "adb_failed", *_NO_SERVER)
"""Errors of a device that is away or is coming back; a forwarded port that leads nowhere answers like none of ours."""


class AdbTarget:
    """A target server on a device, and the way to it: `host` and `port` on this machine, `token` for it.

    `explanation` says in lines for people which device it is and what its server said.
    """

    def __init__(
        self,
        device: AdbDevice,
        python: str | None,
        bundle: bytes,
        options: Sequence[str],
        token: str | None,
    ) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._known_token = python is None and token is not None
        self.token = secrets.token_hex(32) if python is not None else token or _token_to_type()
        self.explanation: tuple[str, ...] = ()
        self._device = device
        self._python = python
        self._bundle = bundle
        self._options = tuple(options)
        self._server: HeldServer | None = None
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
    ) -> AdbTarget:
        """Finds the device, checks its Python, puts the bundle there, starts the server and waits for its hello.

        serial: which device, if there are several; python: the device's Python, "termux" for one that a person starts,
        None to look for one; bundle: a file to use in place of what is installed here; options: more options of the
        target server; token: of the server that a person starts, or has started before. Raises TargetError.
        """
        device = find(serial)
        content = bundle_bytes() if bundle is None else _read(bundle)
        target = cls(device, choose_python(device, python), content, options, token)
        try:
            target._connect()
        except BaseException:
            target.stop()
            raise
        return target

    def revive(self) -> tuple[str, int]:
        """After a lost cable or a restart of the device: waits for it, starts the server again; (host, port).

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
        """What an ended server wrote last; nothing while it runs."""
        return "" if self._server is None else self._server.last_words()

    def stop(self) -> None:
        """Stops the server and takes the forwarded port back, if the device is still there. May be called twice."""
        if self._server is not None:
            if not self._server.stop():
                serial = self._device.serial
                log.warning(
                    f"the target server on device {serial} has not ended within {STOP_SECONDS:.0f} s; look for it by "
                    f"`adb -s {serial} shell ps -A`"
                )
            self._server = None
        if self.port:
            self._left_over.add(self.port)
            self._take_back(self.port)
            self.port = 0

    def _connect(self) -> None:
        path = self._install()
        if self._python is None:
            self._meet_typed(path)
            lines: tuple[str, ...] = ("its server was started by hand and is left running",)
        else:
            self._server = self._launch(self._python, path)
            self.port = self._device.forward(self._server.port)
            self._greet()
            lines = self._server.lines
        for port in self._left_over - {self.port}:
            self._take_back(port)
        where = f"target server on device {self._device.serial}, forwarded by adb to {self.host}:{self.port}"
        self.explanation = (where, *lines)

    def _take_back(self, port: int) -> None:
        """A forwarded port; once more after the next connection when the device does not answer now."""
        with suppress(TargetError):
            self._device.unforward(port)
            self._left_over.discard(port)

    def _left(self, seconds: float) -> float:
        """So many seconds, or fewer where a revival has no more of them."""
        return max(_LEAST_SECONDS, min(seconds, self._deadline - time.monotonic()))

    def _install(self) -> str:
        """Where the bundle lies on the device; it is copied only when it is not there as it is here."""
        digest = hashlib.sha256(self._bundle).hexdigest()
        # Named by content: another version may be running from its own file.
        path = f"{FOLDER}/server-{digest[:8]}.pyz"
        old = f"-mtime +{_DAYS_KEPT} -exec rm -rf {{}} +"
        self._must(
            f"mkdir -p {PRIVATE} && chmod 755 {FOLDER} && chmod 700 {PRIVATE} && touch -c {path} && "
            f"find {FOLDER} -mindepth 1 -maxdepth 1 -type f {old} && find {PRIVATE} -mindepth 1 -maxdepth 1 {old}"
        )
        if self._digest(path) != digest:
            size = f"{len(self._bundle) // 1000} kB"
            log.info(f"copying the target server to device {self._device.serial} ({size})")
            part = f"{path}.{secrets.token_hex(4)}"
            self._device.push(self._bundle, part, 0o644)
            if self._digest(part) != digest:
                self._must(f"rm -f {part}")
                raise TargetError("adb_failed", f"device {self._device.serial}: {part} did not arrive as it was sent")
            self._must(f"chmod 644 {part} && mv -f {part} {path}")
        return path

    def _launch(self, python: str, bundle: str) -> HeldServer:
        token = f"{PRIVATE}/token-{secrets.token_hex(8)}"
        arguments = [python, bundle, "--port", "0", "--exit_with_parent", "--token_file", token, *self._options]
        try:
            self._device.push(self.token.encode(), token, 0o600)
            self._must(f"chmod 600 {token}")
            # Android has no /tmp, and the shell's own folder cannot be written.
            command = f"env TMPDIR={PRIVATE} {shlex.join(arguments)}"
            return HeldServer(self._device, command, self._left(START_SECONDS))
        finally:
            with suppress(TargetError):  # the server has read it; a device that is gone loses it with the old ones
                self._device.run(f"rm -f {token}", self._left(SHELL_SECONDS))

    def _meet_typed(self, bundle: str) -> None:
        """Asks a person to start the server in Termux, and waits until it says hello."""
        self.port = self._device.forward(DEFAULT_PORT)
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
        """Where a lost cable has taken the port with it: there is time to plug it in before the command is typed."""
        try:
            if self.port not in self._device.forwards():
                self.port = self._device.forward(DEFAULT_PORT)
        except TargetError:
            reconnect(self._device.serial)

    def _greet(self) -> None:
        """Shakes hands with the server, so that no time is spent on one that is not ours. Raises TargetError."""
        dial(self.host, self.port, self._left(HELLO_SECONDS), Credentials(self.token)).close()

    def _answers(self) -> bool:
        """Whether our server is there. Raises TargetError (adb_port_taken) when it is another one."""
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

    def _digest(self, path: str) -> str:
        """SHA-256 of a file on the device; something else when it is not there."""
        return self._device.run(f"sha256sum {path}", self._left(SHELL_SECONDS)).output.partition(" ")[0]

    def _must(self, command: str) -> None:
        ran = self._device.run(command, self._left(SHELL_SECONDS))
        if ran.code:
            reason = ran.last_line or f"exit code {ran.code}"
            raise TargetError("adb_failed", f"device {self._device.serial}: `{command}` failed: {reason}")


def _token_to_type() -> str:
    return "".join(secrets.choice(_LEGIBLE) for _ in range(_TYPED_LENGTH))


def _read(bundle: Path) -> bytes:
    try:
        return bundle.read_bytes()
    except OSError as error:
        raise TargetError("adb_failed", f"bundle {bundle} cannot be read: {error.strerror or error}") from None
