"""Hints that OpenCL takes for the clocks and the order of work: which of them a device offers, and that none is set.

Sources: the OpenCL registry, cl_qcom_perf_hint 1.0.5, cl_khr_priority_hints, cl_khr_throttle_hints. All of them belong
to a context or queue when it is made, and the OpenCL binding passes on no property that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass

from gputune.core.identity import DeviceIdentity


@dataclass(frozen=True)
class Hint:
    """A hint by its extension. takes: the property with its values, and the place for it."""

    extension: str
    takes: str
    offered: bool

    @property
    def line(self) -> str:
        """Whether the device has it, and why it is not set, in one line."""
        if not self.offered:
            return f"{self.extension}: the device does not offer it"
        return f"{self.extension}: offered and not set: {self.takes}, which pyopencl does not pass on"


_TAKES = {
    "cl_qcom_perf_hint": "a context's property 0x40C2 with HIGH 0x40C3, NORMAL 0x40C4 or LOW 0x40C5",
    "cl_khr_priority_hints": "a queue's property 0x1096 with HIGH 1, MED 2 or LOW 4",
    "cl_khr_throttle_hints": "a queue's property 0x1097 with HIGH 1, MED 2 or LOW 4",
}


def hints(identity: DeviceIdentity) -> list[Hint]:
    """All hints that are known, for a device by its extensions."""
    return [Hint(extension, takes, extension in identity.extensions) for extension, takes in _TAKES.items()]
