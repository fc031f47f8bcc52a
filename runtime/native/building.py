"""Build native parts of gputune by the machine's C compiler when they are first used.

The wheel has their sources and no machine code, so it fits every machine. A part is a plain shared library, which is
kept in the user's cache folder under a name that stands for its source, the compiler and the machine. Every part can be
done without: where there is no compiler, or no folder that is safe from other users, Python does the same more slowly.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gputune.core.ownership import untrusted
from gputune.runtime.native import FOLDER

COMPILER = "GPUTUNE_CC"
"""The environment variable that names the C compiler for native parts; NONE for no native parts."""
NONE = "none"
_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-std=c99", "-O2", "-fPIC", "-shared", "-fvisibility=default")
_LONGEST_SECONDS = 60.0


class NotBuilt(Exception):
    """A native part cannot be used; the message says why."""


@functools.cache
def native_part(name: str) -> Path:
    """Return the library of a part, whose source is native/NAME/NAME.c; build it if it is not there yet. Raises
    NotBuilt."""
    source = FOLDER / name / f"{name}.c"
    command = [*_compiler(), *_OPTIONS]
    key = [source.read_text(encoding="utf-8"), *command, platform.machine(), str(sys.maxsize)]
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    try:
        folder = _folder()
        library = folder / f"{name}-{digest}.so"
        if not library.exists():
            _build(source, command, library)
        why = untrusted(library)
    except OSError as error:
        raise NotBuilt(f"{error.filename or name}: {error.strerror or error}") from None
    if why:
        raise NotBuilt(f"{library} {why}")
    return library


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


def _build(source: Path, command: list[str], library: Path) -> None:
    """Compile a part to its place at once, because other processes may do the same. Raises NotBuilt, OSError."""
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as made:
        built = Path(made) / library.name
        whole = [*command, "-o", str(built), str(source)]
        try:
            done = subprocess.run(whole, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            raise NotBuilt(f"{command[0]} took more than {_LONGEST_SECONDS:g} s for {source.name}") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise NotBuilt(f"{command[0]} refuses {source.name}: {said[0][:200] if said else 'it says nothing'}")
        built.chmod(0o700)
        built.replace(library)
