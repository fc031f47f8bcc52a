"""Provide what CUDA needs to run the PTX that NVIDIA's OpenCL compiler makes."""

from __future__ import annotations

import re
from pathlib import Path


def for_cuda(ptx: str) -> str:
    """Return PTX of kernels of OpenCL for launches by CUDA, which have no offsets: OpenCL's driver gives the offsets of
    groups and work-items in registers of the environment, in which CUDA leaves whatever there was."""
    return re.sub(r"%envreg[0-5]\b", "0", ptx)


def loadable(binary: Path) -> Path:
    """Return a file next to a binary, which CUDA can load."""
    result = binary.with_suffix(".cuda.ptx")
    result.write_text(for_cuda(binary.read_text(encoding="utf-8")), encoding="utf-8")
    return result
