"""Connect to a lost target again, until it answers, refuses for good, or the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gputune.client.errors import TargetError
from gputune.client.target.transport.asking import Asking
from gputune.core.identity import DeviceIdentity

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
MEMORY = ("global_memory_bytes", "max_allocation_bytes")
"""What a device says of the memory that it has left to give: another answer makes it no other device."""

RECONNECT_SECONDS = 300.0
WAITING_DOES_NOT_HELP = (
    "version_mismatch",
    "token_required",
    "token_unused",
    "authentication_failed",
    "wrong_user",
    "tls_failed",
    "device_changed",
)
"""Errors of a server that is there and will not say anything else later."""
_ANOTHER_SERVER = ("token_required", "token_unused", "authentication_failed")
"""Of these, the ones that also come from another server, which has taken the port of one of our own."""


@dataclass(frozen=True)
class Reconnecting:
    """Wait for a lost target.

    dial: makes a connection and shakes hands; revive: starts the server again where that is in our hands; notice:
    hears a line when the wait begins and when it is over; seconds: how long is waited.
    """

    dial: Callable[[], Asking]
    revive: Callable[[], None] | None = None
    notice: Callable[[str], None] | None = None
    seconds: float = RECONNECT_SECONDS

    def again(self, why: str, before: Asking) -> Asking:
        """Return a connection in place of one that was lost. Raises TargetError: what waiting does not help against,
        device_changed, and connection_lost when the time is up."""
        began = time.monotonic()
        self._say(f"{why}; connecting again for up to {self.seconds:g} s")
        pause = FIRST_PAUSE_SECONDS
        ours, not_revived = self.revive is None, ""
        while True:
            try:
                connection = self.dial()
                break
            except TargetError as error:
                if ours or error.name not in _ANOTHER_SERVER:
                    _passing(error)
                last = error.reason
            if time.monotonic() - began + pause > self.seconds:
                raise TargetError(
                    "connection_lost", f"{why}, and not back after {self.seconds:g} s: {last}{not_revived}"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            if self.revive is not None:
                try:
                    self.revive()
                except TargetError as error:
                    not_revived = f"; it could not be started again: {_passing(error).reason}"
                else:
                    ours, not_revived = True, ""
        if changed := _difference(connection, before):
            connection.close()
            raise TargetError(
                "device_changed",
                f"target {connection.address} came back with {changed}, so earlier measurements do not apply to it; "
                "run the same command again to start with the target as it is now",
            )
        self._say(f"target {connection.address} is back after {time.monotonic() - began:.1f} s")
        return connection

    def _say(self, line: str) -> None:
        if self.notice is not None:
            self.notice(line)


def _passing(error: TargetError) -> TargetError:
    if error.name in WAITING_DOES_NOT_HELP:
        raise error
    return error


def _difference(now: Asking, before: Asking) -> str:
    """Return what is not as it was of what measurements depend on: the device, less how much memory it has left to
    give, and the settings that change a driver's code or its time."""
    mine, theirs = (DeviceIdentity.from_dict(connection.device).to_dict() for connection in (now, before))
    mine["settings"], theirs["settings"] = now.server.get("settings"), before.server.get("settings")
    names = [name for name in mine if name not in MEMORY]
    return "; ".join(f"{name} {mine[name]!r}, not {theirs[name]!r}" for name in names if mine[name] != theirs[name])
