"""Prove features of devices: what no extension promises is there if a small kernel that uses it computes the right
numbers.

A child process (runtime/backends/probe.py) runs the kernels, because an instruction that a processor lacks ends the
process. Each feature that a child dies of costs itself; another child goes on with the rest. So only who builds a
source with inline assembly waits for the proof.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import json_value
from gputune.runtime.devices.discovery import PROBE_SECONDS, DeviceReport, run_probe

FEATURES_MARK = "gputune-feature "
FEATURES_OPTION = "--features"


@dataclass(frozen=True)
class Probe:
    """A kernel "probe" for one work-item of devices of a type, which changes `given` to `wanted`."""

    device_type: str
    source: str
    given: tuple[int, ...]
    wanted: tuple[int, ...]

    def suits(self, device: DeviceIdentity) -> bool:
        """Return whether the feature may be there at all."""
        return device.device_type == self.device_type

    def buffers(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return what the kernel is given, and what it has to make of it."""
        return np.array(self.given, np.int32), np.array(self.wanted, np.int32)


VPDPBUSD = """
__kernel void probe(__global int *sums)
{
    const uchar16 left = (uchar16)(255, 254, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 200);
    const char16 right = (char16)(-128, 127, 2, -3, 1, 1, 1, 1, -1, -2, -3, -4, 100, 0, -100, 50);
    int4 sum = vload4(0, sums);
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(as_int4(left)), "v"(as_int4(right)));
    vstore4(sum, 0, sums);
}
"""

PROBES: Mapping[str, Probe] = {
    "x86.vpdpbusd": Probe("cpu", VPDPBUSD, given=(1, -2, 3, 1000), wanted=(-387, 24, -107, 10800)),
}
"""By feature, as core/assembly.py names them. A feature of that list without a probe works nowhere."""


def features_of(report: DeviceReport, time_limit_s: float = PROBE_SECONDS) -> dict[str, str]:
    """Return for each feature that a usable device may have why it does not work there; empty if it does."""
    assert report.identity is not None
    left = [name for name, probe in PROBES.items() if probe.suits(report.identity)]
    found: dict[str, str] = {}
    while left:
        arguments = [FEATURES_OPTION, json.dumps(report.to_dict()), *left]
        output, ending = run_probe(arguments, report.environment(), time_limit_s)
        found |= _answers(output)
        found.setdefault(next((name for name in left if name not in found), left[0]), ending or "it was not answered")
        left = [name for name in left if name not in found]
    return found


def working(report: DeviceReport) -> Sequence[str]:
    """Return the names of the features that work on a device."""
    return [name for name, reason in features_of(report).items() if not reason]


def _answers(output: str) -> Iterator[tuple[str, str]]:
    for line in output.splitlines():
        if line.startswith(FEATURES_MARK):
            name, reason = json_value(line.removeprefix(FEATURES_MARK))
            yield str(name), str(reason)
