"""Find the drivers that are not installed, in build/gpu-tools, and say what keeps one away."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from gpu.compiling.tools import LIBRARIES, Tools
from gpu.drivers import witness
from gpu.drivers.running import Driver

BRING = "scripts/setup --gpu-tools brings it"
OCLGRIND = "usr/lib/oclgrind/liboclgrind-rt-icd.so"
RUSTICL = "usr/lib/*-linux-gnu/libRusticlOpenCL.so.1"
CLC = "usr/lib/clc/spirv64-mesa3d-.spv"
INTEL = ("python/intel_opencl_rt-*.data/data/lib/libintelocl.so",)
INTEL_LIBRARIES = "python/*.data/data/lib"
RUSTICL_LOCAL_BYTES = 64 << 10
"""Mesa counts the local memory of a kernel twice, so what it says is no proof of what the kernel declares."""


class NotThere(Exception):
    """A driver cannot be had; says why."""


def oclgrind(tools: Tools) -> Driver:
    """Return oclgrind. Raises NotThere."""
    variables = {**_libraries(tools, LIBRARIES), witness.UNGUARDED: "1"}
    return Driver("oclgrind", _file(tools, OCLGRIND, "oclgrind"), variables)


def intel(tools: Tools) -> Driver:
    """Return Intel's runtime for CPUs, of build/gpu-tools or of this Python's environment. Raises NotThere."""
    own = Path(sys.prefix) / "lib" / "libintelocl.so"
    if own.exists():
        return Driver("intel", own, {})
    library = _file(tools, INTEL[0], "Intel's runtime for CPUs", "scripts/setup --opencl intel brings it")
    return Driver("intel", library, _libraries(tools, (INTEL_LIBRARIES,)))


def rusticl(tools: Tools) -> Driver:
    """Return Mesa's rusticl on llvmpipe. It reads libclc in /usr/lib/clc and nowhere else. Raises NotThere."""
    library, clc = _file(tools, RUSTICL, "rusticl"), _file(tools, CLC, "libclc for SPIR-V")
    variables = {
        **_libraries(tools, LIBRARIES),
        "RUSTICL_ENABLE": "llvmpipe",
        witness.LOCAL_BYTES: str(RUSTICL_LOCAL_BYTES),
    }
    if Path("/", CLC).exists():
        return Driver("rusticl", library, variables)
    beside = tools.folder / "beside-usr-lib"
    beside.mkdir(exist_ok=True)
    (link := beside / "clc").unlink(missing_ok=True)
    link.symlink_to(clc.parent)
    driver = Driver("rusticl", library, variables, beside)
    done = subprocess.run([*driver.surroundings, "true"], capture_output=True, text=True)
    if done.returncode:
        raise NotThere(f"rusticl reads /usr/lib/clc, which Debian's libclc-15 brings: {done.stderr.strip()}")
    return driver


THIRD: Mapping[str, Callable[[Tools], Driver]] = {"intel": intel, "rusticl": rusticl}
"""Drivers that run kernels like any other, by name."""


def _file(tools: Tools, pattern: str, name: str, remedy: str = BRING) -> Path:
    """The first file of the tools with this path. Raises NotThere."""
    found = sorted(tools.folder.glob(pattern))
    if not found:
        raise NotThere(f"{name} is not there; {remedy}")
    return found[0]


def _libraries(tools: Tools, patterns: tuple[str, ...]) -> dict[str, str]:
    folders = [str(path) for pattern in patterns for path in sorted(tools.folder.glob(pattern))]
    return {"LD_LIBRARY_PATH": ":".join(folders)}
