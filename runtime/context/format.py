r"""Read and write a context binary: one file that holds everything a device needs to run a model.

Layout (little endian): magic b"GPUTUNE\0", u32 format version, u32 header bytes, SHA-256 of the header (32 bytes), u32
memory block bytes and its SHA-256, the memory block (memory_need.py), the header (MsgPack of ContextHeader.to_dict()),
then the section area. The section area, and every section in it, starts at the next multiple
of 64.

The memory block can be read alone, and so can the header. A section is read, and its checksum verified, whenever it is
requested: it costs memory only while it is used (stored.py).

A program or a source that DEFLATE makes smaller is stored so. Its `length` and checksum are then those of what lies in
the file, and `inflated` says how many bytes it becomes; `requires` names the feature.

The version is 4 if a reader of version 3 cannot run the context: if it is compact, so that a device packs its weights
when it loads them, or if the header names a feature in `requires`. It is 3 for all others.

A later writer may add keys to a map. Readers ignore keys that they do not know, except in a DeviceIdentity. So a writer
may add a key alone only if it is safe to ignore. If a reader must know an addition, the writer also names a feature in
`requires`. A reader looks at `requires` first. It refuses a name that it does not know before it reads the rest of the
header, which may have new values and types then.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from gputune.core.errors import MalformedHeader, NotAContext, Truncated, UnknownGraph, UnsupportedFormatVersion
from gputune.core.files import mistaken
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing
from gputune.core.statuses import ContextChoice
from gputune.core.whole_file import is_stream, whole_file
from gputune.runtime.context.deflate import deflated, inflated
from gputune.runtime.context.memory_need import MemoryNeed
from gputune.runtime.context.records import (
    COMPRESSED,
    Context,
    ContextHeader,
    GraphRecord,
    ProgramEntry,
    Section,
    required_by,
)
from gputune.runtime.context.stored import Extent, OpenFile

MAGIC = b"GPUTUNE\0"
PACKAGE_MAGIC = b"GPUTPKG\0"
"""Of a file that holds several contexts, see package.py."""
FORMAT_VERSION = 3
REQUIRING_VERSION = 4
"""Only contexts that are compact or require a feature have it: a reader of FORMAT_VERSION runs all others."""
ALIGNMENT = 64
LARGEST_HEADER_BYTES = 64 << 20
LARGEST_MEMORY_BLOCK_BYTES = 1 << 20
LONGEST_SAID = 500
"""Characters of what is wrong with a header, which may quote names from it."""
AGAIN = "it is cut short: copy it again, or make it again"
_ONNX = b"\x08"
"""An ONNX file begins with the version of its format."""
_PREFIX = struct.Struct("<8sII32s")
_MEMORY = struct.Struct("<I32s")
_Read = Callable[[int], bytes | memoryview]  # gives the next bytes


def write_context(path: Path | str, context: Context) -> int:
    """Write a context binary and return its bytes. The file appears complete or not at all, with the permissions that
    the umask leaves.

    Raises MalformedHeader when the records contradict each other (see records.py), UnsupportedFormatVersion for a
    feature that has no name here, OSError from the disk.
    """
    contents: list[bytes | memoryview] = []
    sections: list[Section] = []
    known: dict[tuple[str, str], int] = {}

    def place(kind: str, content: Any) -> int:
        """Add a section, or find the equal one that is there already."""
        view = memoryview(content).cast("B")
        digest = hashlib.sha256(view).hexdigest()
        if (kind, digest) not in known:
            end = sections[-1].offset + sections[-1].length if sections else 0
            known[kind, digest] = len(sections)
            less = memoryview(b"" if kind == "weights" else deflated(view))
            if 0 < aligned(less.nbytes) < aligned(view.nbytes):
                own = hashlib.sha256(less).hexdigest()
                sections.append(Section(kind, aligned(end), less.nbytes, own, view.nbytes))
                contents.append(less)
            else:
                sections.append(Section(kind, aligned(end), view.nbytes, digest))
                contents.append(view)
        return known[kind, digest]

    programs = tuple(
        ProgramEntry(
            place("binary", program.binary), place("source", program.source.encode()), program.options, program.needs
        )
        for program in context.programs
    )
    weights = tuple(place("weights", content) for content in context.weights)
    compressed = [COMPRESSED] if any(section.inflated for section in sections) else []
    try:
        device = DeviceIdentity.from_dict(context.device)
    except ValueError as error:
        raise MalformedHeader(str(error)) from None
    described = ContextHeader(
        graphs=tuple(context.graphs),
        programs=programs,
        weights=weights,
        sections=tuple(sections),
        device=device,
        tier=context.tier,
        configuration=dict(context.configuration),
        versions=dict(context.versions),
        computes=context.computes,
        packing=tuple(context.packing),
        models=tuple(context.models),
        requires=tuple(dict.fromkeys([*context.requires, *required_by(context.graphs, context.programs), *compressed])),
    )
    fields = described.to_dict()
    ContextHeader.from_dict(fields)
    header = msgpack.packb(fields)
    memory = msgpack.packb(MemoryNeed.of(device, described.graphs).to_fields())
    if len(header) > LARGEST_HEADER_BYTES:
        raise MalformedHeader(f"the header has {len(header)} bytes, at most {LARGEST_HEADER_BYTES} are allowed")
    if len(memory) > LARGEST_MEMORY_BLOCK_BYTES:
        raise MalformedHeader(
            f"the memory block has {len(memory)} bytes, at most {LARGEST_MEMORY_BLOCK_BYTES} are allowed"
        )
    version = REQUIRING_VERSION if described.packing or described.requires else FORMAT_VERSION
    prefix = _PREFIX.pack(MAGIC, version, len(header), hashlib.sha256(header).digest())
    prefix += _MEMORY.pack(len(memory), hashlib.sha256(memory).digest()) + memory
    return write_file(path, laid_out(prefix + header, sections, contents))


def laid_out(
    head: bytes | memoryview, sections: Sequence[Section], contents: Iterable[bytes | memoryview]
) -> Iterator[bytes | memoryview]:
    """Yield the pieces of a file: its head, and the section area with zeros between the sections."""
    yield head
    end = len(head)
    start = aligned(end)
    for section, content in zip(sections, contents, strict=True):
        yield bytes(start + section.offset - end)
        yield content
        end = start + section.offset + section.length
    yield bytes(max(0, start - end))


def write_file(path: Path | str, pieces: Iterable[bytes | memoryview]) -> int:
    """Write a file that appears complete or not at all, with the permissions that the umask leaves; return its size in
    bytes. Raises OSError."""
    with whole_file(Path(path)) as unfinished, unfinished.open("wb") as file:
        size = sum(map(file.write, pieces))
        file.flush()
        if not is_stream(unfinished):
            os.fsync(file.fileno())
    return size


def read_header(path: Path | str) -> ContextHeader:
    """Return the header of a context binary, without its sections. Raises ContextError subclasses, OSError."""
    return _read_header(Extent(OpenFile(path)), str(path))[0]


def header_of(head: memoryview, name: str) -> ContextHeader:
    """Return the header of a context binary from the bytes in front of its section area. Raises as ContextFile does."""
    header, read = _read_head(Extent(head), name)
    if read.nbytes != head.nbytes:
        raise MalformedHeader(f"{name}: {head.nbytes - read.nbytes} bytes after the header")
    return header


@dataclass(frozen=True)
class Packed:
    """Where a package has the parts of one of its contexts. head: the bytes in front of the section area; starts: of
    the sections in the package's bytes."""

    head: memoryview
    header: ContextHeader
    starts: tuple[int, ...]


