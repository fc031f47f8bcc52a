"""Check the adb program, the devices that it sees, and the Python on the device that a command would use."""

from __future__ import annotations

from gputune.client.advice import advice_for
from gputune.client.doctor.findings import Finding
from gputune.client.errors import TargetError


def check_adb(serial: str | None, python: str | None) -> list[Finding]:
    """What `--adb` finds; serial and python are what --adb and --adb_python name. Nothing is put on the device."""
    try:
        from gputune.client.target.adb import device as adb_device  # a missing package is a finding
        from gputune.client.target.adb import python as adb_python
    except ImportError as error:
        return [Finding("adb", "problem", f"adb cannot be used: {error}", "install gputune again with pip")]
    found: list[Finding] = []
    try:
        for seen in adb_device.devices():
            line = f"adb sees {seen.serial}, its state is {seen.state!r}"
            found.append(Finding("adb", "ok" if seen.usable else "note", line))
        device = adb_device.find(serial)
        chosen = adb_python.choose_python(device, python)
    except TargetError as error:
        return [*found, Finding("adb", "problem", f"{error}", advice_for(error.name))]
    if chosen is None:
        line = f"the shell of {device.serial} may start no Python"
        return [*found, Finding("adb", "note", line, "run a command with --adb: it says what to type in Termux")]
    return [*found, Finding("adb", "ok", f"{chosen} of {device.serial} can run the target server")]
