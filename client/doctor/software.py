"""Check Python and the packages that gputune needs."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib import metadata

from gputune.client.doctor.findings import Finding

INSTALL = "install gputune again with pip, into the environment of this Python"


def check_software() -> list[Finding]:
    """Return this Python and the packages that gputune names as needed."""
    found = [Finding("software", "ok", f"Python {platform.python_version()} at {sys.executable}")]
    try:
        named = metadata.requires("gputune") or []
        found.append(Finding("software", "ok", f"gputune {metadata.version('gputune')}"))
    except metadata.PackageNotFoundError:
        named = []
        found.append(Finding("software", "note", "gputune runs from a folder, not from an installed package"))
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in named if "extra ==" not in line]
    versions = {name: _version(name) for name in sorted(names)}
    if there := [f"{name} {version}" for name, version in versions.items() if version]:
        found.append(Finding("software", "ok", ", ".join(there)))
    for name in (name for name, version in versions.items() if not version):
        found.append(Finding("software", "problem", f"the package {name} is not installed", INSTALL))
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def failure_of(command: list[str], seconds: float) -> str:
    """Why a command does not end well within this time, in one line; empty when it does."""
    return answer_of(command, seconds)[1]


def answer_of(command: list[str], seconds: float) -> tuple[str, str]:
    """Return what a command prints, and why it does not end well within this time; the one or the other is empty."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "", f"no answer for {seconds:g} s"
    except OSError as error:
        return "", f"{command[0]} cannot be started: {error.strerror or error}"
    if done.returncode == 0:
        return done.stdout.decode(errors="replace").strip(), ""
    ending = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return "", said[-1][:300] if said else ending
