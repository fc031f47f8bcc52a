"""Find the native parts of gputune, or build them by the machine's C compiler when they are first used.

A part is a plain shared library that is named after its sources. A wheel for a kind of machine has it in lib/. The
other wheel, the sdist, a checkout and the bundle for a device have sources only, so they fit every machine. Those are
compiled once, into the user's cache folder, by a compiler of the system or of PyPI's ziglang.

A library's name stands for its sources, in the cache also for the compiler and the machine, and for its own content: a
process that runs a library whose content was lost, as by a power failure, would end without a word. So the content is
compared with the name before a library is returned, and a library that has lost it is built again. One process builds
at a time, and removes what killed ones have left.

Where there is neither a library nor a compiler, nor a folder that is safe from other users, no context runs, and
gputune cannot be a plugin of onnxruntime. `why_no_runtime` says so, with what to do. For an image or a device without
a compiler, `python -m gputune.runtime.native.building` puts the libraries into the installed package.
"""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from gputune.core.files import read_file
from gputune.core.ownership import untrusted
from gputune.core.whole_file import locked_folder, sync
from gputune.runtime.native import SOURCES

log = logging.getLogger(__name__)

COMPILER = "GPUTUNE_CC"
"""The environment variable that names the C compiler for native parts; NONE for no native parts."""
NONE = "none"
RUNTIME_LIBRARY = "GPUTUNE_RUNTIME_LIBRARY"
"""The environment variable that names the library of the C runtime, such as one with a sanitizer."""
REMEDY = (
    "install a C compiler, such as Debian's gcc or PyPI's ziglang, or the wheel of gputune for this kind of machine"
)
REMEDY_OF_BUNDLES = (
    "install a C compiler on the device, such as Termux's clang, or use gputune's agent, which needs none (--adb_agent)"
)
LIBRARIES = "lib"
"""The folder of a wheel's libraries, below native/."""
FOLDER: Traversable = resources.files("gputune.runtime.native")
"""The folder of sources, which lies in an archive if gputune does."""
_COMPILERS = ("cc", "gcc", "clang")
_ZIG = "ziglang"
"""The package of PyPI with a C compiler, for those who cannot install one into the system."""
_OPTIONS = ("-std=c99", "-O2", "-fPIC", "-fvisibility=hidden")
_LONGEST_SECONDS = 300.0
"""For a file; ziglang makes its libraries of C with the first one."""
_LONGEST_WAIT_S = 300.0
"""For another process that builds; a longer one may have been stopped."""
_ERROR = re.compile(r":\d+: .*error: |undefined")
"""The line of a compiler or linker that says what is wrong; other lines, which name the function, precede it."""
_LINKED = "linked.so"
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

    def compiled(self, files: Iterable[str]) -> list[str]:
        """Return the names of those files that are compiled."""
        return [name for name in files if any(fnmatch.fnmatch(name, pattern) for pattern in self.sources)]

    def files(self, folder: Traversable | None = None) -> dict[str, bytes]:
        """Return all files that a library is built from: sources, what they may include, and what the linker reads."""
        patterns = [*self.sources, *(f"{name}/*.h" for name in self.headers), *([self.exports] if self.exports else [])]
        return {name: text for pattern in patterns for name, text in _matching(folder or FOLDER, pattern)}

    def digest(self, files: Mapping[str, bytes]) -> str:
        """Return what stands for all that this library is built from."""
        return _digest([*files.items()], self.libraries, self.exports)


