"""From the device's clock to the host's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClockFit:
    """host = device + offset_ns + (device - at_ns) * rate_ppb / 10^9. No moment is farther off than bound_ns. method:
    how it was found."""

    at_ns: int
    offset_ns: int
    rate_ppb: int
    bound_ns: int
    method: str

    def to_host(self, device_ns: Times) -> Times:
        """The same moments by the host's clock."""
        since = np.asarray(device_ns, np.int64) - self.at_ns
        return self.at_ns + self.offset_ns + since + (since // 1_000) * self.rate_ppb // 1_000_000
