"""Probe the one driver that this process sees: python -m gputune.runtime.backends.probe [driver.icd [--list]].

The program lists the driver's devices and, without --list, tests them. With --features, a report as JSON and a feature
as arguments, it says whether the report's device proves that.

It writes a line for each device when it is listed ("not tested") and again when its smoke test is done, so that the
reader knows to which device a crash belongs.
"""

import json
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from gputune.core.errors import BuildFailed, DeviceError
from gputune.core.quirks import DRIVERS
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.devices.discovery import LIST_OPTION, PROBE_MARK, DeviceReport
from gputune.runtime.devices.features import FEATURE_SECONDS, FEATURES_MARK, FEATURES_OPTION, PROBES
from gputune.runtime.devices.scratch import scratch_environment

SMOKE_SOURCE = """
__kernel void smoke(__global const float *value, __global float *result, const int size) {
    const int i = get_global_id(0);
    __local float shared[16];
    shared[get_local_id(0)] = value[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    result[i] = fma(shared[get_local_id(0)], 2.0f, (float)(i % size));
}
"""
SIZE = 64
MOST_CHARACTERS = 120
"""Bound the reason why a feature does not work."""
_PLACE = re.compile(r"(?:error: )?\S*:\d+:\d+: (?:error: )?")


def main(arguments: list[str]) -> int:
    if arguments[:1] == [FEATURES_OPTION]:
        return _tell_feature(DeviceReport.from_dict(json.loads(arguments[1])), arguments[2])
    driver_file = arguments[0] if arguments else ""
    driver = Path(driver_file).name
    try:
        from gputune.runtime.backends import opencl, opencl_devices
    except ImportError as error:
        print(f"pyopencl cannot be loaded: {error}", file=sys.stderr)
        return 3
    environment: dict[str, str] = {}  # a driver may give no device where it cannot write what it compiles
    for folder in (row.compiled for row in DRIVERS if row.compiled is not None):
        environment |= scratch_environment(folder, None)
    reports = [
        DeviceReport(0, opencl_devices.identity_of(device, driver), driver_file, False, "not tested", position)
        for position, device in enumerate(opencl_devices.visible_devices(environment))
    ]
    for report in reports:
        _say(report)
    if LIST_OPTION in arguments:
        return 0
    for report, device in zip(reports, opencl_devices.visible_devices(), strict=True):
        try:
            reason = smoke_test(opencl.OpenCLBackend(device, driver))
        except (DeviceError, opencl.Error) as error:
            reason = " ".join(str(error).split())[:300]
        _say(replace(report, usable=not reason, reason=reason))
    return 0


def smoke_test(backend: Backend) -> str:
    """Build and run a small kernel with a barrier and profiling; return why the result is no good, or nothing."""
    program = backend.build(SMOKE_SOURCE, "")
    values = np.arange(SIZE, dtype=np.float32)
    value, result = backend.upload(values), backend.allocate(values.nbytes)
    bound = backend.bind(program, "smoke", (SIZE,), (16,), [value, result, 7])
    backend.time(bound, 1)
    got = backend.read(result).view(np.float32)
    want = values * 2 + np.arange(SIZE) % 7
    return "" if np.array_equal(got, want) else "the smoke test computed a wrong result"


def _tell_feature(report: DeviceReport, name: str) -> int:
    backend = open_backend(report)
    if hasattr(signal, "setitimer"):  # ends a process that hangs in a driver, too, as no thread of Python could
        signal.setitimer(signal.ITIMER_REAL, FEATURE_SECONDS)
    print(FEATURES_MARK + json.dumps(prove_on(backend, name)), flush=True)
    return 0


def prove_on(backend: Backend, name: str) -> tuple[str, bool]:
    """Return why a feature is not there, or nothing, and whether the device would say so again."""
    probe = PROBES[name]
    given, wanted = probe.buffers()
    backend.prove = lambda names: dict.fromkeys(names, "")
    try:
        buffer = backend.upload(given)
        program = backend.build(probe.source, probe.options)
        bound = backend.bind(program, "probe", (probe.items,), (probe.items,), [buffer])
        backend.time(bound, 1)
    except BuildFailed as error:
        return f"it does not compile: {_first_of(str(error))}", True
    except DeviceError as error:
        return " ".join(str(error).split())[:MOST_CHARACTERS], False
    got = backend.read(buffer).view(given.dtype)
    return "" if np.array_equal(got, wanted) else f"it computes {got.tolist()}, not {wanted.tolist()}", True


def _first_of(log: str) -> str:
    """Return the first message of a compiler's log, without its place in the source and what follows."""
    messages = (each.split(" | ")[0].strip() for each in _PLACE.split(" ".join(log.split())))
    first = next((each for each in messages if each and each != "error:"), "its compiler does not say why")
    return first[:MOST_CHARACTERS]


def _say(report: DeviceReport) -> None:
    print(PROBE_MARK + json.dumps(report.to_dict()), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
