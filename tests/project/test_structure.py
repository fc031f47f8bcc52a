"""Test the structure of the code: which folder may import which, how much is in one place, and the doors of libraries.

Each outside library comes in by one file. ARCHITECTURE.md gives the reasons.
"""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from .sources import ROOMS, ROOT, Source, python_files, source, source_of

MAY_IMPORT: Mapping[str, set[str]] = {
    "core": set(),
    "kernels": {"core"},
    "cache": {"core"},
    "runtime": {"core"},
    "server.protocol": {"core"},
    "server.options": {"core", "runtime", "server.protocol"},
    "server": {"core", "runtime", "server.protocol", "server.options"},
    "client": {"core", "kernels", "cache", "runtime", "server.protocol", "server.options"},
}
"""Of the rooms among each other. core/api/ is `gputune` itself and starts the command line."""

BELOW: Mapping[str, set[str]] = {
    "kernels.tiling": set(),
    "kernels.indexing": {"kernels.tiling"},
    "kernels.ops": {"kernels.tiling", "kernels.indexing"},
    "runtime.devices": set(),
    "runtime.memory": set(),
    "runtime.queues": {"runtime.memory", "runtime.native"},
    "runtime.backends": {"runtime.devices", "runtime.memory", "runtime.queues"},
    "runtime.measuring": {"runtime.devices", "runtime.backends"},
    "runtime.context": set(),
    "runtime.profiling": {"runtime.devices", "runtime.backends", "runtime.context", "runtime.memory"},
    "runtime.native": set(),
    "runtime.power": {"runtime.devices"},
    "runtime.power.actuators": set(),
    "runtime.power.profiles": set(),
    "runtime.execution": {
        "runtime.devices",
        "runtime.backends",
        "runtime.context",
        "runtime.memory",
        "runtime.power",
        "runtime.profiling",
        "runtime.queues",
    },
    "runtime.application": {
        "runtime.devices",
        "runtime.backends",
        "runtime.context",
        "runtime.execution",
        "runtime.memory",
        "runtime.power",
        "runtime.profiling",
    },
    "server.agent": set(),
    "server.sessions": set(),
    "server.worker": {"server.agent"},
    "server.workers": {"server.sessions", "server.worker"},
    "server.clients": {"server.sessions", "server.worker", "server.workers"},
    "client.model": set(),
    "client.model.passes": set(),
    "client.model.lowering": {"client.model.passes"},
    "client.model.importer": {"client.model.importer.opening", "client.model.passes", "client.model.lowering"},
    "client.model.importer.opening": set(),
    "client.model.parts": {"client.model.importer", "client.model.passes", "client.model.lowering"},
    "client.target": set(),
    "client.target.transport": set(),
    "client.target.adb": {"client.target.transport"},
    "client.tuning": {"client.model", "client.target"},
    "client.tuning.search": {"client.model"},
    "client.tuning.search.strategies": set(),
    "client.tuning.measuring": {"client.model", "client.target", "client.tuning.search"},
    "client.html": set(),
    "client.context": {"client.model", "client.target", "client.tuning"},
    "client.context.memory": {"client.model"},
    "client.context.verifying": {"client.model", "client.target", "client.tuning"},
    "client.report": {"client.context", "client.html", "client.tuning"},
    "client.report.html": {"client.html", "client.tuning"},
    "client.viewer": {"client.html", "client.model", "client.tuning"},
    "client.viewer.analysis": {"client.tuning"},
    "client.viewer.page": {"client.html", "client.tuning", "client.viewer.analysis"},
    "client.viewer.traces": {"client.html"},
    "client.doctor": {"client.target"},
    "client.compare": {"client.context", "client.html", "client.tuning"},
    "client.run": {
        "client.model",
        "client.target",
        "client.context",
        "client.html",
        "client.tuning",
        "client.viewer",
    },
    "client.run.throughput": set(),
    "client.export": {"client.html"},
    "client.farm": {"client.html", "client.target"},
    "client.farm.hosts": {"client.target"},
    "client.generation.config": {"client.context", "client.model", "client.target", "client.tuning"},
    "client.generation.ep_context": {"client.model"},
    "client.generation": {
        "client.model",
        "client.target",
        "client.tuning",
        "client.context",
        "client.report",
        "client.viewer",
    },
    "client.api": {"client.generation", "client.model", "client.target", "client.tuning"},
    "client.cli.options": {"client.generation", "client.model", "client.run", "client.target", "client.tuning"},
    "client.cli.cache": {"client.cli.options", "client.generation", "client.report", "client.tuning"},
    "client.cli.farm": {
        "client.cli.options",
        "client.farm",
        "client.generation",
        "client.model",
        "client.run",
        "client.target",
        "client.tuning",
    },
    "client.cli": {
        "client.compare",
        "client.context",
        "client.doctor",
        "client.export",
        "client.farm",
        "client.generation",
        "client.html",
        "client.model",
        "client.report",
        "client.run",
        "client.target",
        "client.tuning",
        "client.viewer",
    },
}
"""Of the inner folders of a room: those beside which one lies, with all that is in them. What a folder lies in and what
lies in it may be imported, too, as long as there is no circle."""

LAYERS = 6

