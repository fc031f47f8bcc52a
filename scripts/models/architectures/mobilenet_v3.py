"""Build MobileNetV3-Large layer by layer, with its squeeze-and-excite blocks and random weights."""

import onnx

from models.architectures.layered import Network

SIDE, CLASSES = 224, 1000
STEM, LAST, HIDDEN = 16, 960, 1280
# kernel, expanded channels, output channels, squeeze-and-excite, hard-swish, stride: table 1 of the MobileNetV3 paper
BLOCKS = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
MULTIPLY_ADDS = 219e6
"""As published."""


def mobilenet_v3() -> onnx.ModelProto:
    """The model: input "x" [1, 3, 224, 224], output [1, 1000]."""
    network = Network(3, SIDE)
    network.conv("stem", STEM, kernel=3, stride=2)
    network.add("HardSwish", "stem_swish")
    for number, (kernel, expanded, channels, squeezes, swishes, stride) in enumerate(BLOCKS):
        name, source, before = f"block{number}", network.tensor, network.channels
        activation = "HardSwish" if swishes else "Relu"
        if expanded != before:
            network.conv(f"{name}_expand", expanded)
            network.add(activation, f"{name}_expand_activation")
        network.conv(f"{name}_depthwise", expanded, kernel, stride, depthwise=True)
        network.add(activation, f"{name}_depthwise_activation")
        if squeezes:
            network.squeeze_excite(f"{name}_squeeze")
        network.conv(f"{name}_project", channels)
        if stride == 1 and before == channels:
            network.add("Add", f"{name}_add", source)
    network.conv("last", LAST)
    network.add("HardSwish", "last_swish")
    network.add("GlobalAveragePool", "pool")
    network.side = 1
    network.conv("hidden", HIDDEN)
    network.add("HardSwish", "hidden_swish")
    network.add("Flatten", "flatten")
    weight = network.constant("classes_w", HIDDEN, CLASSES, scale=HIDDEN**-0.5)
    network.add("Gemm", "classes", weight, network.constant("classes_b", CLASSES))
    network.channels, network.side = CLASSES, 0
    return network.model("mobilenet_v3_large", opset=14)
