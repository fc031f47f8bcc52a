"""Prove features of devices: each is there if a small kernel that uses it computes the right numbers.

A child process for each feature (runtime/backends/probe.py) runs its kernel, because an instruction that a processor
lacks ends the process. Once the child has opened the device, the kernel has FEATURE_SECONDS. So only the first process
that needs a feature waits for its proof: proofs.py keeps the answer.

An answer is kept if the device would give it again: the numbers that it computes, what its compiler refuses, and a
crash. Everything else may come from a busy machine, such as a kernel that was late or a device without memory. It holds
for this process only: a hang then costs some seconds each time, but a device that was busy once does not lose its
fastest kernels for ever.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gputune.core.dtypes import HALF_EXTENSION
from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import json_value
from gputune.runtime.devices.discovery import PROBE_SECONDS, REPLAY, DeviceReport, run_probe
from gputune.runtime.devices.proofs import LONGEST_REASON, Answer, Proofs
from gputune.runtime.devices.recording import BadRecording, read_all

FEATURES_MARK = "gputune-feature "
FEATURES_OPTION = "--features"
FEATURE_SECONDS = 3.0
CRASHES = frozenset(["SIGILL", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGABRT", "SIGTRAP"])
"""The signals by which a processor or a driver ends a process. Others come from a timer or another program."""


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

    @property
    def digest(self) -> str:
        """Return what stands for the test: an answer to another one says nothing."""
        return sha256(repr(self).encode()).hexdigest()

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


class _Proof(NamedTuple):
    """Say why a feature is not there, or nothing; lasts: whether the device would say so again."""

    reason: str
    lasts: bool


def features_of(report: DeviceReport, names: Iterable[str] | None = None, fresh: bool = False) -> dict[str, str]:
    """Return for each feature why it does not work on a usable device; empty if it does. names: all that have a probe
    if it is None. fresh: the device is asked again, whatever was kept of it."""
    assert report.identity is not None
    wanted = list(PROBES if names is None else names)
    if report.simulated:
        return _simulated(report, wanted)
    proofs = Proofs(report.identity)
    kept = {} if fresh else proofs.read()
    found, new = {}, {}
    for name in wanted:
        probe = PROBES.get(name)
        reason = "this gputune has no test for it" if probe is None else probe.unsuited(report.identity)
        if probe is not None and not reason:
            known = kept.get(name)
            if known is not None and known.probe == probe.digest:
                reason = known.reason
            else:
                reason, lasts = _proof(report, name)
                if lasts:
                    new[name] = Answer(probe.digest, reason)
        found[name] = reason
    if new:
        proofs.add(new)
    return found


@dataclass
class AskedOnce:
    """Prove features of a device when they are first asked for. In a process each answer stays as it is."""

    report: DeviceReport
    found: dict[str, str] = field(default_factory=dict)

    def __call__(self, names: Collection[str]) -> Mapping[str, str]:
        if missing := [name for name in names if name not in self.found]:
            self.found |= features_of(self.report, missing)
        return {name: self.found[name] for name in names}


def _simulated(report: DeviceReport, names: Iterable[str]) -> dict[str, str]:
    """Answer for a device that computes nothing: it has what its recordings say."""
    recorded: frozenset[str] = frozenset()
    if report.backend == REPLAY:
        with suppress(BadRecording):  # who opens the device is told
            recorded = frozenset(name for each in read_all(Path(report.driver_file)) for name in each.header.features)
        return {name: "" if name in recorded else "the recording does not have it" for name in names}
    return dict.fromkeys(names, "the device computes nothing")


def _proof(report: DeviceReport, name: str) -> _Proof:
    """Ask the device, in a process of its own."""
    arguments = [FEATURES_OPTION, json.dumps(report.to_dict()), name]
    probed = run_probe(arguments, report.environment(), PROBE_SECONDS)
    for line in probed.output.splitlines():
        if line.startswith(FEATURES_MARK):
            reason, lasts = json_value(line.removeprefix(FEATURES_MARK))
            return _Proof(str(reason)[:LONGEST_REASON], bool(lasts))
    if probed.signal == "SIGALRM":
        return _Proof(f"it took longer than {FEATURE_SECONDS:g} s", lasts=False)
    reason = probed.ending or "it was not answered"
    return _Proof(reason[:LONGEST_REASON], probed.signal in CRASHES)
