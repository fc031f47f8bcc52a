"""Find the devices of this machine, test which of them work, and choose the device to use.

Each driver is opened in a child process of its own (probe.py), so that two drivers never meet in one process. A driver
that crashes or hangs costs a line in the report, not the program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gputune.core.bounds import in_files
from gputune.core.decoder import record_of
from gputune.core.errors import DeviceNotFound
from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.drivers import driver_files, environment_for, library_of, vendor_folders
from gputune.runtime.devices.recording import BadRecording, read_all, recording_files

PROBE_SECONDS = 60.0
HUNG = "the driver hung"
PROBE_MARK = "gputune-probe "
MEMORY_MARK = "gputune-memory "
PROBE, MEMORY_PROBE = "gputune.runtime.backends.probe", "gputune.runtime.contexts.probe"
"""The programs that ask a driver."""
LIST_OPTION = "--list"
OPENCL = "opencl"
NULL = "null"
WAITING = "waiting"
REPLAY = "replay"
REPLAY_PREFIX = f"{REPLAY}:"
AGENT_PREFIX = "agent:"
"""The prefix of an agent's address, whose device is on another machine (server/agent/)."""
AGENT_TOKEN_VARIABLE = "GPUTUNE_AGENT_TOKEN"
SIMULATED = frozenset({NULL, WAITING, REPLAY})
"""Platforms of devices that need no driver and compute nothing."""
INSTALL_HINT = (
    "install an OpenCL driver for the device (for CPUs: Debian's pocl-opencl-icd, or the Intel CPU runtime), "
    "or ask for the device 'null', which computes nothing"
)


@in_files(closed=True)
@dataclass(frozen=True)
class DeviceReport:
    """Report what discovery found out about one device, or about a driver without devices (`identity` is None then).

    `driver_file` is the recording if the device is replayed, and an agent's address with its prefix if that has the
    device; `position` counts the devices of one driver; `reason` says why a device is not usable, and is empty
    otherwise.
    """

    index: int
    identity: DeviceIdentity | None
    driver_file: str
    usable: bool
    reason: str
    position: int = 0

    @property
    def simulated(self) -> bool:
        """Return whether the device needs no driver and computes nothing."""
        return self.identity is not None and self.identity.platform in SIMULATED

    @property
    def remote(self) -> bool:
        """Return whether an agent has the device, so that nothing of this machine says anything about it."""
        return self.driver_file.startswith(AGENT_PREFIX)

    @property
    def backend(self) -> str:
        """Return the name of the module of gputune.runtime.backends that opens the device."""
        return self.identity.platform if self.identity is not None and self.simulated else OPENCL

    @property
    def title(self) -> str:
        """Return one phrase for people: number, name, platform; or the driver if it gave no device."""
        if self.identity is None:
            return f"driver {self.driver_file or 'of the OpenCL loader'}"
        return f"#{self.index} {self.identity.name} ({self.identity.platform}, {self.identity.device_type})"

    def __str__(self) -> str:
        """Return one line for people, as `gputune devices` prints it."""
        return f"{self.title}: {'works' if self.usable else self.reason}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which a process that opens this device sees only this driver."""
        return {} if self.simulated or self.remote else environment_for(self.driver_file)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "identity": None if self.identity is None else self.identity.to_dict()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> DeviceReport:
        """Return the report that to_dict wrote. Raises ValueError if a field is missing or has the wrong type."""
        return record_of(cls, fields, "device report", ValueError)


NULL_REPORT = DeviceReport(
    index=-1,
    identity=DeviceIdentity(
        platform=NULL,
        platform_version="1",
        name=NULL,
        vendor="gputune",
        driver_version="1",
        device_version="1",
        device_type="cpu",
        compute_units=1,
        max_work_group_size=1024,
        max_work_item_sizes=(1024, 1024, 1024),
        local_memory_bytes=64 << 10,
        global_memory_bytes=16 << 30,
        max_allocation_bytes=1 << 30,
        base_address_alignment_bytes=128,
        preferred_float_width=4,
    ),
    driver_file="",
    usable=True,
    reason="",
)
assert NULL_REPORT.identity is not None
WAITING_REPORT = replace(NULL_REPORT, identity=replace(NULL_REPORT.identity, platform=WAITING, name=WAITING))
NULL_REPORTS: Mapping[str, DeviceReport] = {NULL: NULL_REPORT, WAITING: WAITING_REPORT}
"""The null devices, by the names by which they are asked for."""


@dataclass(frozen=True)
class Choice:
    """Hold the device to use, and the reasons, one line each: first the choice, then the devices passed over."""

    report: DeviceReport
    explanation: tuple[str, ...]


