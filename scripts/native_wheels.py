"""Make a wheel for a kind of machine from the wheel for all: it has the libraries of native parts, too.

PyPI's ziglang compiles them, for each kind with its own C library: glibc 2.28 or newer, or musl. The sources are those
of the wheel, so the names of the libraries are those that its Python code looks for.
"""

import base64
import hashlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gputune.runtime.native.building import LIBRARIES, PARTS, build

TARGETS = {
    "manylinux_2_28_x86_64": "x86_64-linux-gnu.2.28",
    "manylinux_2_28_aarch64": "aarch64-linux-gnu.2.28",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
}
"""By the name that pip has for a kind of machine, ziglang's."""
INCLUDED = ("runtime", "onnxruntime")
_FOR_ALL = "py3-none-any"
_NATIVE = "gputune/runtime/native/"
_CACHES = ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")


def write_wheel(wheel: Path, kind: str, zig: Sequence[str], work: Path) -> Path:
    """Write the wheel for a kind of machine beside that for all; return its path.

    zig: the command of ziglang; work: a folder for what it keeps. Raises NotBuilt.
    """
    compiler = [*zig, "cc", "-target", TARGETS[kind]]
    libraries = work / kind
    libraries.mkdir(parents=True)
    sources = zipfile.Path(wheel, _NATIVE)
    with _caches(work / "zig"):
        for name in INCLUDED:
            part = PARTS[name]
            files = part.files(sources)
            build(part, files, compiler, libraries, f"{name}-{part.digest(files)}-")
    return _with_files(wheel, kind, {f"{_NATIVE}{LIBRARIES}/{path.name}": path for path in sorted(libraries.iterdir())})


@contextmanager
def _caches(folder: Path) -> Iterator[None]:
    """Have ziglang keep what it has made in a folder, else a second build would not compile."""
    before = {name: os.environ.get(name) for name in _CACHES}
    os.environ.update(dict.fromkeys(_CACHES, str(folder)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})


def _with_files(wheel: Path, kind: str, added: dict[str, Path]) -> Path:
    """Write a wheel with more files, all of them of the moment of its metadata."""
    made = wheel.with_name(wheel.name.replace("-any.whl", f"-{kind}.whl"))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        (about,) = (one for one in old.infolist() if one.filename.endswith(".dist-info/WHEEL"))
        record = about.filename.replace("/WHEEL", "/RECORD")
        for entry in old.infolist():
            if entry.filename not in (about.filename, record):
                new.writestr(entry, old.read(entry), zipfile.ZIP_DEFLATED)
        text = old.read(about).decode()
        text = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").replace(_FOR_ALL, f"py3-none-{kind}")
        contents = {**{name: path.read_bytes() for name, path in added.items()}, about.filename: text.encode()}
        lines = [line for line in old.read(record).decode().splitlines() if not line.startswith(f"{about.filename},")]
        lines[-1:-1] = [f"{name},{_digest(content)},{len(content)}" for name, content in contents.items()]
        contents[record] = "".join(f"{line}\n" for line in lines).encode()
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, about.date_time)
            entry.external_attr = (0o100755 if name in added else 0o100644) << 16
            new.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made


def _digest(content: bytes) -> str:
    """Return a digest as RECORD has it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
