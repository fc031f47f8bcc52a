"""Whether the device is still as fast as when a task was begun: every batch measures the default configuration, too."""

LIMIT = 0.03
"""A device that takes this share more or less time than in the task's first batch has drifted."""
MEASURED_AGAIN = 2
"""How often a batch on a drifted device is measured again at most."""


class Drift:
    """One task's. A ratio is the baseline's time now by that in the first batch: 1.05 is 5 % slower.

    A device that stays as it has become, through all repetitions of a batch, has not drifted for a moment: the batches
    that follow are not measured again for it, until one finds the device as it was.
    """

    def __init__(self, first_ns: float | None) -> None:
        """first_ns: the baseline's time when the task was begun; None when it is begun now."""
        self.first_ns = first_ns
        self.largest: float | None = None
        """The ratio furthest from 1 that a batch was kept with."""
        self.measured_again = 0
        """Variants that were measured once more."""
        self._ratios: list[float] = []  # of the batch now, by attempt
        self._stays = False

    def ratio(self, baseline_ns: float | None) -> float | None:
        """Takes in the baseline's time in the batch now; None where it is not known or there is nothing to compare."""
        if baseline_ns is None:
            return None
        self.first_ns = self.first_ns or baseline_ns
        self._ratios.append(baseline_ns / self.first_ns)
        return self._ratios[-1]

    @property
    def beyond(self) -> bool:
        """Whether a batch was kept that was measured on a drifted device."""
        return self.largest is not None and abs(self.largest - 1) > LIMIT

    @property
    def drifted(self) -> bool:
        """Whether the device was not as it had been when this was measured."""
        return bool(self._ratios) and abs(self._ratios[-1] - 1) > LIMIT

    def again(self, attempt: int) -> bool:
        """Whether to measure the batch now once more, after so many attempts."""
        return self.drifted and not self._stays and attempt <= MEASURED_AGAIN

    def keep(self) -> None:
        """The batch is kept as it was measured last."""
        if self._ratios:
            self._stays = self.drifted
            self.largest = max(self.largest or 1.0, self._ratios[-1], key=lambda ratio: abs(ratio - 1))
        self._ratios = []
