"""Build native parts of gputune by the machine's C compiler when they are first used.

The wheel has their sources and no machine code, so it fits every machine. A part is a plain shared library, which is
kept in the user's cache folder. Its name stands for its sources, the compiler and the machine, and for its own content:
a process that runs a library whose content was lost, as by a power failure, would end without a word. So the content is
compared with the name before a library is returned, and a library that has lost it is built again. One process builds
at a time, and removes what killed ones have left.

Where there is no compiler, or no folder that is safe from other users, gputune enqueues launches from Python, and
cannot be a plugin of onnxruntime.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gputune.core.files import read_file
from gputune.core.ownership import untrusted
from gputune.core.whole_file import locked_folder, sync
from gputune.runtime.native import FOLDER

log = logging.getLogger(__name__)

COMPILER = "GPUTUNE_CC"
"""The environment variable that names the C compiler for native parts; NONE for no native parts."""
NONE = "none"
_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-std=c99", "-O2", "-fPIC", "-fvisibility=hidden")
_LONGEST_SECONDS = 60.0
_LONGEST_WAIT_S = 120.0
"""For another process that builds; a longer one may have been stopped."""
_ERROR = re.compile(r":\d+: .*error: |undefined")
"""The line of a compiler or linker that says what is wrong; other lines, which name the function, precede it."""
_UNFINISHED = "build-"
"""The front of a folder in which a part is built."""
_MANY_FILES = 8
"""So many take a while, which is said before."""


class NotBuilt(Exception):
    """A native part cannot be used; the message says why."""


@dataclass(frozen=True)
class Part:
    """Say what a library is built from: sources, folders of headers and a linker script, below native/.

    exports: the script with the only names that the library shows, where its headers would show more."""

    sources: tuple[str, ...]
    headers: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    exports: str = ""

    def compiled(self) -> list[Path]:
        """Return the files that are compiled."""
        return [path for pattern in self.sources for path in sorted(FOLDER.glob(pattern))]

    def included(self) -> list[Path]:
        """Return the files that the sources may include."""
        return [path for folder in self.headers for path in sorted((FOLDER / folder).glob("*.h"))]

    def scripts(self) -> list[Path]:
        """Return the files that the linker reads."""
        return [FOLDER / self.exports] if self.exports else []


PARTS = {
    "loop": Part(("loop/*.c",)),
    "runtime": Part(("src/*.c",), headers=("include", "src"), libraries=("-lm", "-ldl", "-pthread")),
    "onnxruntime": Part(
        ("src/*.c", "onnxruntime/*.c"),
        headers=("include", "src", "onnxruntime"),
        libraries=("-lm", "-ldl", "-pthread"),
        exports="onnxruntime/exports.map",
    ),
}


@functools.cache
def native_part(name: str) -> Path:
    """Return the library of a part; build it if it is not there yet. Raises NotBuilt."""
    part = PARTS[name]
    if not part.compiled():
        raise NotBuilt(f"the C sources of {name} are not here")  # as in a bundle for devices
    compiler = _compiler()
    try:
        folder = _folder()
        front = f"{name}-{_digest(part, compiler)}-"
        return _built(folder, front) or _build_alone(part, compiler, folder, front)
    except OSError as error:
        raise NotBuilt(f"{error.filename or name}: {error.strerror or error}") from None


def _built(folder: Path, front: str) -> Path | None:
    """Return the library whose name begins so and that is as it was built; None where there is none. Raises NotBuilt
    for a library that another user could change, OSError."""
    for library in sorted(folder.glob(f"{front}*.so")):
        if why := untrusted(library):
            raise NotBuilt(f"{library} {why}")
        with contextlib.suppress(OSError):  # what cannot be read is damaged, too
            if library.name == _name(front, library):
                return library
    return None


def _name(front: str, library: Path) -> str:
    """Return the name that stands for the content of a library. Raises OSError."""
    return f"{front}{hashlib.sha256(read_file(library)).hexdigest()[:16]}.so"


def _digest(part: Part, compiler: Sequence[str]) -> str:
    """Return what stands for all that decides about a library. Raises OSError."""
    files = *part.compiled(), *part.included(), *part.scripts()
    texts = [(path.relative_to(FOLDER).as_posix(), path.read_bytes()) for path in files]
    key = repr((texts, part.libraries, part.exports, compiler, _OPTIONS, platform.machine(), sys.maxsize))
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _compiler() -> list[str]:
    """Return the command that compiles. Raises NotBuilt."""
    named = os.environ.get(COMPILER) or os.environ.get("CC")
    if named == NONE:
        raise NotBuilt(f"{COMPILER} is {NONE!r}")
    if not named:
        named = next((one for one in _COMPILERS if shutil.which(one)), "")
        if not named:
            raise NotBuilt(f"there is no C compiler ({', '.join(_COMPILERS)}); install one, or name it by {COMPILER}")
    try:
        if command := shlex.split(named):
            return command
        why = "it is empty"
    except ValueError as error:
        why = str(error)
    raise NotBuilt(f"the compiler {named!r} is no command: {why}")


def _folder() -> Path:
    """Return the user's folder for native parts, which no other user can write to. Raises NotBuilt, OSError."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(named) if named else Path.home() / ".cache") / "gputune" / "native"
    except RuntimeError:
        raise NotBuilt("the user has no home folder") from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if why := untrusted(folder):
        raise NotBuilt(f"{folder} {why}")
    return folder


