"""Build a U-Net as image generators have it: residual blocks with group normalisation, and transformers at the coarse
levels, in the many small nodes in which PyTorch exports them. It is made for measuring what many tasks cost.
"""

import numpy as np
import onnx

from models.architectures.layered import Network

WIDTHS, DEPTHS = (1, 2, 3, 4, 5), (0, 1, 1, 2, 2)
"""Of each level the channels, by those of the first, and the layers of a transformer."""
BLOCKS = 1
GROUPS = 8
TOKENS, TEXT = 77, 128
"""Words that the transformers look at, and numbers of each."""


class UNet(Network):
    """Grows level by level."""

    def kept(self, name: str, *values: float, integer: bool = False) -> str:
        """A constant of these numbers."""
        kind = np.int64 if integer else np.float32
        self.weights.append(
            onnx.numpy_helper.from_array(np.array(values if len(values) != 1 else values[0], kind), name)
        )
        return name

    def shaped(self, name: str, *shape: int) -> None:
        self.weights.append(onnx.numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape"))
        self.add("Reshape", name, f"{name}_shape")

    def again(self, op: str, name: str, other: str, source: str) -> None:
        """A node that reads another tensor first."""
        self.tensor = source
        self.add(op, name, other)

    def silu(self, name: str) -> None:
        source = self.tensor
        self.add("Sigmoid", f"{name}_sigmoid")
        self.again("Mul", f"{name}_silu", self.tensor, source)

    def group_norm(self, name: str) -> None:
        """As InstanceNormalization of groups, which PyTorch exports."""
        self.shaped(f"{name}_groups", 1, GROUPS, -1)
        ones, zeros = (self.constant(f"{name}_{part}", GROUPS) for part in ("ones", "zeros"))
        self.add("InstanceNormalization", f"{name}_normed", ones, zeros, epsilon=1e-5)
        self.shaped(f"{name}_back", 1, self.channels, self.side, self.side)
        self.add("Mul", f"{name}_scaled", self.constant(f"{name}_scale", self.channels, 1, 1))
        self.add("Add", f"{name}_shifted", self.constant(f"{name}_shift", self.channels, 1, 1))

    def residual(self, name: str, channels: int) -> None:
        """Two convolutions with the time between them."""
        source, before = self.tensor, self.channels
        self.group_norm(f"{name}_norm1")
        self.silu(f"{name}_1")
        self.conv(f"{name}_conv1", channels, kernel=3)
        mapped, self.tensor = self.tensor, "time"
        self.silu(f"{name}_time")
        weight = self.constant(f"{name}_time_w", TEXT, channels)
        self.add("Gemm", f"{name}_time_gemm", weight, self.constant(f"{name}_time_b", channels))
        self.shaped(f"{name}_time_map", 1, channels, 1, 1)
        self.again("Add", f"{name}_timed", self.tensor, mapped)
        self.group_norm(f"{name}_norm2")
        self.silu(f"{name}_2")
        self.conv(f"{name}_conv2", channels, kernel=3)
        result = self.tensor
        if before != channels:
            self.tensor, self.channels = source, before
            self.conv(f"{name}_skip", channels)
            source = self.tensor
        self.again("Add", f"{name}_sum", source, result)

    def layer_norm(self, name: str) -> None:
        """In the nodes of opset 13."""
        source = self.tensor
        self.add("ReduceMean", f"{name}_mean", axes=[-1])
        self.again("Sub", f"{name}_centred", self.tensor, source)
        centred = self.tensor
        self.add("Pow", f"{name}_squares", self.kept(f"{name}_two", 2.0))
        self.add("ReduceMean", f"{name}_variance", axes=[-1])
        self.add("Add", f"{name}_safe", self.kept(f"{name}_epsilon", 1e-5))
        self.add("Sqrt", f"{name}_root")
        self.again("Div", f"{name}_normed", self.tensor, centred)
        self.add("Mul", f"{name}_scaled", self.constant(f"{name}_scale", self.channels))
        self.add("Add", f"{name}_shifted", self.constant(f"{name}_shift", self.channels))

    def linear(self, name: str, seen: int, made: int, bias: bool = True) -> None:
        self.add("MatMul", f"{name}_product", self.constant(f"{name}_w", seen, made, scale=seen**-0.5))
        if bias:
            self.add("Add", f"{name}_biased", self.constant(f"{name}_b", made))

    def attention(self, name: str, seen: str, width: int) -> None:
        """To the map itself, or to words: seen, whose items have so many numbers."""
        heads, source = 4, self.tensor
        parts = {}
        for part, tensor, numbers in (("q", source, self.channels), ("k", seen, width), ("v", seen, width)):
            self.tensor = tensor
            self.linear(f"{name}_{part}", numbers, self.channels, bias=False)
            self.shaped(f"{name}_{part}_heads", 1, -1, heads, self.channels // heads)
            order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            self.add("Transpose", f"{name}_{part}_turned", perm=order)
            parts[part] = self.tensor
        self.again("MatMul", f"{name}_scores", parts["k"], parts["q"])
        self.add("Mul", f"{name}_scaled", self.kept(f"{name}_root", (self.channels // heads) ** -0.5))
        self.add("Softmax", f"{name}_softmax", axis=-1)
        self.add("MatMul", f"{name}_mixed", parts["v"])
        self.add("Transpose", f"{name}_turned", perm=[0, 2, 1, 3])
        self.shaped(f"{name}_joined", 1, -1, self.channels)
        self.linear(f"{name}_out", self.channels, self.channels)

    def gelu(self, name: str) -> None:
        source = self.tensor
        self.add("Div", f"{name}_scaled", self.kept(f"{name}_root2", 2**0.5))
        self.add("Erf", f"{name}_erf")
        self.add("Add", f"{name}_one", self.kept(f"{name}_1", 1.0))
        self.again("Mul", f"{name}_half", self.tensor, source)
        self.add("Mul", f"{name}_gelu", self.kept(f"{name}_05", 0.5))

    def transformer(self, name: str, layers: int) -> None:
        """Layers on the pixels of a map."""
        source, channels, side = self.tensor, self.channels, self.side
        self.group_norm(f"{name}_norm")
        self.conv(f"{name}_in", channels)
        self.add("Transpose", f"{name}_last", perm=[0, 2, 3, 1])
        self.shaped(f"{name}_rows", 1, side * side, channels)
        for layer in range(layers):
            self.layer(f"{name}_{layer}", channels)
        self.shaped(f"{name}_pixels", 1, side, side, channels)
        self.add("Transpose", f"{name}_first", perm=[0, 3, 1, 2])
        self.conv(f"{name}_out", channels)
        self.again("Add", f"{name}_sum", self.tensor, source)

    def layer(self, name: str, channels: int) -> None:
        """Attention to the map and to the words, and a gated product."""
        for number, (seen, width) in enumerate((("", channels), ("words", TEXT))):
            before = self.tensor
            self.layer_norm(f"{name}_norm{number}")
            self.attention(f"{name}_attention{number}", seen or self.tensor, width)
            self.again("Add", f"{name}_attended{number}", self.tensor, before)
        before = self.tensor
        self.layer_norm(f"{name}_norm2")
        normed = self.tensor
        self.linear(f"{name}_gate", channels, 4 * channels)
        self.gelu(f"{name}_gate")
        gate, self.tensor = self.tensor, normed
        self.linear(f"{name}_wide", channels, 4 * channels)
        self.add("Mul", f"{name}_gated", gate)
        self.linear(f"{name}_narrow", 4 * channels, channels)
        self.again("Add", f"{name}_fed", self.tensor, before)

    def block(self, name: str, channels: int, level: int) -> None:
        self.residual(name, channels)
        if DEPTHS[level]:
            self.transformer(f"{name}_transformer", DEPTHS[level])


def unet(width: int = 64, side: int = 64) -> onnx.ModelProto:
    """The model: inputs "x" [1, 4, side, side], "time" [1, 128] and "words" [1, 77, 128]; an output as x."""
    network = UNet(4, side)
    network.conv("stem", width, kernel=3)
    skipped = [(network.tensor, network.channels)]
    for level, factor in enumerate(WIDTHS):
        for number in range(BLOCKS):
            network.block(f"down{level}_{number}", width * factor, level)
            skipped.append((network.tensor, network.channels))
        if level + 1 < len(WIDTHS):
            network.conv(f"down{level}_smaller", network.channels, kernel=3, stride=2)
            skipped.append((network.tensor, network.channels))
    network.block("middle", network.channels, len(WIDTHS) - 1)
    network.residual("middle_last", network.channels)
    for level, factor in reversed(list(enumerate(WIDTHS))):
        for number in range(BLOCKS + 1):
            network.joined(f"up{level}_{number}_joined", *skipped.pop())
            network.block(f"up{level}_{number}", width * factor, level)
        if level:
            network.doubled(f"up{level}")
            network.conv(f"up{level}_larger", network.channels, kernel=3)
    network.group_norm("last")
    network.silu("last")
    network.conv("last", 4, kernel=3)
    model = network.model("unet")
    tensor = onnx.helper.make_tensor_value_info
    for name, shape in (("time", [1, TEXT]), ("words", [1, TOKENS, TEXT])):
        model.graph.input.append(tensor(name, onnx.TensorProto.FLOAT, shape))
    return model
