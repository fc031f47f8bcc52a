"""Build EfficientNet-Lite0 as ONNX: the trained file is in PyTorch's format, and its export takes half a gigabyte of
PyTorch.
"""

import onnx

from models.architectures.layered import Network

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


def model() -> onnx.ModelProto:
    """The model: input "x" [1, 3, 224, 224], output [1, 1000]."""
    network = Network(3, SIDE, same=True)
    network.conv("stem", STEM, kernel=3, stride=2)
    network.relu6("stem")
    for number, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES, 1):
        for repeat in range(repeats):
            name = f"stage{number}_{repeat}"
            network.inverted_residual(name, kernel, stride if repeat == 0 else 1, expansion, channels)
    network.conv("head", HEAD)
    network.relu6("head")
    network.classes(CLASSES)
    return network.model("efficientnet_lite0")