def _build_alone(part: Part, compiler: list[str], folder: Path, front: str) -> Path:
    """Build a part, unless another process does so meanwhile; return the library. Raises NotBuilt, OSError."""
    with locked_folder(folder, _LONGEST_WAIT_S) as held:
        if library := _built(folder, front):
            return library
        for damaged in folder.glob(f"{front}*.so"):
            log.warning("%s is not what was built, as after a power failure or with a full disk: building it", damaged)
            if held:
                damaged.unlink()
        for left in folder.glob(f"{_UNFINISHED}*") if held else ():  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        return _build(part, compiler, folder, front)


def _build(part: Part, compiler: list[str], folder: Path, front: str) -> Path:
    """Build a part to its place at once; return the library. Raises NotBuilt, OSError."""
    sources = part.compiled()
    if len(sources) >= _MANY_FILES:
        into = folder / front[:-1]
        log.info("building %s from %d files with %s, once; this takes some seconds", into, len(sources), compiler[0])
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as made:
        built = Path(made) / f"{front}.so"
        objects = [Path(made) / f"{number}.o" for number in range(len(sources))]
        compile_one = [*compiler, *_OPTIONS, *(f"-I{FOLDER / folder}" for folder in part.headers), "-c"]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            commands = (
                ([*compile_one, str(source), "-o", str(into)], source.name)
                for source, into in zip(sources, objects, strict=True)
            )
            list(threads.map(lambda command: _run(*command), commands))
        scripts = [f"-Wl,--version-script={path}" for path in part.scripts()]
        link = [*compiler, "-shared", "-o", str(built), *map(str, objects), *part.libraries, *scripts]
        _run(link, f"to link {front[:-1]}")
        if not built.is_file():
            raise NotBuilt(f"{compiler[0]} has written no library: is it a C compiler?")
        built.chmod(0o700)
        sync(built)
        library = folder / _name(front, built)
        built.replace(library)
    with contextlib.suppress(OSError):  # not every file system can; a library that is lost is built again
        sync(folder)
    return library


def _run(command: list[str], what: str) -> None:
    """Run the compiler. Raises NotBuilt, OSError."""
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{command[0]} took more than {_LONGEST_SECONDS:g} s for {what}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
        why = next(filter(_ERROR.search, said), said[0])
        raise NotBuilt(f"{command[0]} refuses {what}: {why[:200]}")
