"""EfficientNet-Lite0 as ONNX, made layer by layer: the trained file is a PyTorch one, and exporting it takes half a
gigabyte of PyTorch. Weights are seeded random numbers with the variance that keeps activations alive; what a layer
costs does not depend on them."""

from typing import Any

import numpy as np
import onnx

SIDE = 224
CLASSES = 1000
STEM, HEAD = 32, 1280
# repeats, kernel, stride, expansion, output channels: table 1 of the EfficientNet paper, without squeeze-excite
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class _Network:
    """Grows layer by layer; `tensor` is the one that the next layer reads."""

    def __init__(self) -> None:
        self.tensor, self.channels, self.side = "x", 3, SIDE
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._numbers = np.random.default_rng(0)

    def constant(self, name: str, *shape: int, scale: float = 0.1) -> str:
        values = np.float32(scale) * self._numbers.standard_normal(shape, dtype=np.float32)
        self.weights.append(onnx.numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, name: str, *others: str, **attributes: Any) -> None:
        self.nodes.append(onnx.helper.make_node(op, [self.tensor, *others], [f"{name}_out"], name, **attributes))
        self.tensor = f"{name}_out"

    def conv(self, name: str, channels: int, kernel: int = 1, stride: int = 1, depthwise: bool = False) -> None:
        """A convolution with TensorFlow's "same" padding, batch normalisation folded into its bias."""
        seen, out = 1 if depthwise else self.channels, -(-self.side // stride)
        pad = max((out - 1) * stride + kernel - self.side, 0)
        fan_in = seen * kernel**2
        weight = self.constant(f"{name}_w", channels, seen, kernel, kernel, scale=(2 / fan_in) ** 0.5)
        pads = [pad // 2, pad // 2, pad - pad // 2, pad - pad // 2]
        group = self.channels if depthwise else 1
        bias = self.constant(f"{name}_b", channels)
        self.add("Conv", name, weight, bias, pads=pads, strides=[stride] * 2, group=group)
        self.channels, self.side = channels, out

    def relu6(self, name: str) -> None:
        self.add("Clip", f"{name}_relu6", "zero", "six")

    def block(self, name: str, kernel: int, stride: int, expansion: int, channels: int) -> None:
        """An inverted bottleneck: widen, convolve each channel, narrow, add the input where it fits."""
        source, before = self.tensor, self.channels
        if expansion > 1:
            self.conv(f"{name}_expand", before * expansion)
            self.relu6(f"{name}_expand")
        self.conv(f"{name}_depthwise", self.channels, kernel, stride, depthwise=True)
        self.relu6(f"{name}_depthwise")
        self.conv(f"{name}_project", channels)
        if stride == 1 and before == channels:
            self.add("Add", f"{name}_add", source)


def model() -> onnx.ModelProto:
    """The model: input "x" [1, 3, 224, 224], output [1, 1000]."""
    network = _Network()
    network.weights += [
        onnx.numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("zero", 0.0), ("six", 6.0))
    ]
    network.conv("stem", STEM, kernel=3, stride=2)
    network.relu6("stem")
    for number, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES, 1):
        for repeat in range(repeats):
            network.block(f"stage{number}_{repeat}", kernel, stride if repeat == 0 else 1, expansion, channels)
    network.conv("head", HEAD)
    network.relu6("head")
    network.add("GlobalAveragePool", "pool")
    network.add("Flatten", "flatten")
    weight = network.constant("classes_w", HEAD, CLASSES, scale=HEAD**-0.5)
    network.add("Gemm", "classes", weight, network.constant("classes_b", CLASSES))
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        network.nodes,
        "efficientnet_lite0",
        [tensor("x", onnx.TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [tensor(network.tensor, onnx.TensorProto.FLOAT, [1, CLASSES])],
        network.weights,
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
