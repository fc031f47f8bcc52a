"""Compute an inverted residual block over NHWC maps in one kernel: expand by 1x1, depthwise convolution, project by
1x1.

expanded[n, y, x, c] = expand_epilogue(expand_bias[c] + sum over i of input[n, y, x, i] * expand_weight[i, c])

The separable convolution of `expanded` follows. The kernel is the fused form of a MatMul, a DepthwiseConv and another
MatMul task: the two wide tensors between them never lie in memory. Input rows that two strips of the output see are
expanded twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gputune.core.alike import as_kind
from gputune.core.dtypes import FLOAT
from gputune.core.launches import on_buffers
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import (
    Array,
    DeviceLimits,
    Instance,
    Launch,
    Problem,
    TensorSpec,
    TiledFamily,
    Tolerance,
    Work,
)
from gputune.kernels.ops.matmul import FAMILY as MATMUL
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.separable import FAMILY as SEPARABLE
from gputune.kernels.ops.separable import SeparableProblem
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.block_strips import BlockStrips
from gputune.kernels.tiling.packing import Packing
from gputune.kernels.tiling.streaming import check_indices
from gputune.kernels.tiling.window import Pads, Pair


@dataclass(frozen=True)
class InvertedResidualProblem(Problem):
    """An expansion of `in_channels` to `channels`, and a separable convolution of those.

    input [N, H, W, I], expand_weight [I, C], depthwise_weight [C, 1, kh, kw], weight [C, O], output [N, Ho, Wo, O].
    Pads are (top, left, bottom, right). The last epilogue's operands are output-shaped; the others have none.
    """

    op = "InvertedResidual"

    batch: int
    height: int
    width: int
    in_channels: int
    channels: int
    out_channels: int
    kernel: Pair
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    expand_bias: bool = False
    depthwise_bias: bool = False
    bias: bool = False
    expand_epilogue: Chain = EMPTY
    depthwise_epilogue: Chain = EMPTY
    epilogue: Chain = EMPTY
    layout: str = "NHWC"
    dtype: str = FLOAT

    def check(self) -> None:
        if self.in_channels < 1:
            raise ValueError("InvertedResidual needs positive input channels")
        if self.expand_epilogue.operands or self.expand_epilogue.has_domain:
            raise ValueError("InvertedResidual needs an expansion without operands that is defined everywhere")
        check_indices("InvertedResidual", (self.expansion.m, self.in_channels), (self.in_channels, self.channels))
        _ = self.separable  # which refuses what has no meaning

    @property
    def separable(self) -> SeparableProblem:
        """The separable convolution alone."""
        return as_kind(SeparableProblem, self)

    @property
    def expansion(self) -> MatMulProblem:
        """The expansion alone."""
        pixels = self.batch * self.height * self.width
        sizes = (pixels, self.in_channels, self.channels)
        return MatMulProblem(*sizes, self.expand_bias, self.expand_epilogue, dtype=self.dtype)


MOST_EXPANDED = 32
"""Expanding so many channels twice costs less than the way of the expanded map through the caches."""


class InvertedResidualFamily(TiledFamily):
    """One template: strips of whole rows, the channels of the expansion a tile at a time."""

    op = InvertedResidualProblem.op

    def inputs(self, problem: InvertedResidualProblem) -> tuple[TensorSpec, ...]:
        _, weight, *bias = MATMUL.inputs(problem.expansion)
        return (
            problem.tensor("input", (problem.batch, problem.height, problem.width, problem.in_channels)),
            replace(weight, name="expand_weight"),
            *(replace(each, name="expand_bias") for each in bias),
            *SEPARABLE.inputs(problem.separable)[1:],
        )

    def output(self, problem: InvertedResidualProblem) -> TensorSpec:
        return SEPARABLE.output(problem.separable)

    def tiling(self, problem: InvertedResidualProblem) -> BlockStrips:
        window = problem.separable.window
        channels = (problem.in_channels, problem.channels, problem.out_channels)
        return BlockStrips(problem.batch, window, *channels, problem.dtype)

    def pays(self, problem: InvertedResidualProblem, limits: DeviceLimits) -> bool:
        return limits.device_type == "cpu" and problem.in_channels <= MOST_EXPANDED

    def render(self, problem: InvertedResidualProblem, configuration: Configuration) -> Instance:
        strips = self.tiling(problem)
        sizes = {
            "MAPS": problem.batch,
            "INPUTS": problem.in_channels,
            "CHANNELS": problem.channels,
            "OUTPUTS": problem.out_channels,
            **problem.separable.window.macros,
        }
        global_size, local_size = strips.launch_sizes(configuration)
        main = Launch(
            source=_prelude(problem) + template("inverted_residual.cl", dtype=problem.dtype),
            entry="inverted_residual",
            needs=strips.needs.of(configuration),
            writes=("output",),
            aligned=aligned(configuration["VW"], problem.out_channels),
            options=build_options(sizes | dict(configuration)),
            global_size=global_size,
            local_size=local_size,
            arguments=(
                "input", "expansion", "filters", "packed", "output",
                *problem.epilogue.operand_names,
            ),
        )  # fmt: skip
        packings = {
            "expansion": (strips.expansion(configuration), "expand_weight", "expand_bias", problem.expand_bias),
            "filters": (strips.filters(configuration), "depthwise_weight", "depthwise_bias", problem.depthwise_bias),
            "packed": (strips.projection(configuration), "weight", "bias", problem.bias),
        }
        prepare = tuple(_packed(target, *packing) for target, packing in packings.items())
        return Instance(main, prepare, {name: packing.nbytes for name, (packing, *_) in packings.items()})

    def reference(self, problem: InvertedResidualProblem, inputs: Mapping[str, Array]) -> Array:
        """numpy's product, then the separable convolution's reference."""
        matrix = {"a": inputs["input"].reshape(problem.expansion.m, -1), "b": inputs["expand_weight"]}
        if problem.expand_bias:
            matrix["bias"] = inputs["expand_bias"]
        expanded = MATMUL.reference(problem.expansion, matrix)
        shape = (problem.batch, problem.height, problem.width, problem.channels)
        return SEPARABLE.reference(problem.separable, {**inputs, "input": np.reshape(expanded, shape)})

    def work(self, problem: InvertedResidualProblem) -> Work:
        flops = MATMUL.work(problem.expansion).flops + SEPARABLE.work(problem.separable).flops
        return Work(flops, sum(spec.nbytes for spec in (*self.inputs(problem), self.output(problem))))

    def tolerance(self, problem: InvertedResidualProblem) -> Tolerance:
        """Return the errors of all three sums."""
        first, second = MATMUL.tolerance(problem.expansion), SEPARABLE.tolerance(problem.separable)
        return Tolerance(first.relative + second.relative, second.absolute)


def _packed(target: str, packing: Packing, weight: str, bias: str, has_bias: bool) -> Launch:
    """Return the launch that fills the buffer `target`."""
    launch, names = packing.launch(weight, has_bias), {"packed": target, "bias": bias}
    return on_buffers(launch, lambda name: names.get(name, name))


def _prelude(problem: InvertedResidualProblem) -> str:
    """Return the three epilogues as macros."""
    expand, depthwise = (chain.source("(value)") for chain in (problem.expand_epilogue, problem.depthwise_epilogue))
    return (
        f"#define EXPAND_EPILOGUE(value, T) {{ {expand} }}\n"
        f"#define DEPTHWISE_EPILOGUE(value, T) {{ {depthwise} }}\n"
        f"{problem.epilogue.prelude()}"
    )


FAMILY = InvertedResidualFamily()
