"""Control one device over adb: its shell, files and ports, with gputune's errors. Only this module uses adbutils.

It uses this machine's adb server, as every adb command does (ANDROID_ADB_SERVER_PORT), and starts it if it does not
run.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import adbutils

from gputune.client.errors import TargetError

START_SECONDS = 30.0
SHELL_SECONDS = 120.0
_ADVICE = {
    "unauthorized": "unlock it and allow USB debugging from this computer",
    "authorizing": "unlock it and allow USB debugging from this computer",
    "offline": "unplug its cable and plug it in again, or run `adb reconnect offline`",
    "connecting": "try again in a moment",
    "no": "this user may not open it: install a udev rule for it (Debian: android-sdk-platform-tools-common) "
    "and plug it in again",
}
_OTHER_ADVICE = "start Android on it"


@dataclass(frozen=True)
class Seen:
    """Name a device that adb lists, with adb's word for its state."""

    serial: str
    state: str

    @property
    def usable(self) -> bool:
        return self.state == "device"

    @property
    def problem(self) -> str:
        """Return why it cannot be used, and what to do; empty when it can."""
        if self.usable:
            return ""
        state = "closed to this user" if self.state == "no" else self.state
        return f"device {self.serial} is {state}: {_ADVICE.get(self.state, _OTHER_ADVICE)}"


@dataclass(frozen=True)
class Ran:
    """Tell how a command on the device ended, and what it wrote to both of its outputs."""

    code: int
    output: str

    @property
    def last_line(self) -> str:
        return next(reversed(self.output.strip().splitlines()), "").strip()


def devices() -> list[Seen]:
    """Return what adb lists. Starts the adb server when none runs. Raises TargetError (adb_missing, adb_failed)."""
    _start_server()
    with _named("listing devices"):
        return [Seen(info.serial, info.state) for info in adbutils.AdbClient().list()]


def find(serial: str | None) -> AdbDevice:
    """Return the device with that serial, else ANDROID_SERIAL's, else the only one that can be used.

    Raises TargetError: adb_no_device, adb_several_devices, adb_unauthorized, adb_offline, adb_not_ready.
    """
    origin = "--adb" if serial else "ANDROID_SERIAL"
    wanted = serial or os.environ.get("ANDROID_SERIAL")
    seen = devices()
    if wanted:
        named = [one for one in seen if one.serial == wanted]
        if not named:
            others = ", ".join(one.serial for one in seen) or "nothing"
            raise TargetError("adb_no_device", f"{origin}: adb lists no device {wanted}, but {others}")
        return _usable(named[0])
    usable = [one for one in seen if one.usable]
    if len(usable) > 1:
        names = ", ".join(one.serial for one in usable)
        raise TargetError("adb_several_devices", f"adb lists several devices: {names}")
    if not seen:
        raise TargetError(
            "adb_no_device",
            "adb lists no device",
        )
    return _usable((usable or seen)[0])


def reconnect(serial: str) -> None:
    """Ask the adb server to connect to a device on the network again; those on USB come back by themselves."""
    if ":" in serial:
        with suppress(adbutils.AdbError, OSError):
            client = adbutils.AdbClient()
            client.disconnect(serial)
            client.connect(serial, timeout=START_SECONDS)


class Stream:
    """Follow a command that runs on the device until it ends or the stream is closed."""

    def __init__(self, connection: adbutils.AdbConnection) -> None:
        self._connection = connection

    def lines(self) -> Iterator[str]:
        """Yield what the command writes to both of its outputs, line by line, until its end."""
        rest = b""
        with suppress(adbutils.AdbError, OSError):
            while data := self._connection.recv(4096):
                *whole, rest = (rest + data).split(b"\n")
                yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
        if rest:
            yield rest.decode(errors="replace").rstrip("\r")

    def send_line(self) -> None:
        """Send an empty line to the command's standard input."""
        with suppress(adbutils.AdbError, OSError):
            self._connection.send(b"\n")

    def close(self) -> None:
        """Give the command up: its standard input ends. May be called twice."""
        self._connection.close()


class AdbDevice:
    """Use a device that adb lists as usable. Every method raises TargetError (adb_failed)."""

    def __init__(self, serial: str) -> None:
        self.serial = serial
        self._device = adbutils.AdbClient().device(serial)

    def run(self, command: str, seconds: float = SHELL_SECONDS) -> Ran:
        """Run a command in the device's shell and wait for its end."""
        with _named("its shell", self.serial):
            done = self._device.shell2(command, timeout=seconds, encoding="utf-8")
            return Ran(done.returncode, done.output)

    def hold(self, command: str) -> Stream:
        """Start a command in the device's shell and leave it running."""
        with _named("its shell", self.serial):
            connection = self._device.open_shell(command)
            connection.conn.settimeout(None)
            return Stream(connection)

    def push(self, data: bytes, path: str, mode: int) -> None:
        """Write a file. Android gives group and others the owner's rights, whatever the mode says."""
        with _named(f"writing {path}", self.serial):
            self._device.sync.push(data, path, mode)

    def forward(self, port: int) -> int:
        """Return a free port of this machine's loopback that leads to a port of the device's."""
        with _named(f"forwarding port {port}", self.serial):
            connection = self._device.open_transport(f"forward:tcp:0;tcp:{port}")
            try:
                connection.check_okay()
                return int(connection.read_string_block())
            finally:
                connection.close()

    def forwards(self) -> list[int]:
        """Return the ports of this machine that lead to the device."""
        with _named("listing its forwarded ports", self.serial):
            mine = [item.local for item in self._device.forward_list() if item.serial == self.serial]
            return [int(local.removeprefix("tcp:")) for local in mine if local.startswith("tcp:")]

    def unforward(self, local: int) -> None:
        """Take a forwarded port back, if it is still there."""
        if local in self.forwards():
            with _named(f"taking port {local} back", self.serial):
                self._device.forward_remove(f"tcp:{local}")


def _usable(seen: Seen) -> AdbDevice:
    if seen.usable:
        return AdbDevice(seen.serial)
    name = {"unauthorized": "adb_unauthorized", "offline": "adb_offline"}
    raise TargetError(name.get(seen.state, "adb_not_ready"), seen.problem)


def _start_server() -> None:
    """Start the adb server; nothing happens when it runs. adbutils would do so too, but print what adb says."""
    try:
        command = [adbutils.adb_path(), "start-server"]
    except adbutils.AdbError:
        raise TargetError("adb_missing", "adb is not installed, or not on PATH") from None
    with tempfile.TemporaryFile() as said:  # not a pipe, which the server would hold open
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=START_SECONDS, check=False
            )
            reason = f"exit code {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = str(error)
        if reason:
            said.seek(0)
            words = " ".join(said.read().decode(errors="replace").split())[-300:]
            raise TargetError("adb_failed", f"`{' '.join(command)}` did not work: {words or reason}")


@contextmanager
def _named(what: str, serial: str = "") -> Iterator[None]:
    """Raise whatever adbutils raises as a TargetError that says what was tried."""
    try:
        yield
    except (adbutils.AdbError, OSError, EOFError, ValueError) as error:
        where = f"device {serial}" if serial else "adb"
        reason = " ".join(" ".join(map(str, error.args)).split())[:300] or type(error).__name__
        raise TargetError("adb_failed", f"{where}: {what} failed: {reason}") from None
