"""Read from C what loading and inferences did for each input and output."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, byref, c_char_p, c_uint64
from typing import Any

Counted = dict[str, Any]


class TensorCounts(Structure):
    """Count the memory operations of one tensor, as gputune_tensor_counters."""

    _fields_ = (
        *((name, c_uint64) for name in ("bytes_copied", "writes", "reads", "maps", "allocations")),
        ("reason", c_char_p),
    )

    def as_dict(self) -> Counted:
        """Return the counts by name, the arguments of TensorCounters."""
        counts = {name: getattr(self, name) for name, *_ in self._fields_}
        return counts | {"reason": self.reason.decode(errors="replace")}


def tensor_counters(
    call: Callable[..., None], graph: int, output: bool, place: int
) -> tuple[Counted, Counted, Counted]:
    """Return what loading, all inferences and the last one did for an input or output, by its place in the description
    of a graph, which is given by its address. call: calls a function of the library by its name."""
    load, total, last = TensorCounts(), TensorCounts(), TensorCounts()
    call("load_counters_of", graph, output, place, byref(load))
    call("tensor_counters_of", graph, output, place, byref(total), byref(last))
    return load.as_dict(), total.as_dict(), last.as_dict()
