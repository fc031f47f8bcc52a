"""Softmax over one axis of a tensor seen as [outer, axis, inner]."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SoftmaxProblem:
    """output[o, a, i] = exp(input[o, a, i] - m) / sum over a of exp(input[o, a, i] - m), m the maximum over a."""

    outer: int
    axis: int
    inner: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if min(self.outer, self.axis, self.inner) < 1:
            raise ValueError(f"Softmax needs positive sizes, not [{self.outer}, {self.axis}, {self.inner}]")
        if self.dtype != "float32":
            raise ValueError(f"Softmax knows dtype float32, not {self.dtype}")
