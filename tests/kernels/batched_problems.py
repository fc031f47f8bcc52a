"""List batches of computed products with difficult shapes and steps."""

from gputune.kernels.chain import EMPTY, Chain, Step
from gputune.kernels.indexing.steps import Places, Steps
from gputune.kernels.ops.matmul import MatMulProblem

from .problems import GATED, RELU, RESIDUAL

SCALED_AND_MASKED = Chain((Step("mul", (0.125,)), Step("add", operand=0)))


def batched(
    batch: tuple[int, ...],
    m: int,
    k: int,
    n: int,
    a_steps: Steps,
    b_steps: Steps,
    output_steps: Steps,
    elements: tuple[int, int],
    epilogue: Chain = EMPTY,
    operand_steps: tuple[Steps, ...] = (),
    starts: tuple[int, int] = (0, 0),
) -> MatMulProblem:
    """Return the products of computed matrices that lie so."""
    places = Places(batch, a_steps, b_steps, output_steps, elements, operand_steps, starts)
    return MatMulProblem(m, k, n, epilogue=epilogue, places=places)


BATCHED = {
    "one": batched((), 1, 1, 1, (0, 1), (1, 1), (0, 1), (1, 1)),
    "inner-product": batched((), 1, 37, 1, (0, 1), (1, 1), (0, 1), (37, 37)),
    "outer-product": batched((), 5, 1, 19, (1, 0), (0, 1), (19, 1), (5, 19), RELU),
    "primes": batched((3,), 7, 13, 17, (91, 13, 1), (221, 17, 1), (119, 17, 1), (273, 663), RELU),
    "right-turned": batched((2,), 19, 5, 23, (95, 5, 1), (115, 1, 5), (437, 23, 1), (190, 230)),
    "left-turned": batched((2,), 19, 5, 23, (95, 1, 19), (115, 23, 1), (437, 23, 1), (190, 230)),
    "one-row": batched((3,), 1, 31, 40, (31, 0, 1), (1240, 40, 1), (40, 0, 1), (93, 3720)),
    "one-column": batched((3,), 11, 6, 1, (66, 6, 1), (6, 1, 1), (11, 1, 1), (198, 18)),
    # heads of an attention in [batch, token, head, number]: q x k and its mask, then the weighted values
    "heads": batched(
        (2, 3), 10, 8, 18, (240, 8, 24, 1), (432, 8, 1, 24), (540, 180, 18, 1), (480, 864), SCALED_AND_MASKED,
        ((18, 0, 0, 1),),
    ),
    "heads-merged": batched((2, 3), 10, 18, 8, (540, 180, 18, 1), (432, 8, 24, 1), (240, 8, 24, 1), (1080, 864)),
    # both are thirds of one tensor [token, third, head, number]
    "thirds": batched(
        (2,), 7, 5, 7, (5, 30, 1), (5, 1, 30), (49, 7, 1), (210, 210), starts=(10, 20),
    ),
    # the batches' axes broadcast against each other
    "broadcast": batched(
        (4, 3), 6, 9, 20, (54, 0, 9, 1), (0, 180, 20, 1), (360, 120, 20, 1), (216, 540), RESIDUAL,
        ((360, 120, 20, 1),),
    ),
    # nothing lies in rows: the batch is innermost
    "batch-innermost": batched(
        (5,), 6, 7, 9, (1, 35, 5), (1, 45, 5), (1, 45, 5), (210, 315), GATED, ((1, 45, 5), (0, 0, 1)),
    ),
    "diagonal": batched((), 4, 7, 9, (7, 1), (10, 1), (9, 1), (28, 70)),
}  # fmt: skip

TILES = {
    "odd": batched((3,), 41, 33, 70, (1353, 33, 1), (2310, 70, 1), (2870, 70, 1), (4059, 6930)),
    "odd-turned": batched((3,), 41, 33, 70, (1353, 1, 41), (2310, 1, 33), (2870, 70, 1), (4059, 6930)),
    # vectors of 4 along both axes of a and b; the whole last block of the reduction is not there
    "wide": batched((2,), 36, 44, 72, (1584, 1, 36), (3168, 72, 1), (2592, 72, 1), (3168, 6336), RELU),
    "scores": batched(
        (2, 3), 37, 20, 35, (2220, 20, 60, 1), (2100, 20, 1, 60), (3885, 1295, 35, 1), (4440, 4200), SCALED_AND_MASKED,
        ((35, 0, 0, 1),),
    ),
    # vectors of 2, as rows begin at the elements 2 and 6; all products have the same right side
    "shared": batched(
        (3,), 21, 26, 50, (630, 30, 1), (0, 54, 1), (1050, 50, 1), (1892, 1406), GATED, ((1050, 50, 1), (0, 1, 0)),
        (2, 6),
    ),
    "by-columns": batched(
        (2,), 24, 40, 36, (960, 40, 1), (1440, 36, 1), (864, 1, 24), (1920, 2880), RESIDUAL, ((864, 1, 24),),
    ),
}  # fmt: skip
"""Products of several tiles of a work-group."""
