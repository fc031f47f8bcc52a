"""Prove features of devices: each is there if a small kernel that uses it computes the right numbers.

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

from gputune.core.dtypes import HALF_EXTENSION
from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import json_value
from gputune.runtime.devices.discovery import PROBE_SECONDS, DeviceReport, run_probe

FEATURES_MARK = "gputune-feature "
FEATURES_OPTION = "--features"


@dataclass(frozen=True)
class Probe:
    """A kernel "probe" for a work-group of devices of a type, or of all, with an extension. It changes `given` to
    `wanted`, a number in each work-item."""

    source: str
    given: tuple[int, ...]
    wanted: tuple[int, ...]
    device_type: str = ""
    extension: str = ""
    options: str = ""
    items: int = 1

    def unsuited(self, device: DeviceIdentity) -> str:
        """Return why the feature cannot be there; empty if it may be."""
        if self.device_type not in ("", device.device_type):
            return f"the device is no {self.device_type.upper()}"
        offered = not self.extension or self.extension in device.extensions
        return "" if offered else f"the driver does not offer {self.extension}"

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

HALF_ARITHMETIC = f"""
#pragma OPENCL EXTENSION {HALF_EXTENSION} : enable
__kernel void probe(__global int *numbers)
{{
    const half4 given = convert_half4(vload4(0, numbers));
    vstore4(convert_int4(fma(given, given + (half)0.5f, (half4)(-2.0f)) * (half)2.0f), 0, numbers);
}}
"""

SUBGROUPS = """
__kernel void probe(__global int *numbers)
{
    const int i = get_global_id(0), given = numbers[i];
    const bool sums = sub_group_reduce_add(given) == given * (int)get_sub_group_size();
    const bool scans = sub_group_scan_inclusive_add(given) == given * (int)(get_sub_group_local_id() + 1);
    numbers[i] = sums && scans ? i : -1;
}
"""

PROBES: Mapping[str, Probe] = {
    "half": Probe(HALF_ARITHMETIC, given=(1, -2, 5, 20), wanted=(-1, 2, 51, 816), extension=HALF_EXTENSION),
    "subgroups": Probe(
        SUBGROUPS,
        given=(3,) * 16,
        wanted=tuple(range(16)),
        options="-cl-std=CL3.0",
        items=16,
    ),
    "x86.vpdpbusd": Probe(VPDPBUSD, given=(1, -2, 3, 1000), wanted=(-387, 24, -107, 10800), device_type="cpu"),
}
"""By feature; those of inline assembly as core/assembly.py names them. A feature without a probe works nowhere."""


def features_of(report: DeviceReport, time_limit_s: float = PROBE_SECONDS) -> dict[str, str]:
    """Return for each feature why it does not work on a usable device; empty if it does."""
    assert report.identity is not None
    found = {name: probe.unsuited(report.identity) for name, probe in PROBES.items()}
    left = [name for name, reason in found.items() if not reason]
    found = {name: reason for name, reason in found.items() if reason}
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
