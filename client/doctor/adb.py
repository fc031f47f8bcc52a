"""Check the adb program, the devices that it sees, and which way is open on the device that a command would use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gputune.client.advice import advice_for
from gputune.client.doctor.findings import Finding
from gputune.client.errors import TargetError

if TYPE_CHECKING:
    from gputune.client.target.adb.device import AdbDevice


def check_adb(serial: str | None, python: str | None, agent: Path | None = None) -> list[Finding]:
    """Return the findings about `--adb`; serial, python and agent are the values of --adb, --adb_python and
    --adb_agent. Nothing is put on the device."""
    try:
        from gputune.client.target.adb import device as adb_device  # a missing package is a finding
    except ImportError as error:
        return [Finding("adb", "problem", f"adb cannot be used: {error}", "install gputune again with pip")]
    found: list[Finding] = []
    try:
        for seen in adb_device.devices():
            line = f"adb sees {seen.serial}, its state is {seen.state!r}"
            found.append(Finding("adb", "ok" if seen.usable else "note", line))
        device = adb_device.find(serial)
        if python is None:
            found.append(_check_agent(device, agent))
        if agent is None:
            found.append(_check_python(device, python, found[-1].status == "ok" and python is None))
    except TargetError as error:
        found.append(Finding("adb", "problem", f"{error}", advice_for(error.name)))
    return found


def _check_agent(device: AdbDevice, wanted: Path | None) -> Finding:
    """Find out whether a command would use an agent. Raises TargetError."""
    from gputune.client.target.adb.agent import Agent, find_agent

    found = find_agent(device) if wanted is None else Agent.read(wanted)
    if isinstance(found, Agent):
        whose = "was built for its processor" if wanted is None else "is named by --adb_agent"
        return Finding("adb", "ok", f"a command with --adb uses the agent {found.path} on {device.serial}: it {whose}")
    return Finding("adb", "note", f"{device.serial} has no agent: {found.why}", found.advice)


def _check_python(device: AdbDevice, wanted: str | None, spare: bool) -> Finding:
    """Find out whether a Python of the device can run the server; spare: an agent is used. Raises TargetError."""
    from gputune.client.target.adb.python import choose_python

    try:
        chosen = choose_python(device, wanted)
    except TargetError as error:
        if not spare or error.name != "adb_python":
            raise
        return Finding("adb", "note", f"{device.serial} has only the agent: {error.reason}")
    if chosen is None:
        line = f"the shell of {device.serial} may start no Python"
        return Finding("adb", "note", line, "run a command with --adb: it says what to type in Termux")
    only = ", if --adb_python asks for it" if spare else ""
    return Finding("adb", "ok", f"{chosen} of {device.serial} can run the target server{only}")
