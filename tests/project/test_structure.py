"""Test the structure of the code by structure.toml: imports, the doors of libraries, and how much is in one place."""

import functools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from .sources import ROOMS, ROOT, imports_of, python_files

RULES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("structure.toml").read_text(encoding="utf-8"))
ROOM_BELOW: Mapping[str, list[str]] = RULES["rooms"]
FOLDER_BELOW: Mapping[str, list[str]] = RULES["inner"]
LAYERS = 6
MOST_FILES = 12
MOST_LINES = 500

FILES = python_files(*ROOMS)
EVERYWHERE = python_files(*ROOMS, "tests", "scripts", "examples")


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    """A file's module below gputune."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room that a name below gputune belongs to; server.protocol and server.options are rooms of their own."""
    inner = ".".join(module.split(".")[:2])
    return inner if inner in ("server.protocol", "server.options") else inner.partition(".")[0]


def imported(path: Path, text: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield line and absolute dotted name of everything a file imports, or would with another text."""
    package = ["gputune", *path.relative_to(ROOT).parent.parts]
    for line, name in imports_of(path.read_text(encoding="utf-8") if text is None else text):
        inner = name.lstrip(".")
        if level := len(name) - len(inner):
            name = ".".join([*package[: len(package) - level + 1], inner])
        yield line, name


def through(path: Path, doors: Collection[str]) -> bool:
    name = short(path)
    return any(name == door or (door.endswith("/") and name.startswith(door)) for door in doors)


@functools.cache
def modules() -> dict[str, Path]:
    return {dotted(path): path for path in FILES}


@functools.cache
def folders() -> frozenset[str]:
    return frozenset(".".join(path.parent.relative_to(ROOT).parts) for path in FILES)


def module_of(name: str) -> str | None:
    """The module of ours that a name below gputune lies in, or is."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


def folder_of(module: str) -> str:
    while module not in folders():
        module = module.rpartition(".")[0]
    return module


def within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.")


def may_import(folder: str, other: str) -> bool:
    """Whether a file of a folder may import one of another folder of the same room."""
    if within(folder, other) or within(other, folder):
        return True
    return any(within(other, allowed) for allowed in FOLDER_BELOW.get(folder, ()))


def broken_rules(path: Path, text: str | None = None) -> list[str]:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    room, folder = room_of(module), ".".join(path.relative_to(ROOT).parent.parts)
    if folder == "core.api":
        return []
    found = []
    for line, name in imported(path, text):
        top, _, below = name.partition(".")
        where = f"{short(path)}:{line}"
        if top == "gputune":
            other = room_of(below)
            if other != room and other not in ROOM_BELOW[room]:
                found.append(f"{where} {room} may not import {name}")
            elif other == room and (there := module_of(below)) and not may_import(folder, folder_of(there)):
                found.append(f"{where} {folder} may not import {name}")
        elif top in RULES["standard"]:
            if not through(path, doors := RULES["standard"][top]):
                found.append(f"{where} {top} comes in only through {doors or 'no file at all'}")
        elif top not in sys.stdlib_module_names:
            if (doors := RULES["libraries"][room].get(top)) is None:
                found.append(f"{where} {room} may not use {top}")
            elif doors and not through(path, doors):
                found.append(f"{where} {top} comes in only through {doors}")
    return found


def test_imports_follow_the_table() -> None:
    assert [line for path in FILES for line in broken_rules(path)] == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kernels/space.py", "import gputune.cache.store"),
        ("cache/key.py", "import numpy"),
        ("core/launches.py", "from gputune.runtime import load"),
        ("runtime/contexts/executor.py", "from gputune.server import protocol"),
        ("runtime/contexts/executor.py", "def f():\n    import pyopencl.array"),
        ("runtime/devices/discovery.py", "from gputune.runtime.backends.null import NullBackend"),
        ("runtime/devices/discovery.py", "if TYPE_CHECKING:\n    from ..backends import null"),
        ("server/daemon.py", "from gputune.client.target import connecting"),
        ("server/worker/handlers.py", "from gputune.server.workers import supervisor"),
        ("server/protocol/messages.py", "from .. import daemon"),
        ("server/protocol/messages.py", "import msgpack"),
        ("client/tuning/tuner.py", "from gputune.server.daemon import main"),
        ("client/tuning/tuner.py", "import socket"),
        ("client/tuning/tuner.py", "from gputune.client.context.builder import build"),
        ("server/sessions/session.py", "import socket"),
        ("server/daemon.py", "import ssl"),
        ("client/generation/generator.py", "import click"),
        ("client/model/lowering/lowering.py", "from onnx import helper"),
        ("server/worker/__main__.py", "import pickle"),
        ("cache/lookup.py", "import sqlite3"),
    ],
)
def test_a_forbidden_import_is_found(file: str, text: str) -> None:
    assert len(broken_rules(ROOT / file, text)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("client/cli/main.py", "import click, rich"),
        ("client/folders.py", "import platformdirs"),
        ("client/tuning/tuner.py", "from gputune.server.protocol import messages"),
        ("client/tuning/tuner.py", "from gputune.client.model.plan import Plan"),
        (
            "server/protocol/codec.py",
            "import msgpack\nfrom . import framing\nfrom .errors import ProtocolError",
        ),
        (
            "server/worker/__main__.py",
            "from gputune.server.protocol.codec import encode\nfrom gputune.runtime.measuring import timing",
        ),
    ],
)
def test_an_allowed_import_is_not_reported(file: str, text: str) -> None:
    assert broken_rules(ROOT / file, text) == []


