"""Keeps PoCL from compiling code that is never run when the binary of a program is read.

PoCL keeps a shared library of each kernel for each local size that it was launched with. When a binary is read it adds
one for any local size, for which it compiles every kernel once more: half of what a program costs. Here a program is
launched with the sizes that its binary was read after; for others PoCL makes code from the LLVM code that the binary
holds, too. So nothing runs the library for any size, unless POCL_WORK_GROUP_SPECIALIZATION=0 asks for it. Where a
kernel was launched with one local size, the library for that is therefore put in its place beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

GENERAL = "0-0-0"
"""The folder of the library for any size; others are called after theirs, such as 8-1-1-goffs0."""


def spare_general_code(folder: Path, kernels: Iterable[str]) -> None:
    """Prepares PoCL's folder of compiled programs for reading the binaries of those that have such kernels. What cannot
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
