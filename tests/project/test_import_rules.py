"""Who may import whom, and the door each outside library comes in by. ARCHITECTURE.md gives the reasons."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MAY_IMPORT = {
    "kernels": {"kernels"},
    "cache": {"cache"},
    "runtime": {"runtime"},
    "server.protocol": {"server.protocol"},
    "server": {"server", "server.protocol", "runtime"},
    "client": {"client", "kernels", "cache", "runtime", "server.protocol"},
}

# Outside libraries a room may use; those with doors may be imported by these files only.
LIBRARIES: dict[str, dict[str, set[str] | None]] = {
    "kernels": {"numpy": None},
    "cache": {},
    "runtime": {
        "numpy": None,
        "pyopencl": {"runtime/backends/opencl.py"},
        "msgpack": {"runtime/context_format.py"},
    },
    "server.protocol": {"numpy": None, "msgpack": {"server/protocol/codec.py"}},
    "server": {"numpy": None},
    "client": {
        "numpy": None,
        "rich": None,
        "adbutils": {"client/adb_device.py"},
        "onnx": {"client/importer/", "client/onnx_backend.py", "client/oracle.py"},
        "onnxruntime": {"client/oracle.py"},
        "click": {"client/cli/"},
        "platformdirs": {"client/cli/"},
    },
}

# Parts of the standard library with one door. pickle has none: nothing on the wire or on disk is pickle.
DOORS = {
    "sqlite3": {"cache/database.py", "cache/opening.py"},
    "socket": {"server/listener.py", "server/worker_process.py", "client/stream.py", "client/doctor/target.py"},
    "ssl": {"server/guard.py", "client/credentials.py", "client/stream.py"},
    "pickle": set(),
    "marshal": set(),
    "shelve": set(),
}

FILES = sorted(
    path
    for room in ("cache", "client", "kernels", "runtime", "server")
    for path in (ROOT / room).rglob("*.py")
    if "__pycache__" not in path.parts
)


def room_of(dotted: str) -> str:
    """The room that a name below gputune belongs to; server.protocol is a room of its own."""
    parts = dotted.split(".")
    return "server.protocol" if parts[:2] == ["server", "protocol"] else parts[0]


def imported(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything a file imports, wherever in the file it does so."""
    package = ["gputune", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            # `from gputune.server import protocol` imports a room by its last word.
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def through(path: Path, doors: set[str]) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name == door or (door.endswith("/") and name.startswith(door)) for door in doors)


def broken_rules(path: Path, source: str) -> list[str]:
    room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = []
    for line, name in imported(path, ast.parse(source)):
        top, _, below = name.partition(".")
        where = f"{path.relative_to(ROOT)}:{line}"
        if top == "gputune":
            if room_of(below) not in MAY_IMPORT[room]:
                found.append(f"{where} {room} may not import {name}")
        elif top in DOORS:
            if not through(path, DOORS[top]):
                found.append(f"{where} {top} comes in only through {sorted(DOORS[top]) or 'no file at all'}")
        elif top not in sys.stdlib_module_names:
            if top not in LIBRARIES[room]:
                found.append(f"{where} {room} may not use {top}")
            elif (doors := LIBRARIES[room][top]) is not None and not through(path, doors):
                found.append(f"{where} {top} comes in only through {sorted(doors)}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_follow_the_table(path: Path) -> None:
    assert broken_rules(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("kernels/space.py", "import gputune.cache.store"),
        ("cache/key.py", "import numpy"),
        ("runtime/executor.py", "from gputune.server import protocol"),
        ("runtime/executor.py", "def f():\n    import pyopencl.array"),
        ("server/daemon.py", "from gputune.client import target"),
        ("server/protocol/messages.py", "from .. import daemon"),
        ("server/protocol/messages.py", "import msgpack"),
        ("client/tuning/tuner.py", "from gputune.server.daemon import main"),
        ("client/tuning/tuner.py", "import socket"),
        ("server/session.py", "import socket"),
        ("server/daemon.py", "import ssl"),
        ("client/generator.py", "import click"),
        ("client/lowering/lowering.py", "from onnx import helper"),
        ("server/worker.py", "import pickle"),
        ("cache/tier.py", "import sqlite3"),
    ],
)
def test_a_forbidden_import_is_found(file: str, source: str) -> None:
    assert len(broken_rules(ROOT / file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("client/cli/main.py", "import click, platformdirs"),
        ("client/tuning/tuner.py", "from gputune.server.protocol import messages"),
        (
            "server/protocol/codec.py",
            "import msgpack\nfrom . import framing\nfrom .errors import ProtocolError",
        ),
        (
            "server/worker.py",
            "from gputune.server.protocol.codec import encode\nfrom gputune.runtime import profiler",
        ),
    ],
)
def test_an_allowed_import_is_not_reported(file: str, source: str) -> None:
    assert broken_rules(ROOT / file, source) == []
