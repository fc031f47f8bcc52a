"""The context binary: one file that holds everything a device needs to run a model.

Layout (little endian): magic b"GPUTUNE\\0", u32 format version, u32 header bytes, SHA-256 of the header (32 bytes), u32
memory block bytes and its SHA-256 (not before version 3), the memory block (memory_need.py), the header (MsgPack of
ContextHeader.to_dict()), then the section area. The area starts at the next multiple of 64; so does every section in
it. The memory block can be read alone, and so can the header; a section's checksum is verified when it is read first.
The file is mapped, not loaded: a section costs memory when it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from gputune.core.errors import ChecksumMismatch, MalformedHeader, NotAContext, Truncated, UnsupportedFormatVersion
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing
from gputune.core.statuses import ContextChoice
from gputune.core.whole_file import is_stream, whole_file
from gputune.runtime.context.memory_need import MemoryNeed
from gputune.runtime.context.records import Context, ContextHeader, ProgramEntry, Section

MAGIC = b"GPUTUNE\0"
PACKAGE_MAGIC = b"GPUTPKG\0"
"""Of a file that holds several contexts, see package.py."""
FORMAT_VERSION = 3
READABLE_VERSIONS = (1, 2, 3)
"""Persistent kernels of version 1 cannot yield, so they are not run; version 3 has brought the memory block."""
ALIGNMENT = 64
LARGEST_HEADER_BYTES = 64 << 20
LARGEST_MEMORY_BLOCK_BYTES = 1 << 20
LONGEST_SAID = 500
"""Characters of what is wrong with a header, which may quote names from it."""
READ_FIRST_BYTES = 4096
"""Of a file whose memory block is wanted: nearly all blocks are in them."""
_PREFIX = struct.Struct("<8sII32s")
_MEMORY = struct.Struct("<I32s")
_HAS_MEMORY = 3  # the first version with a memory block


def write_context(path: Path | str, context: Context) -> int:
    """Writes a context binary and returns its bytes. The file appears complete or not at all, with the permissions that
    the umask leaves.

    Raises MalformedHeader when the records contradict each other (see records.py), OSError from the
    disk.
    """
    contents: list[bytes | memoryview] = []
    sections: list[Section] = []
    known: dict[tuple[str, str], int] = {}

    def place(kind: str, content: Any) -> int:
        """Adds a section, or finds the equal one that is there already."""
        view = memoryview(content).cast("B")
        digest = hashlib.sha256(view).hexdigest()
        if (kind, digest) not in known:
            end = sections[-1].offset + sections[-1].length if sections else 0
            known[kind, digest] = len(sections)
            sections.append(Section(kind, aligned(end), view.nbytes, digest))
            contents.append(view)
        return known[kind, digest]

    programs = tuple(
        ProgramEntry(place("binary", program.binary), place("source", program.source.encode()), program.options)
        for program in context.programs
    )
    weights = tuple(place("weights", content) for content in context.weights)
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
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, len(header), hashlib.sha256(header).digest())
    prefix += _MEMORY.pack(len(memory), hashlib.sha256(memory).digest()) + memory
    return write_file(path, laid_out(prefix + header, sections, contents))


def laid_out(
    head: bytes | memoryview, sections: Sequence[Section], contents: Iterable[bytes | memoryview]
) -> Iterator[bytes | memoryview]:
    """The pieces of a file: its head, and the section area with zeros between the sections."""
    yield head
    end = len(head)
    start = aligned(end)
    for section, content in zip(sections, contents, strict=True):
        yield bytes(start + section.offset - end)
        yield content
        end = start + section.offset + section.length
    yield bytes(max(0, start - end))


def write_file(path: Path | str, pieces: Iterable[bytes | memoryview]) -> int:
    """Writes a file that appears complete or not at all, with the permissions that the umask leaves; its bytes. Raises
    OSError."""
    with whole_file(Path(path)) as unfinished, unfinished.open("wb") as file:
        size = sum(map(file.write, pieces))
        file.flush()
        if not is_stream(unfinished):
            os.fsync(file.fileno())
    return size


def read_header(path: Path | str) -> ContextHeader:
    """The header of a context binary, without its sections. Raises ContextError subclasses, OSError."""
    with Path(path).open("rb") as file:
        return _read_header(file.read, _size(file), str(path))[0]


def header_of(head: memoryview, name: str) -> ContextHeader:
    """The header of a context binary from the bytes in front of its section area. Raises as ContextFile does."""
    header, end = _read_head(_reader(head), head.nbytes, name)
    if end != head.nbytes:
        raise MalformedHeader(f"{name}: {head.nbytes - end} bytes behind the header")
    return header


def read_memory_need(path: Path | str) -> MemoryNeed:
    """What the graphs of a context need, from the first READ_FIRST_BYTES bytes of its file unless the block is longer;
    a file from before version 3 says it in its header. Raises ContextError subclasses, OSError."""
    with Path(path).open("rb", buffering=0) as file:
        start = io.BytesIO(file.read(READ_FIRST_BYTES) or b"")

        def read(count: int) -> bytes:
            found = start.read(count)
            return found if len(found) == count else found + (file.read(count - len(found)) or b"")

        need = _memory_need(read, _size(file), str(path))
    if need is None:
        header = read_header(path)
        need = MemoryNeed.of(header.device, header.graphs)
    return need


def memory_need_of(data: memoryview, name: str) -> MemoryNeed:
    """The same of a context binary's bytes."""
    need = _memory_need(_reader(data), data.nbytes, name)
    if need is None:
        with context_of(data, name) as file:
            need = MemoryNeed.of(file.header.device, file.header.graphs)
    return need


