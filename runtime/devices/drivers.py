"""Find OpenCL drivers: the .icd files, and the environment in which a process sees only one driver.

An .icd file is one line that names a driver's library. Two drivers in one process can disturb each other (two copies of
LLVM, for example), so whatever opens a device first restricts its process to that device's driver.
"""

import functools
import importlib.util
import os
import sys
from pathlib import Path

from gputune.core.opened import Opened

OPENCL_LIBRARY = "GPUTUNE_OPENCL_LIBRARY"
"""The environment variable that names the OpenCL library of the C runtime."""


@functools.cache
def drivers() -> Opened:
    """Return the drivers, which the first call opens: whatever a process has of OpenCL, its forks cannot use any of
    it."""
    return Opened("OpenCL")


def vendor_folders() -> list[Path]:
    """Return where .icd files are looked for: OCL_ICD_VENDORS when set (a folder or one file, as the OpenCL loader
    reads it), else the system's folder and those that pip packages install into."""
    chosen = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    if chosen:
        return [Path(part) for part in chosen.split(os.pathsep) if part]
    folders = [Path("/etc/OpenCL/vendors"), Path(sys.prefix) / "etc" / "OpenCL" / "vendors"]
    loader = importlib.util.find_spec("pyopencl")
    if loader is not None and loader.origin is not None:
        folders.append(Path(loader.origin).parent / ".libs")
    return folders


def driver_files() -> list[Path]:
    """Return every .icd file, one per driver library, sorted by name within each folder."""
    found: dict[str, Path] = {}
    for folder in vendor_folders():
        files = sorted(folder.glob("*.icd")) if folder.is_dir() else [folder]
        for file in files:
            library = library_of(file)
            if library:
                found.setdefault(library, file)
    return list(found.values())


def library_of(driver_file: Path) -> str:
    """Return the library that an .icd file names; empty when the file cannot be read."""
    try:
        return driver_file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def environment_for(driver_file: str) -> dict[str, str]:
    """Variables with which a process sees this driver and no other; empty for the loader's own choice.

    ocl-icd (which pyopencl's wheels bundle) takes an .icd file as OCL_ICD_VENDORS. The Khronos loader takes
    only a folder there, finds nothing in a file, and takes libraries from OCL_ICD_FILENAMES.
    """
    if not driver_file:
        return {}
    return {"OCL_ICD_VENDORS": driver_file, "OCL_ICD_FILENAMES": library_of(Path(driver_file))}


def opencl_library() -> dict[str, str]:
    """Return variables by which the C runtime loads the OpenCL loader that pyopencl's wheels bring along; none if this
    pyopencl uses the system's. That loader crashes without PYOPENCL_HOME, which importing pyopencl sets, too."""
    found = importlib.util.find_spec("pyopencl")
    for folder in (found and found.submodule_search_locations) or []:
        for path in sorted(Path(folder).glob(".libs/libOpenCL*")):
            return {OPENCL_LIBRARY: str(path), "PYOPENCL_HOME": folder}
    return {}


def loaded_library(maps: Path = Path("/proc/self/maps")) -> str | None:
    """Return the OpenCL library that this process has open, such as the system's for a pyopencl that brings none; None
    if there is none. maps: what the kernel says of the process' memory."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    paths = (line[line.index("/") :] for line in lines if "/" in line)
    return next((path for path in paths if Path(path).name.startswith("libOpenCL")), None)
