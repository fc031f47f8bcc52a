"""Choose the device's Python that runs the target server, before anything is copied to the device."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputune.client.errors import TargetError
from gputune.core.json_text import json_value

if TYPE_CHECKING:  # its library takes longer to import than most commands need for their options
    from gputune.client.target.adb.device import AdbDevice

TERMUX = "termux"
"""In place of a Python: a person starts the server in the app Termux."""
TERMUX_PYTHON = "/data/data/com.termux/files/usr/bin/python3"
CANDIDATES = ("python3", TERMUX_PYTHON)
OLDEST = (3, 11)
NEEDED = ("numpy", "pyopencl")
_MARK = "gputune-python "
_PROBE = f"""
import importlib, json, sys
failed = {{}}
for name in {NEEDED!r}:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = "%s: %s" % (type(error).__name__, error)
print({_MARK!r} + json.dumps([list(sys.version_info[:2]), failed]))
"""
_CANNOT_EXECUTE, _NOT_FOUND = 126, 127


@dataclass(frozen=True)
class _Check:
    """Return what is wrong with one Python (empty: nothing), and whether that is that it cannot be started."""

    problem: str
    startable: bool = True


def choose_python(device: AdbDevice, wanted: str | None) -> str | None:
    """Return the Python to use, or None when only a person in Termux on the device can start it.

    wanted: what --adb_python says: a path, or "termux". Raises TargetError (adb_python) that says what each Python
    lacks.
    """
    if wanted == TERMUX:
        return None
    found: dict[str, _Check] = {}
    for python in (wanted,) if wanted else CANDIDATES:
        found[python] = _check(device, python)
        if not found[python].problem:
            return python
    if not wanted and not any(check.startable for check in found.values()) and _has_termux(device):
        return None
    reasons = "; ".join(f"{python}: {check.problem}" for python, check in found.items())
    raise TargetError(
        "adb_python",
        f"no Python of device {device.serial} can run the target server ({reasons}); install what is missing, or name "
        "another by --adb_python PATH, or start the server by hand in Termux with --adb_python termux (docs/adb.md)",
    )


def _check(device: AdbDevice, python: str) -> _Check:
    ran = device.run(f"{shlex.quote(python)} -c {shlex.quote(_PROBE)}")
    if ran.code == _NOT_FOUND:
        return _Check("not found", startable=False)
    if ran.code == _CANNOT_EXECUTE:
        return _Check("the shell user may not execute it", startable=False)
    answer = next((line for line in ran.output.splitlines() if line.startswith(_MARK)), None)
    try:
        version, failed = json_value((answer or "").removeprefix(_MARK))
        version = (int(version[0]), int(version[1]))
        missing = "; ".join(f"cannot import {name!s}: {reason!s}" for name, reason in failed.items())
    except (ValueError, TypeError, IndexError, AttributeError):
        return _Check(f"ended with exit code {ran.code}: {ran.last_line or 'no output'}")
    if version < OLDEST:
        return _Check(f"is Python {version[0]}.{version[1]}, and {OLDEST[0]}.{OLDEST[1]} or newer is needed")
    return _Check(missing)


def _has_termux(device: AdbDevice) -> bool:
    """Return whether Termux is installed, or its Python is there: the shell user may not look into its folder."""
    return device.run(f"pm path com.termux || test -e {TERMUX_PYTHON}").code == 0
