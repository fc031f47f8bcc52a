"""Make chains and numbers to quantise: of ties, what is not finite, and what is subnormal."""

import numpy as np

from gputune.kernels.chain import Chain, Step, rounded
from gputune.kernels.family import Array

SCALES = (0.02, 0.0625, 1.0, 0.0117, 3.7e-3, 1e-20, 2e9)


def quantised(scale: float, low: float, high: float) -> Chain:
    """Return the steps that quantise to whole numbers around a zero point."""
    divisor = rounded(scale)
    return Chain((Step("quotient", (divisor, 1 / divisor)), Step("saturate", (low, high))))


def ties(scale: float) -> Array:
    """Return numbers halfway between two steps and next to these, random ones, and those that hurt."""
    generator, step = np.random.default_rng(1), np.float32(scale)
    halves = (np.arange(-600, 600, dtype=np.float32) + np.float32(0.5)) * step
    hurting = [np.nan, np.inf, -np.inf, 3e38, -3e38, 0, -0.0, 1e-40, -1e-45, 1e-38]
    with np.errstate(all="ignore"):
        return np.concatenate(
            [
                halves,
                np.nextafter(halves, np.float32(np.inf)),
                np.nextafter(halves, np.float32(-np.inf)),
                generator.standard_normal(20000).astype(np.float32) * 90 * step,
                np.array(hurting, np.float32),
            ]
        )
