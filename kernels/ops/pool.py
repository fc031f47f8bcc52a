"""Max and average pooling over NHWC maps; global pooling is a window as large as the map."""

from dataclasses import dataclass

from gputune.kernels.chain import EMPTY, Chain


@dataclass(frozen=True)
class PoolProblem:
    """output[n, y, x, c] = epilogue(max or average of the window at y, x).

    `kernel`, `strides` and `output` are (height, width), `pads` (top, left, bottom, right). `output` is
    given and not computed, so that rounding up (ceil mode) is decided before; a window may then reach
    beyond the padding. An average divides by the positions inside the map, with `count_include_pad` by
    those inside map and padding. The epilogue's operands are output-shaped.
    """

    kind: str
    batch: int
    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    output: tuple[int, int]
    count_include_pad: bool = False
    epilogue: Chain = EMPTY
    layout: str = "NHWC"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.kind not in ("max", "average"):
            raise ValueError(f"Pool knows the kinds max and average, not {self.kind!r}")
        if self.layout != "NHWC" or self.dtype != "float32":
            raise ValueError(f"Pool knows NHWC in float32, not {self.layout} in {self.dtype}")
        sizes = (self.batch, self.height, self.width, self.channels)
        if min(*sizes, *self.kernel, *self.strides, *self.output) < 1 or min(self.pads) < 0:
            raise ValueError("Pool needs positive sizes and pads that are not negative")
        for axis, size in enumerate((self.height, self.width)):
            last = (self.output[axis] - 1) * self.strides[axis] - self.pads[axis]
            if self.pads[axis] >= self.kernel[axis] or last >= size:
                raise ValueError(f"Pool has a window that sees nothing but padding along axis {axis + 1}")
