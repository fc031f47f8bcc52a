r"""Read a package: one file that holds contexts of one model for several device tiers, each section once.

Layout (little endian): magic b"GPUTPKG\0", u32 version, u32 index bytes, SHA-256 of the index (32 bytes), the index
(MsgPack, see PackageIndex), then the section area, laid out as in a context binary (format.py). Sections of equal kind
and digest are stored once. The bytes before the section area of a context binary are a section of the kind "head", so
each context can be restored byte by byte. Opening a package reads only the index. Opening one of its contexts gives a
ContextFile whose sections lie in the package.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgpack

from gputune.core.bounds import Amount, CText, Stored, Within, in_files
from gputune.core.decoder import record_of
from gputune.core.errors import (
    MalformedPackage,
    Truncated,
    UnsupportedFormatVersion,
    shortened,
)
from gputune.core.files import open_file
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing
from gputune.runtime.context.format import AGAIN, LONGEST_SAID, PACKAGE_MAGIC, ContextFile, Packed, aligned, header_of
from gputune.runtime.context.records import Section
from gputune.runtime.context.stored import Extent, OpenFile

SUFFIX = ".gtpkg"
"""By custom; a package is known by its first bytes."""
PACKAGE_VERSION = 1
LARGEST_INDEX_BYTES = 64 << 20
MOST_CONTEXTS = 256
LARGEST_SECTION_BYTES = 1 << 56
HEAD = "head"
KINDS = (HEAD, "binary", "source", "weights")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""Of a context: it becomes the name of a file."""
PREFIX = struct.Struct("<8sII32s")
_DIGEST_BYTES = 32
_PLACE = "package"


def _hex(digest: bytes) -> str:
    if len(digest) != _DIGEST_BYTES:
        raise ValueError(f"a digest of {len(digest)} bytes")
    return digest.hex()


Digest = Annotated[str, Stored(bytes, _hex)]


@in_files()
@dataclass(frozen=True)
class PackageEntry:
    """A context of a package. name: a different one for each, by default its tier; head, sections: indices of the
    package's sections, in the context's own order; nbytes, sha256: of the context binary as a file."""

    name: CText
    tier: CText
    device: DeviceIdentity
    computes: bool
    head: Amount
    sections: tuple[Amount, ...]
    nbytes: Amount
    sha256: Digest

    def to_fields(self) -> dict[str, Any]:
        """Plain values, as they lie in the index."""
        changed = {"device": self.device.to_dict(), "sections": list(self.sections)}
        return vars(self) | changed | {"sha256": bytes.fromhex(self.sha256)}


class _Section(NamedTuple):
    kind: Annotated[int, Within(0, len(KINDS) - 1)]
    length: Annotated[int, Within(0, LARGEST_SECTION_BYTES)]
    sha256: Digest


@in_files()
@dataclass(frozen=True)
class _Index:
    """A PackageIndex as it lies in a file."""

    contexts: tuple[PackageEntry, ...]
    sections: tuple[_Section, ...]


@dataclass(frozen=True)
class PackageIndex:
    """The index of a package: its contexts and all sections, whose offsets follow from their lengths."""

    contexts: tuple[PackageEntry, ...]
    sections: tuple[Section, ...]

    def to_fields(self) -> dict[str, Any]:
        """Plain values, as they lie in the file."""
        return {
            "contexts": [entry.to_fields() for entry in self.contexts],
            "sections": [
                [KINDS.index(section.kind), section.length, bytes.fromhex(section.sha256)] for section in self.sections
            ],
        }

    @classmethod
    def from_fields(cls, value: object) -> PackageIndex:
        """Return the checked index. Raises MalformedPackage that names the field."""
        stored = record_of(_Index, value, _PLACE, MalformedPackage)
        sections: list[Section] = []
        for kind, length, sha256 in stored.sections:
            if (offset := aligned(_end(sections))) > LARGEST_SECTION_BYTES:
                raise MalformedPackage(f"{_PLACE}: sections of more than {LARGEST_SECTION_BYTES} bytes")
            sections.append(Section(KINDS[kind], offset, length, sha256))
        index = cls(stored.contexts, tuple(sections))
        _check(index)
        return index

    @property
    def area_bytes(self) -> int:
        """Of the section area."""
        return _end(self.sections)


