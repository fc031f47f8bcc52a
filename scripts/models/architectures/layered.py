"""Build ONNX networks layer by layer, with seeded random weights whose variance keeps activations alive.

The cost of a layer does not depend on its weights. Batch normalisation counts as folded into the biases.
"""

from typing import Any

import numpy as np
import onnx


class Network:
    """Grows layer by layer; `tensor` is the one that the next layer reads, a map of `channels` x `side` x `side`.

    same: convolutions pad as TensorFlow's "same" does, with what is odd at the end; else by half their kernel on all
    sides, as PyTorch's models do.
    """

    def __init__(self, channels: int, side: int, same: bool = False) -> None:
        self.tensor, self.channels, self.side = "x", channels, side
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._input = (1, channels, side, side)
        self._same = same
        self._numbers = np.random.default_rng(0)

    def constant(self, name: str, *shape: int, scale: float = 0.1) -> str:
        """A constant of normal numbers times `scale`."""
        values = np.float32(scale) * self._numbers.standard_normal(shape, dtype=np.float32)
        self.weights.append(onnx.numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, name: str, *others: str, **attributes: Any) -> None:
        """Any node that reads the tensor first."""
        self.nodes.append(onnx.helper.make_node(op, [self.tensor, *others], [f"{name}_out"], name, **attributes))
        self.tensor = f"{name}_out"

    def conv(self, name: str, channels: int, kernel: int = 1, stride: int = 1, depthwise: bool = False) -> None:
        """A convolution with a bias."""
        seen = 1 if depthwise else self.channels
        fan_in = seen * kernel**2
        weight = self.constant(f"{name}_w", channels, seen, kernel, kernel, scale=(2 / fan_in) ** 0.5)
        group = self.channels if depthwise else 1
        pads = self._pads(kernel, stride)
        bias = self.constant(f"{name}_b", channels)
        self.add("Conv", name, weight, bias, pads=pads, strides=[stride] * 2, group=group)
        self.channels = channels
        self._shrink(kernel, stride, pads)

    def pool(self, name: str, kernel: int, stride: int) -> None:
        """A maximum over windows."""
        pads = self._pads(kernel, stride)
        self.add("MaxPool", name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)
        self._shrink(kernel, stride, pads)

    def relu(self, name: str) -> None:
        self.add("Relu", f"{name}_relu")

    def relu6(self, name: str) -> None:
        if not any(weight.name == "six" for weight in self.weights):
            limits = (("zero", 0.0), ("six", 6.0))
            self.weights += [onnx.numpy_helper.from_array(np.array(v, np.float32), n) for n, v in limits]
        self.add("Clip", f"{name}_relu6", "zero", "six")

    def inverted_residual(self, name: str, kernel: int, stride: int, expansion: int, channels: int) -> None:
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

    def squeeze_excite(self, name: str) -> None:
        """Multiplies each channel by a factor between 0 and 1 that follows from the means of all."""
        source, side = self.tensor, self.side
        channels, squeezed = self.channels, round_channels(self.channels / 4)
        self.add("GlobalAveragePool", f"{name}_mean")
        self.side = 1
        self.conv(f"{name}_down", squeezed)
        self.add("Relu", f"{name}_relu")
        self.conv(f"{name}_up", channels)
        self.add("HardSigmoid", f"{name}_gate", alpha=1 / 6, beta=0.5)
        gate, self.tensor, self.side = self.tensor, source, side
        self.add("Mul", f"{name}_scale", gate)

    def pool_even(self, name: str) -> None:
        """A maximum over 2 x 2 pixels each, of an even side."""
        self.add("MaxPool", name, kernel_shape=[2, 2], strides=[2, 2])
        self.side //= 2

    def doubled(self, name: str) -> None:
        """Each pixel four times."""
        self.weights.append(onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), f"{name}_scales"))
        self.add("Resize", f"{name}_doubled", "", f"{name}_scales", mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric")  # fmt: skip
        self.side *= 2

    def joined(self, name: str, other: str, channels: int) -> None:
        """The channels of another map of this size behind the ones there are."""
        self.add("Concat", name, other, axis=1)
        self.channels += channels

    def classes(self, count: int) -> None:
        """The mean of each channel, and a matrix product to so many classes."""
        self.add("GlobalAveragePool", "pool")
        self.add("Flatten", "flatten")
        weight = self.constant("classes_w", self.channels, count, scale=self.channels**-0.5)
        self.add("Gemm", "classes", weight, self.constant("classes_b", count))
        self.channels, self.side = count, 0

    def model(self, name: str, *others: tuple[str, int, int], opset: int = 13) -> onnx.ModelProto:
        """The network as a model: input "x", outputs whatever the last layer wrote, behind other maps: name, channels
        and side of each."""
        tensor = onnx.helper.make_tensor_value_info
        outputs = [*others, (self.tensor, self.channels, self.side)]
        graph = onnx.helper.make_graph(
            self.nodes,
            name,
            [tensor("x", onnx.TensorProto.FLOAT, self._input)],
            [
                tensor(each, onnx.TensorProto.FLOAT, [1, channels, *([side] * 2 if side else [])])
                for each, channels, side in outputs
            ],
            self.weights,
        )
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)

    def _pads(self, kernel: int, stride: int) -> list[int]:
        if not self._same:
            return [kernel // 2] * 4
        pad = max((-(-self.side // stride) - 1) * stride + kernel - self.side, 0)
        return [pad // 2, pad // 2, pad - pad // 2, pad - pad // 2]

    def _shrink(self, kernel: int, stride: int, pads: list[int]) -> None:
        self.side = (self.side + pads[0] + pads[2] - kernel) // stride + 1


def round_channels(count: float, divisor: int = 8) -> int:
    """The nearest multiple, at least one of it and at least nine tenths of the count, as MobileNets have it."""
    rounded = max(divisor, int(count + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * count else rounded
