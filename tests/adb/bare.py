"""Provide a Python as on a phone: with numpy and pyopencl, and nothing else that gputune uses on a host."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

HOLDS = ("numpy", "pyopencl", "platformdirs", "pytools", "siphash24", "typing-extensions")
"""pyopencl and numpy, and what they need themselves."""

LACKS = ("gputune", "msgpack", "onnx", "click", "rich", "adbutils")
SETTINGS = ("POCL_", "PYOPENCL_", "OCL_", "LD_LIBRARY_PATH")


def bare_python(folder: Path) -> Path:
    """Makes an environment in a folder; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in HOLDS:
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(Path(str(installed.locate_file(top))))
    return folder / "bin" / "python"


def driver_settings() -> dict[str, str]:
    """The variables of this process that OpenCL drivers read, and where the driver is that works here."""
    from tests.devices import device

    report = device()
    settings = {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}
    return settings | {
        "OCL_ICD_VENDORS": str(Path(report.driver_file).parent),
        "GPUTUNE_DEVICE": "" if report.identity is None else report.identity.name,
        "PATH": "/usr/bin:/bin",  # PoCL calls a linker
    }