class Package(Closing):
    """An open package. Contexts that were opened from it may outlive it.

    path: how errors call it; contexts: what it holds, in its order; nbytes: of the package."""

    def __init__(self, data: Extent, name: str) -> None:
        """Read the index. Raises MalformedPackage and other ContextError subclasses for bytes that are no package or a
        damaged one; OSError."""
        self.path = name
        self.index, self._start = _read_index(data, name)
        self.nbytes = data.nbytes
        self._data: Extent | None = data

    @property
    def contexts(self) -> tuple[PackageEntry, ...]:
        return self.index.contexts

    def open(self, place: int) -> ContextFile:
        """Return one of the contexts. Raises ContextError subclasses for one whose parts are
        damaged or contradict the index."""
        if self._data is None:
            raise ValueError(f"{self.path} was closed")
        entry, known = self.contexts[place], self.index.sections
        name, section = f"{self.path}: context {entry.name!r}", known[entry.head]
        head = self._data.part(self._start + section.offset, section.length).checked(
            section.sha256, f"{name}: the header is damaged; make the package again"
        )
        header = header_of(head, name)
        if (header.device, header.tier, header.computes) != (entry.device, entry.tier, entry.computes):
            raise MalformedPackage(f"{name}: the index and the header disagree about the device")
        sections = [known[index] for index in entry.sections]
        if not _same(header.sections, sections):
            raise MalformedPackage(f"{name}: the index and the header disagree about the sections")
        if entry.nbytes != aligned(head.nbytes) + _end(header.sections):
            raise MalformedPackage(f"{name}: the index gives it {entry.nbytes} bytes, but its parts have another size")
        starts = tuple(self._start + section.offset for section in sections)
        return ContextFile(self._data, name, Packed(head, header, starts))

    def close(self) -> None:
        """Give up the file, which is closed once no context of the package is open any more."""
        self._data = None


def is_package(path: Path | str) -> bool:
    """Return whether a file begins as a package does. Raises OSError when it cannot be read."""
    with open_file(path) as file:
        return file.read(len(PACKAGE_MAGIC)) == PACKAGE_MAGIC


def open_package(path: Path | str) -> Package:
    """Open a package and check its index. Raises as Package does, OSError when it cannot be read."""
    return Package(Extent(OpenFile(path)), str(path))


def _read_index(data: Extent, name: str) -> tuple[PackageIndex, int]:
    """Index and start of the section area."""
    prefix = data.part(0, PREFIX.size).read()
    if prefix[: len(PACKAGE_MAGIC)] != PACKAGE_MAGIC:
        raise MalformedPackage(f"{name}: no package of contexts")
    if data.nbytes < PREFIX.size:
        raise Truncated(f"{name}: the file ends after {data.nbytes} bytes; {AGAIN}")
    _, version, length, digest = PREFIX.unpack(prefix)
    if version != PACKAGE_VERSION:
        raise UnsupportedFormatVersion(f"{name}: package version {version}, this gputune reads {PACKAGE_VERSION}")
    if length > LARGEST_INDEX_BYTES:
        raise MalformedPackage(f"{name}: an index of {length} bytes, at most {LARGEST_INDEX_BYTES} are allowed")
    content = data.part(PREFIX.size, length).read()
    if content.nbytes < length:
        raise Truncated(f"{name}: the file ends after {data.nbytes} bytes, within its index; {AGAIN}")
    if hashlib.sha256(content).digest() != digest:
        raise data.wrong(f"{name}: the index is damaged; make the package again")
    try:
        index = PackageIndex.from_fields(msgpack.unpackb(content))
    except MalformedPackage as error:
        raise MalformedPackage(f"{name}: {str(error)[:LONGEST_SAID]}") from None
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedPackage(f"{name}: the index is not MsgPack: {error}") from None
    start = aligned(PREFIX.size + length)
    end = start + index.area_bytes
    if data.nbytes < end:
        raise Truncated(f"{name}: {data.nbytes} bytes, but its index describes {end}; {AGAIN}")
    if data.nbytes > end:
        raise MalformedPackage(f"{name}: {data.nbytes - end} bytes after the last section")
    return index, start


def _check(index: PackageIndex) -> None:
    """Check what ties the fields together."""
    sections = index.sections
    names = [entry.name for entry in index.contexts]
    if not 0 < len(names) <= MOST_CONTEXTS or len(set(names)) < len(names):
        raise MalformedPackage(
            f"{_PLACE}: contexts must have different names, and there must be one: {shortened(names)}"
        )
    for name in names:
        if not NAME.fullmatch(name):
            raise MalformedPackage(f"{_PLACE}: {shortened([name])} cannot be the name of a context")
    if len({(section.kind, section.sha256) for section in sections}) < len(sections):
        raise MalformedPackage(f"{_PLACE}: the same section twice")
    used: set[int] = set()
    for entry in index.contexts:
        own = {entry.head, *entry.sections}
        if max(own) >= len(sections) or len(own) != 1 + len(entry.sections):
            raise MalformedPackage(f"{_PLACE}: context {entry.name!r} has a section twice, or one that does not exist")
        if any((sections[place].kind == HEAD) != (place == entry.head) for place in own):
            raise MalformedPackage(f"{_PLACE}: context {entry.name!r} has sections of wrong kinds")
        used |= own
    if len(used) < len(sections):
        raise MalformedPackage(f"{_PLACE}: a section that no context uses")


def _same(ours: Sequence[Section], packed: Sequence[Section]) -> bool:
    """Return whether a context's sections are these of the package, one behind the other as write_context lays them."""
    end = 0
    if len(ours) != len(packed):
        return False
    for section, other in zip(ours, packed, strict=True):
        if (section.kind, section.length, section.sha256) != (other.kind, other.length, other.sha256):
            return False
        if section.offset != aligned(end):
            return False
        end = section.offset + section.length
    return True


def _end(sections: Sequence[Section]) -> int:
    return sections[-1].offset + sections[-1].length if sections else 0
