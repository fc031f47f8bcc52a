"""What of a compiled kernel decides what runs: two libraries with equal digests run the same instructions.

PoCL compiles each kernel into a shared library of its own, named after the kernel. The digest is of all that the loader
maps, names of foreign functions included, without the kernel's name and the tables made from it. What is not known to
be equal is taken for different, which costs a measurement and nothing else.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # of a 64-bit ELF file
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_MAPPED, _CODE = 2, 4  # flags of a section
# kinds of sections: zeros, and what is made from names
_EMPTY, _HASH, _NOTE, _GNU_HASH = 8, 5, 7, 0x6FFFFFF6
_LARGEST_BYTES = 16 << 20


def digest_of(library: Path, kernel: str) -> str | None:
    """The digest of a kernel's library; None where that cannot be read."""
    try:
        if library.stat().st_size > _LARGEST_BYTES:
            return None
        content = library.read_bytes()
        return _digest(content, kernel.encode()) if content.startswith(_MAGIC) else None
    except (OSError, OverflowError, ValueError, struct.error):
        return None


def _digest(content: bytes, kernel: bytes) -> str:
    """Raises ValueError, OverflowError or struct.error for what is no library."""
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
            code_bytes += nbytes if flags & _CODE else 0
            digest.update(struct.pack("<QQQ", kind, address, nbytes) + mapped.replace(kernel, bytes(len(kernel))))
    if not code_bytes:
        raise ValueError("there is no code in it")
    return digest.hexdigest()
