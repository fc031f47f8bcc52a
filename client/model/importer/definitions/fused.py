"""Define the operators that onnxruntime's optimiser makes of several of ONNX: products, activations, normalisations."""

from collections.abc import Callable, Mapping, Sequence

from gputune.client.model.importer.definitions.use import NotDefined, Use

CONVOLVING = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",), "Relu": (), "Sigmoid": (), "Tanh": (),
}  # fmt: skip
"""What may be applied to the result of a product, with the attributes to which numbers go in their order."""


def activated(use: Use, value: str, numbers: Sequence[float]) -> str:
    """Write the activation that the node has, with numbers that it is given."""
    name = use.attributes.get("activation", b"").decode()
    if not name:
        return value
    if name == "Clip" and len(numbers) == 2:
        return use.let(f"Clip({value}, {use.number(numbers[0])}, {use.number(numbers[1])})")
    if name not in ACTIVATIONS or (numbers and len(numbers) < len(ACTIVATIONS[name])):
        raise NotDefined(f"its activation is {name!r}, with {len(numbers)} numbers")
    given = ", ".join(f"{key} = {each!r}" for key, each in zip(ACTIVATIONS[name], numbers, strict=False))
    return use.let(f"{name}<{given}>({value})" if given else f"{name}({value})")


def _matmul(use: Use) -> str:
    def factor(index: int, side: str) -> str:
        axes = list(range(len(use.shape(index))))
        if use.flag(f"transBatch{side}"):
            axes = [*axes[1:-1], axes[0], axes[-1]]
        if use.flag(f"trans{side}") and len(axes) > 1:
            axes[-2:] = axes[:-3:-1]
        return use.turned(use.name(index), *axes)

    product = use.let(f"MatMul({factor(0, 'A')}, {factor(1, 'B')})")
    alpha = use.attributes.get("alpha", 1.0)
    return f"y = Mul({product}, {use.number(alpha)})" if alpha != 1 else f"y = Identity({product})"


def _conv(use: Use) -> str:
    given = ", ".join(filter(None, ("i0", "i1", use.name(2))))
    result = use.let(f"Conv{use.options(*CONVOLVING)}({given})")
    if use.has(3):
        result = use.let(f"Add({result}, i3)")
    result = activated(use, result, use.attributes.get("activation_params", ()))
    return f"y = Identity({result})"


def _gemm(use: Use) -> str:
    given = ", ".join(filter(None, ("i0", "i1", use.name(2))))
    product = use.let(f"Gemm{use.options('alpha', 'beta', 'transA', 'transB')}({given})")
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    result = activated(use, product, [use.attributes[name] for name in names if name in use.attributes])
    return f"y = Identity({result})"


def _gelu(use: Use) -> str:
    return f"y = Gelu({use.let('Add(i0, i1)') if use.has(1) else 'i0'})"


def _fast_gelu(use: Use) -> str:
    return f'y = Gelu<approximate = "tanh">({use.let("Add(i0, i1)") if use.has(1) else "i0"})'


def _quick_gelu(use: Use) -> str:
    scaled = use.let(f"Mul(i0, {use.number(use.attributes.get('alpha', 1.702))})")
    return f"y = Mul(i0, {use.let(f'Sigmoid({scaled})')})"


def _root_mean_square(use: Use, value: str, scale: str, axis: int, epsilon: float) -> tuple[str, str]:
    """Write a normalisation without a mean; return the result, and one by the deviation."""
    rank = len(use.shape(0))
    axes = use.ints(*range(axis % rank, rank))
    square = use.let(f"Mul({value}, {value})")
    mean = use.let(f"ReduceMean({square}, {axes})")
    root = use.let(f"Sqrt({use.let(f'Add({mean}, {use.number(epsilon)})')})")
    normal = use.let(f"Div({value}, {root})")
    return use.let(f"Mul({normal}, {scale})"), use.let(f"Reciprocal({root})")


def _simplified(use: Use) -> str:
    axis, epsilon = use.attributes.get("axis", -1), use.attributes.get("epsilon", 1e-5)
    result, inverse = _root_mean_square(use, "i0", "i1", axis, epsilon)
    return f"y = Identity({result}) inverse = Identity({inverse})"


def normalised(use: Use, value: str, scale: str, bias: str, axis: int, epsilon: float) -> str:
    """Write a layer normalisation, with the results that the node has."""
    results = [name for k, name in enumerate(("y", "mean", "inverse")) if k == 0 or use.wants(k)]
    given = ", ".join(filter(None, (value, scale, bias)))
    return f"{', '.join(results)} = LayerNormalization<axis = {axis}, epsilon = {epsilon!r}>({given})"


def _layer_normalization(use: Use) -> str:
    return normalised(use, "i0", "i1", use.name(2), use.attributes.get("axis", -1), use.attributes.get("epsilon", 1e-5))


def _skipping(use: Use, bias: int) -> str:
    """Write the sum that is normalised, with a bias at a place of the inputs. The first input is mostly a product,
    which takes in the bias and the other one."""
    first = use.let(f"Add(i0, i{bias})") if use.has(bias) else "i0"
    return use.let(f"Add({first}, i1)")


def _skip_layer_normalization(use: Use) -> str:
    total = _skipping(use, 4)
    normal = normalised(use, total, "i2", use.name(3), -1, use.attributes.get("epsilon", 1e-12))
    return f"{normal} total = Identity({total})"


def _skip_simplified(use: Use) -> str:
    total = _skipping(use, 3)
    result, inverse = _root_mean_square(use, total, "i2", -1, use.attributes.get("epsilon", 1e-12))
    return f"y = Identity({result}) inverse = Identity({inverse}) total = Identity({total})"


def _embed(use: Use) -> str:
    """Look up words, places and segments, add and normalise them; `mask` counts the words of a mask that is 1, 0."""
    batch, length = use.shape(0)
    words = use.let("Gather(i2, i0)")
    places = use.let("Gather(i3, i8)") if use.has(8) else use.cut("i3", 0, 0, length)
    total = use.let(f"Add({words}, {places})")
    if use.has(1) and use.has(4):
        total = use.let(f"Add({total}, {use.let('Gather(i4, i1)')})")
    epsilon = use.attributes.get("epsilon", 1e-12)
    zeros = use.let(f"ConstantOfShape<value = int32[1] {{0}}>({use.ints(batch)})")
    mask = use.let(f"ReduceSum<keepdims = 0>(i7, {use.ints(1)})") if use.has(7) else zeros
    normal = f"y = LayerNormalization<axis = -1, epsilon = {epsilon!r}>({total}, i5, i6)"
    return f"{normal} mask = Identity({mask}) total = Identity({total})"


OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "EmbedLayerNormalization": ("y", "mask", "total"),
    "LayerNormalization": ("y", "mean", "inverse"),
    "SimplifiedLayerNormalization": ("y", "inverse"),
    "SkipLayerNormalization": ("y", "mean", "inverse", "total"),
    "SkipSimplifiedLayerNormalization": ("y", "mean", "inverse", "total"),
}

FUSED: Mapping[str, Callable[[Use], str]] = {
    "BiasGelu": _gelu,
    "EmbedLayerNormalization": _embed,
    "FastGelu": _fast_gelu,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified,
    "TransposeMatMul": _matmul,
}

IN_ONNX: Mapping[str, Callable[[Use], str]] = {
    "LayerNormalization": _layer_normalization,
    "SimplifiedLayerNormalization": _simplified,
}
"""Operators that onnxruntime has in ONNX's own domain, where ONNX does not have them, or not in older operator sets."""
