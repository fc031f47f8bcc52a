"""Layout conversion of rank-4 tensors: NCHW to NHWC and back."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TransposeProblem:
    """The same tensor in the layout `target` instead of `source`; both are NCHW or NHWC, and they differ."""

    batch: int
    channels: int
    height: int
    width: int
    source: str
    target: str
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if {self.source, self.target} != {"NCHW", "NHWC"}:
            raise ValueError(f"Transpose knows NCHW to NHWC and back, not {self.source} to {self.target}")
        if min(self.batch, self.channels, self.height, self.width) < 1:
            raise ValueError("Transpose needs positive sizes")
        if self.dtype != "float32":
            raise ValueError(f"Transpose knows dtype float32, not {self.dtype}")
