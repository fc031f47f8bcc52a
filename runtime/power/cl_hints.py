"""Report which OpenCL hints for clocks and the order of work a device offers, and why gputune sets none.

Sources: the OpenCL registry, cl_qcom_perf_hint 1.0.5, cl_khr_priority_hints, cl_khr_throttle_hints.
"""

from __future__ import annotations

from dataclasses import dataclass

from gputune.core.identity import DeviceIdentity


@dataclass(frozen=True)
class Hint:
    """A hint by its extension. takes: the property with its values, and the place for it; why: it is not set."""

    extension: str
    takes: str
    why: str
    offered: bool

    @property
    def line(self) -> str:
        """Whether the device has it, and why it is not set, in one line."""
        if not self.offered:
            return f"{self.extension}: the device does not offer it"
        return f"{self.extension}: offered and not set: {self.takes}; {self.why}"


_CONTEXT = "pyopencl makes no context with a property that it does not know"
_QUEUE = "a queue keeps what it was made with, and votes change while it lives"

_KNOWN = (
    ("cl_qcom_perf_hint", "a context's property 0x40C2 with HIGH 0x40C3, NORMAL 0x40C4 or LOW 0x40C5", _CONTEXT),
    ("cl_khr_priority_hints", "a queue's property 0x1096 with HIGH 1, MED 2 or LOW 4", _QUEUE),
    ("cl_khr_throttle_hints", "a queue's property 0x1097 with HIGH 1, MED 2 or LOW 4", _QUEUE),
)


def hints(identity: DeviceIdentity) -> list[Hint]:
    """Return all hints that are known, for a device by its extensions."""
    return [Hint(name, takes, why, name in identity.extensions) for name, takes, why in _KNOWN]