class ContextFile(Closing):
    """An open context binary. It may not be read after close(); what was read before stays as it is.

    head: the bytes in front of the section area. whole: whether it is a file of its own, and no part of a package.
    choice: of a context that was chosen from a package, which and why."""

    def __init__(self, data: Extent, name: str, packed: Packed | None = None) -> None:
        """`name` is how errors call it; `packed` where `data` is a package's. Raises ContextError subclasses for bytes
        that are no context binary or a damaged one; OSError."""
        self.path = name
        self.whole = packed is None
        if packed is None:
            header, head = _read_header(data, name)
            start = aligned(head.nbytes)
            packed = Packed(head, header, tuple(start + section.offset for section in header.sections))
        self.header, self.head, self._starts = packed.header, packed.head, packed.starts
        self.choice: ContextChoice | None = None
        self._data: Extent | None = data

    def graph_named(self, name: str | None) -> GraphRecord:
        """Return the graph of this name; None is the first. Raises UnknownGraph when there is none."""
        graphs = self.header.graphs
        for graph in graphs:
            if name is None or graph.name == name:
                return graph
        raise UnknownGraph(f"{self.path}: there is no graph {name!r}; the graphs are {[one.name for one in graphs]}")

    @property
    def content(self) -> memoryview:
        """All bytes of the context binary. Raises FileChanged, OSError."""
        if self.whole:
            return self._opened.read()
        return memoryview(b"".join(self.pieces()))

    @property
    def own_path(self) -> str | None:
        """The path by which a file was opened that is this context and nothing else; None for bytes, and for a part of
        another file."""
        return self._opened.whole_file if self.whole else None

    def is_at(self, path: str) -> bool:
        """Return whether the file that is open still has this path."""
        return self._opened.is_at(path)

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the same piece by piece. Raises FileChanged, OSError."""
        if self.whole:
            return self._opened.pieces()
        sections = range(len(self.header.sections))
        return laid_out(self.head, self.header.sections, map(self.stored, sections))

    def section(self, index: int) -> memoryview:
        """Return the content of a section. Raises as `stored` does, and MalformedHeader when it does not inflate to
        as many bytes as the header says."""
        section, content = self.header.sections[index], self.stored(index)
        try:
            return inflated(content, section.inflated) if section.inflated else content
        except ValueError as error:
            what = f"{self.path}: {section.kind[:20]} section {index}"
            raise MalformedHeader(f"{what} does not inflate to {section.inflated} bytes: {error}") from None

    def stored(self, index: int) -> memoryview:
        """Return the bytes of a section as they lie in the file. Raises ChecksumMismatch when they are not those that
        were written, FileChanged when that is because the file was changed since it was opened; OSError."""
        section = self.header.sections[index]
        content = self._opened.part(self._starts[index], section.length)
        return content.checked(
            section.sha256, f"{self.path}: {section.kind} section {index} is damaged; generate it again"
        )

    def binary(self, program: int) -> bytes:
        """Return the binary of a program; empty when there is none."""
        return bytes(self.section(self.header.programs[program].binary))

    def source(self, program: int) -> str:
        """Return the OpenCL C of a program."""
        try:
            return bytes(self.section(self.header.programs[program].source)).decode()
        except UnicodeDecodeError:
            raise MalformedHeader(f"{self.path}: the source of program {program} is not UTF-8") from None

    def weights(self, index: int) -> memoryview:
        """Return the bytes of the index-th weights section."""
        return self.section(self.header.weights[index])

    def close(self) -> None:
        """Give up the file, which is closed once no other context of it is open."""
        self._data = None

    @property
    def _opened(self) -> Extent:
        if self._data is None:
            raise ValueError(f"{self.path} was closed")
        return self._data


def open_context(path: Path | str) -> ContextFile:
    """Open a context binary and check its header. Raises as ContextFile does, OSError when the file cannot be
    read."""
    return ContextFile(Extent(OpenFile(path)), str(path))


def context_of(data: memoryview | Extent, name: str) -> ContextFile:
    """Return a context binary from its bytes, such as those that a host has sent. Raises as ContextFile does."""
    return ContextFile(Extent(data.cast("B")) if isinstance(data, memoryview) else data, name)


def aligned(offset: int) -> int:
    """Return the next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _read_prefix(read: _Read, data: Extent, path: str) -> tuple[int, int, bytes]:
    """Version, and the header's length and digest, from the first bytes of a file."""
    prefix = bytes(read(_PREFIX.size))
    if prefix[: len(MAGIC)] == PACKAGE_MAGIC:
        raise NotAContext(f"{path}: a package of contexts; `gputune package --split` writes them as files of their own")
    if prefix[: len(MAGIC)] != MAGIC[: len(prefix)] or not prefix:
        raise NotAContext(f"{path}: {_other(prefix)}")
    if len(prefix) < _PREFIX.size:
        raise Truncated(f"{path}: the file ends after {data.nbytes} bytes; {AGAIN}")
    _, version, length, digest = _PREFIX.unpack(prefix)
    if version not in (FORMAT_VERSION, REQUIRING_VERSION):
        readable = f"{FORMAT_VERSION} and {REQUIRING_VERSION}"
        raise UnsupportedFormatVersion(f"{path}: format version {version}, this gputune reads {readable}")
    return version, length, digest


