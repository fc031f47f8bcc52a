"""Decide whether a case of ONNX's test suite is out of scope, by rules on the line with which gputune refuses it."""

import re

# fmt: off
LADDER = frozenset((
    "Abs", "Acos", "Acosh", "Add", "AffineGrid", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh",
    "Attention", "AveragePool", "BatchNormalization", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "CenterCropPad", "Clip", "Concat", "Constant",
    "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Cosh", "CumProd", "CumSum", "DepthToSpace", "Div",
    "Dropout", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "GRU", "Gather",
    "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
    "Greater", "GreaterOrEqual", "GridSample", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax",
    "Identity", "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization", "LeakyRelu",
    "Less", "LessOrEqual", "Log", "LogSoftmax", "LpNormalization", "LpPool", "MatMul", "Max", "MaxPool", "Mean",
    "MeanVarianceNormalization", "Min", "Mish", "Mod", "Mul", "Neg", "NegativeLogLikelihoodLoss", "Not",
    "OneHot", "Or", "PRelu", "Pad", "Pow", "RMSNormalization", "RNN", "Range", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Resize", "RotaryEmbedding", "Round", "ScatterElements",
    "ScatterND", "Selu", "Shape", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax",
    "SoftmaxCrossEntropyLoss", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum",
    "Swish", "Tan", "Tanh", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Upsample",
    "Where", "Xor",
))
# fmt: on
"""Operators that must not be why a case is excluded."""

RULES = (
    ("no part: {}", r"^no part: (.*)"),
    ("onnxruntime cannot run it", r"^onnxruntime cannot run it"),
    (
        "element type {}",
        r"(?:is|computes) (float64|bfloat16|float8\w*|float4\w*|float6\w*|u?int[24]|complex\w+|string)\b",
    ),
    ("no tensor: sequence, optional or map", r"is not a tensor"),
    ("quantised", r"computes with quantised numbers"),
    ("operator {}", r"(.*there are no kernels for .*)"),
    ("shape that depends on the data", r"shape of its output '.*' depends on|must be known before it runs"),
    ("training", r"in training mode"),
    ("three spatial dimensions", r"it has \d spatial dimensions; .*are supported"),
)


def rule_of(message: str) -> str | None:
    """The rule that excludes a case which is refused with this message; None where there is none."""
    for name, pattern in RULES:
        if found := re.search(pattern, message):
            what = found.group(1) if found.groups() else ""
            if name.startswith("operator"):
                foreign = set(re.findall(r"no kernels for ([\w.]+)", what)) - LADDER
                if not foreign:
                    continue
                what = ", ".join(sorted(foreign))
            return name.format(what)
    return None
