"""Read the clocks, temperatures and load of an agent's machine.

The agent returns the files that say them. They are written below a folder of this machine, and read there as the state
of this machine is (runtime/devices/state.py). Which files there are is found out once.
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import math
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.runtime.devices import load, state
from gputune.server.agent.agent_connection import ANSWER_SECONDS, AgentConnection
from gputune.server.agent.messages import Contents, ReadFiles

FILES_AT_ONCE = FOLDERS_AT_ONCE = 1024
MOST_FILES = 4096
"""More than any machine has of them."""
FOUND_NS, READ_NS = 10**9, round(state.SECONDS_AT_MOST * 1e9)
TICKS_PER_SECOND = 100  # of the counts that Linux shows to programs, on every processor
LOAD_FILES = ("/proc/uptime", "/proc/stat", "/proc/self/stat", "/proc/self/status")

Ask = Callable[[ReadFiles], Contents]


class AgentState:
    """Read the state of an agent's machine. ask: asks the agent."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._root: Path | None = None
        self._known = False

    def read(self) -> dict[str, float]:
        """Return what state.read and load.read would there; nothing of what this machine has no space for. Raises
        DeviceError."""
        if self._root is None:
            try:
                self._root = Path(tempfile.mkdtemp(prefix="gputune-state-"))
            except OSError:
                return {}
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        if self._known:
            wanted: Iterable[str] = (f"/{path.relative_to(self._root)}" for path in state.files(self._root))
            self._mirror(self._root, [*LOAD_FILES, *wanted], READ_NS)
        else:
            self._mirror(self._root, [*LOAD_FILES, *_found(self._ask)], FOUND_NS)
            self._known = True
        return state.read(self._root, seconds=1.0) | load_of(self._root)

    def _mirror(self, root: Path, paths: Sequence[str], within_ns: int) -> None:
        for path, content in _contents(self._ask, paths, within_ns).items():
            place = root / path.lstrip("/")
            try:
                if content or place.exists():  # else the content of another time would stay
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_text(content, encoding="utf-8")
            except (OSError, ValueError):  # the disk is full, or it is no name of a file here: it says nothing
                with contextlib.suppress(OSError, ValueError):
                    place.unlink()


class ConnectedState:
    """Read the state of the machine of an agent at an address, over a connection of its own, which is made when it is
    needed and once more when it is lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._turn = threading.Lock()
        self._connection: AgentConnection | None = None
        self._state: AgentState | None = None

    def read(self) -> dict[str, float]:
        """Return the state; nothing while the agent cannot be asked."""
        with self._turn, contextlib.suppress(DeviceError, DeviceNotFound):
            if self._connection is None or self._connection.closed:
                self._connection = AgentConnection(self._address, answer_seconds=ANSWER_SECONDS)
                self._state = AgentState(self._connection.ask)
            assert self._state is not None
            return self._state.read()
        return {}

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()


def load_of(root: Path) -> dict[str, float]:
    """Return what load.read says, of the machine whose files are below a root: all its processors count, and the
    process that read them is the one that has used its own time. Without these files it says nothing."""
    try:
        found = _load_by(*(_text(root, path) for path in LOAD_FILES))
    except (ValueError, IndexError, OverflowError):
        return {}
    return found if all(map(math.isfinite, found.values())) else {}


def _load_by(uptime: str, counts: str, own: str, status: str) -> dict[str, float]:
    """Raise ValueError, IndexError or OverflowError for texts that say something else."""
    idle, processors = 0, 0
    for name, *columns in filter(None, map(str.split, counts.splitlines())):
        if re.fullmatch("cpu[0-9]+", name):
            processors += 1
            idle += sum(int(column) for column in columns[load.IDLE_COLUMNS] if column.isdecimal())
    used = own.rpartition(")")[2].split()[11:13]  # behind the name of the program, which may hold anything
    if not processors or len(used) != 2:
        return {}
    found = {load.CLOCK: float(uptime.split()[0]), load.PROCESSORS: float(processors)}
    found[load.OWN] = sum(map(int, used)) / TICKS_PER_SECOND
    if idle:
        found[load.IDLE] = idle / TICKS_PER_SECOND
    if switches := re.search(r"^nonvoluntary_ctxt_switches:\s*([0-9]+)", status, re.MULTILINE):
        found[load.SWITCHES] = float(switches[1])
    return found


def _text(root: Path, path: str) -> str:
    try:
        return (root / path.lstrip("/")).read_text(encoding="utf-8")
    except OSError:
        return ""


def _contents(ask: Ask, paths: Sequence[str], within_ns: int) -> Mapping[str, str]:
    """Return the text of each path; it is empty if the agent could not read it."""
    texts: list[str] = []
    for begin in range(0, len(paths), FILES_AT_ONCE):
        data = ask(ReadFiles(tuple(paths[begin : begin + FILES_AT_ONCE]), within_ns)).data
        texts += (bytes(each).decode("utf-8", "replace") for each in data)
    return dict(zip(paths, texts, strict=True))


def _found(ask: Ask) -> list[str]:
    """Return the files that fit the patterns of state.py, in their order: each round lists the folders of one level."""
    listed: dict[str, list[str]] = {}

    def folders(pattern: str) -> Iterator[str]:
        """Yield what fits the pattern; folders that were not listed are noted, and yield nothing yet."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            names = {folder: [part] if "*" not in part else listed.setdefault(folder, []) for folder in found}
            found = [f"{folder}/{name}" for folder in found for name in names[folder] if fnmatch.fnmatch(name, part)]
        yield from found

    patterns = list(itertools.chain.from_iterable(map(_alternatives, state.PATTERNS)))
    known = -1
    while known < len(listed):
        known = len(listed)
        for pattern in patterns:
            list(folders(pattern))
        new = [folder for folder, names in listed.items() if not names]
        for folder, text in _contents(ask, new[:FOLDERS_AT_ONCE], FOUND_NS).items():
            names = (name for name in text.split("\n") if "/" not in name)
            listed[folder] = sorted(name for name in names if name not in ("", ".", ".."))
    return list(itertools.islice(itertools.chain.from_iterable(map(folders, patterns)), MOST_FILES))


def _alternatives(pattern: str) -> list[str]:
    before, brace, rest = pattern.partition("{")
    inner, _, after = rest.partition("}")
    return [f"{before}{one}{after}" for one in inner.split(",")] if brace else [pattern]
