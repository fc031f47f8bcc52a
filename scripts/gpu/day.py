"""Measure in a few minutes what a machine with a GPU can show, and bring the results back in a few files.

    scripts/gpu/day --wheels 3.12 && python3 scripts/gpu/day.py --budget 450 --out DIR
    scripts/gpu/day --budget 450 --out DIR
    scripts/gpu/day --rehearse --out DIR
    scripts/gpu/day --diff EARLIER/day.json DIR/day.json
    scripts/gpu/day --keep docs/gpu_days/DATE-CARD.json DIR/day.json [LATER/day.json ..]

Each phase is a process of its own with a time box. A crash or hang costs only its phase, and what the phase had written
until then is kept. DIR gets day.json with all records, and the other results of phases, packed. The exit code is 1 if a
phase failed, crashed or took too long, and 3 if there is no GPU to measure. --wheels brings gputune's libraries into
.wheels, for a machine without a network whose Python has this version; the day installs those that are missing there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MANYLINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux2010", "manylinux1")
WHEELS = ROOT / ".wheels"
ROOMS = ("cache", "client", "core", "kernels", "runtime", "server")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the day; returns the exit code."""
    options = _parser().parse_args(arguments)
    sys.path[:0] = [str(HERE.parent), str(ROOT)]
    if options.diff:
        return int(importlib.import_module("gpu.keeping").print_difference(*options.diff))
    if options.keep:
        target, *days = options.keep
        return int(importlib.import_module("gpu.page").keep(target, days))
    if options.wheels:
        return _bring_wheels(options.wheels)
    work = Path(options.work or tempfile.mkdtemp(prefix="gpu-day-"))
    work.mkdir(parents=True, exist_ok=True)
    _prepare(work)
    _install(work, WHEELS)
    _link_gputune(work)
    return int(importlib.import_module("gpu.running").run_day(options, work))


def _parser() -> argparse.ArgumentParser:
    head, _, rest = (__doc__ or "").partition("\n\n")
    result = argparse.ArgumentParser(
        prog="scripts/gpu/day",
        description=head,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--budget", type=float, default=450, metavar="S", help="seconds in all (default: %(default)s)")
    result.add_argument("--out", type=Path, metavar="DIR", help="where the results go")
    result.add_argument("--work", type=Path, metavar="DIR", help="where phases work (default: a temporary folder)")
    result.add_argument("--only", metavar="PHASE[,..]", help="run these phases only")
    result.add_argument("--cache", type=Path, metavar="DIR", help="a performance cache to begin from")
    result.add_argument("--rehearse", action="store_true", help="run everything small, on any device")
    result.add_argument("--diff", nargs=2, type=Path, metavar=("A", "B"), help="print two day.json next to each other")
    result.add_argument(
        "--keep", nargs="+", type=Path, metavar=("F", "DAY"), help="keep what docs/gpus.md shows of days"
    )
    result.add_argument("--wheels", metavar="VERSION", help="bring what the Python of this version needs elsewhere")
    result.set_defaults(start=time.monotonic())
    return result


def _prepare(work: Path) -> None:
    """Keeps the user's own caches out of it, and lets code of this checkout run, also where another user owns it."""
    for name in ("CACHE", "CONFIG", "DATA"):
        os.environ[f"XDG_{name}_HOME"] = str(work / "home" / name.lower())
    trusted = os.environ.get("GPUTUNE_TRUSTED_FOLDERS", "")
    os.environ["GPUTUNE_TRUSTED_FOLDERS"] = os.pathsep.join(filter(None, [str(ROOT), str(work), trusted]))


def _bring_wheels(version: str) -> int:
    """Download the libraries of gputune, and all that they need, for Linux on x86-64. Return pip's exit code."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    platforms = [f"--platform={tag}_x86_64" for tag in MANYLINUX]
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", f"--python-version={version}"]
    return subprocess.run([*command, "--implementation=cp", *platforms, "-d", str(WHEELS), *wanted]).returncode


def _install(work: Path, wheels: Path) -> None:
    """Install the wheels of libraries that this Python lacks."""
    missing = [str(path) for path in sorted(wheels.glob("*.whl")) if not _has(path.name.split("-")[0])]
    if missing:
        options = ["-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--target", str(work / "site")]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *missing], check=True)
        sys.path.insert(0, str(work / "site"))
        importlib.invalidate_caches()


def _has(library: str) -> bool:
    try:
        return bool(importlib.metadata.version(library))
    except importlib.metadata.PackageNotFoundError:
        return False


def _link_gputune(work: Path) -> None:
    """Makes `import gputune` work here and in all children where it is not installed, from this checkout."""
    if importlib.util.find_spec("gputune") is None:
        package = work / "site" / "gputune"
        package.mkdir(parents=True, exist_ok=True)
        for source in (*(ROOT / room for room in ROOMS), *sorted((ROOT / "core" / "api").glob("__*__.py"))):
            link = package / source.name
            if not link.is_symlink():
                link.symlink_to(source)
        sys.path.insert(0, str(package.parent))
        importlib.invalidate_caches()
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    ours = [str(work / "site"), str(HERE.parent), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*ours, *inherited]))


if __name__ == "__main__":
    sys.exit(main())
