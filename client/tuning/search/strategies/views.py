"""What a model sees of configurations beside the parameters: single numbers that a cost may follow all by itself.

Each parameter is such a view, and so is the product of any two that are sizes or counts. Work-items in a group, results
of a work-item, the tile of a group: what fills a device in steps, or no longer fits its registers, is a product of
parameters, and no distance between the parameters themselves shows that two configurations have it in common.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from gputune.client.tuning.search.strategies.candidates import Candidates, Floats


@dataclass(frozen=True)
class View:
    """A number for each candidate: `places[codes[row]]`, from 0 to 1."""

    places: Floats
    codes: npt.NDArray[np.intp]

    @classmethod
    def of(cls, numbers: Floats) -> "View":
        """The view that scales a number for each candidate."""
        # Sums of logarithms that stand for the same product differ in their last digits.
        places, codes = np.unique(np.round(numbers, 9), return_inverse=True)
        return cls((places - places[0]) / max(float(np.ptp(places)), 1e-9), codes.reshape(-1))


def views_of(candidates: Candidates) -> list[View]:
    """Every parameter by rank, and the logarithms of all products of two parameters that are never 0 or negative."""
    sizes = [
        np.log2(values)[candidates.codes[:, column]] for column, values in enumerate(candidates.values) if values[0] > 0
    ]
    products = [one + other for one, other in combinations(sizes, 2)]
    return [View.of(numbers) for numbers in (*candidates.points.T, *products)]
