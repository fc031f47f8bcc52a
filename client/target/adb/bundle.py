"""Build the bundle, one file with everything that gputune needs on a device besides Python, numpy and pyopencl.

    python gputune-target-server.pyz [options of gputune target-server]

It holds core/, runtime/, server/ and msgpack without its compiled part, as they are installed here, with the metadata
that names their versions and licences. Native parts are C sources, which a device with a compiler builds once. The same
installation gives the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

from gputune.runtime.native.building import PARTS

NAME = "gputune-target-server.pyz"
_PACKAGES = ("gputune", "gputune.core", "gputune.runtime", "gputune.server", "msgpack")
_DISTRIBUTIONS = ("gputune", "msgpack")
_SHEBANG = b"#!/usr/bin/env python3\n"
_BEGINNING_OF_ZIP_TIME = (1980, 1, 1, 0, 0, 0)

# It must be understood by any Python 3, so that an old one is told what is wrong.
_MAIN = '''"""Starts the target server from this bundle."""

import os
import sys

if sys.version_info < (3, 11):
    sys.exit("error: Python 3.11 or newer is needed, and this is %d.%d" % sys.version_info[:2])
bundle = os.path.abspath(sys.path[0])
sys.path[0] = bundle
# The worker and the probes are processes of their own that must find their modules here.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [bundle, os.environ.get("PYTHONPATH")]))
try:
    import numpy
except ImportError as error:
    sys.exit("error: numpy cannot be loaded: %s; install numpy and pyopencl" % error)

from gputune.server.__main__ import main

sys.exit(main())
'''


def write_bundle(path: Path) -> Path:
    """Write the bundle, executable; its folder is made. Returns the path. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bundle_bytes())
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)  # executable wherever readable
    return path


def bundle_bytes() -> bytes:
    """Return the bundle's content."""
    files = {"__main__.py": _MAIN.encode()}
    for package in _PACKAGES:
        files.update(_sources(package))
    files.update((f"gputune/runtime/native/{name}", text) for name, text in PARTS["runtime"].files().items())
    for name in _DISTRIBUTIONS:
        files.update(_metadata(name))
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    # Not compressed: compressors differ between machines, and it is read faster.
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _BEGINNING_OF_ZIP_TIME)
            entry.create_system = 3  # Unix, whichever system this is
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _sources(package: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name in the bundle and the content of each Python file of a package, found without importing it. Of
    `gputune` itself only its own files: its parts lie beside it in a checkout and below it where it is installed."""
    folder, itself = _folder(package), _folder("gputune")
    root = PurePosixPath(*package.split("."))
    for file in folder.glob("*.py") if folder == itself else folder.rglob("*.py"):
        if folder == itself or file.parent != itself:
            yield str(root / file.relative_to(folder).as_posix()), file.read_bytes()


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, package
    return Path(spec.origin).parent


def _metadata(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield what says which version of a distribution this is and under which licence it comes."""
    installed = distribution(name)
    folder = f"{name}-{installed.version}.dist-info"
    yield f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {installed.version}\n".encode()
    for file in installed.files or ():
        if file.parent.name == "licenses":
            yield f"{folder}/licenses/{file.name}", file.read_binary()