# Outside libraries a room may use; those with doors may be imported by these files only.
LIBRARIES: dict[str, dict[str, set[str] | None]] = {
    "core": {},
    "kernels": {"numpy": None},
    "cache": {},
    "runtime": {
        "numpy": None,
        "onnxruntime": {"runtime/onnxruntime.py"},
        "pyopencl": {"runtime/backends/opencl_devices.py"},
        "msgpack": {
            "runtime/context/format.py",
            "runtime/context/package.py",
            "runtime/context/packing.py",
            "runtime/profiling/log.py",
        },
    },
    "server.protocol": {"numpy": None, "msgpack": {"server/protocol/codec.py"}},
    "server": {"numpy": None},
    "client": {
        "numpy": None,
        "rich": None,
        "adbutils": {"client/target/adb/device.py"},
        "onnx": {
            "client/model/importer/",
            "client/model/parts/",
            "client/generation/ep_context/",
            "client/model/oracle.py",
            "client/run/onnx_backend.py",
        },
        "onnxruntime": {
            "client/compare/engines.py",
            "client/model/oracle.py",
            "client/model/parts/host_types.py",
        },
        "openvino": {"client/compare/engines.py"},
        "cryptography": {"client/farm/certificates.py"},
        "dask": {"client/farm/dask_engine.py"},
        "distributed": {"client/farm/dask_engine.py"},
        "click": {"client/cli/"},
        "platformdirs": {"client/folders.py"},
    },
}

# Parts of the standard library with one door. pickle has none: nothing on the wire or on disk is pickle.
DOORS = {
    "sqlite3": {"cache/database.py", "cache/file.py", "client/farm/jobs.py"},
    "socket": {
        "core/peers.py",
        "runtime/memory/passing.py",
        "server/agent/connection.py",
        "server/clients/listener.py",
        "server/clients/local_socket.py",
        "server/workers/process.py",
        "client/target/transport/stream.py",
        "client/doctor/target.py",
    },
    "ssl": {
        "server/clients/authentication.py",
        "client/target/transport/credentials.py",
        "client/target/transport/stream.py",
    },
    "pickle": set(),
    "marshal": set(),
    "shelve": set(),
}

MOST_FILES = 12
MORE_FILES = {
    "core": "a file for each kind of record or rule that all rooms share",
    "kernels/ops": "a file and its templates for each kernel family",
    "client/model/passes": "a file for each pass",
    "client/model/lowering": "a file for each kind of operator",
    "client/cli": "a file for each command",
}
MOST_LINES = 500
MOST_LINES_OF_A_FUNCTION = 72
MOST_POSITIONAL = 8

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


def imported(path: Path, of: Source) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything a file imports."""
    package = ["gputune", *path.relative_to(ROOT).parent.parts]
    for line, name in of.imports:
        inner = name.lstrip(".")
        if level := len(name) - len(inner):
            name = ".".join([*package[: len(package) - level + 1], inner])
        yield line, name


def through(path: Path, doors: set[str]) -> bool:
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
    return any(within(other, allowed) for allowed in BELOW.get(folder, set()))


def broken_rules(path: Path, of: Source) -> list[str]:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    room, folder = room_of(module), ".".join(path.relative_to(ROOT).parent.parts)
    if folder == "core.api":
        return []
    found = []
    for line, name in imported(path, of):
        top, _, below = name.partition(".")
        where = f"{short(path)}:{line}"
        if top == "gputune":
            other = room_of(below)
            if other != room and other not in MAY_IMPORT[room]:
                found.append(f"{where} {room} may not import {name}")
            elif other == room and (there := module_of(below)) and not may_import(folder, folder_of(there)):
                found.append(f"{where} {folder} may not import {name}")
        elif top in DOORS:
            if not through(path, DOORS[top]):
                found.append(f"{where} {top} comes in only through {sorted(DOORS[top]) or 'no file at all'}")
        elif top not in sys.stdlib_module_names:
            if top not in LIBRARIES[room]:
                found.append(f"{where} {room} may not use {top}")
            elif (doors := LIBRARIES[room][top]) is not None and not through(path, doors):
                found.append(f"{where} {top} comes in only through {sorted(doors)}")
    return found


def test_imports_follow_the_table() -> None:
    assert [line for path in FILES for line in broken_rules(path, source_of(path))] == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kernels/space.py", "import gputune.cache.store"),
        ("cache/key.py", "import numpy"),
        ("core/launches.py", "from gputune.runtime import load"),
        ("runtime/execution/executor.py", "from gputune.server import protocol"),
        ("runtime/execution/executor.py", "def f():\n    import pyopencl.array"),
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
    assert len(broken_rules(ROOT / file, source(text))) == 1


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
    assert broken_rules(ROOT / file, source(text)) == []


def dependencies() -> dict[str, set[str]]:
    """What each module imports of ours, for types only included."""
    found: dict[str, set[str]] = {}
    for module, path in modules().items():
        names = imported(path, source_of(path))
        ours = {module_of(name.removeprefix("gputune.")) for _, name in names if name.startswith("gputune.")}
        found[module] = {other for other in ours if other is not None} - {module}
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
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
    assert inner == set(BELOW)
    assert circle(BELOW) == []


def test_the_rooms_of_the_client_are_at_most_six_layers() -> None:
    below: dict[str, set[str]] = {}
    for folder, others in BELOW.items():
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
    assert {folder for folder, count in counts.items() if count > MOST_FILES} == set(MORE_FILES)


def test_files_and_functions_are_short() -> None:
    files, functions, positional = [], [], []
    for path in EVERYWHERE:
        of = source_of(path)
        if of.lines > MOST_LINES:
            files.append(short(path))
        functions += [f"{short(path)}: {name}" for name, lines in of.functions if lines > MOST_LINES_OF_A_FUNCTION]
        if path in FILES:
            positional += [f"{short(path)}:{line}" for line, given in of.calls if given > MOST_POSITIONAL]
    assert (files, functions, positional) == ([], [], [])


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
