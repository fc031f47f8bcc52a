"""Set PF, how far ahead of its sums a kernel prefetches packed weights, in the templates that include prefetch.cl.

A search measures a kernel alone, repeatedly, and finds its weights in the caches, unless they are so many that the
measurement evicts them. In a network, every kernel finds the weights of other kernels there. PF is therefore no choice
of a search: on CPUs, weights that do not fit a core's first cache are always prefetched. For a kernel alone, that costs
nothing or a few per cent. In SqueezeNet, tuned anew, Winograd's product of 64 by 256 channels went from 110 us to 60 us
(55 us alone), on two cores of an EPYC.

If tiles read a panel of weights one after the other, PF only says that they prefetch. Each tile requests its share of
the next panel, so that memory is read evenly and not in every first pass. With weights out of the caches, products of
49 rows are 1.04 to 1.14 times as fast, on two cores with AVX2. With prefetching into the second cache instead of the
first, ResNet-18 and ResNet-50 are 1.02 to 1.05 times as fast, DenseNet-121 and MiniLM 1.01, on two cores with AVX-512.
"""

from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import Constraint, Parameter

AHEAD = 64
"""Steps of a reduction. With fewer of them, weights that come from memory come too late."""

CPU_FIRST_CACHE_BYTES = 32 << 10

PREFETCH = Parameter("PF", (0, AHEAD), "steps of the reduction that packed weights are prefetched ahead")


def steps_ahead(weight_bytes: int, limits: DeviceLimits) -> int:
    """PF for so many bytes of weights."""
    return AHEAD if limits.device_type == "cpu" and weight_bytes > CPU_FIRST_CACHE_BYTES else 0


def prefetch_constraint(weight_bytes: int, limits: DeviceLimits) -> Constraint:
    """Return the constraint that PF is what `steps_ahead` says."""
    ahead = steps_ahead(weight_bytes, limits)
    reason = f"PF must be {ahead} for {weight_bytes} bytes of weights on a device of type {limits.device_type}"
    return Constraint(("PF",), lambda steps: steps == ahead, reason)