def wanted_device(explicit: str | None) -> str | None:
    """Return what the user requested: the explicit value, else GPUTUNE_DEVICE, else None."""
    return explicit or os.environ.get("GPUTUNE_DEVICE") or None


def discover(time_limit_s: float = PROBE_SECONDS) -> list[DeviceReport]:
    """Return every device of every driver after a build-and-run smoke test, numbered in a stable order.

    A driver that gives no device, crashes or takes longer than time_limit_s gives one report without identity. If no
    .icd file exists (some systems have one fixed driver), the OpenCL loader's own choice is probed.
    """
    return _of_all_drivers(lambda file: _probe([file], time_limit_s))


def listed(time_limit_s: float = PROBE_SECONDS) -> list[DeviceReport]:
    """Return the same devices with the same numbers, but untested, which takes a third of the time."""
    return _of_all_drivers(lambda file: _probe([file, LIST_OPTION], time_limit_s))


def _of_all_drivers(probe: Callable[[str], list[DeviceReport]]) -> list[DeviceReport]:
    files = [str(file.absolute()) for file in driver_files()] or [""]
    with ThreadPoolExecutor(max_workers=min(8, len(files))) as pool:
        reports = [report for group in pool.map(probe, files) for report in group]
    return [replace(report, index=index) for index, report in enumerate(reports)]


def find(wanted: str | None = None) -> Choice:
    """Return the device of this machine to use, by the rule of `choose`; drivers are only looked for if that needs
    them. Raises DeviceNotFound."""
    simulated = wanted is not None and (wanted in NULL_REPORTS or wanted.startswith(REPLAY_PREFIX))
    return choose([] if simulated else discover(), wanted)


def choose(reports: Sequence[DeviceReport], wanted: str | None = None) -> Choice:
    """Return the device to use: the device that `wanted` names, else a GPU, else an accelerator, else the CPU with the
    most compute units.

    wanted: "null", "waiting", "replay:" with a recording or a folder of recordings, a number of the list, or part of a
    device's or platform's name.

    Raises DeviceNotFound, which lists each device with its reason and says what to do.
    """
    if wanted == NULL:
        return Choice(NULL_REPORT, ("using the null device as asked: outputs are not computed",))
    if wanted == WAITING:
        return Choice(WAITING_REPORT, ("using the waiting null device as asked: outputs are not computed",))
    if wanted is not None and wanted.startswith(REPLAY_PREFIX):
        return _replayed(Path(wanted.removeprefix(REPLAY_PREFIX)))
    matching = [report for report in reports if wanted is None or matches(report, wanted)]
    usable = sorted((report for report in matching if report.usable), key=_rank)
    if not usable:
        raise DeviceNotFound(_nothing_usable(reports, matching, wanted))
    best = usable[0]
    why = f"matches {wanted!r}" if wanted is not None else f"the best usable device, a {_type_of(best)}"
    lines = [f"using {best.title}: {why}"]
    for report in reports:
        if report is best:
            continue
        if not report.usable:
            reason = report.reason
        elif report not in matching:
            reason = f"does not match {wanted!r}"
        elif _type_of(report) != _type_of(best):
            reason = f"a {_type_of(best)} is preferred to a {_type_of(report)}"
        else:
            reason = "fewer compute units or a later number"
        lines.append(f"passed over {report.title}: {reason}")
    return Choice(best, tuple(lines))


def replayed_files(wanted: str | None) -> list[Path]:
    """Return the recordings that a device answers from; none for a device that is no recording."""
    if wanted is None or not wanted.startswith(REPLAY_PREFIX):
        return []
    return recording_files(Path(wanted.removeprefix(REPLAY_PREFIX)))


def _replayed(path: Path) -> Choice:
    """Return the device of a recording. It is no device of its platform: nothing that is stored or written for it may
    be taken for what that computes."""
    try:
        recordings = read_all(path)
    except BadRecording as error:
        raise DeviceNotFound(str(error)) from None
    recorded = recordings[0].header.device
    identity = replace(recorded, platform=REPLAY, platform_version="1", driver="")
    report = DeviceReport(-1, identity, str(path.absolute()), usable=True, reason="")
    what = ", ".join(recording.title for recording in recordings)
    return Choice(report, (f"replaying what was recorded of {recorded.name} ({what}): outputs are not computed",))


def _type_of(report: DeviceReport) -> str:
    assert report.identity is not None
    return {"gpu": "GPU", "cpu": "CPU"}.get(report.identity.device_type, report.identity.device_type)


def matches(report: DeviceReport, wanted: str) -> bool:
    """Return whether `wanted` is the number of a device or part of its name or platform."""
    if wanted.isdecimal():
        return report.index == int(wanted)
    if report.identity is None:
        return False
    return wanted.casefold() in f"{report.identity.name}\n{report.identity.platform}".casefold()


