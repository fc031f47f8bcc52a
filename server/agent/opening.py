"""Find and open devices behind agents, and load contexts there.

A device is named by agent:ADDRESS or agent:ADDRESS#PLACE, where PLACE counts the devices of the agent. ADDRESS is
HOST:PORT, HOST, either with [IPV6], or the path of a local socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.devices.discovery import AGENT_PREFIX, Choice, DeviceReport, choose, find
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.agent.agent_connection import AgentConnection, AgentLost
from gputune.server.agent.backend import AgentBackend
from gputune.server.agent.messages import ListDevices
from gputune.server.agent.state import ConnectedState
from gputune.server.agent.votes import AgentPower
from gputune.server.options import NO_DEVICE_THERE

AWAITED_SECONDS, PAUSE_SECONDS = 30.0, 0.5
LISTING_SECONDS = 60.0
"""Drivers that are loaded for the first time take long."""


def find_device(wanted: str | None) -> Choice:
    """Return the device to use, behind an agent or of this machine. Raises DeviceNotFound."""
    if wanted is None or not wanted.startswith(AGENT_PREFIX):
        return find(wanted)
    address, _, place = wanted.removeprefix(AGENT_PREFIX).partition("#")
    connection = AgentConnection(address, answer_seconds=LISTING_SECONDS)
    try:
        devices = connection.ask(ListDevices()).devices
    except DeviceError as error:
        raise DeviceNotFound(f"{wanted}: {NO_DEVICE_THERE}: {error}") from None
    finally:
        connection.close()
    named = AGENT_PREFIX + address
    reports = [DeviceReport(index, one, named, True, "", position=index) for index, one in enumerate(devices)]
    if place and not (place.isascii() and place.isdigit() and int(place) < len(reports)):
        raise DeviceNotFound(f"{wanted}: the agent has the devices 0 to {len(reports) - 1}")
    return choose(reports, place or None)


def state_of(report: DeviceReport) -> ConnectedState | None:
    """Return what reads the state of the device's machine; None if that is this machine."""
    return ConnectedState(_address_of(report)) if report.remote else None


def power_of(report: DeviceReport) -> Callable[[PerfProfile], AgentPower] | None:
    """Return what makes votes for the device's clocks by a profile; None if this machine has the device."""
    return (lambda profile: AgentPower(profile, _address_of(report), report.position)) if report.remote else None


def answers(report: DeviceReport) -> bool:
    """Return whether the machine that has the device answers; always if that is this machine."""
    if report.remote:
        try:
            AgentConnection(_address_of(report)).close()
        except DeviceNotFound:
            return False
    return True


def open_device(report: DeviceReport, compiled: Path | None = None) -> Backend:
    """Open a device, as open_backend does. An agent that was found before and cannot be reached now is waited for: it
    may be started again. Raises DeviceNotFound, DeviceError."""
    if not report.remote or report.identity is None:
        return open_backend(report, compiled=compiled)
    until = time.monotonic() + AWAITED_SECONDS
    while True:
        try:
            return AgentBackend(report.identity, _address_of(report), report.position)
        except (DeviceNotFound, AgentLost):
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE_SECONDS)


def _address_of(report: DeviceReport) -> str:
    return report.driver_file.removeprefix(AGENT_PREFIX)
