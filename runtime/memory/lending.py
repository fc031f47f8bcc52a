"""Lend an application's arrays to launches as zero-copy inputs, which are read in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
T = TypeVar("T")
LEAST_LENT = 1 << 16
"""Bytes of an input that is read where it lies; fewer are copied in less time than it takes to see whether they lie
where the last ones did."""
MOST_LENT = 8
"""Buffers that are kept for an input: applications have a few arrays that they fill in turns."""


class Lending(Generic[T]):
    """Buffers on the last arrays that were given for one input, by their addresses. It keeps none of the arrays: when
    one is gone, another is given before its buffer is read again."""

    def __init__(self, lend: Callable[[Array], T | None], alignment: int) -> None:
        """lend: makes a buffer on an array, or says with None that the device cannot read it there. alignment: what
        kernels ask of an address, in bytes, beside that of the elements."""
        self._lend, self._alignment = lend, alignment
        self._lent: dict[int, T] = {}

    def on(self, array: Array, written: Iterable[Array]) -> T | None:
        """Return a buffer on a C-contiguous array; None where it has to be copied: where it is small, where the device
        cannot read it there, and where it may have memory in common with what launches write. Raises DeviceError."""
        if array.nbytes < LEAST_LENT or any(np.may_share_memory(array, one) for one in written):
            return None
        address = array.__array_interface__["data"][0]
        lent = self._lent.get(address)
        if lent is None and address % self._alignment == 0 and (lent := self._lend(array)) is not None:
            while len(self._lent) >= MOST_LENT:
                self._lent.pop(next(iter(self._lent)))  # the one that was made first
            self._lent[address] = lent
        return lent

    def clear(self) -> None:
        """Give the buffers up. Launches must be gone."""
        self._lent.clear()
