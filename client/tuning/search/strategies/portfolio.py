"""Choose a few configurations to begin with: from measurements on other devices, or by an estimate.

From measurements the choice is greedy, as Xu, Hoos, Leyton-Brown: Hydra (2010) build portfolios of algorithms: the next
configuration helps most on the devices on which the chosen configurations do badly.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gputune.client.tuning.search.strategies.candidates import Candidates
from gputune.kernels.family import Estimate
from gputune.kernels.space import Configuration, configuration_key

Records = Sequence[tuple[Configuration, float | None]]
"""Configurations of one task on one device with their costs in nanoseconds; None is a failure."""

WORST = 0.01
"""The share of the optimum that a configuration counts for where it failed or was never tried."""

UNLIKE = 3
"""Configurations that differ in fewer parameters are alike. An estimate errs by much the same for them, and it does not
see all parameters."""

MOST_ESTIMATED = 2000
"""This many configurations of a larger space are estimated, spread evenly over its order: estimates take time, and the
best few that are unlike each other are hardly better among all."""


def greedy_portfolio(devices: Sequence[Records], size: int) -> list[dict[str, int]]:
    """At most `size` configurations, the most useful first, for a device that is none of these.

    Each step takes the configuration that raises the geometric mean, over the devices, of best / found the most: one
    device that is served badly counts. It ends early when nothing improves any device. Devices where nothing worked are
    passed over. Equal configurations are told apart by their text, so the order of the records does not matter.
    """
    shares = [share for records in devices if (share := _shares(records))]
    known = {configuration_key(c): dict(c) for records in devices for c, _ in records}
    reached = [WORST] * len(shares)
    chosen: list[dict[str, int]] = []
    while len(chosen) < size:
        gain, key = max(((_gain(key, shares, reached), key) for key in known), default=(0.0, ""))
        if gain <= 0:
            break
        chosen.append(known[key])
        reached = [max(now, share.get(key, WORST)) for now, share in zip(reached, shares, strict=True)]
    return chosen


def _shares(records: Records) -> dict[str, float]:
    """Return what share of the device's best each configuration reaches that worked."""
    costs = {configuration_key(c): cost for c, cost in records if cost is not None}
    best = min(costs.values(), default=0.0)
    return {key: best / cost for key, cost in costs.items()}


def _gain(key: str, shares: Sequence[Mapping[str, float]], reached: Sequence[float]) -> float:
    pairs = zip(shares, reached, strict=True)
    return sum(math.log(max(share.get(key, WORST), now) / now) for share, now in pairs)


def unlike_best(candidates: Candidates, estimate: Estimate, size: int) -> list[int]:
    """Return at most `size` rows, the least estimate first, no two of them alike. Rows of which the estimate knows
    nothing, so that it is infinite, are not among them."""
    rows = np.arange(0, len(candidates), max(math.ceil(len(candidates) / MOST_ESTIMATED), 1))
    estimates = np.array([estimate(configuration) for configuration in candidates.at(rows.tolist())])
    rows = rows[np.argsort(estimates, kind="stable")][: np.count_nonzero(np.isfinite(estimates))]
    unlike = min(UNLIKE, len(candidates.levels))
    chosen: list[int] = []
    while len(rows) and len(chosen) < size:
        chosen.append(int(rows[0]))
        rows = rows[(candidates.codes[rows] != candidates.codes[rows[0]]).sum(axis=1) >= max(unlike, 1)]
    return chosen
