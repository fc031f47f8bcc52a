"""Write packages from contexts and other packages, add or remove contexts, and unpack them into files."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import msgpack

from gputune.core.errors import ChecksumMismatch, MalformedPackage
from gputune.runtime.context.format import PACKAGE_MAGIC, ContextFile, aligned, laid_out, write_file
from gputune.runtime.context.package import (
    HEAD,
    KINDS,
    LARGEST_INDEX_BYTES,
    MOST_CONTEXTS,
    NAME,
    PACKAGE_VERSION,
    PREFIX,
    Package,
    PackageEntry,
    PackageIndex,
)
from gputune.runtime.context.records import ContextHeader, GraphRecord, Section, TensorRecord

LONGEST_NAME = 190
CONTEXT_SUFFIX = ".bin"


@dataclass(frozen=True)
class Packing:
    """Bytes. package: of the file; apart: of its contexts as files of their own; once: of all distinct sections, the
    contexts' headers included; common: of those that more than one context has."""

    contexts: int
    package: int
    apart: int
    once: int
    common: int

    @property
    def shared(self) -> float:
        """The share of the distinct sections' bytes that more than one context has."""
        return self.common / self.once

    def __str__(self) -> str:
        """Return one phrase for people."""
        if self.contexts == 1:
            return f"1 context in {self.package} bytes"
        share = 1 - self.package / self.apart
        return (
            f"{self.contexts} contexts in {self.package} bytes, as files of their own {self.apart}: {share:.1%} saved; "
            f"sections that several have: {self.common} bytes, {self.shared:.1%} of all"
        )


def write_package(path: Path | str, files: Sequence[ContextFile], names: Sequence[str] = ()) -> Packing:
    """Write contexts of one model into a package, which appears complete or not at all; a file that is replaced may be
    one that the contexts are open from. names: what they are called by, as far as they are different; others, and those
    that are empty, by their tier.

    Raises MalformedPackage for contexts whose graphs differ, two for one device and driver, or files that no gputune
    has written so; ChecksumMismatch for damaged ones; OSError.
    """
    _check_contexts(files)
    known = _Sections()
    entries = [_entry(name, file, known) for name, file in zip(_names(files, names), files, strict=True)]
    index = PackageIndex(tuple(entries), tuple(known.sections))
    fields = index.to_fields()
    PackageIndex.from_fields(fields)  # so that what cannot be read is not written
    content: bytes = msgpack.packb(fields)
    if len(content) > LARGEST_INDEX_BYTES:
        raise MalformedPackage(f"{path}: an index of {len(content)} bytes, at most {LARGEST_INDEX_BYTES} are allowed")
    prefix = PREFIX.pack(PACKAGE_MAGIC, PACKAGE_VERSION, len(content), hashlib.sha256(content).digest())
    nbytes = write_file(path, laid_out(prefix + content, index.sections, (read() for read in known.contents)))
    return packing_of(index, nbytes)


def packing_of(index: PackageIndex, nbytes: int) -> Packing:
    """Return what a package of so many bytes saves."""
    uses = Counter(place for entry in index.contexts for place in (entry.head, *entry.sections))
    return Packing(
        contexts=len(index.contexts),
        package=nbytes,
        apart=sum(entry.nbytes for entry in index.contexts),
        once=sum(section.length for section in index.sections),
        common=sum(index.sections[place].length for place, count in uses.items() if count > 1),
    )


def split_files(package: Package, folder: Path) -> list[Path]:
    """Return the files that `split` writes into a folder."""
    return [folder / f"{entry.name}{CONTEXT_SUFFIX}" for entry in package.contexts]


def split(package: Package, folder: Path) -> list[Path]:
    """Write each context of a package into a folder that is there, as NAME.bin, byte by byte the file that it was.
    Raises ContextError for a damaged one, OSError."""
    paths = split_files(package, folder)
    for place, (path, entry) in enumerate(zip(paths, package.contexts, strict=True)):
        with package.open(place) as file:
            if _digest(_pieces(file)) != entry.sha256:
                raise ChecksumMismatch(f"{file.path} is not the file that was packed")
            write_file(path, _pieces(file))
    return paths


def same_device(one: ContextHeader, other: ContextHeader) -> bool:
    """Return whether two contexts are for the same device and driver, so that one would stand in for the other."""
    return one.device.runs_binaries_of(other.device) and one.computes == other.computes


