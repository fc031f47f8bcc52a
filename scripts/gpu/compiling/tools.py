"""Bring the compilers and simulators with which GPU kernels are checked without a GPU, and find them.

They are unpacked into build/gpu-tools and nothing is installed, so no root is needed. Versions are pinned, because what
a rule finds is what one compiler made. Packages of Debian that the machine has at that version are not brought again.
`scripts/setup --gpu-tools` runs this module. What could not be brought is said and stays away: a check then says what
it leaves out, or uses the machine's own program of that name. Intel's runtime for CPUs comes by `scripts/setup --opencl
intel`.
"""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build" / "gpu-tools"

DEBIAN: Mapping[str, str] = {
    "clang-15": "1:15.0.6-4+b1",
    "libclang-cpp15": "1:15.0.6-4+b1",
    "libclang-common-15-dev": "1:15.0.6-4+b1",
    "libllvm15": "1:15.0.6-4+b1",
    "libz3-4": "4.8.12-3.1",
    "llvm-15": "1:15.0.6-4+b1",
    "libclc-15": "1:15.0.6-4",
    "libclc-15-dev": "1:15.0.6-4",
    "intel-opencl-icd": "22.43.24595.41-1",
    "libigc1": "1.0.12504.6-1+deb12u1",
    "libigdfcl1": "1.0.12504.6-1+deb12u1",
    "libigdgmm12": "22.3.3+ds1-1",
    "libllvm14": "1:14.0.6-12",
    "libclang-cpp14": "1:14.0.6-12",
    "libllvmspirvlib14": "14.0.0-5",
    "libopencl-clang14": "14.0.0-4",
    "oclgrind": "21.10-3",
    "liboclgrind-21.10": "21.10-3",
    "mesa-opencl-icd": "22.3.6-1+deb12u2",
    "libllvmspirvlib15": "15.0.0-2",
}
"""Packages of Debian 12: clang with libclc for NVIDIA and AMD, Intel's offline compiler, oclgrind, rusticl."""

PYPI: Mapping[str, str] = {"nvidia-cuda-nvcc": "13.5.37", "nvidia-cuda-nvdisasm": "13.5.37"}
"""Wheels, for the ptxas and the nvdisasm in them."""

ARM64: Mapping[str, str] = {"mesa": "25.0.7-2+deb13u1"}
"""Of Debian 13: its OpenCL for arm64, whose drivers compile for GPUs of phones, and its source."""

PROGRAMS = ("usr/bin", "usr/lib/llvm-15/bin", "python/nvidia/cu13/bin")
LIBRARIES = ("usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/intel-opencl", "usr/lib/llvm-15/lib")


@dataclass(frozen=True)
class Tools:
    """Programs and files of a folder that `bring` has filled, and those of the machine."""

    folder: Path = FOLDER

    def program(self, name: str) -> Path | None:
        """Return a program of the folder, else the machine's own of that name; None if there is neither."""
        found = (self.folder / place / name for place in PROGRAMS)
        here = next((path for path in found if os.access(path, os.X_OK)), None)
        return here or (Path(path) if (path := shutil.which(name)) else None)

    def file(self, name: str) -> Path | None:
        """Return a file of Debian's packages by its path below /, of the folder or of the machine."""
        return next((path for path in (self.folder / name, Path("/") / name) if path.exists()), None)

    @functools.cached_property
    def environment(self) -> dict[str, str]:
        """The variables with which programs of the folder find their libraries."""
        folders = [str(path) for pattern in LIBRARIES for path in sorted(self.folder.glob(pattern))]
        own = os.environ.get("LD_LIBRARY_PATH", "")
        return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [*folders, own]))}

    def run(self, command: Sequence[str | Path], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program with its libraries; its exit code says whether it failed."""
        return subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, errors="replace"
        )


def bring(folder: Path = FOLDER, say: Callable[[str], None] = print) -> list[str]:
    """Bring all packages into a folder, once each; returns what could not be had, in words."""
    marks = folder / "brought"
    marks.mkdir(parents=True, exist_ok=True)
    missing = []
    sources = (("Debian", DEBIAN, _from_debian), ("PyPI", PYPI, _from_pypi), ("Debian for arm64", ARM64, _for_arm64))
    for source, packages, fetch in sources:
        for name, version in packages.items():
            mark = marks / f"{name}={version}"
            if mark.exists() or (source == "Debian" and _installed(name) == version):
                continue
            say(f"bringing {name} {version} from {source}")
            if fault := fetch(folder, name, version):
                missing.append(f"{name} {version} could not be had from {source}: {fault}")
            else:
                mark.touch()
    return missing


def _installed(name: str) -> str:
    """The version of a package of Debian that the machine has; empty if it has none."""
    try:
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}\n", name]
        done = subprocess.run(query, capture_output=True, text=True)
    except OSError:
        return ""
    return next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("installed ")), "")


def _from_debian(folder: Path, name: str, version: str) -> str:
    """Unpacks a package; returns what went wrong, empty if nothing did."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return "there is no apt-get"
    with _downloads(folder) as downloads:
        fault = _fault(["apt-get", "download", f"{name}={version}"], downloads)
        if fault and os.geteuid() == 0 and _refreshed():
            fault = _fault(["apt-get", "download", f"{name}={version}"], downloads)
        return fault or _fault(["dpkg", "-x", str(next(downloads.glob("*.deb"))), str(folder)], downloads)


@functools.cache
def _refreshed() -> bool:
    """Refreshes the package lists, once: those of a fresh machine are empty or old."""
    return subprocess.run(["apt-get", "update", "-qq"], capture_output=True).returncode == 0


def _from_pypi(folder: Path, name: str, version: str) -> str:
    """Unpacks a wheel; returns what went wrong, empty if nothing did."""
    with _downloads(folder) as downloads:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        if fault := _fault([*pip, "--only-binary", ":all:", "--dest", ".", f"{name}=={version}"], downloads):
            return fault
        with zipfile.ZipFile(next(downloads.glob("*.whl"))) as wheel:
            wheel.extractall(folder / "python")
    for program in (folder / "python").glob("nvidia/*/bin/*"):
        program.chmod(0o755)  # wheels do not keep the right to run
    return ""


def _for_arm64(folder: Path, name: str, version: str) -> str:
    """Unpacks and compiles what stands in the place of a phone; returns what went wrong, empty if nothing did."""
    return _fault([Path(__file__).parent / f"bring_{name}", folder / name, version], folder)


@contextmanager
def _downloads(folder: Path) -> Iterator[Path]:
    """A folder for one package, which goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as name:
        path = Path(name)
        path.chmod(0o755)  # apt-get downloads as another user where it can
        yield path


def _fault(command: Sequence[str | Path], folder: Path) -> str:
    """Runs a command; returns the last line that it says if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    except OSError as error:
        return str(error)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines or [f"{command[0]} failed"])[-1]


if __name__ == "__main__":
    LEFT_OUT = bring(say=lambda text: print(text, file=sys.stderr))
    print(*LEFT_OUT, sep="\n", file=sys.stderr, end="\n" if LEFT_OUT else "")
    sys.exit(bool(LEFT_OUT))
