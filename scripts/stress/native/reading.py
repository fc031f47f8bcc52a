"""Collect what the two readers say of a file: Python's, and the C runtime's through a program that writes it down."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gputune.core.errors import ContextError
from gputune.runtime import native
from gputune.runtime.context.ep_context import ep_contexts, is_ep_context
from gputune.runtime.context.format import ContextFile, open_context
from gputune.runtime.context.package import is_package, open_package
from gputune.runtime.context.records import ContextHeader, GraphRecord, LaunchRecord

DUMP = Path(__file__).parent / "dump.c"
PARTS = (
    "context",
    "ep_context",
    "file",
    "form",
    "inflate",
    "msgpack",
    "ownership",
    "package",
    "pool",
    "sections",
    "sha256",
    "source",
    "tables",
)
SOURCES = tuple(native.FOLDER / "src" / "files" / f"{name}.c" for name in PARTS)
"""What of the C runtime reads files."""
OK = "ok"


@dataclass(frozen=True)
class Reading:
    """error: the name of what is wrong with a file, or OK; contexts, nodes: all that a good one holds, plain."""

    error: str
    contexts: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    message: str = field(default="", compare=False)


class Answering:
    """A program in C in a process of its own, which AddressSanitizer watches; it answers each question with a line."""

    def __init__(self, *command: str | Path) -> None:
        environment = {**os.environ, "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def ask(self, question: bytes) -> str:
        """Return the line. Raises RuntimeError if the program crashes, which has said why on standard error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(question)
        self._process.stdin.flush()
        line = self._process.stdout.readline().decode()
        if not line.endswith("\n"):
            raise RuntimeError(f"{self._process.args!r} has crashed with code {self._process.wait()}")
        return line[:-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End it. Raises RuntimeError if it has leaked memory."""
        self._process.communicate()
        if kind is None and self._process.returncode:
            raise RuntimeError(f"{self._process.args!r} has ended with code {self._process.returncode}")


class NativeReader(Answering):
    """The C runtime's reader."""

    def __init__(self, program: Path, by_bytes: bool = False) -> None:
        """program: dump.c, compiled. by_bytes: read each file into memory, and open that."""
        super().__init__(program, *["bytes"][:by_bytes])

    def read(self, path: Path) -> Reading:
        """What it says of a file. Raises RuntimeError where it crashes."""
        found = json.loads(self.ask(f"{path}\n".encode()))
        return Reading(found["error"], found["contexts"], found["nodes"], found["message"])


def read_by_python(path: Path) -> Reading:
    """What Python's reader says of a file."""
    try:
        return _read(path)
    except ContextError as error:
        return Reading(error.name, message=str(error))
    except OSError as error:  # what is no file, or cannot be read
        return Reading("io_error", message=str(error))


def _read(path: Path) -> Reading:
    if is_package(path):
        contexts = []
        with open_package(path) as package:
            for place, entry in enumerate(package.contexts):
                with package.open(place) as file:
                    contexts.append(_checked(file, entry.name))
        return Reading(OK, contexts)
    if is_ep_context(path):
        return _read_nodes(path)
    with open_context(path) as file:
        return Reading(OK, [_checked(file, "")])


def _read_nodes(path: Path) -> Reading:
    nodes, contexts, place = ep_contexts(path), [], -1
    described = []
    for node in nodes:
        place += node.main
        described.append({"name": node.name, "context": max(place, 0), "main": node.main})
        if node.main:
            with node.open() as file:
                contexts.append(_checked(file, ""))
    return Reading(OK, contexts, described)


def _checked(file: ContextFile, name: str) -> Any:
    """The records of a context whose sections are all what they were."""
    for place in range(len(file.header.sections)):
        file.section(place)
    return described(file.header, name)


def described(header: ContextHeader, name: str) -> Any:
    """Records as dump.c writes them, which makes no difference between what is missing and what is empty."""
    plain = {"packing": [], "requires": [], "models": [], **header.to_dict()}
    del plain["configuration"], plain["versions"]
    plain["programs"] = [{"needs": [], **program} for program in plain["programs"]]
    plain["sections"] = [{"inflated": 0, **section} for section in plain["sections"]]
    for which in ("graphs", "packing"):
        plain[which] = [_graph(*pair) for pair in zip(getattr(header, which), plain[which], strict=True)]
    return {"context": name, **plain}


def _graph(record: GraphRecord, plain: Any) -> Any:
    for which in ("inputs", "outputs"):
        for tensor, fields in zip(getattr(record, which), plain[which], strict=True):
            fields["nbytes"] = tensor.nbytes
    for which in ("launches", "persistent"):
        launches: Sequence[LaunchRecord] = getattr(record, which)
        for launch, fields in zip(launches, plain[which], strict=True):
            fields.update(counts=launch.counts, yields=launch.yields)
    return plain
