"""Read PoCL's libraries of compiled kernels: find those that need not be compiled, and those that are equal.

PoCL keeps a shared library of each kernel for each local size with which it was launched, named after the kernel.

When PoCL reads a binary, it adds a library for any local size and compiles every kernel once more for it, which is half
of the cost of a program. gputune launches a program with the sizes with which it ran before its binary was saved. For
other sizes, PoCL makes code from the LLVM code in the binary. Nothing therefore runs the library for any size, unless
POCL_WORK_GROUP_SPECIALIZATION=0 asks for it. If a kernel was launched with one local size, the library for that size is
put in its place beforehand.

Two libraries with equal digests run the same instructions. The digest covers all that the loader maps, including names
of foreign functions, without the kernel's name and the tables made from it. Libraries that are not known to be equal
count as different, which costs only a measurement.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # of a 64-bit ELF file
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_MAPPED, _CODE = 2, 4  # flags of a section
# kinds of sections: zeros, symbols, and what is made from names
_EMPTY, _SYMBOLS, _HASH, _NOTE, _GNU_HASH = 8, 11, 5, 7, 0x6FFFFFF6
_SYMBOL_BYTES = 24
_LARGEST_BYTES = 16 << 20
GENERAL = "0-0-0"
"""The folder of the library for any size; others are called after theirs, such as 8-1-1-goffs0."""


def code_of(folder: Path, kernel: str, local_size: tuple[int, ...]) -> str | None:
    """Return the digest of what a kernel runs as with a local size, by PoCL's folder of compiled programs; None where
    that cannot be read, or is there more than once."""
    x, y, z = (*local_size, 1, 1)[:3]
    found = list(folder.glob(f"*/*/{kernel}/{x}-{y}-{z}-*/{kernel}.so"))
    return digest_of(found[0], kernel) if len(found) == 1 else None


def digest_of(library: Path, kernel: str) -> str | None:
    """Return the digest of a kernel's library; None where that cannot be read."""
    try:
        if library.stat().st_size > _LARGEST_BYTES:
            return None
        content = library.read_bytes()
        return _digest(content, kernel.encode()) if content.startswith(_MAGIC) else None
    except (OSError, OverflowError, ValueError, struct.error):
        return None


def _digest(content: bytes, kernel: bytes) -> str:
    """Return the digest of what a library loads. Raises ValueError, OverflowError or struct.error for what is no
    library."""
    header = _HEADER.unpack_from(content)
    start, size, count = header[6], header[11], header[12]
    digest = hashlib.sha256()
    code_bytes = 0
    for number in range(count):
        _, kind, flags, address, offset, nbytes, *_ = _SECTION.unpack_from(content, start + number * size)
        if flags & _MAPPED and kind not in (_HASH, _NOTE, _GNU_HASH):
            mapped = b"" if kind == _EMPTY else content[offset : offset + nbytes]
            if kind != _EMPTY and len(mapped) != nbytes:
                raise ValueError("the file ends too early")
            if kind == _SYMBOLS:  # linkers order them by hashes of their names
                mapped = b"".join(sorted(mapped[at : at + _SYMBOL_BYTES] for at in range(0, nbytes, _SYMBOL_BYTES)))
            code_bytes += nbytes if flags & _CODE else 0
            digest.update(struct.pack("<QQQ", kind, address, nbytes) + mapped.replace(kernel, bytes(len(kernel))))
    if not code_bytes:
        raise ValueError("there is no code in it")
    return digest.hexdigest()


def spare_general_code(folder: Path, kernels: Iterable[str]) -> None:
    """Prepare PoCL's folder of compiled programs for reading the binaries of those that have such kernels. What cannot
    be prepared is compiled as ever."""
    for kernel in kernels:
        for place in folder.glob(f"*/*/{kernel}"):
            with suppress(OSError):  # others may be at work in there
                _prepare(place, f"{kernel}.so")


def _prepare(place: Path, library: str) -> None:
    sizes = [each for each in place.iterdir() if each.name != GENERAL]
    general = place / GENERAL / library
    if len(sizes) == 1 and not general.exists():
        general.parent.mkdir(exist_ok=True)
        os.link(sizes[0] / library, general)
    elif len(sizes) > 1 and any(general.samefile(each / library) for each in sizes):
        general.unlink()  # it would be the wrong one for the other sizes
