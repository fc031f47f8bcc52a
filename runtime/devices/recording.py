"""Read and write recordings: how long the configurations of one task took on one device, for the replay backend.

A file is JSON lines, gzipped: first a header, then one row for each configuration in the order in which they were
measured. A row names its launch by what is compiled and how it is run, so that a replay recognises a launch from its
source, options, sizes and arguments alone. `scripts/recording/record` makes such files.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from gputune.core.bounds import Amount, Nanoseconds, Stored, Within, in_files
from gputune.core.decoder import decode
from gputune.core.files import open_file
from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import json_text, json_value, numbers
from gputune.core.statuses import OK, TrialStatus
from gputune.core.whole_file import whole_file

FORMAT_VERSION = 1
MARK = "gputune_recording"
SUFFIX = ".jsonl.gz"
LARGEST_BYTES = 256 << 20
"""Of a file's text; one row takes some 500."""
DIGEST_DIGITS = 32
"""Of a SHA-256: enough to tell launches apart, and half the size of a file."""
LONGEST_NS = 10**18


class BadRecording(Exception):
    """A file is no recording, or does not fit to its neighbours; the message names the file."""


Time = Annotated[float, Within(math.ulp(0.0), LONGEST_NS)]


@in_files(closed=True)
@dataclass(frozen=True)
class Row:
    """What became of one configuration; names and units are those of a trial.

    values: in the order of the recording's parameters; program, launch: digests of its main launch; samples_ns: in the
    order in which they were taken; timing: the clock that they are of, "event" or "wall".
    """

    values: tuple[int, ...]
    status: TrialStatus
    message: str
    program: str
    launch: str
    timing: Literal["event", "wall"]
    samples_ns: tuple[Time, ...]
    compile_ns: Nanoseconds
    first_launch_ns: Nanoseconds


@in_files("features", closed=True)
@dataclass(frozen=True)
class Header:
    """Whose rows follow, and how they were measured.

    op, problem: the task; space_size: how many configurations it has on the device, recorded or not; prepare: digests
    of the launches that rearrange weights and of stages, which are not timed apart; measured: sample_ns and whatever
    else says how; features: those for which the task's space asks and which the device had proved.
    """

    op: str
    problem: Annotated[Mapping[str, Any], Stored(dict[str, Any], numbers)]
    device: DeviceIdentity
    space_size: Amount
    parameters: tuple[str, ...]
    prepare: tuple[str, ...]
    measured: Mapping[str, Any]
    features: tuple[str, ...] = ()

    def to_line(self) -> str:
        """Return the first line of a file."""
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        if not self.features:
            del fields["features"]
        return json_text({MARK: FORMAT_VERSION, **fields, "device": self.device.to_dict()})

    @classmethod
    def from_line(cls, line: str) -> Header:
        """Return what to_line wrote. Raises ValueError that names what is wrong."""
        fields = _map(line)
        if (version := fields.pop(MARK, None)) != FORMAT_VERSION:
            raise ValueError(f"{MARK} is {version!r}, this version reads {FORMAT_VERSION}")
        header = decode(cls, fields)
        sample_ns = header.measured.get("sample_ns")
        if not isinstance(sample_ns, int | float) or not 0 < sample_ns <= LONGEST_NS:
            raise ValueError(f"measured.sample_ns is {sample_ns!r:.80}, expected nanoseconds")
        return header


@dataclass(frozen=True)
class Recording:
    """A file's content."""

    title: str
    header: Header
    rows: tuple[Row, ...]


def program_digest(source: str, options: str) -> str:
    """Return which program a launch runs."""
    return _digest([source, options])


def launch_digest(
    program: str,
    entry: str,
    global_size: Sequence[int],
    local_size: Sequence[int],
    arguments: Iterable[object],
) -> str:
    """Return which launch this is of the program with that digest: arguments that are no integers are buffers, whose
    names and contents do not matter."""
    kinds = [argument if isinstance(argument, int) else "buffer" for argument in arguments]
    return _digest([program, entry, list(global_size), list(local_size), kinds])


def row_line(row: Row) -> str:
    """Return a line of a file."""
    return json_text(dataclasses.asdict(row))


def row_of(line: str, parameters: int) -> Row:
    """Return what row_line wrote, with so many values. Raises ValueError that names what is wrong."""
    row = decode(Row, _map(line))
    if len(row.values) != parameters:
        raise ValueError(f"values: {len(row.values)} of {parameters} parameters")
    if bool(row.samples_ns) != (row.status == OK):
        raise ValueError(f"samples_ns: {len(row.samples_ns)} of a row whose status is {row.status}")
    return row


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, gzipped or not. Raises BadRecording, also when it is too large."""
    try:
        with open_file(path) as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with open_file(path) as stored, gzip.open(stored) if zipped else stored as file:
            data = file.read(LARGEST_BYTES + 1)
        if len(data) > LARGEST_BYTES:
            raise ValueError(f"more than {LARGEST_BYTES} bytes of text")
        return data.decode().removesuffix("\n").split("\n")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise BadRecording(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def read(path: Path) -> Recording:
    """Return the recording in a file. Raises BadRecording."""
    return parse(path, lines_of(path))


def parse(path: Path, lines: Sequence[str]) -> Recording:
    """Return the recording that a file's lines are. Raises BadRecording."""
    rows: list[Row] = []
    try:
        header = Header.from_line(lines[0])
    except ValueError as error:
        raise BadRecording(f"{path} is no recording of gputune: {error}") from None
    try:
        for line in lines[1:]:
            rows.append(row_of(line, len(header.parameters)))
    except ValueError as error:
        raise BadRecording(f"{path}, line {len(rows) + 2}: {error}") from None
    if len({row.values for row in rows}) != len(rows):
        raise BadRecording(f"{path} has a configuration twice")
    return Recording(path.name, header, tuple(rows))


def recording_files(path: Path) -> list[Path]:
    """Return the recordings of one device: a file, or all files *.jsonl.gz of a folder."""
    return sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]


def read_all(path: Path) -> tuple[Recording, ...]:
    """Return what the files of one device hold. Raises BadRecording."""
    files = recording_files(path)
    if not files:
        raise BadRecording(f"{path} holds no recordings (*{SUFFIX})")
    recordings = tuple(map(read, files))
    first = recordings[0]
    for other in recordings[1:]:
        if other.header.device != first.header.device:
            names = [field.name for field in dataclasses.fields(DeviceIdentity)]
            differ = [n for n in names if getattr(other.header.device, n) != getattr(first.header.device, n)]
            raise BadRecording(
                f"{path}: {first.title} and {other.title} are of different devices ({', '.join(differ)}); "
                "keep the recordings of one device in a folder"
            )
    return recordings


def write(path: Path, header: Header, rows: Iterable[Row]) -> None:
    """Write a file; the same content gives the same bytes. It appears complete or not at all. Raises OSError."""
    text = "".join(f"{line}\n" for line in [header.to_line(), *map(row_line, rows)])
    with whole_file(path) as unfinished:
        unfinished.write_bytes(gzip.compress(text.encode(), mtime=0))


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:DIGEST_DIGITS]


def _map(line: str) -> dict[str, Any]:
    try:
        fields = json_value(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object: {line[:40]!r}")
    return fields
