"""Decide which checks matter for a question, and how much each finding weighs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gputune.client.doctor.adb import check_adb
from gputune.client.doctor.contexts import check_contexts
from gputune.client.doctor.drivers import check_drivers
from gputune.client.doctor.findings import Finding, softened
from gputune.client.doctor.onnxruntime import check_onnxruntime
from gputune.client.doctor.power import check_power
from gputune.client.doctor.settings import check_settings
from gputune.client.doctor.software import check_software
from gputune.client.doctor.target import check_target
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import DEVICE_VARIABLE, VARIABLE
from gputune.runtime.devices.discovery import discover
from gputune.server.protocol.messages import DEFAULT_PORT


@dataclass(frozen=True)
class Question:
    """target: what --target says. adb: whether a device over adb is asked for; serial, python and agent: what --adb,
    --adb_python and --adb_agent name. connect: to an address, with the token and certificates of the command line."""

    target: str | None
    adb: bool
    serial: str | None
    python: str | None
    connect: Callable[[str], TargetClient]
    agent: Path | None = None


def diagnose(question: Question, environment: Mapping[str, str]) -> list[Finding]:
    """Return all findings. This machine's runtime and drivers stop nothing where a target or a phone is asked for."""
    address, origin = question.target, "--target"
    if address is None and not question.adb and environment.get(VARIABLE, "").strip():
        address, origin = environment[VARIABLE].strip(), VARIABLE
    wanted = environment.get(DEVICE_VARIABLE) or None
    here = [check_contexts(), *check_drivers(discover(), wanted)]
    found = [*check_software(), *check_settings(environment)]
    if question.adb:
        return [*found, *softened(here), *check_adb(question.serial, question.python, question.agent)]
    if address is not None:
        asked = address
        return [*found, *softened(here), *check_target(asked, origin, lambda: question.connect(asked))]
    return [*found, *here, check_onnxruntime(), *check_power(), *_default_port(question)]


def _default_port(question: Question) -> list[Finding]:
    """Return what is found of a server of this machine: it is used when there is one; that there is none is only a
    note."""
    address = f"127.0.0.1:{DEFAULT_PORT}"
    found = check_target(address, "the default", lambda: question.connect(address))
    if found[-1].status == "problem":
        line = f"no target server is used: {found[-1].line}; a generation starts one of its own"
        return [Finding("target", "note", line)]
    return found
