"""Compress sections by raw DEFLATE, and inflate them again.

Python has zlib. The C runtime has an inflater of its own (inflate.c), which is as fast. It needs no library, so that
the runtime builds with a bare compiler, on phones and for wheels.
"""

from __future__ import annotations

import zlib

_RAW = -zlib.MAX_WBITS


def deflated(content: memoryview) -> bytes:
    """Return what becomes the content again."""
    machine = zlib.compressobj(wbits=_RAW)
    return machine.compress(content) + machine.flush()


def inflated(content: memoryview, nbytes: int) -> memoryview:
    """Return so many bytes. Raises ValueError where the content does not become exactly these."""
    machine = zlib.decompressobj(wbits=_RAW)
    try:
        made = machine.decompress(content, nbytes + 1)  # room for one too many
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(made) != nbytes or not machine.eof or machine.unused_data:
        raise ValueError("it is longer or shorter")
    return memoryview(made)
