"""A fused chain of elementwise steps over broadcast inputs; an empty chain copies or expands."""

from dataclasses import dataclass

import numpy as np

from gputune.kernels.chain import Chain


@dataclass(frozen=True)
class ElementwiseProblem:
    """output = chain(input, operands), everything broadcast to `shape` by numpy's rules.

    `constant_operands` holds the numbers of the operands that are known at generation time.
    """

    shape: tuple[int, ...]
    operand_shapes: tuple[tuple[int, ...], ...]
    input_shape: tuple[int, ...]
    chain: Chain
    constant_operands: tuple[int, ...] = ()
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype != "float32":
            raise ValueError(f"Elementwise knows dtype float32, not {self.dtype}")
        if min(self.shape, default=1) < 1:
            raise ValueError(f"Elementwise needs positive sizes, not the shape {self.shape}")
        if len(self.operand_shapes) != self.chain.operands:
            raise ValueError(f"the chain reads {self.chain.operands} operands, not {len(self.operand_shapes)}")
        if not set(self.constant_operands) <= set(range(len(self.operand_shapes))):
            raise ValueError(f"constant_operands {self.constant_operands} names an operand that is not there")
        for shape in (self.input_shape, *self.operand_shapes):
            if np.broadcast_shapes(self.shape, shape) != self.shape:
                raise ValueError(f"an input of shape {shape} does not broadcast to {self.shape}")