def _other(begin: bytes) -> str:
    """Return what a file is that is no context."""
    if begin.startswith(_ONNX):
        return (
            "this is an ONNX file and no context binary; `gputune context-binary-generator` makes a context of a "
            "model, and EPContext nodes lie next to theirs"
        )
    other = mistaken(begin)
    return f"not a gputune context binary{f': it {other}' if other else ''}"


def _read_memory(read: _Read, data: Extent, path: str) -> MemoryNeed:
    """Return the memory block, which is next."""
    prefix = read(_MEMORY.size)
    if len(prefix) < _MEMORY.size:
        raise Truncated(f"{path}: the file ends after {data.nbytes} bytes; {AGAIN}")
    length, digest = _MEMORY.unpack(prefix)
    if length > LARGEST_MEMORY_BLOCK_BYTES:
        raise MalformedHeader(
            f"{path}: a memory block of {length} bytes, at most {LARGEST_MEMORY_BLOCK_BYTES} are allowed"
        )
    block = read(length)
    if len(block) < length:
        raise Truncated(f"{path}: the file ends after {data.nbytes} bytes, within its memory block; {AGAIN}")
    if hashlib.sha256(block).digest() != digest:
        raise data.wrong(f"{path}: the memory block is damaged; generate the context again")
    fields = _unpacked(block, "memory block", path)
    try:
        return MemoryNeed.from_fields(fields)
    except MalformedHeader as error:
        raise MalformedHeader(f"{path}: {str(error)[:LONGEST_SAID]}") from None


