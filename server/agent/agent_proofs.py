"""Prove features of a device behind an agent, as runtime/devices/features.py does for those of this machine.

A connection of its own runs each feature's kernel, because an instruction that a processor lacks ends the agent's
process. Answers hold for this process only: what they depend on beyond the driver is on the agent's machine.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping

from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.core.identity import DeviceIdentity
from gputune.runtime.backends import Backend
from gputune.runtime.backends.probe import prove_on
from gputune.runtime.devices.features import FEATURE_SECONDS, PROBES
from gputune.server.agent.agent_connection import AgentConnection


class AgentProofs:
    """Answer which features a device has. open_again: opens the device over a connection of its own, and returns
    both."""

    def __init__(self, identity: DeviceIdentity, open_again: Callable[[], tuple[Backend, AgentConnection]]) -> None:
        self._identity = identity
        self._open_again = open_again
        self._found: dict[str, str] = {}

    def __call__(self, names: Collection[str]) -> Mapping[str, str]:
        """Return for each feature why the device does not prove it; empty if it does."""
        for name in names:
            if name not in self._found:
                probe = PROBES.get(name)
                reason = "this gputune has no test for it" if probe is None else probe.unsuited(self._identity)
                self._found[name] = reason or self._reason(name)
        return {name: self._found[name] for name in names}

    def _reason(self, name: str) -> str:
        late = threading.Event()
        try:
            backend, connection = self._open_again()
        except (DeviceError, DeviceNotFound) as error:
            return str(error)

        def give_up() -> None:
            late.set()
            connection.abort()

        timer = threading.Timer(FEATURE_SECONDS, give_up)
        timer.start()
        try:
            reason, _ = prove_on(backend, name)
        except DeviceError as error:  # the answer could not be read
            reason = str(error)
        finally:
            timer.cancel()
            connection.abort()
        if late.is_set():
            return f"it took longer than {FEATURE_SECONDS:g} s"
        return (reason and _ended(connection)) or reason


def _ended(connection: AgentConnection) -> str:
    """Return how the process of a connection ended, if that was not in order."""
    with contextlib.suppress(DeviceNotFound):
        ended = connection.ending()
        return ended and f"its process there ended: {ended}"
    return ""