def dependencies() -> dict[str, set[str]]:
    """What each module imports of ours, for types only included."""
    found: dict[str, set[str]] = {}
    for module, path in modules().items():
        names = imported(path)
        ours = {module_of(name.removeprefix("gputune.")) for _, name in names if name.startswith("gputune.")}
        found[module] = {other for other in ours if other is not None} - {module}
    return found


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """One circle of a graph, empty where there is none."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := walk(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, []))), [])


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circle(dependencies()) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_every_folder_of_a_room_is_in_the_table() -> None:
    inner = {folder for folder in folders() if "." in folder} - {"core.api", "server.protocol"}
    assert inner == set(FOLDER_BELOW)
    assert circle(FOLDER_BELOW) == []


def test_the_rooms_of_the_client_are_at_most_six_layers() -> None:
    below: dict[str, set[str]] = {}
    for folder, others in FOLDER_BELOW.items():
        room, *inner = folder.split(".")
        if room == "client":
            outer = {".".join(other.split(".")[:2]) for other in others}
            below.setdefault(f"client.{inner[0]}", set()).update(outer - {f"client.{inner[0]}"})

    def depth(folder: str) -> int:
        return 1 + max(map(depth, below[folder]), default=0)

    assert max(map(depth, below)) <= LAYERS


def test_a_folder_holds_a_dozen_files() -> None:
    counts: dict[str, int] = {}
    for path in EVERYWHERE:
        if path.name != "__init__.py" and "tests" not in path.relative_to(ROOT).parts:
            folder = short(path.parent)
            counts[folder] = counts.get(folder, 0) + 1
    assert {folder for folder, count in counts.items() if count > MOST_FILES} == set(RULES["many_files"])


def test_files_are_short() -> None:
    """Of functions, ruff counts the statements."""
    lines = {short(path): path.read_bytes().count(b"\n") for path in EVERYWHERE}
    assert [name for name, count in lines.items() if count > MOST_LINES] == []


SUBJECT = re.compile(r"[a-z][a-z0-9_/, -]*: [a-z`\"].*[^.]")
SUBJECTS_SINCE = "2026-11-22T17:00:00+00:00"


def test_commits_say_room_and_what_they_do() -> None:
    """`room: imperative`, at most 72 characters, of all commits since this rule."""
    command = ["git", "log", "--no-merges", f"--since={SUBJECTS_SINCE}", "--format=%s"]
    try:
        log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    except OSError:
        pytest.skip("there is no git")
    if log.returncode:
        pytest.skip("this is no clone with a history")
    wrong = [line for line in log.stdout.splitlines() if len(line) > 72 or not SUBJECT.fullmatch(line)]
    assert wrong == []