def _check_contexts(files: Sequence[ContextFile]) -> None:
    if not 0 < len(files) <= MOST_CONTEXTS:
        raise MalformedPackage(f"a package holds 1 to {MOST_CONTEXTS} contexts, not {len(files)}")
    for place, file in enumerate(files):
        if difference := _difference(files[0].header.graphs, file.header.graphs):
            raise MalformedPackage(f"{file.path} is no context of the model of {files[0].path}: {difference}")
        twin = next((other for other in files[:place] if same_device(other.header, file.header)), None)
        if twin is not None:
            raise MalformedPackage(
                f"{twin.path} and {file.path} are for the same device and driver, {file.header.device.name}: "
                "a package holds one of them"
            )


def _difference(graphs: Sequence[GraphRecord], others: Sequence[GraphRecord]) -> str:
    """Return the first difference between what two contexts take and give; empty where there is none."""
    names, other_names = [graph.name for graph in graphs], [graph.name for graph in others]
    if names != other_names:
        return f"its graphs are {other_names}, not {names}"
    for graph, other in zip(graphs, others, strict=True):
        for what, tensors, theirs in (
            ("inputs", graph.inputs, other.inputs),
            ("outputs", graph.outputs, other.outputs),
        ):
            if (ours := list(map(_tensor_text, tensors))) != (found := list(map(_tensor_text, theirs))):
                return f"the {what} of its graph {graph.name!r} are {', '.join(found)}, not {', '.join(ours)}"
    return ""


def _tensor_text(tensor: TensorRecord) -> str:
    return f"{tensor.name} {tensor.dtype}{list(tensor.shape)}"


def _names(files: Sequence[ContextFile], wanted: Sequence[str]) -> list[str]:
    """Return a different name for each context: the one that is wanted, else its tier."""
    given = chain(wanted, repeat(""))
    return distinct(name or _name_of_tier(file.header.tier) for file, name in zip(files, given, strict=False))


def distinct(wanted: Iterable[str]) -> list[str]:
    """Return a different name for each that is wanted: the second "a" is "a.2"."""
    names: list[str] = []
    for base in wanted:
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}.{number}"
        names.append(name)
    return names


def _name_of_tier(tier: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", tier)[:LONGEST_NAME]
    return name if NAME.fullmatch(name) else f"tier-{name}"


class _Sections:
    """The sections of a package that is going to be written, each once."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self.contents: list[Callable[[], memoryview]] = []
        self._known: dict[tuple[str, str], int] = {}

    def place(self, kind: str, digest: str, nbytes: int, read: Callable[[], memoryview]) -> int:
        """Return the index of a section, which is added where there is none like it, and read when it is written."""
        if (kind, digest) not in self._known:
            end = self.sections[-1].offset + self.sections[-1].length if self.sections else 0
            self._known[kind, digest] = len(self.sections)
            self.sections.append(Section(kind, aligned(end), nbytes, digest))
            self.contents.append(read)
        return self._known[kind, digest]


def _entry(name: str, file: ContextFile, known: _Sections) -> PackageEntry:
    """Return the entry of a context, whose sections are added to those of the package."""
    digest = _checked_digest(file)
    head = known.place(HEAD, hashlib.sha256(file.head).hexdigest(), file.head.nbytes, lambda: file.head)
    sections = tuple(
        known.place(section.kind, section.sha256, section.length, partial(file.stored, index))
        for index, section in enumerate(file.header.sections)
    )
    header, nbytes = file.header, sum(map(len, _pieces(file)))
    return PackageEntry(name, header.tier, header.device, header.computes, head, sections, nbytes, digest)


def _checked_digest(file: ContextFile) -> str:
    """Return the SHA-256 of a file. Raises MalformedPackage for one that could not be put together again."""
    sections = file.header.sections
    ends = [0, *(aligned(section.offset + section.length) for section in sections)]
    dense = all(section.offset == end for section, end in zip(sections, ends, strict=False))
    known = {(section.kind, section.sha256) for section in sections if section.kind in KINDS and section.kind != HEAD}
    digest = _digest(_pieces(file)) if dense and len(known) == len(sections) else ""
    if not digest or (file.whole and digest != _digest(file.pieces())):
        raise MalformedPackage(f"{file.path}: its sections do not lie as gputune writes them; generate it again")
    return digest


def _pieces(file: ContextFile) -> Iterator[bytes | memoryview]:
    """Return a context binary as it was before it was packed."""
    sections = file.header.sections
    return laid_out(file.head, sections, map(file.stored, range(len(sections))))


def _digest(pieces: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
