"""Compile C for the tests: each source once for a state of it, for all test processes, with every warning an error."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gputune.core.whole_file import locked_folder
from gputune.runtime import native
from gputune.runtime.devices.drivers import opencl_library as opencl_library
from gputune.runtime.native.building import PARTS

BUILD = Path(__file__).parents[2] / "build" / "native"
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
OPTIMISED = ("-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wp,-D_FORTIFY_SOURCE=2")
"""What is written behind a buffer of a known size ends the process."""
LIBRARIES = ("-lm", "-ldl", "-pthread")
LINKING = ("-shared", "-Wl,")
INCLUDE = native.FOLDER / "include"
FOLDERS = tuple(f"-I{native.FOLDER / name}" for name in ("include", "src", "src/files", "agent", ""))
SOURCES = tuple(sorted((native.FOLDER / "src").glob("*/*.c")))
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
    part = PARTS["runtime"]
    sources = f'-DGPUTUNE_SOURCES="{part.digest(part.files())}"'  # else Python would refuse it
    return compiled("libgputune.so", SOURCES, (*OPTIMISED, "-shared", sources, *sanitizers()))


@functools.cache
def agent() -> Path:
    """Return gputune-agent of these sources. Raises AssertionError with what the compiler says."""
    sources = (*SOURCES, *sorted((native.FOLDER / "agent").glob("*.c")))
    return compiled("gputune-agent", sources, (*OPTIMISED, *sanitizers()))


@functools.cache
def driver(name: str, *sources: str) -> ctypes.CDLL:
    """Return a file of drivers/ with some of the native sources, as a library of its own.

    sources: names of the library's, or with a folder in front. Raises AssertionError with what the compiler says.
    """
    own = {path.stem: path for path in SOURCES}
    named = (native.FOLDER / f"{each}.c" if "/" in each else own[each] for each in sources)
    flags = (*OPTIMISED, "-fvisibility=default", *sanitizers())
    made = compiled(f"{name}.o", [Path(__file__).parent / "drivers" / f"{name}.c"], (*flags, "-c"))
    return ctypes.CDLL(str(compiled(f"{name}.so", [made, *named], (*OPTIMISED, *sanitizers(), "-shared"))))


def compiled(name: str, sources: Sequence[Path], flags: Sequence[str], strict: Sequence[str] = STRICT) -> Path:
    """Return the file that the compiler makes of C sources, in a folder named after their content and the flags.

    Each source is compiled once for all files that it is a part of. strict: for sources outside of the runtime. Raises
    AssertionError with what the compiler says.
    """
    flags = tuple(dict.fromkeys([*FOLDERS, *flags]))
    objects = [_object(source, flags, strict) for source in sources]
    return objects[0] if "-c" in flags else _made(name, [*flags, *map(str, objects), *LIBRARIES], objects)


def _object(source: Path, flags: Sequence[str], strict: Sequence[str]) -> Path:
    """Return the compiled form of a source, or a compiled one or library as it is.

    A name that the flags define is given to sources with it alone.
    """
    if source.suffix in (".o", ".so"):
        return source
    text = source.read_text(encoding="utf-8")
    own = [flag for flag in flags if not flag.startswith(LINKING)]
    own = [flag for flag in own if not flag.startswith("-D") or flag[2:].partition("=")[0] in text]
    is_ours = native.FOLDER in source.parents
    if is_ours:  # all programs share it, whatever their own sources are compiled with
        own = [*OPTIMISED, *(flag for flag in own if not flag.startswith(("-O", "-g")))]
    others = _files(".h") if is_ours else [*_files(".h", ".c"), *sorted(source.parent.glob("*.[ch]"))]
    arguments = [*(STRICT if is_ours else strict), *own, "-c", str(source)]
    return _made(f"{source.stem}.o", list(dict.fromkeys(arguments)), [source, *others])


def _made(name: str, arguments: Sequence[str], files: Sequence[Path]) -> Path:
    """Return the file that the compiler makes of arguments; it is made once for a state of these files."""
    command = [str(compiler()), *arguments]
    texts = [path.read_bytes() for path in files]
    digest = hashlib.sha256(b"\0".join([*map(os.fsencode, command), *texts])).hexdigest()
    path = BUILD / digest[:16] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked_folder(path.parent):  # other test processes want the same
        if not path.exists():
            unfinished = path.with_suffix(f".{os.getpid()}")
            done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            unfinished.replace(path)
    return path


@functools.cache
def _files(*suffixes: str) -> list[Path]:
    """Return the headers of the runtime and the agent, or their sources too, which tests include."""
    return sorted(path for path in native.FOLDER.rglob("*") if path.suffix in suffixes)


def environment() -> dict[str, str]:
    """For a program that is compiled for a sanitizer of its own, whatever Python has been started with."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