def _rank(report: DeviceReport) -> tuple[int, int, int]:
    assert report.identity is not None
    order = ("gpu", "accelerator", "cpu").index(report.identity.device_type)
    return order, -report.identity.compute_units, report.index


def _nothing_usable(reports: Sequence[DeviceReport], matching: Sequence[DeviceReport], wanted: str | None) -> str:
    if matching:
        head = "no usable OpenCL device" if wanted is None else f"device {wanted!r} is not usable"
        hint = INSTALL_HINT
    else:
        head = f"no device matches {wanted!r}" if wanted is not None else "no OpenCL device found"
        hint = "'gputune devices' lists the numbers and names" if reports and wanted else INSTALL_HINT
    listed = "; ".join(f"{report.title}: {report.reason or 'usable'}" for report in reports)
    return f"{head}; {listed + '; ' if listed else ''}{hint}"


def importers_of(report: DeviceReport) -> list[tuple[str, str]]:
    """Return the ways in which a usable device takes memory without a copy, in the order in which they are tried. Each
    has the reason why this device cannot use it (empty: it can). The device is opened in a process of its own. Raises
    DeviceNotFound if that fails or takes too long."""
    probed = run_probe([json.dumps(report.to_dict())], report.environment(), PROBE_SECONDS, MEMORY_PROBE)
    for line in probed.output.splitlines():
        if line.startswith(MEMORY_MARK):
            return [(str(name), str(reason)) for name, reason in json.loads(line.removeprefix(MEMORY_MARK))]
    raise DeviceNotFound(f"{report.title} cannot be asked for its memory: {probed.ending or 'the probe said nothing'}")


def _probe(arguments: Sequence[str], time_limit_s: float) -> list[DeviceReport]:
    """arguments: of the probe, the driver's file first."""
    driver_file = arguments[0]
    probed = run_probe(arguments, environment_for(driver_file), time_limit_s)
    return _reports_of(driver_file, probed.output, probed.ending)


class Probed(NamedTuple):
    """What a probe wrote, and why its end was no good end; signal: the name of the signal that ended it, if any."""

    output: str
    ending: str = ""
    signal: str = ""


def run_probe(
    arguments: Sequence[str], environment: Mapping[str, str], time_limit_s: float, probe: str = PROBE
) -> Probed:
    """Run a probe in a process of its own and say what it said."""
    command = [sys.executable, "-m", probe, *arguments]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            timeout=time_limit_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as expired:
        return Probed(_text(expired.stdout), f"{HUNG} for more than {time_limit_s:g} s")
    except OSError as error:
        return Probed("", f"the probe could not be started: {error}")
    killed_by = _signal_name(-done.returncode) if done.returncode < 0 else ""
    ending = f"the driver crashed with {killed_by}" if killed_by else ""
    if done.returncode > 0:
        ending = f"the probe ended with code {done.returncode}"
    last_words = _text(done.stderr).strip().splitlines()[-1:]
    if ending and last_words:
        ending = f"{ending} ({last_words[0][:200]})"
    return Probed(_text(done.stdout), ending, killed_by)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _text(written: bytes | None) -> str:
    return (written or b"").decode("utf-8", "replace")


def _why_none(driver_file: str) -> str:
    """Why a driver that has not failed has no device."""
    library = Path(library_of(Path(driver_file))) if driver_file else Path()
    if library.is_absolute() and not library.exists():
        return f"the driver gives no device: its library {library} is missing; install it again"
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if home and Path(home).exists() and not os.access(home, os.W_OK):
        return f"the driver gives no device, perhaps because {home} cannot be written; name another folder by HOME"
    return f"the driver gives no device (drivers are looked for in {', '.join(map(str, vendor_folders()))})"


def _reports_of(driver_file: str, output: str, ending: str) -> list[DeviceReport]:
    """Read the probe's lines: a report per device when it is listed, and again when it has been tested."""
    found: dict[int, DeviceReport] = {}
    for line in output.splitlines():
        if line.startswith(PROBE_MARK):
            try:
                report = DeviceReport.from_dict(json.loads(line[len(PROBE_MARK) :]))
            except ValueError:
                continue  # a line cut short by a crash
            found[report.position] = report
    if not found:
        return [DeviceReport(0, None, driver_file, usable=False, reason=ending or _why_none(driver_file))]
    return [
        replace(report, usable=False, reason=f"{ending} before its test was done")
        if ending and not report.usable and report.reason == "not tested"
        else report
        for _, report in sorted(found.items())
    ]
