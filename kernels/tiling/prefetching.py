"""PF: how far ahead of its sums a kernel asks for packed weights, in the templates that include prefetch.cl.

A search measures a kernel alone, again and again, and finds its weights in the caches, unless they are so many that
measuring evicts them; in a network every kernel finds those of others there. So PF is no choice of a search: on CPUs
weights that do not fit a core's first cache are always prefetched. Alone that costs nothing or a few per cent. In
SqueezeNet, tuned anew, Winograd's product of 64 by 256 channels takes 60 us since, where it took 110 and alone 55, on
two cores of an EPYC.

Where tiles read a panel of weights one after the other, PF only says that they prefetch: each asks for its share of the
next panel, so that memory is read evenly and not in every first pass. With weights out of the caches, products of 49
rows are 1.04 to 1.14 times as fast so, on two cores with AVX2. Asked for into the second cache and not the first,
ResNet-18 and ResNet-50 are 1.02 to 1.05 times as fast, DenseNet-121 and MiniLM 1.01, on two cores with AVX-512.
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
    """That PF is what `steps_ahead` says."""
    ahead = steps_ahead(weight_bytes, limits)
    reason = f"PF must be {ahead} for {weight_bytes} bytes of weights on a device of type {limits.device_type}"
    return Constraint(("PF",), lambda steps: steps == ahead, reason)
