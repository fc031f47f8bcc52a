"""Choose what serves a device over adb: an agent, with the target server on this machine, or Python on the device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputune.client.errors import TargetError
from gputune.client.target.adb.agent import Agent, find_agent
from gputune.client.target.adb.python import choose_python

if TYPE_CHECKING:
    from gputune.client.target.adb.device import AdbDevice


@dataclass(frozen=True)
class Way:
    """agent: the one that is started on the device; python: without an agent, the Python there, or None when only a
    person in Termux can start it; why: in words, with what the other way would take."""

    agent: Agent | None
    python: str | None
    why: str


def choose_way(device: AdbDevice, python: str | None, agent: Path | None) -> Way:
    """Return the way that the options name; else an agent that was built for the device, else its Python.

    python, agent: what --adb_python and --adb_agent say. Raises TargetError (adb_python, adb_failed).
    """
    if agent is not None:
        return Way(Agent.read(agent), None, f"it runs the agent {agent}, because --adb_agent names it")
    if python is not None:
        return Way(None, choose_python(device, python), "it runs Python, because --adb_python is given")
    found = find_agent(device)
    if isinstance(found, Agent):
        return Way(found, None, f"it runs the agent {found.path}; --adb_python PATH would use a Python there")
    try:
        chosen = choose_python(device, None)
    except TargetError as error:
        if error.name != "adb_python":
            raise
        raise TargetError(error.name, f"{found.why}: {found.advice}; and {error.reason}") from None
    return Way(None, chosen, f"it runs Python, because {found.why}; for an agent, {found.advice}")
