"""Compile the C runtime for the tests: once for a state of the sources, with every warning an error."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gputune.runtime import native
from gputune.runtime.devices.drivers import opencl_library as opencl_library

BUILD = Path(__file__).parents[2] / "build" / "native"
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
OPTIMISED = ("-O2", "-g", "-fPIC", "-fvisibility=hidden")
LIBRARIES = ("-lm", "-ldl", "-pthread")
INCLUDE = native.FOLDER / "include"
SOURCES = tuple(sorted((native.FOLDER / "src").glob("*.c")))
SANITIZERS = "GPUTUNE_TEST_SANITIZERS"
"""The environment variable that names what the library is compiled with beside, such as "address,undefined"."""


def compiler() -> str | None:
    """The system's C compiler."""
    return shutil.which(os.environ.get("CC", "cc"))


@functools.cache
def sanitizers() -> tuple[str, ...]:
    """The flags for what the environment asks for."""
    wanted = os.environ.get(SANITIZERS, "")
    return (f"-fsanitize={wanted}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer") if wanted else ()


@functools.cache
def library() -> Path:
    """libgputune.so of these sources. Raises AssertionError with what the compiler says."""
    return compiled("libgputune.so", SOURCES, (*OPTIMISED, "-shared", f"-I{INCLUDE}", *sanitizers()))


@functools.cache
def agent() -> Path:
    """Return gputune-agent of these sources. Raises AssertionError with what the compiler says."""
    folders = [native.FOLDER / name for name in ("include", "src", "agent")]
    sources = (*SOURCES, *sorted((native.FOLDER / "agent").glob("*.c")))
    return compiled("gputune-agent", sources, (*OPTIMISED, *(f"-I{each}" for each in folders), *sanitizers()))


@functools.cache
def driver(name: str, *sources: str) -> ctypes.CDLL:
    """Return a file of drivers/ with some of the native sources, as a library of its own.

    sources: names of the library's, or with a folder in front. Raises AssertionError with what the compiler says.
    """
    named = (native.FOLDER / (f"{each}.c" if "/" in each else f"src/{each}.c") for each in sources)
    files = [Path(__file__).parent / "drivers" / f"{name}.c", *named]
    folders = (f"-I{folder}" for folder in (INCLUDE, native.FOLDER / "src", native.FOLDER / "agent"))
    flags = (*OPTIMISED, "-fvisibility=default", "-shared", *folders, *sanitizers())
    return ctypes.CDLL(str(compiled(f"{name}.so", files, flags)))


def compiled(name: str, sources: Sequence[Path], flags: Sequence[str], strict: Sequence[str] = STRICT) -> Path:
    """What the compiler makes of C sources, in a folder that is named after their content and the flags. Raises
    AssertionError with what the compiler says."""
    command = [str(compiler()), *strict, *flags, *map(str, sources), *LIBRARIES]
    own = (path for folder in {path.parent for path in sources} for path in folder.glob("*.h"))
    ours = (path for folder in ("src", "agent", "include") for path in (native.FOLDER / folder).iterdir())
    headers = sorted({*ours, *own})
    texts = [path.read_bytes() for path in (*sources, *headers)]
    digest = hashlib.sha256(b"\0".join([*map(os.fsencode, command), *texts])).hexdigest()
    path = BUILD / digest[:16] / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        unfinished.replace(path)  # another test process may do the same
    return path


def environment() -> dict[str, str]:
    """For a program that is compiled for a sanitizer of its own, whatever Python has been started with."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
