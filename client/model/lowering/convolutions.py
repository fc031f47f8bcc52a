"""Lower Conv and ConvTranspose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.windows import pair, window_of
from gputune.client.model.passes.joined_maps import parts_of
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.conv import MOST_PLANES, ConvProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem, groups_of
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.move import move
from gputune.kernels.tiling.window import Pair

MOST_REPEATED = 8
"""Up to so many filters of each channel, a depthwise convolution of repeated channels is faster than one in groups, the
vectors of which would be no longer than that."""


def conv(lowering: Lowering, node: Node) -> None:
    batch, channels, size, output = lowering.maps(node)
    weight, bias = lowering.constant(node, 1, "weight"), lowering.constant(node, 2, "bias")
    filters, seen, *kernel = lowering.graph.shape(node.inputs[1])
    groups = int(node.attributes.get("group", 1))
    if seen * groups != channels:
        raise node.unsupported(f"its weight sees {seen} channels in {groups} groups, its input has {channels}")
    window = window_of(node, (kernel[0], kernel[1]), size, output)
    biases = {"bias": bias} if bias else {}
    if window.is_point and groups == 1:
        _point(lowering, node, weight, biases)
        return
    few = groups == 1 and channels <= MOST_PLANES
    on_device = not few or lowering.layouts.lies_on_device(node.inputs[0])  # else it is read as the model has it
    source = lowering.layouts.get(node.inputs[0], on_device)
    repeated = MOST_REPEATED if seen == 1 else 1
    if groups > 1 and seen in groups_of(channels) and filters in range(channels, repeated * channels + 1, channels):
        inputs = {"input": _repeated(lowering, node, source, filters // channels), "weight": weight, **biases}
        depthwise = DepthwiseProblem(
            batch, *size, filters, **vars(window), group=seen, bias=bool(bias), epilogue=node.chain
        )  # fmt: skip
        lowering.run(node, "DepthwiseConv", depthwise, inputs)
    else:
        short = lowering.bytes_of(node.inputs[1])
        conv = ConvProblem(
            batch, *size, channels, filters, **vars(window), groups=groups, bias=bool(bias), epilogue=node.chain,
            layout="NHWC" if on_device else "NCHW", bytes=bool(short),
        )  # fmt: skip
        lowering.run(node, "Conv", conv, {"input": source, "weight": short or weight, **biases})


def _point(lowering: Lowering, node: Node, weight: str, biases: Mapping[str, str]) -> None:
    """Lower a 1x1 convolution as a product of its pixels' channels; where a Concat would join those, of its parts."""
    maps = {"a": node.inputs[0]}
    parts: tuple[int, ...] = ()
    if (concat := lowering.joined.get(node.inputs[0])) is not None:
        maps = {f"a{k}": name for k, name in enumerate(parts_of(lowering.graph, concat))}
        parts = tuple(lowering.graph.shape(name)[1] for name in maps.values())
        node = replace(node, origins=(*concat.origins, *node.origins))
    filters, channels, *_ = lowering.graph.shape(node.inputs[1])
    pixels = lowering.graph.tensors[node.inputs[0]].size // channels
    quantised, kept = lowering.quantised_matrix(node.inputs[1]) if not parts and _is_alone(lowering) else (None, {})
    constants = {**(kept or {"b": lowering.layouts.matrix(weight)}), **biases}
    problem = MatMulProblem(
        pixels, channels, filters, "bias" in constants, node.chain, parts=parts, quantised=quantised
    )
    sources = {name: lowering.layouts.get(each, on_device=True) for name, each in maps.items()}
    lowering.run(node, "MatMul", problem, {**sources, **constants})


def _is_alone(lowering: Lowering) -> bool:
    """Return whether no convolution of a graph is in groups: a depthwise one may be fused with others, as floats."""
    return not any(node.op == "Conv" and node.attributes.get("group", 1) > 1 for node in lowering.graph.nodes)


def _repeated(lowering: Lowering, node: Node, source: str, times: int) -> str:
    """Return the map with each channel so many times, one beside the other."""
    if times == 1:
        return source
    *pixels, channels = lowering.layouts.tensors[source].shape
    elements = prod(pixels) * channels
    target = lowering.layouts.temporary(f"{node.name}/repeated", (*pixels, channels * times))
    repeat = move(elements, 0, (Loop(elements, 1), Loop(times, 0)))
    lowering.emit(target, "Move", repeat, {"input": source}, target, node.stands_for)
    return target


def conv_transpose(lowering: Lowering, node: Node) -> None:
    batch, channels, size, output = lowering.maps(node)
    weight, bias = lowering.constant(node, 1, "weight"), lowering.constant(node, 2, "bias")
    seen, group_filters, *kernel = lowering.graph.shape(node.inputs[1])
    groups = int(node.attributes.get("group", 1))
    if seen != channels:
        raise node.unsupported(f"its weight takes {seen} channels, its input has {channels}")
    window = pair(kernel)
    strides, dilations = pair(node.attributes.get("strides", (1, 1))), pair(node.attributes.get("dilations", (1, 1)))
    problem = ConvTransposeProblem(
        batch, *size, in_channels=channels, out_channels=groups * group_filters, kernel=window, strides=strides,
        output=output, pads=_cut_before(node, size, window, strides, dilations, output), dilations=dilations,
        groups=groups, bias=bool(bias), epilogue=node.chain,
        finite=bool(np.isfinite(lowering.layouts.constants[weight]).all()),
    )  # fmt: skip
    biases = {"bias": bias} if bias else {}
    inputs = {"input": lowering.layouts.get(node.inputs[0], on_device=True), "weight": weight}
    lowering.run(node, "ConvTranspose", problem, inputs | biases)


def _cut_before(node: Node, size: Pair, kernel: Pair, strides: Pair, dilations: Pair, output: Pair) -> Pair:
    """Return how many rows and columns of the whole result lie before the first that is kept."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.unsupported(f"auto_pad {mode!r} is unknown")
    added = pair(node.attributes.get("output_padding", (0, 0)))
    given = "output_shape" in node.attributes  # then the pads follow from it, with VALID as well
    if mode.startswith("SAME") and any(added) and not given:
        # By its definition and by onnxruntime an output is `strides` times as long, whatever is added; onnx's shape
        # inference makes it longer.
        raise node.unsupported("it has auto_pad and output_padding, which ONNX defines in two ways; give it pads")
    if mode == "VALID" and not given:
        return 0, 0
    if mode == "NOTSET" and not given:
        top, left, *_ = node.attributes.get("pads", (0, 0, 0, 0))
        return int(top), int(left)
    whole = [(size[k] - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 + added[k] for k in (0, 1)]
    cut = [max(whole[k] - output[k], 0) for k in (0, 1)]
    # Less before than behind for SAME_UPPER, which is the other way round than for a convolution's padding.
    top, left = (total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in cut)
    return top, left


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
}
