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
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputune.core.errors import shortened
from gputune.core.files import open_file
from gputune.core.identity import DeviceIdentity, is_count
from gputune.core.json_text import json_text, json_value, numbers
from gputune.core.statuses import OK, STATUSES
from gputune.core.whole_file import whole_file

FORMAT_VERSION = 1
MARK = "gputune_recording"
SUFFIX = ".jsonl.gz"
LARGEST_BYTES = 256 << 20
"""Of a file's text; one row takes some 500."""
DIGEST_DIGITS = 32
"""Of a SHA-256: enough to tell launches apart, and half the size of a file."""
LONGEST_NS = 10**18
TIMINGS = ("event", "wall")


class BadRecording(Exception):
    """A file is no recording, or does not fit to its neighbours; the message names the file."""


@dataclass(frozen=True)
class Row:
    """What became of one configuration; names and units are those of a trial.

    values: in the order of the recording's parameters; program, launch: digests of its main launch; samples_ns: in the
    order in which they were taken; timing: the clock that they are of, "event" or "wall".
    """

    values: tuple[int, ...]
    status: str
    message: str
    program: str
    launch: str
    timing: str
    samples_ns: tuple[float, ...]
    compile_ns: int
    first_launch_ns: int


@dataclass(frozen=True)
class Header:
    """Whose rows follow, and how they were measured.

    op, problem: the task; space_size: how many configurations it has on the device, recorded or not; prepare: digests
    of the launches that rearrange weights and of stages, which are not timed apart; measured: sample_ns and whatever
    else says how.
    """

    op: str
    problem: Mapping[str, Any]
    device: DeviceIdentity
    space_size: int
    parameters: tuple[str, ...]
    prepare: tuple[str, ...]
    measured: Mapping[str, Any]

    def to_line(self) -> str:
        """The first line of a file."""
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return json_text({MARK: FORMAT_VERSION, **fields, "device": self.device.to_dict()})

    @classmethod
    def from_line(cls, line: str) -> Header:
        """What to_line wrote. Raises ValueError that names what is wrong."""
        fields = _map(line)
        if (version := fields.pop(MARK, None)) != FORMAT_VERSION:
            raise ValueError(f"{MARK} is {version!r}, this version reads {FORMAT_VERSION}")
        _check_names(cls, fields)
        for name in ("problem", "device", "measured"):
            _expect(isinstance(fields[name], dict), name, fields[name], "a map")
        for name in ("parameters", "prepare"):
            _expect(_is_list(fields[name], str), name, fields[name], "a list of texts")
        _expect(isinstance(fields["op"], str), "op", fields["op"], "a text")
        _expect(is_count(fields["space_size"]), "space_size", fields["space_size"], "a count")
        sample_ns = fields["measured"].get("sample_ns")
        _expect(_is_time(sample_ns), "measured.sample_ns", sample_ns, "nanoseconds")
        lists = {name: tuple(fields[name]) for name in ("parameters", "prepare")}
        plain = {"problem": numbers(fields["problem"]), "device": DeviceIdentity.from_dict(fields["device"])}
        return cls(**{**fields, **lists, **plain})


@dataclass(frozen=True)
class Recording:
    """A file's content."""

    title: str
    header: Header
    rows: tuple[Row, ...]


def program_digest(source: str, options: str) -> str:
    """Which program a launch runs."""
    return _digest([source, options])


def launch_digest(
    program: str,
    entry: str,
    global_size: Sequence[int],
    local_size: Sequence[int],
    arguments: Iterable[object],
) -> str:
    """Which launch this is of the program with that digest: arguments that are no integers are buffers, whose names
    and contents do not matter."""
    kinds = [argument if isinstance(argument, int) else "buffer" for argument in arguments]
    return _digest([program, entry, list(global_size), list(local_size), kinds])


def row_line(row: Row) -> str:
    """A line of a file."""
    return json_text(dataclasses.asdict(row))


def row_of(line: str, parameters: int) -> Row:
    """What row_line wrote, with so many values. Raises ValueError that names what is wrong."""
    fields = _map(line)
    _check_names(Row, fields)
    for name in ("message", "program", "launch"):
        _expect(isinstance(fields[name], str), name, fields[name], "a text")
    for name in ("compile_ns", "first_launch_ns"):
        _expect(is_count(fields[name]) and fields[name] <= LONGEST_NS, name, fields[name], "nanoseconds")
    _expect(fields["status"] in STATUSES, "status", fields["status"], f"one of {', '.join(STATUSES)}")
    _expect(fields["timing"] in TIMINGS, "timing", fields["timing"], f"one of {', '.join(TIMINGS)}")
    values, samples = fields["values"], fields["samples_ns"]
    _expect(_is_list(values, int) and len(values) == parameters, "values", values, f"{parameters} integers")
    good = isinstance(samples, list) and all(map(_is_time, samples)) and bool(samples) == (fields["status"] == OK)
    _expect(good, "samples_ns", samples, "nanoseconds where it worked, and none where not")
    return Row(**{**fields, "values": tuple(values), "samples_ns": tuple(map(float, samples))})


def lines_of(path: Path) -> list[str]:
    """The lines of a file, gzipped or not. Raises BadRecording, also when it is too large."""
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
    """The recording in a file. Raises BadRecording."""
    return parse(path, lines_of(path))


def parse(path: Path, lines: Sequence[str]) -> Recording:
    """The recording that a file's lines are. Raises BadRecording."""
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
    """Writes a file; the same content gives the same bytes. It appears complete or not at all. Raises OSError."""
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


def _check_names(kind: type, fields: Mapping[str, Any]) -> None:
    known = {item.name for item in dataclasses.fields(kind)}
    if wrong := known ^ fields.keys():
        raise ValueError(f"missing or unknown: {shortened(wrong)}")


def _expect(good: bool, name: str, value: object, expected: str) -> None:
    if not good:
        raise ValueError(f"{name} is {repr(value)[:80]}, expected {expected}")


def _is_list(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 < value <= LONGEST_NS  # type: ignore[operator]
