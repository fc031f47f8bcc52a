"""Lower poolings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.windows import Window, window_of
from gputune.client.model.passes.fuse_elementwise import POOLING
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.pool_indices import PoolIndicesProblem


def pool(lowering: Lowering, node: Node) -> None:
    batch, channels, size, output = lowering.maps(node)
    if "kernel_shape" in node.attributes:
        kernel = node.attributes["kernel_shape"]
        window = window_of(node, (int(kernel[0]), int(kernel[1])), size, output)
    else:
        window = Window(size, (1, 1), (0, 0, 0, 0), (1, 1))
    kind = "max" if "Max" in node.op else "lp" if "Lp" in node.op else "average"
    norm = int(node.attributes.get("p", 2)) if kind == "lp" else 0
    padding = bool(node.attributes.get("count_include_pad", 0))
    problem = PoolProblem(
        kind, batch, *size, channels=channels, **vars(window), output=output, count_include_pad=padding,
        epilogue=node.chain, norm=norm,
    )  # fmt: skip
    source = {"input": lowering.layouts.get(node.inputs[0], on_device=True)}
    lowering.run(node, "Pool", problem, source)
    if any(lowering.uses[name] for name in node.outputs[1:] if name):
        by_columns = bool(node.attributes.get("storage_order", 0))
        places = PoolIndicesProblem(
            batch, *size, channels=channels, **vars(window), output=output, by_columns=by_columns
        )  # fmt: skip
        target = lowering.layouts.define(node.outputs[1], on_device=False)
        lowering.emit(f"{node.name}/indices", "PoolIndices", places, source, target, node.stands_for)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    **dict.fromkeys(POOLING, pool),
}
