"""Write classic networks as ONNX files to build/models, none of them trained.

ResNets, MobileNets and a detector are built layer by layer. Nine others come from the topologies that onnx ships, with
seeded weights in place of the weights that it omits.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from models.architectures import detectors, mobilenet_v3
from models.architectures.layered import Network, round_channels
from models.tune_models import Model, saved

CLASSES = 1000
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

# expansion, output channels, repeats, stride: table 2 of the MobileNetV2 paper
INVERTED_RESIDUALS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def resnet18(side: int = 224) -> Model:
    """ResNet-18."""
    return saved(f"ResNet-18 {side}", f"resnet18_{side}", lambda: _resnet18(side))


def mobilenet_v2(width: float = 1.0, side: int = 224) -> Model:
    """MobileNetV2 with its channels multiplied by `width`."""
    title = f"MobileNetV2{'' if width == 1 else f'-{width:g}'} {side}"
    return saved(title, f"mobilenet_v2_{width:g}_{side}", lambda: _mobilenet_v2(width, side))


def resnet50() -> Model:
    """ResNet-50 for maps of 224 x 224, with its batch normalisations."""
    return light("ResNet-50")


def resnet50_of(side: int) -> Model:
    """ResNet-50 for maps of any size, without batch normalisations."""
    return saved(f"ResNet-50 {side}", f"resnet50_{side}", lambda: _resnet50(side))


def mobilenet_v3_large() -> Model:
    """MobileNetV3-Large for maps of 224 x 224."""
    return saved("MobileNetV3-Large 224", "mobilenet_v3_large", mobilenet_v3.mobilenet_v3)


def yolo_tiny() -> Model:
    """YOLOv3-tiny for maps of 416 x 416."""
    return saved("YOLOv3-tiny 416", "yolov3_tiny", detectors.yolo_tiny)


def squeezenet() -> Model:
    """SqueezeNet 1.1 for maps of 224 x 224."""
    return light("SqueezeNet")


LIGHT_STEMS: Mapping[str, str] = {
    "AlexNet": "bvlc_alexnet",
    "DenseNet-121": "densenet121",
    "Inception v1": "inception_v1",
    "Inception v2": "inception_v2",
    "ResNet-50": "resnet50",
    "ShuffleNet": "shufflenet",
    "SqueezeNet": "squeezenet",
    "VGG-19": "vgg19",
    "ZFNet-512": "zfnet512",
}
"""The topologies that onnx ships, and their files."""


def light(name: str) -> Model:
    """One of LIGHT_STEMS, for a map of 224 x 224."""
    stem = LIGHT_STEMS[name]
    return saved(f"{name} 224", stem, lambda: refilled(LIGHT / f"light_{stem}.onnx"))


def _resnet18(side: int) -> onnx.ModelProto:
    network = Network(3, side)
    network.conv("stem", 64, kernel=7, stride=2)
    network.relu("stem")
    network.pool("stem_pool", 3, 2)
    for number, channels in enumerate((64, 128, 256, 512), 1):
        for repeat in range(2):
            _basic_block(network, f"layer{number}_{repeat}", channels, 2 if number > 1 and repeat == 0 else 1)
    network.classes(CLASSES)
    return network.model("resnet18")


def _resnet50(side: int) -> onnx.ModelProto:
    network = Network(3, side)
    network.conv("stem", 64, kernel=7, stride=2)
    network.relu("stem")
    network.pool("stem_pool", 3, 2)
    for number, (channels, repeats) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for repeat in range(repeats):
            _bottleneck(network, f"layer{number}_{repeat}", channels, 2 if number > 1 and repeat == 0 else 1)
    network.classes(CLASSES)
    return network.model("resnet50")


def _basic_block(network: Network, name: str, channels: int, stride: int) -> None:
    """Two 3x3 convolutions beside the input."""

    def convolutions() -> None:
        network.conv(f"{name}_first", channels, kernel=3, stride=stride)
        network.relu(f"{name}_first")
        network.conv(f"{name}_second", channels, kernel=3)

    _residual(network, name, stride, convolutions)


def _bottleneck(network: Network, name: str, channels: int, stride: int) -> None:
    """A 3x3 convolution between two 1x1 ones, the last of which has four times as many channels, beside the input."""

    def convolutions() -> None:
        network.conv(f"{name}_first", channels)
        network.relu(f"{name}_first")
        network.conv(f"{name}_second", channels, kernel=3, stride=stride)
        network.relu(f"{name}_second")
        network.conv(f"{name}_third", 4 * channels)

    _residual(network, name, stride, convolutions)


def _residual(network: Network, name: str, stride: int, convolutions: Callable[[], None]) -> None:
    """The sum of what convolutions make of the input, and of the input itself, which a 1x1 one makes fit where it does
    not."""
    source, before, side = network.tensor, network.channels, network.side
    convolutions()
    if stride > 1 or before != network.channels:
        main, channels, after = network.tensor, network.channels, network.side
        network.tensor, network.channels, network.side = source, before, side
        network.conv(f"{name}_beside", channels, stride=stride)
        source, network.tensor = network.tensor, main
        assert network.side == after
    network.add("Add", f"{name}_add", source)
    network.relu(name)


def _mobilenet_v2(width: float, side: int) -> onnx.ModelProto:
    network = Network(3, side)
    network.conv("stem", round_channels(32 * width), kernel=3, stride=2)
    network.relu6("stem")
    for number, (expansion, channels, repeats, stride) in enumerate(INVERTED_RESIDUALS, 1):
        for repeat in range(repeats):
            name = f"stage{number}_{repeat}"
            network.inverted_residual(
                name, 3, stride if repeat == 0 else 1, expansion, round_channels(channels * width)
            )
    network.conv("head", round_channels(1280 * max(width, 1.0)))
    network.relu6("head")
    network.classes(CLASSES)
    return network.model("mobilenet_v2")


def refilled(path: Path) -> onnx.ModelProto:
    """A topology whose weights are filled with one value, with seeded weights in their place, inputs that have no
    initializer alone, and without the softmax at its end, behind which wrong results look right."""
    model = onnx.load(path)
    graph, numbers = model.graph, np.random.default_rng(0)
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    filled = {node.output[0]: node for node in graph.node if node.op_type == "ConstantOfShape"}
    roles = {name: (node.op_type, place) for node in graph.node for place, name in enumerate(node.input)}
    for node in graph.node:
        if node.op_type == "Unsqueeze" and node.input[0] in filled:  # a scale or shift on its way to a Mul or Add
            roles[node.input[0]] = roles[node.output[0]]
    for name, node in filled.items():
        values = _weights(*roles[name], shapes[node.input[0]], numbers)
        graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        graph.node.remove(node)
    read = {name for node in graph.node for name in node.input}
    known = {tensor.name for tensor in graph.initializer}
    for unused in [tensor for tensor in graph.initializer if tensor.name not in read]:
        graph.initializer.remove(unused)
    for value in [value for value in graph.input if value.name in known]:
        graph.input.remove(value)
    last = graph.node[-1]
    if last.op_type == "Softmax":
        graph.node.remove(last)
        graph.output[0].name = last.input[0]
    model.ir_version = 8  # before 4, every initializer had to be an input, too
    onnx.checker.check_model(model)
    return model


def _weights(
    op: str, place: int, shape: npt.NDArray[np.int64], numbers: np.random.Generator
) -> npt.NDArray[np.float32]:
    """What an input of a node holds in a network that was trained, more or less."""
    values = numbers.standard_normal(tuple(shape), dtype=np.float32)
    if op == "Mul" or (op == "BatchNormalization" and place in (1, 4)):  # scale and variance
        return np.float32(1) + np.float32(0.1) * np.abs(values)
    if place == 1 and op in ("Conv", "Gemm"):
        fan_in = values.size // values.shape[0]
        return values * np.float32((2 / fan_in) ** 0.5)
    return values * np.float32(0.1)
