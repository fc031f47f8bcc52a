"""Compare convolutions, transposed convolutions, poolings and matrix products of all kinds with onnxruntime.

They cover strides, symmetric and asymmetric pads, dilations, groups, lines, odd and prime sizes, and batches.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.client.model.reference import evaluate
from tests.client.models import build
from tests.client.plans import Lowered, assert_agrees


def dims(*sizes: int) -> str:
    return ",".join(map(str, sizes))


def signature(batch: int, channels: int, size: Sequence[int]) -> str:
    return f"(float[{dims(batch, channels, *size)}] x) => (float[{','.join('abcd'[: len(size) + 2])}] y)"


def several(draw: st.DrawFn, axes: int, least: int, most: int) -> list[int]:
    return [draw(st.integers(least, most)) for _ in range(axes)]


def automatic(draw: st.DrawFn, pads: list[int], dilations: list[int]) -> str:
    """Pads as given or found; onnxruntime finds them without dilations only."""
    mode = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if mode == "NOTSET" or (mode != "VALID" and max(dilations) > 1):
        return f"pads={pads}"
    return f'auto_pad="{mode}"'


@st.composite
def convolutions(draw: st.DrawFn) -> onnx.ModelProto:
    axes = draw(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 2, 3, 5]))
    seen, made = (draw(st.sampled_from([1, 1, 2, 3, 7])) for _ in range(2))  # depthwise, with multipliers, and others
    kernel, strides, dilations = (several(draw, axes, 1, most) for most in (4, 3, 3))
    size = [(k - 1) * d + 1 + draw(st.integers(0, 8)) for k, d in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, kernel[axis % axes] + 1)) for axis in range(2 * axes)]
    attributes = f"group={groups}, strides={strides}, dilations={dilations}, {automatic(draw, pads, dilations)}"
    bias = draw(st.booleans())
    weights: dict[str, tuple[int, ...]] = {"w": (groups * made, seen, *kernel)}
    if bias:
        weights["b"] = (groups * made,)
    body = f"y = Conv<{attributes}>(x, w{', b' if bias else ''})"
    return build(signature(draw(st.integers(1, 3)), groups * seen, size), body, weights)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("op", "size", "kernel", "dilations", "strides"),
    [
        *((op, (12, 15), (3, 4), (2, 3), (2, 5)) for op in ("Conv", "MaxPool", "AveragePool")),
        ("Conv", (11, 13), (3, 2), (2, 3), (1, 1)),
        ("Conv", (11, 13), (2, 3), (3, 1), (1, 2)),
    ],
)
def test_windows_that_keep_the_size_count_with_their_dilations(
    lowered: Lowered,
    op: str,
    mode: str,
    size: tuple[int, int],
    kernel: tuple[int, int],
    dilations: tuple[int, int],
    strides: tuple[int, int],
) -> None:
    """Against pads that are worked out here, since onnxruntime finds them without dilations only."""
    missing = [
        max((-(-length // stride) - 1) * stride + (taps - 1) * step + 1 - length, 0)
        for length, taps, step, stride in zip(size, kernel, dilations, strides, strict=True)
    ]
    less, more = [total // 2 for total in missing], [total - total // 2 for total in missing]
    assert less != more
    pads = [*less, *more] if mode == "SAME_UPPER" else [*more, *less]
    models = []
    for found in (f'auto_pad="{mode}"', f"pads={pads}"):
        attributes = f"kernel_shape={[*kernel]}, strides={[*strides]}, dilations={[*dilations]}, {found}"
        body = f"y = {op}<{attributes}>(x{', w' if op == 'Conv' else ''})"
        weights = (
            {"w": np.arange(4 * kernel[0] * kernel[1], dtype=np.float32).reshape(2, 2, *kernel)} if op == "Conv" else {}
        )
        models.append(build(signature(1, 2, size), body, weights, opset=19))
    automatic, explicit = models
    x = np.random.default_rng(4).standard_normal((1, 2, *size), dtype=np.float32)
    (want,) = onnxruntime.InferenceSession(explicit.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(evaluate(lowered(automatic), {"x": x})["y"], want, rtol=1e-5, atol=1e-5)


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> onnx.ModelProto:
    axes = draw(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    seen, made = (draw(st.sampled_from([1, 2, 3, 5])) for _ in range(2))
    kernel, strides, dilations = (several(draw, axes, 1, most) for most in (4, 4, 2))
    size = several(draw, axes, 1, 7)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [(n - 1) * s + span for n, s, span in zip(size, strides, spans, strict=True)]
    added = [draw(st.integers(0, s - 1)) for s in strides]
    before = [draw(st.integers(0, (length - 1) // 2)) for length in whole]
    behind = [draw(st.integers(0, (length - 1) // 2)) for length in whole]
    mode = draw(st.sampled_from(["", ", output_shape", ', auto_pad="VALID"', ', auto_pad="SAME_UPPER", output_shape']))
    attributes = f"group={groups}, strides={strides}, dilations={dilations}, output_padding={added}"
    if mode.endswith("output_shape"):
        # onnx does not infer shapes that are smaller than the input's
        shape = [draw(st.integers(max(length - 3, n), length)) for length, n in zip(whole, size, strict=True)]
        attributes += f"{mode}={shape}"
    else:
        attributes += mode or f", pads={[*before, *behind]}"
    body = f"c = ConvTranspose<{attributes}>(x, w, b) y = Mul(c, s)"  # the scale ends in the weights
    weights = {"w": (groups * seen, made, *kernel), "b": (groups * made,), "s": (groups * made, *[1] * axes)}
    return build(signature(draw(st.integers(1, 2)), groups * seen, size), body, weights)


@st.composite
def poolings(draw: st.DrawFn) -> onnx.ModelProto:
    axes = draw(st.integers(1, 2))
    op = draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    kernel, strides, dilations = (several(draw, axes, 1, most) for most in (4, 4, 3))
    size = [(k - 1) * d + 1 + draw(st.integers(0, 8)) for k, d in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, kernel[axis % axes] - 1)) for axis in range(2 * axes)]
    found = automatic(draw, pads, dilations)
    if "SAME" in found:
        strides = [min(pair) for pair in zip(strides, kernel, strict=True)]  # onnxruntime would pad by less than 0
    attributes = f"kernel_shape={kernel}, strides={strides}, dilations={dilations}, {found}"
    attributes += f", ceil_mode={draw(st.integers(0, 1))}"
    if op == "AveragePool":
        attributes += f", count_include_pad={draw(st.integers(0, 1))}"
    if op == "LpPool":
        attributes += f", p={draw(st.integers(1, 3))}"
    opset = draw(st.sampled_from([13, 22])) if op == "MaxPool" else 22  # only then the others may be dilated
    return build(signature(2, 3, size), f"y = {op}<{attributes}>(x)", opset=opset, ir_version=10)


@st.composite
def products(draw: st.DrawFn) -> onnx.ModelProto:
    rows, depth, columns = (draw(st.sampled_from([1, 2, 3, 5, 7, 17, 31])) for _ in range(3))
    transposed = draw(st.integers(0, 1))
    attributes = f"transB={transposed}"
    if draw(st.booleans()):
        attributes += f", alpha={draw(st.sampled_from([0.5, -2.0]))}, beta={draw(st.sampled_from([0.0, 1.0, 3.0]))}"
    weights: dict[str, tuple[int, ...]] = {"w": (columns, depth) if transposed else (depth, columns)}
    addend = draw(st.sampled_from([(), (columns,), (1, columns), (rows, 1), (rows, columns), (1,)]))
    if addend:
        weights["c"] = addend
    body = f"y = Gemm<{attributes}>(x, w{', c' if addend else ''})"
    return build(f"(float[{dims(rows, depth)}] x) => (float[a,b] y)", body, weights)


WINDOWS = {each.__name__: each() for each in (convolutions, transposed_convolutions, poolings, products)}


@pytest.mark.parametrize("models", WINDOWS.values(), ids=WINDOWS)
@settings(max_examples=15)
@given(data=st.data())
def test_windows_and_products(
    lowered: Lowered, models: st.SearchStrategy[onnx.ModelProto], data: st.DataObject
) -> None:
    model = data.draw(models)
    assert_agrees(model, lowered(model))


def test_the_first_of_equal_maxima_counts_and_nan_is_the_largest(lowered: Lowered) -> None:
    model = build("(float[1,1,2,4] x) => (float[a,b,c,d] y, int64[e,f,g,h] i)", "y, i = MaxPool<kernel_shape=[2,2]>(x)")
    x = np.array([[1, 2, np.nan, np.nan], [2, 2, np.nan, 0]], np.float32).reshape(1, 1, 2, 4)
    got = evaluate(lowered(model), {"x": x})
    assert got["i"].ravel().tolist() == [1, 2, 2]
    np.testing.assert_array_equal(got["y"].ravel(), [2, np.nan, np.nan])
