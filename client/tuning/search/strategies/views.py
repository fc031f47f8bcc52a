"""Derive views of configurations for a model: single numbers, besides the parameters, that a cost may follow alone.

Each parameter is a view, and so is the product of any two that are sizes or counts. Work-items in a group, results of a
work-item, the tile of a group: a product of parameters fills a device in steps, or no longer fits its registers. No
distance between the parameters themselves shows that two configurations have such a product in common.

Another view is how often 2 divides a size or such a product. Groups of whole vectors, aligned rows and banks without
conflicts come with powers of two, and 128 is then nearer to 64 than to 112.
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
        """Return the view that scales a number for each candidate."""
        # Sums of logarithms that stand for the same product differ in their last digits.
        places, codes = np.unique(np.round(numbers, 9), return_inverse=True)
        return cls((places - places[0]) / max(float(np.ptp(places)), 1e-9), codes.reshape(-1))


def views_of(candidates: Candidates) -> list[View]:
    """Return every parameter by rank; of parameters that are never 0 or negative and of products of two of them, the
    logarithm and how often 2 divides it. A number that tells nothing apart, or only what another one does, is left
    out."""
    sizes = [values[candidates.codes[:, column]] for column, values in enumerate(candidates.values) if values[0] > 0]
    products = [one * other for one, other in combinations(sizes, 2)]
    numbers = [*candidates.points.T, *map(np.log2, products), *map(_twos, [*sizes, *products])]
    views: dict[bytes, View] = {}
    for view in map(View.of, numbers):
        if len(view.places) > 1:
            views.setdefault(view.codes.tobytes(), view)
    return list(views.values())


def _twos(numbers: npt.NDArray[np.int64]) -> Floats:
    """Return how often 2 divides whole numbers above 0."""
    twos: Floats = np.log2(numbers & -numbers)
    return twos
