"""Build native parts of gputune by the machine's C compiler when they are first used.

The wheel has their sources and no machine code, so it fits every machine. A part is a plain shared library, which is
kept in the user's cache folder under a name that stands for its sources, the compiler and the machine. Where there is
no compiler, or no folder that is safe from other users, gputune enqueues launches from Python, and cannot be a plugin
of onnxruntime.
"""

from __future__ import annotations

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

from gputune.core.ownership import untrusted
from gputune.runtime.native import FOLDER

log = logging.getLogger(__name__)

COMPILER = "GPUTUNE_CC"
"""The environment variable that names the C compiler for native parts; NONE for no native parts."""
NONE = "none"
_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-std=c99", "-O2", "-fPIC", "-fvisibility=hidden")
_LONGEST_SECONDS = 60.0
_ERROR = re.compile(r":\d+: .*error: |undefined")
"""The line of a compiler or linker that says what is wrong; other lines, which name the function, precede it."""
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
        library = folder / f"{name}-{_digest(part, compiler)}.so"
        if not library.exists():
            _build(part, compiler, library)
        why = untrusted(library)
    except OSError as error:
        raise NotBuilt(f"{error.filename or name}: {error.strerror or error}") from None
    if why:
        raise NotBuilt(f"{library} {why}")
    return library


def _digest(part: Part, compiler: Sequence[str]) -> str:
    """Return what stands for all that decides about a library. Raises OSError."""
    files = *part.compiled(), *part.included(), *part.scripts()
    texts = [(path.relative_to(FOLDER).as_posix(), path.read_bytes()) for path in files]
    key = repr((texts, part.libraries, part.exports, compiler, _OPTIONS, platform.machine(), sys.maxsize))
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _compiler() -> list[str]:
    """The command that compiles. Raises NotBuilt."""
    named = os.environ.get(COMPILER) or os.environ.get("CC")
    if named == NONE:
        raise NotBuilt(f"{COMPILER} is {NONE!r}")
    if not named:
        named = next((one for one in _COMPILERS if shutil.which(one)), "")
        if not named:
            raise NotBuilt(f"there is no C compiler ({', '.join(_COMPILERS)}); install one, or name it by {COMPILER}")
    try:
        return shlex.split(named)
    except ValueError as error:
        raise NotBuilt(f"the compiler {named!r} is no command: {error}") from None


def _folder() -> Path:
    """The user's folder for native parts, which no other user can write to. Raises NotBuilt, OSError."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(named) if named else Path.home() / ".cache") / "gputune" / "native"
    except RuntimeError:
        raise NotBuilt("the user has no home folder") from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if why := untrusted(folder):
        raise NotBuilt(f"{folder} {why}")
    return folder


def _build(part: Part, compiler: list[str], library: Path) -> None:
    """Build a part to its place at once, because other processes may do the same. Raises NotBuilt, OSError."""
    sources = part.compiled()
    if len(sources) >= _MANY_FILES:
        log.info("building %s from %d files with %s, once; this takes some seconds", library, len(sources), compiler[0])
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as made:
        built = Path(made) / library.name
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
        _run(link, f"to link {library.name}")
        built.chmod(0o700)
        built.replace(library)


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