def _unpacked(content: bytes | memoryview, what: str, path: str) -> Any:
    try:
        return msgpack.unpackb(content)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedHeader(f"{path}: the {what} is not MsgPack: {error}") from None


def _read_header(data: Extent, path: str) -> tuple[ContextHeader, memoryview]:
    """Return the header of a file, all of whose bytes it must tell of, and what stands in front of the section area."""
    header, head = _read_head(data, path)
    start, end, size = aligned(head.nbytes), 0, data.nbytes
    for place, section in enumerate(header.sections):
        if section.offset % ALIGNMENT or section.offset < end:
            raise MalformedHeader(f"{path}: section {place} overlaps the one before or is not aligned")
        end = section.offset + section.length
    if size < start + end:
        raise Truncated(f"{path}: {size} bytes, but its header describes {start + end}; {AGAIN}")
    if size > start + end:
        raise MalformedHeader(f"{path}: {size - start - end} bytes after the last section")
    return header, head


def _read_head(data: Extent, path: str) -> tuple[ContextHeader, memoryview]:
    """Return the header, and the bytes up to its end, each of which is read once."""
    head, read = bytearray(), data.in_turn()

    def kept(count: int) -> memoryview:
        found = read(count)
        head.extend(found)
        return found

    version, length, digest = _read_prefix(kept, data, path)
    need = _read_memory(kept, data, path)
    if length > LARGEST_HEADER_BYTES:
        raise MalformedHeader(f"{path}: a header of {length} bytes, at most {LARGEST_HEADER_BYTES} are allowed")
    content = kept(length)
    if len(content) < length:
        raise Truncated(f"{path}: the file ends after {data.nbytes} bytes, within its header; {AGAIN}")
    if hashlib.sha256(content).digest() != digest:
        raise data.wrong(f"{path}: the header is damaged; generate the context again")
    fields = _unpacked(content, "header", path)
    try:
        header = ContextHeader.from_dict(fields)
    except (MalformedHeader, UnsupportedFormatVersion) as error:
        raise type(error)(f"{path}: {str(error)[:LONGEST_SAID]}") from None
    if bool(header.packing or header.requires) != (version == REQUIRING_VERSION):
        raise MalformedHeader(
            f"{path}: contexts of version {REQUIRING_VERSION}, and no others, have packings or require features"
        )
    if need != MemoryNeed.of(header.device, header.graphs):
        raise MalformedHeader(f"{path}: the memory block and the header disagree")
    return header, memoryview(head).toreadonly()