def _memory_need(read: Callable[[int], bytes], size: int, path: str) -> MemoryNeed | None:
    version, _, _ = _read_prefix(read, size, path)
    return _read_memory(read, size, path) if version >= _HAS_MEMORY else None


def _reader(data: memoryview) -> Callable[[int], bytes]:
    place = 0

    def read(count: int) -> bytes:
        nonlocal place
        place += count
        return bytes(data[place - count : place])

    return read


@dataclass(frozen=True)
class Packed:
    """Where a package has the parts of one of its contexts. head: the bytes in front of the section area; starts: of
    the sections in the package's bytes."""

    head: memoryview
    header: ContextHeader
    starts: tuple[int, ...]


class ContextFile(Closing):
    """An open context binary. Sections are views of its bytes and may not be used after close().

    head: the bytes in front of the section area. whole: whether it is a file of its own, and no part of a package.
    choice: of a context that was chosen from a package, which and why."""

    def __init__(
        self, data: memoryview, name: str, mapped: mmap.mmap | None = None, packed: Packed | None = None
    ) -> None:
        """`name` is how errors call it; `mapped` is what to unmap in the end; `packed` where `data` is a package's.
        Raises ContextError subclasses for bytes that are no context binary or a damaged one."""
        self.path = name
        self.whole = packed is None
        if packed is None:
            header, begin = _read_header(_reader(data), data.nbytes, name)
            start = aligned(begin)
            starts = tuple(start + section.offset for section in header.sections)
            packed = Packed(data[:begin], header, starts)
        self.header, self.head, self._starts = packed.header, packed.head, packed.starts
        self.choice: ContextChoice | None = None
        self._view, self._map = data, mapped
        self._verified: set[int] = set()

    @property
    def content(self) -> memoryview:
        """All bytes of the context binary. The view may be kept after close()."""
        if self.whole:
            return self._view[:]
        sections = range(len(self.header.sections))
        return memoryview(b"".join(laid_out(self.head, self.header.sections, map(self.section, sections))))

    def section(self, index: int) -> memoryview:
        """The bytes of a section. Raises ChecksumMismatch when they are not those that were written."""
        section = self.header.sections[index]
        start = self._starts[index]
        content = self._view[start : start + section.length]
        if index not in self._verified:
            if hashlib.sha256(content).hexdigest() != section.sha256:
                raise ChecksumMismatch(f"{self.path}: {section.kind} section {index} is damaged; generate it again")
            self._verified.add(index)
        return content

    def binary(self, program: int) -> bytes:
        """The binary of a program; empty when there is none."""
        return bytes(self.section(self.header.programs[program].binary))

    def source(self, program: int) -> str:
        """The OpenCL C of a program."""
        try:
            return bytes(self.section(self.header.programs[program].source)).decode()
        except UnicodeDecodeError:
            raise MalformedHeader(f"{self.path}: the source of program {program} is no UTF-8") from None

    def weights(self, index: int) -> memoryview:
        """The bytes of the index-th weights section."""
        return self.section(self.header.weights[index])

    def close(self) -> None:
        """Gives the bytes back, once no view of a section is in use any more."""
        with contextlib.suppress(BufferError):
            self.head.release()
            self._view.release()
            if self._map is not None:
                self._map.close()


def open_context(path: Path | str) -> ContextFile:
    """Opens a context binary: header checked, sections mapped. Raises as ContextFile does, OSError when the file
    cannot be read."""
    with Path(path).open("rb") as file:
        if not _size(file):  # nothing can be mapped
            raise NotAContext(f"{path}: not a gputune context binary")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return ContextFile(memoryview(mapped), str(path), mapped)


