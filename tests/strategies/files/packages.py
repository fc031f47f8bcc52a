"""Change packages of contexts, and read, split and load them.

Of the packages a third have a changed index under the right checksum, a third a changed header of one of the contexts
under all the right ones; the others are flipped, cut and spliced. Each must be refused with a ContextError or
DeviceError of one printable line, or give contexts that do what their headers say within 4 GiB of address space; one
whose bytes alone have changed must be refused or hold what it held.
"""

import functools
import hashlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import msgpack

from gputune.client.run.packages import lines_of, listing
from gputune.core.errors import ContextError, DeviceError
from gputune.runtime.context.format import PACKAGE_MAGIC, aligned, context_of, laid_out, open_context
from gputune.runtime.context.package import KINDS, PREFIX, Package, open_package
from gputune.runtime.context.packing import split, write_package
from gputune.runtime.context.records import Section
from gputune.runtime.context.stored import Extent
from gputune.runtime.loading.model import open_any
from gputune.runtime.loading.verdict import open_chosen
from tests.strategies.changes import Broken, check_line, mutated_bytes, mutated_value
from tests.strategies.files import contexts


def examine(chance: random.Random, folder: Path) -> str:
    """Return how one changed package ends. Raises Broken, and whatever else is raised that must not be."""
    whole, kind = original(), chance.randrange(3)
    return end_of((changed_index, changed_head, mutated_bytes)[kind](whole, chance), folder, same=kind == 2)


def end_of(content: bytes, folder: Path, same: bool) -> str:
    """Return how a package ends, which must hold what the original holds if it is the `same`. Raises as `examine`."""
    path = folder / "m.gtpkg"
    path.write_bytes(content)
    try:
        with open_package(path) as package:
            list(lines_of(json.loads(json.dumps(listing(package), allow_nan=False))))
            if same and contents(package) != contents(Package(Extent(memoryview(original())), "original")):
                raise Broken("bytes of the package have changed, and it holds something else")
            with open_chosen(package, contexts.device().identity, computes=False) as file:
                ended = contexts.run_graphs(file)
            open_any(path).contexts()[0].open(contexts.device().identity).close()
            check_split(package, folder)
            return ended
    except (ContextError, DeviceError) as error:
        return check_line(error)


def check_split(package: Package, folder: Path) -> None:
    """Check that what a package is split into are its contexts. Raises ContextError; Broken if one is not."""
    for path, place in zip(split(package, folder), range(len(package.contexts)), strict=True):
        with open_context(path) as plain, package.open(place) as packed:
            if contexts.contents(plain) != contexts.contents(packed):
                raise Broken(f"{path.name} is not the context of the package")
        path.unlink()


def contents(package: Package) -> list[Any]:
    """Return all that a package holds."""
    found: list[Any] = [package.index]
    for place in range(len(package.contexts)):
        with package.open(place) as file:
            found.append(contexts.contents(file))
    return found


def parts(whole: bytes) -> tuple[Any, list[bytes]]:
    """Return the index as plain values, and the contents of all sections."""
    _, _, length, _ = PREFIX.unpack(whole[: PREFIX.size])
    fields = msgpack.unpackb(whole[PREFIX.size : PREFIX.size + length])
    start, sections = aligned(PREFIX.size + length), []
    for _, nbytes, _ in fields["sections"]:
        sections.append(whole[start : start + nbytes])
        start += aligned(nbytes)
    return fields, sections


def joined(fields: Any, contents: list[bytes]) -> bytes:
    """Return a package with the right checksum of its index."""
    index: bytes = msgpack.packb(fields)
    sections, offset = [], 0
    for content in contents:
        sections.append(Section("", offset, len(content), ""))
        offset = aligned(offset + len(content))
    prefix = PREFIX.pack(PACKAGE_MAGIC, 1, len(index), hashlib.sha256(index).digest())
    return b"".join(laid_out(prefix + index, sections, contents))


def changed_index(whole: bytes, chance: random.Random) -> bytes:
    """Return a package with another index over the same sections."""
    fields, sections = parts(whole)
    try:
        return joined(mutated_value(fields, chance, contexts.ODD), sections)
    except OverflowError:  # MsgPack has no larger numbers
        return whole


def changed_head(whole: bytes, chance: random.Random) -> bytes:
    """Return a package in which the header of one context is another, and all checksums are right."""
    fields, sections = parts(whole)
    entry = chance.choice(fields["contexts"])
    changed = mutated_value(contexts.header_of(sections[entry["head"]]), chance, contexts.ODD)
    head = contexts.with_header(sections[entry["head"]], changed)
    head = head[: contexts.FRONT_BYTES + sum(map(len, contexts.head_of(head)))]
    entry["nbytes"] += aligned(len(head)) - aligned(len(sections[entry["head"]]))
    sections[entry["head"]] = head
    fields["sections"][entry["head"]] = [KINDS.index("head"), len(head), hashlib.sha256(head).digest()]
    return joined(fields, sections)


@functools.cache
def original() -> bytes:
    """Return a package of the context that is changed, and two more for other devices, which share most sections."""
    whole = contexts.original()
    files = []
    for number in range(3):
        fields = contexts.header_of(whole)
        fields["device"]["driver_version"] = str(number)
        fields["tier"] = f"tier-{number}"
        files.append(context_of(memoryview(contexts.with_header(whole, fields)), f"{number}.bin"))
    with tempfile.TemporaryDirectory() as folder:
        write_package(Path(folder) / "m.gtpkg", files)
        return (Path(folder) / "m.gtpkg").read_bytes()
