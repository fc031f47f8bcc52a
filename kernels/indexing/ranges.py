"""Define how a tensor is quantised by its own range, which has zero in it, to the numbers of a byte.

The largest number less the least is STEP_OF_RANGE's value, the negative least one ZERO_POINT's. QUANTISED makes whole
numbers, which are those of the byte less the zero point.
"""

import numpy as np

from gputune.kernels.chain import Chain, Step
from gputune.kernels.chain_functions import Array

LARGEST = 255
STEP_OF_RANGE = Chain((Step("ratio", (LARGEST,)), Step("one_for_zero")))
ZERO_POINT = Chain((Step("ratio", operand=0), Step("saturate", (0, LARGEST))))
"""Its operand is the step."""
QUANTISED = Chain((Step("ratio", operand=0), Step("min", operand=1), Step("saturate", (-LARGEST, LARGEST))))
"""Its operands are the step, and LARGEST less the zero point."""


def by_range(values: Array) -> Array:
    """Return the numbers that a tensor stands for once it is quantised by its range."""
    known: Array = np.asarray(values, np.float32)
    ends: Array = np.array([-min(known.min(), 0), max(known.max(), 0)], np.float32)
    step = STEP_OF_RANGE.apply(ends.sum(keepdims=True))
    top = LARGEST - ZERO_POINT.apply(ends[:1], [step])
    return QUANTISED.apply(known, [step, top]).astype(np.float64) * step