def _matching(root: Traversable, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and texts of files below a folder, in the order of names."""
    folder, _, wanted = pattern.rpartition("/")
    place = root.joinpath(folder) if folder else root
    names = sorted(one.name for one in place.iterdir()) if place.is_dir() else []
    for name in fnmatch.filter(names, wanted):
        yield f"{folder}/{name}" if folder else name, place.joinpath(name).read_bytes()


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


_RUNTIME = tuple(f"{folder}/*.c" for folder in SOURCES)
PARTS = {
    "runtime": Part(_RUNTIME, headers=("include", *SOURCES), libraries=("-lm", "-ldl", "-pthread")),
    "onnxruntime": Part(
        (*_RUNTIME, "onnxruntime/*.c"),
        headers=("include", *SOURCES, "onnxruntime"),
        libraries=("-lm", "-ldl", "-pthread"),
        exports="onnxruntime/exports.map",
    ),
}


@functools.cache
def native_part(name: str) -> Path:
    """Return the library of a part, the wheel's or a compiled one; build it if it is not there yet. Raises NotBuilt."""
    part = PARTS[name]
    try:
        files = part.files()
        if not part.compiled(files):
            raise NotBuilt(f"the C sources of {name} are not here")
        named = os.environ.get(COMPILER) or os.environ.get("CC")
        if named == NONE:
            raise NotBuilt(f"{COMPILER} is {NONE!r}")
        sources = part.digest(files)
        if isinstance(FOLDER, Path) and (library := _whole(FOLDER / LIBRARIES, f"{name}-{sources}-")):
            return library
        compiler = _compiler(named)
        folder = _folder()
        front = f"{name}-{_digest(sources, compiler, _OPTIONS, platform.machine(), sys.maxsize)}-"
        return _built(folder, front) or _build_alone(part, files, compiler, folder, front)
    except OSError as error:
        raise NotBuilt(f"{error.filename or name}: {error.strerror or error}") from None


@functools.cache
def runtime_library() -> Path:
    """Return the library of the C runtime, or what RUNTIME_LIBRARY names. Raises NotBuilt, also for one that was built
    from other sources than this Python code."""
    if not (named := os.environ.get(RUNTIME_LIBRARY)):
        return _checked(native_part("runtime"))
    try:
        path = Path(named).resolve(strict=True)
        why = untrusted(path)
    except OSError as error:
        raise NotBuilt(f"{RUNTIME_LIBRARY}: {named} cannot be used: {error.strerror}") from None
    if why:
        raise NotBuilt(f"{RUNTIME_LIBRARY}: {path} {why}")
    return _checked(path)


@functools.cache
def why_no_runtime() -> str:
    """Return why no context can run here in C, and what to do, in one line; empty if they can."""
    try:
        runtime_library()
    except NotBuilt as error:
        return f"the C runtime is not here: {error}; {REMEDY if isinstance(FOLDER, Path) else REMEDY_OF_BUNDLES}"
    return ""


def origin_of(library: Path) -> str:
    """Return where the library of the C runtime comes from, as a phrase."""
    if os.environ.get(RUNTIME_LIBRARY):
        return f"by {RUNTIME_LIBRARY}"
    if isinstance(FOLDER, Path) and library.parent == FOLDER / LIBRARIES:
        return "from the wheel"
    return "compiled on this machine"


def _checked(path: Path) -> Path:
    """Return the library of a C runtime that was built from these sources. Raises NotBuilt for another one."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NotBuilt(f"{path} cannot be loaded: {error}") from None
    found = b"an older version"
    with contextlib.suppress(AttributeError):
        library.gputune_version.restype = ctypes.c_char_p
        found = library.gputune_version()
    part = PARTS["runtime"]
    sources = part.digest(part.files())
    if found.partition(b"+")[2].decode() != sources:
        raise NotBuilt(f"{path} is of another gputune ({found.decode()}) than this Python code (sources {sources})")
    return path


def _built(folder: Path, front: str) -> Path | None:
    """Return the library whose name begins so and that is as it was built; None where there is none. Raises NotBuilt
    for a library that another user could change, OSError."""
    for library in sorted(folder.glob(f"{front}*.so")):
        if why := untrusted(library):
            raise NotBuilt(f"{library} {why}")
    return _whole(folder, front)


def _whole(folder: Path, front: str) -> Path | None:
    """Return the first library whose name begins so and stands for its content; None where there is none."""
    for library in sorted(folder.glob(f"{front}*.so")):
        with contextlib.suppress(OSError):  # what cannot be read is damaged, too
            if library.name == _name(front, library):
                return library
    return None


def _name(front: str, library: Path) -> str:
    """Return the name that stands for the content of a library. Raises OSError."""
    return f"{front}{hashlib.sha256(read_file(library)).hexdigest()[:16]}.so"


def _compiler(named: str | None) -> list[str]:
    """Return the command that compiles. Raises NotBuilt."""
    if not named:
        named = next((one for one in _COMPILERS if shutil.which(one)), "")
        if not named and importlib.util.find_spec(_ZIG):
            return [sys.executable, "-m", _ZIG, "cc"]
        if not named:
            raise NotBuilt(f"there is no C compiler ({', '.join(_COMPILERS)}), and {COMPILER} names none")
    try:
        if command := shlex.split(named):
            own = str(Path(command[0]).absolute()) if os.sep in command[0] else command[0]  # called in another folder
            return [own, *command[1:]]
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


def _build_alone(part: Part, files: Mapping[str, bytes], compiler: Sequence[str], folder: Path, front: str) -> Path:
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
        if (count := len(part.compiled(files))) >= _MANY_FILES:
            what = f"building {folder / front[:-1]} from {count} files with {compiler[0]}, once"
            log.info("%s; this takes some seconds", what)
        return build(part, files, compiler, folder, front)


def build(part: Part, files: Mapping[str, bytes], compiler: Sequence[str], folder: Path, front: str) -> Path:
    """Compile files to a library that gets its place in a folder at once, under a name that begins so; return it. The
    same files and compiler make the same bytes everywhere. Raises NotBuilt, OSError."""
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as made:
        place = Path(made)
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(text)
        sources = part.compiled(files)
        defined = f'-DGPUTUNE_SOURCES="{part.digest(files)}"'
        compile_one = [*compiler, *_OPTIONS, defined, *(f"-I{folder}" for folder in part.headers), "-c"]

        def compile_to(number: int, name: str) -> None:
            _run([*compile_one, name, "-o", f"{number}.o"], PurePosixPath(name).name, place)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(compile_to, range(len(sources)), sources))
        objects = [f"{number}.o" for number in range(len(sources))]
        scripts = [f"-Wl,--version-script={part.exports}"] if part.exports else []
        link = [*compiler, "-shared", "-s", "-o", _LINKED, *objects, *part.libraries, *scripts]
        _run(link, f"to link {front[:-1]}", place)
        built = place / _LINKED
        if not built.is_file():
            raise NotBuilt(f"{compiler[0]} has written no library: is it a C compiler?")
        built.chmod(0o700)
        sync(built)
        library = folder / _name(front, built)
        built.replace(library)
    with contextlib.suppress(OSError):  # not every file system can; a library that is lost is built again
        sync(folder)
    return library


def _run(command: list[str], what: str, folder: Path) -> None:
    """Run the compiler in a folder. Raises NotBuilt, OSError."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LONGEST_SECONDS, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{command[0]} took more than {_LONGEST_SECONDS:g} s for {what}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
        why = next(filter(_ERROR.search, said), said[0])
        raise NotBuilt(f"{command[0]} refuses {what}: {why[:200]}")


def main() -> int:
    """Build all parts into the package that is installed, where every user may read them; return the exit code."""
    if not isinstance(FOLDER, Path):
        print("gputune is in an archive, which can get no libraries; unpack it first", file=sys.stderr)
        return 1
    try:
        (folder := FOLDER / LIBRARIES).mkdir(exist_ok=True)
        for name, part in PARTS.items():
            files = part.files()
            compiler = _compiler(os.environ.get(COMPILER) or os.environ.get("CC"))
            library = build(part, files, compiler, folder, f"{name}-{part.digest(files)}-")
            library.chmod(0o755)
            print(library)
    except (NotBuilt, OSError) as error:
        print(f"the native parts are not built: {error}; {REMEDY}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
