"""Open the device for which a context was made, or a substitute.

Only one OpenCL driver may live in a process. When the context's driver is installed, it is opened directly. Discovery,
with a child process for each driver, runs only if that device is missing or another device is requested.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gputune.core.errors import DeviceNotFound, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.runtime.backends import open_backend
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.package import Package, PackageEntry
from gputune.runtime.context.records import ContextHeader
from gputune.runtime.contexts.device import OpenDevice, open_report
from gputune.runtime.devices.discovery import (
    NULL_REPORT,
    NULL_REPORTS,
    OPENCL,
    DeviceReport,
    choose,
    discover,
    matches,
    wanted_device,
)
from gputune.runtime.devices.drivers import driver_files
from gputune.runtime.loading.verdict import made_by_null


def open_device_for(file: ContextFile | Package, device: str | None) -> tuple[OpenDevice, int]:
    """Return the device of a context, or of one of a package, or that which is asked for; and the ns that it took.
    Raises as load() does."""
    begun_ns = time.perf_counter_ns()
    return _opened_for(file, device), time.perf_counter_ns() - begun_ns


def _opened_for(file: ContextFile | Package, device: str | None) -> OpenDevice:
    wanted = wanted_device(device)
    made: Sequence[ContextHeader | PackageEntry] = file.contexts if isinstance(file, Package) else [file.header]
    devices = [each.device for each in made if each.computes]
    if not devices and wanted is not None and wanted not in NULL_REPORTS:
        raise WrongDevice(f"{file.path}: {made_by_null(repr(wanted))}")
    if not devices or wanted in NULL_REPORTS:
        return open_reported(NULL_REPORTS.get(wanted or made[0].device.platform, NULL_REPORT))
    return _open(devices, wanted)


def _open(made_for: Sequence[DeviceIdentity], wanted: str | None) -> OpenDevice:
    """Open the best of the recorded devices that is there and fits `wanted`, else a choice among all."""
    found = [report for report in map(recorded_report, made_for) if report is not None]
    # a number belongs to the list that discovery makes
    recorded = [one for one in found if wanted is None or (not wanted.isdecimal() and matches(one, wanted))]
    if not recorded:
        return open_reported(choose(discover(), wanted).report)
    if len({report.driver_file for report in recorded}) > 1:  # which only their own processes can try
        reports = discover()
        devices = {(device.platform, device.name) for device in made_for}
        present = [one for one in reports if one.identity and (one.identity.platform, one.identity.name) in devices]
        usable = any(one.usable and (wanted is None or matches(one, wanted)) for one in present)
        return open_reported(choose(present if usable else reports, wanted).report)
    for report in recorded:
        try:
            return open_reported(report)
        except DeviceNotFound:
            continue
    return _open_among_visible(recorded[0], wanted)


def recorded_report(made_for: DeviceIdentity) -> DeviceReport | None:
    """Return a report for the recorded device, untested, if its driver is installed here."""
    files = {file.name: str(file.absolute()) for file in driver_files()} or {"": ""}
    if made_for.driver not in files:
        return None
    return DeviceReport(0, made_for, files[made_for.driver], usable=True, reason="")


def _open_among_visible(recorded: DeviceReport, wanted: str | None) -> OpenDevice:
    """Open the best of the other devices of the recorded driver, which is open in this process but has no such
    device."""
    reports = [report for report in discover() if report.driver_file == recorded.driver_file]
    return open_reported(choose(reports, wanted).report)


def open_reported(report: DeviceReport) -> OpenDevice:
    """Open a device to run contexts on it."""
    if report.backend == OPENCL:
        return open_report(report)
    backend = open_backend(report)
    assert isinstance(backend, NullBackend)
    return backend
