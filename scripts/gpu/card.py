"""Find the device to measure, even if its driver is not registered, and say all that is known if there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputune.core.errors import DeviceNotFound
from gputune.runtime.devices.discovery import DeviceReport, choose, discover, wanted_device
from gputune.runtime.devices.drivers import library_of, vendor_folders

CARD = "GPU_DAY_CARD"
"""A variable with what every record says of the device, as JSON."""
POSITION = "GPU_DAY_POSITION"
"""A variable with the device's place among those of its driver."""
CACHE = "GPU_DAY_CACHE"
"""A variable with the folder of an earlier day's performance cache, from which models go on."""
LIBRARY = "libnvidia-opencl.so.1"
FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local", "/lib", "/opt", "/run/nvidia", "/usr/share", "/etc")
SYSTEM = ("/usr/lib", "/lib")
"""Folders in which libraries are found anyway; as the first of all they hide those that Python was built with."""
PROBE_S = 20.0


@dataclass(frozen=True)
class Card:
    """The device to measure. environment: variables by which a process finds it, and no other."""

    report: DeviceReport
    environment: dict[str, str]

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.report.identity is not None and self.report.identity.device_type == "gpu"


def find(work: Path, any_device: bool) -> Card | None:
    """Prints which devices there are; the one to measure. any_device: where none is a GPU, no driver of one is looked
    for in files."""
    added: dict[str, str] = {}
    reports = _reports()
    if not any_device and not any(report.usable and _type_of(report) == "gpu" for report in reports):
        for library in _libraries():
            added = _registered(library, work)
            os.environ.update(added)
            reports = _reports()
            if any(report.usable for report in reports):
                break
            print(said(sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r}); print('it can be loaded')"))
    try:
        report = choose(reports, wanted_device(None)).report
    except DeviceNotFound as error:
        print(error)
        _say_all()
        return None
    identity = report.identity
    assert identity is not None
    if identity.device_type != "gpu" and not any_device:
        _say_all()
    what = {"card": identity.name, "platform": identity.platform, "driver": identity.driver_version}
    environment = {**added, **report.environment(), "GPUTUNE_DEVICE": identity.name}
    environment |= {CARD: json.dumps(what), POSITION: str(report.position)}
    print(f"measuring {report.title}, driver {identity.driver_version}, {identity.platform_version}", flush=True)
    return Card(report, environment)


def _reports() -> list[DeviceReport]:
    reports = discover(PROBE_S)
    for report in reports:
        print(report, flush=True)
    if not reports:
        print("no OpenCL driver is registered", flush=True)
    return reports


def _type_of(report: DeviceReport) -> str:
    return "" if report.identity is None else report.identity.device_type


def _libraries() -> Iterator[str]:
    """Give the places of the driver's library, those that the loader knows first."""
    seen: set[str] = set()
    listed = [line.split("=>")[-1].strip() for line in said("ldconfig", "-p").splitlines() if "nvidia-opencl" in line]
    for found in (*listed, *_found("libnvidia-opencl*")):
        path = str(Path(found).resolve())
        if path not in seen and Path(path).exists():
            seen.add(path)
            print(f"found {path}", flush=True)
            yield path


def _registered(library: str, work: Path) -> dict[str, str]:
    """Makes an .icd file for a library; the variables by which the loader takes it."""
    folder = work / "vendors"
    folder.mkdir(exist_ok=True)
    (folder / "nvidia.icd").write_text(f"{library}\n", encoding="utf-8")
    variables = {"OCL_ICD_VENDORS": str(folder)}
    if not library.startswith(SYSTEM):  # what lies next to it is needed, too
        paths = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), str(Path(library).parent)]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    return variables


def _say_all() -> None:
    """Prints what there is of drivers: variables, folders, libraries, devices."""
    for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"):
        print(f"{name}={os.environ.get(name)}")
    for folder in vendor_folders():
        files = sorted(folder.glob("*.icd")) if folder.is_dir() else []
        print(f"{folder}: {[f'{file.name} -> {library_of(file)}' for file in files] if files else 'nothing'}")
    libraries = [line for line in said("ldconfig", "-p").splitlines() if "OpenCL" in line or "libcuda" in line]
    print("ldconfig:", *map(str.strip, libraries), sep="\n  ")
    print("files:", *_found("libnvidia-opencl*"), *_found("*.icd"), *_found("libcuda.so*"), sep="\n  ")
    print("devices:", *sorted(map(str, Path("/dev").glob("nvidia*"))))
    print(said("nvidia-smi", "-L"), flush=True)


def _found(pattern: str) -> list[str]:
    folders: Sequence[str] = [folder for folder in FOLDERS if Path(folder).is_dir()]
    return said("find", *folders, "-name", pattern, "-not", "-type", "d", seconds=6).splitlines()


def said(*command: str, seconds: float = 5.0) -> str:
    """Return what a command writes, errors included; why there is nothing where it cannot run."""
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}  # ldconfig
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, errors="replace", env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}"
