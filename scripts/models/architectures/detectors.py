"""Build YOLOv3-tiny for one size of maps, layer by layer, with random weights."""

import onnx

from models.architectures.layered import Network

SIDE = 416
SLOPE = 0.1
BACKBONE = (16, 32, 64, 128, 256, 512)
"""Output channels of 3x3 convolutions, each with a maximum over 2x2 behind it, the last one at stride 1."""
DEEPEST, NARROW, WIDE = 1024, 256, 512
PREDICTIONS = 255
"""Of a pixel: three boxes of 80 classes, four coordinates and a score."""
SKIPPED, UPSAMPLED = 256, 128
MULTIPLY_ADDS = 2.78e9
"""As published for 416 x 416: 5.56 billion operations."""


def yolo_tiny() -> onnx.ModelProto:
    """The model: input "x" [1, 3, 416, 416], outputs of [1, 255, 13, 13] and [1, 255, 26, 26]."""
    network = Network(3, SIDE)
    skipped = ""
    for number, channels in enumerate(BACKBONE):
        _convolved(network, f"backbone{number}", channels, 3)
        if channels == SKIPPED:
            skipped = network.tensor
        if channels == BACKBONE[-1]:
            network.add("MaxPool", "pool_last", kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
        else:
            network.pool_even(f"pool{number}")
    _convolved(network, "deepest", DEEPEST, 3)
    _convolved(network, "narrow", NARROW, 1)
    narrow = network.tensor
    _convolved(network, "wide", WIDE, 3)
    network.conv("far", PREDICTIONS)
    far = (network.tensor, PREDICTIONS, network.side)
    network.tensor, network.channels = narrow, NARROW
    _convolved(network, "up", UPSAMPLED, 1)
    network.doubled("up")
    network.joined("joined", skipped, SKIPPED)
    _convolved(network, "near_wide", NARROW, 3)
    network.conv("near", PREDICTIONS)
    return network.model("yolov3_tiny", far)


def _convolved(network: Network, name: str, channels: int, kernel: int) -> None:
    network.conv(name, channels, kernel)
    network.add("LeakyRelu", f"{name}_leaky", alpha=SLOPE)
