"""Convert moments of the device's clock to the host's clock, which is time.perf_counter_ns, as a log says.

The C runtime fits the line of each inference, as profiling/clocks.h there says. The log has it with each inference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Method = Literal["device_and_host_timer", "bracketed"]
"""By readings of the device's clock, or by the host's times around calls that enqueue and finish."""
BRACKETED: Method = "bracketed"

MOST_PPB = 500_000
"""How far apart two clocks run at most, in ns a second; what disciplines a host's clock adds no more than that."""
_GIGA = 1_000_000_000


@dataclass(frozen=True)
class ClockFit:
    """host = device + offset_ns + (device - at_ns) * rate_ppb / 10^9, rounded to whole ns, halves up.

    at_ns: the device's time around which it was fitted. rate_ppb: by how many ns a second the device's clock is slow;
    negative where it is fast. bound_ns: no moment between those that it was fitted on is farther off, as long as the
    device's clock runs evenly. method: how it was found.
    """

    at_ns: int
    offset_ns: int
    rate_ppb: int
    bound_ns: int
    method: str

    @overload
    def to_host(self, device_ns: int) -> int: ...

    @overload
    def to_host(self, device_ns: Times) -> Times: ...

    def to_host(self, device_ns: int | Times) -> int | Times:
        """Return the same moments by the host's clock; whole numbers only, so that every reader gets the same."""
        since = device_ns - self.at_ns
        seconds = since // _GIGA
        rest = (since - seconds * _GIGA) * self.rate_ppb
        return device_ns + self.offset_ns + seconds * self.rate_ppb + (rest + _GIGA // 2) // _GIGA
