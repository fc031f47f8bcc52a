"""Write what a device needs: the target server's bundle for Python (client/target/adb/bundle.py), or the agent in C."""

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from gputune.client.target.adb.bundle import NAME, write_bundle
from gputune.runtime import native

BUILD = Path(__file__).parents[1] / "build"
AGENT = "gputune-agent"
NATIVE = "native"
NDK = "ANDROID_NDK_HOME"
ANDROID_API = 24
"""Android 7, whose C library has all that the agent uses."""
FLAGS = ("-std=c99", "-O2", "-s", "-ffunction-sections", "-Wl,--gc-sections")
LIBRARIES = ("-lm", "-ldl", "-pthread")


class NoCompiler(Exception):
    """There is no compiler for a device; the message says which is missing."""


def main() -> None:
    """Write the file that the options ask for, and describe it."""
    parser = argparse.ArgumentParser(
        prog="scripts/build-target",
        description="Makes the target server for a device: a bundle for devices with Python, numpy and pyopencl, or "
        f"with --agent one program for devices with none of these. CC names another C compiler; {NDK} is where "
        "Android's NDK lies, for triples such as aarch64-linux-android.",
    )
    parser.add_argument("--agent", metavar="TRIPLE", help=f"{NATIVE}, or a triple such as aarch64-linux-gnu")
    parser.add_argument("--output", type=Path, help=f"(default: build/{NAME}, build/agents/TRIPLE/{AGENT})")
    options = parser.parse_args()
    try:
        if options.agent is None:
            path = write_bundle(options.output or BUILD / NAME)
        else:
            path = build_agent(options.agent, options.output or BUILD / "agents" / options.agent / AGENT)
    except NoCompiler as error:
        sys.exit(f"scripts/build-target: {error}")
    content = path.read_bytes()
    print(f"{path}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


def build_agent(triple: str, path: Path) -> Path:
    """Compile the agent for a kind of device; return the path. Raises NoCompiler."""
    folders = [native.FOLDER / name for name in ("include", "src", "agent")]
    sources = sorted(source for folder in folders for source in folder.glob("*.c"))
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler_of(triple), *FLAGS, *(f"-I{folder}" for folder in folders), *map(str, sources)]
    done = subprocess.run([*command, *LIBRARIES, "-o", str(path)], capture_output=True, text=True)
    if done.returncode:
        raise NoCompiler(f"{command[0]} cannot build the agent:\n{done.stderr}")
    return path


def compiler_of(triple: str) -> list[str]:
    """Return the command of a C compiler that makes programs for a triple. Raises NoCompiler."""
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    if "android" in triple:
        folder = os.environ.get(NDK)
        if not folder:
            raise NoCompiler(f"{triple}: set {NDK} to the folder of Android's NDK")
        host = f"{platform.system().lower()}-x86_64"
        compiler = Path(folder) / "toolchains/llvm/prebuilt" / host / f"bin/{triple}{ANDROID_API}-clang"
        if not compiler.is_file():
            raise NoCompiler(f"{triple}: there is no {compiler}")
        return [str(compiler)]
    name = "cc" if triple == NATIVE else f"{triple}-gcc"
    if shutil.which(name) is None:
        package = "gcc" if triple == NATIVE else f"gcc-{triple}"
        raise NoCompiler(f"{triple}: there is no {name}; install it (Debian's {package}), or name a compiler in CC")
    return [name]


if __name__ == "__main__":
    main()
