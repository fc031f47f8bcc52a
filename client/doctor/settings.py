"""Check environment variables that change what gputune does."""

from __future__ import annotations

from collections.abc import Mapping

from gputune.client.doctor.findings import Finding
from gputune.client.errors import ConfigError
from gputune.client.target.connecting import DEVICE_VARIABLE, VARIABLE
from gputune.client.target.transport.credentials import NONE, TOKEN_VARIABLE
from gputune.runtime.devices.settings import decides
from gputune.runtime.onnxruntime import LIBRARY

_MEANINGS = {
    DEVICE_VARIABLE: "the device to use when --device is not given",
    VARIABLE: "the target of a generation when --target is not given",
    LIBRARY: "the library by which onnxruntime runs contexts; none is built",
    "OCL_ICD_VENDORS": "drivers are looked for there and nowhere else",
    "OPENCL_VENDOR_PATH": "drivers are looked for there, unless OCL_ICD_VENDORS is set",
    "OCL_ICD_FILENAMES": "libraries that the Khronos loader takes for drivers",
}


def check_settings(environment: Mapping[str, str]) -> list[Finding]:
    """Return what is set, and what it means. A token's value is never shown."""
    found = []
    for name in sorted(environment):
        value = environment[name]
        if name == TOKEN_VARIABLE:
            found.append(_token(environment))
        elif name in _MEANINGS:
            found.append(Finding("settings", "note", f"{name}={value}: {_MEANINGS[name]}"))
        elif decides(name):
            line = f"{name}={value}: changes a driver; measurements are valid for this value only"
            found.append(Finding("settings", "note", line))
    if environment.get("POCL_AFFINITY") == "0":
        advice = "unset POCL_AFFINITY; gputune sets it to 1"
        found.append(
            Finding("settings", "note", "without POCL_AFFINITY=1, PoCL's times vary by a factor of two", advice)
        )
    return found or [Finding("settings", "ok", "no environment variable changes the device, the target or a driver")]


def _token(environment: Mapping[str, str]) -> Finding:
    try:
        NONE.completed(environment)
    except ConfigError as error:
        return Finding("settings", "note", f"{error}", f"change or unset {TOKEN_VARIABLE}; running servers need it")
    line = f"{TOKEN_VARIABLE} is set: the token for targets when --token_file is not given"
    return Finding("settings", "note", line)