def context_of(data: memoryview, name: str) -> ContextFile:
    """A context binary from its bytes, such as those that a host has sent. Raises as ContextFile does."""
    return ContextFile(data.cast("B"), name)


def version_of(head: memoryview) -> int:
    """The format version of a context binary, from its head."""
    return int(_PREFIX.unpack_from(head)[1])


def aligned(offset: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _size(file: Any) -> int:
    return os.fstat(file.fileno()).st_size


def _read_prefix(read: Callable[[int], bytes], size: int, path: str) -> tuple[int, int, bytes]:
    """Version, and the header's length and digest, from the first bytes of a file of so many bytes."""
    prefix = read(_PREFIX.size)
    if prefix[: len(MAGIC)] == PACKAGE_MAGIC:
        raise NotAContext(f"{path}: a package of contexts; `gputune package --split` writes them as files of their own")
    if prefix[: len(MAGIC)] != MAGIC[: len(prefix)] or not prefix:
        raise NotAContext(f"{path}: not a gputune context binary")
    if len(prefix) < _PREFIX.size:
        raise Truncated(f"{path}: the file ends after {size} bytes")
    _, version, length, digest = _PREFIX.unpack(prefix)
    if version not in READABLE_VERSIONS:
        *others, last = map(str, READABLE_VERSIONS)
        readable = f"{', '.join(others)} and {last}"
        raise UnsupportedFormatVersion(f"{path}: format version {version}, this gputune reads {readable}")
    return version, length, digest


def _read_memory(read: Callable[[int], bytes], size: int, path: str) -> MemoryNeed:
    """The memory block, which is next."""
    prefix = read(_MEMORY.size)
    if len(prefix) < _MEMORY.size:
        raise Truncated(f"{path}: the file ends after {size} bytes")
    length, digest = _MEMORY.unpack(prefix)
    if length > LARGEST_MEMORY_BLOCK_BYTES:
        raise MalformedHeader(
            f"{path}: a memory block of {length} bytes, at most {LARGEST_MEMORY_BLOCK_BYTES} are allowed"
        )
    block = read(length)
    if len(block) < length:
        raise Truncated(f"{path}: the file ends after {size} bytes, within its memory block")
    if hashlib.sha256(block).digest() != digest:
        raise ChecksumMismatch(f"{path}: the memory block is damaged; generate the context again")
    fields = _unpacked(block, "memory block", path)
    try:
        return MemoryNeed.from_fields(fields)
    except MalformedHeader as error:
        raise MalformedHeader(f"{path}: {str(error)[:LONGEST_SAID]}") from None


def _unpacked(content: bytes, what: str, path: str) -> Any:
    try:
        return msgpack.unpackb(content)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedHeader(f"{path}: the {what} is no MsgPack: {error}") from None


def _read_header(read: Callable[[int], bytes], size: int, path: str) -> tuple[ContextHeader, int]:
    """Header and its end, given what reads the next bytes of a file of so many bytes, all of which it must tell of."""
    header, head = _read_head(read, size, path)
    start, end = aligned(head), 0
    for place, section in enumerate(header.sections):
        if section.offset % ALIGNMENT or section.offset < end:
            raise MalformedHeader(f"{path}: section {place} overlaps the one before or is not aligned")
        end = section.offset + section.length
    if size < start + end:
        raise Truncated(f"{path}: {size} bytes, the header tells of {start + end}")
    if size > start + end:
        raise MalformedHeader(f"{path}: {size - start - end} bytes behind the last section")
    return header, head


def _read_head(read: Callable[[int], bytes], size: int, path: str) -> tuple[ContextHeader, int]:
    """Header and its end, given what reads the next bytes of a file of so many bytes."""
    place = 0

    def counted(count: int) -> bytes:
        nonlocal place
        place += count
        return read(count)

    version, length, digest = _read_prefix(counted, size, path)
    need = _read_memory(counted, size, path) if version >= _HAS_MEMORY else None
    if length > LARGEST_HEADER_BYTES:
        raise MalformedHeader(f"{path}: a header of {length} bytes, at most {LARGEST_HEADER_BYTES} are allowed")
    content = counted(length)
    if len(content) < length:
        raise Truncated(f"{path}: the file ends after {size} bytes, within its header")
    if hashlib.sha256(content).digest() != digest:
        raise ChecksumMismatch(f"{path}: the header is damaged; generate the context again")
    fields = _unpacked(content, "header", path)
    try:
        header = ContextHeader.from_dict(fields)
    except MalformedHeader as error:
        raise MalformedHeader(f"{path}: {str(error)[:LONGEST_SAID]}") from None
    if need is not None and need != MemoryNeed.of(header.device, header.graphs):
        raise MalformedHeader(f"{path}: the memory block and the header disagree")
    return header, place
