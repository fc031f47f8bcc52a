"""Check OpenCL drivers: the files that name them, their libraries, and whether their devices work."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gputune.client.doctor.findings import Finding, softened
from gputune.client.doctor.software import INSTALL, failure_of
from gputune.core.errors import DeviceNotFound
from gputune.runtime.devices.discovery import INSTALL_HINT, NULL_REPORTS, DeviceReport, choose
from gputune.runtime.devices.drivers import library_of, vendor_folders

LOAD_SECONDS = 60.0
NO_DRIVER = Finding("drivers", "problem", "no OpenCL driver is installed", INSTALL_HINT)
LIBRARY_VARIABLE = "GPUTUNE_OPENCL_LIBRARY"
"""Names the library that the C runtime loads."""
LOADERS = ("libOpenCL.so.1", "libOpenCL.so")
_IMPORT = "import pyopencl"
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


def check_drivers(reports: Sequence[DeviceReport], wanted: str | None) -> list[Finding]:
    """Return where drivers are looked for, what is there, what `reports` (of runtime.devices.discover) say of them,
    and which device is used when `wanted` is asked for. What is wrong with one driver is a note when the device
    to use works; where no driver is installed, that alone is a problem and not what follows from it."""
    files = check_files()
    missing = NO_DRIVER in files and not any(report.usable for report in reports)
    found = [_pyopencl(), *loader_of_c(), *files, *([] if missing else map(_tested, reports))]
    try:
        choice = choose(reports, wanted)
    except DeviceNotFound as error:
        if missing and wanted is None:
            return [*found, Finding("device", "note", "no device can be used: see the drivers")]
        advice = "change or unset GPUTUNE_DEVICE" if any(r.usable for r in reports) else INSTALL_HINT
        return [*found, Finding("device", "problem", str(error), advice)]
    return [*softened(found), Finding("device", "note" if wanted in NULL_REPORTS else "ok", choice.explanation[0])]


def _pyopencl() -> Finding:
    """Import it in a child process: it loads the OpenCL loader, which may go wrong in any way."""
    if reason := failure_of([sys.executable, "-c", _IMPORT], LOAD_SECONDS):
        advice = f"{INSTALL}; pyopencl's wheels bring the OpenCL loader, a build of its own needs libOpenCL.so.1"
        return Finding("drivers", "problem", f"pyopencl cannot be imported: {reason}", advice)
    return Finding("drivers", "ok", "pyopencl can be imported")


def loader_of_c() -> list[Finding]:
    """Say which OpenCL loader programs in C find on Linux; the loader in pyopencl's wheels works for Python only.
    Makers of phones have names of their own for it."""
    if sys.platform != "linux" or hasattr(sys, "getandroidapilevel"):
        return []
    named = os.environ.get(LIBRARY_VARIABLE)
    for name in [named] if named else LOADERS:
        if not failure_of([sys.executable, "-c", _LOAD, name], LOAD_SECONDS):
            return [Finding("drivers", "ok", f"programs in C find {name}")]
    line = f"programs in C, such as those of `gputune export`, find no {named or 'libOpenCL.so'} here"
    advice = "" if named else "; pyopencl's loader is for Python only: install one (Debian's ocl-icd-libopencl1)"
    return [Finding("drivers", "note", f"{line}{advice}")]


def check_files() -> list[Finding]:
    """Return every folder of .icd files, every file in it, and whether the library that it names can be loaded."""
    found = []
    libraries: dict[str, str] = {}
    for folder in vendor_folders():
        files = sorted(folder.glob("*.icd")) if folder.is_dir() else [folder] if folder.exists() else []
        if not files:
            found.append(
                Finding("drivers", "note", f"no driver in {folder}" + ("" if folder.exists() else " (not there)"))
            )
        for file in files:
            library = library_of(file)
            if library and library not in libraries:
                libraries[library] = failure_of([sys.executable, "-c", _LOAD, library], LOAD_SECONDS)
            found.append(_file(file, library, libraries.get(library, "")))
    if not libraries:
        found.append(NO_DRIVER)
    return found


def _file(file: Path, library: str, failure: str) -> Finding:
    if not library:
        return Finding("drivers", "problem", f"{file} names no library, or cannot be read", "install its driver again")
    if failure:
        advice = f"install the package that brings the library, or remove {file}"
        return Finding("drivers", "problem", f"{file}: {library} cannot be loaded: {failure}", advice)
    return Finding("drivers", "ok", f"{file}: {library} can be loaded")


def _tested(report: DeviceReport) -> Finding:
    if report.usable:
        return Finding("drivers", "ok", f"{report.title} builds and runs a kernel")
    return Finding("drivers", "problem", f"{report.title}: {report.reason}", "update or remove this driver")
