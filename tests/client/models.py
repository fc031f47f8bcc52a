"""Build small ONNX models for tests, written in onnx's text form, with weights from a seeded generator.

A table of a .toml file is a model, too: `weights` are shapes of random numbers, or values by their type.
"""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import numpy_helper

Array = npt.NDArray[Any]


def build(
    signature: str,
    body: str,
    weights: Mapping[str, tuple[int, ...] | Array] | None = None,
    opset: int = 13,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A model of the graph `signature` {`body`}; a weight given as a shape is drawn from a normal distribution."""
    text = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> small {signature} {{ {body} }}'
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(sum(map(ord, text)))
    for name, value in (weights or {}).items():
        if isinstance(value, tuple):
            value = 0.5 * generator.standard_normal(value, dtype=np.float32)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def read_tables(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def model_of(table: Mapping[str, Any]) -> onnx.ModelProto:
    weights = {name: _weight(given) for name, given in table.get("weights", {}).items()}
    return build(table["graph"], table["body"], weights, table.get("opset", 13), table.get("ir_version", 8))


def _weight(given: Any) -> tuple[int, ...] | Array:
    if isinstance(given, list):
        return tuple(given)
    ((dtype, values),) = given.items()
    return positive(*values) if dtype == "positive" else np.array(values, dtype)


def save(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def numbers(*values: float) -> Array:
    """Constants: one value is a scalar, more are a vector."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.float32)


def integers(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def positive(*shape: int) -> Array:
    """Values between one half and one and a half."""
    return np.random.default_rng(7).random(shape, dtype=np.float32) + np.float32(0.5)


def conv_relu_gemm() -> onnx.ModelProto:
    """The smallest whole network; the map that Flatten takes is larger than 1x1, so its order matters."""
    return build(
        "(float[1,3,9,7] x) => (float[1,5] y)",
        """c = Conv<kernel_shape=[3,3], pads=[1,0,1,2], strides=[2,1]>(x, w, b)
           r = Relu(c)
           f = Flatten(r)
           y = Gemm<transB=1>(f, m, n)""",
        {"w": (4, 3, 3, 3), "b": (4,), "m": (5, 140), "n": (5,)},
    )


def residual_block() -> onnx.ModelProto:
    return build(
        "(float[1,4,6,6] x) => (float[1,4,6,6] y)",
        """a = Conv<pads=[1,1,1,1]>(x, w1)
           n = BatchNormalization(a, scale, shift, mean, variance)
           r = Relu(n)
           c = Conv<pads=[1,1,1,1]>(r, w2, b2)
           s = Add(x, c)
           y = Relu(s)""",
        {
            "w1": (4, 4, 3, 3),
            "w2": (4, 4, 3, 3),
            "b2": (4,),
            "scale": (4,),
            "shift": (4,),
            "mean": (4,),
            "variance": positive(4),
        },
    )


NETWORKS = Path(__file__).with_name("model") / "plans" / "networks.toml"
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "conv_relu_gemm": conv_relu_gemm,
    "residual_block": residual_block,
    **{name: partial(model_of, table) for name, table in read_tables(NETWORKS).items()},
}
"""The networks above and those of the file, by name."""

elementwise_chain = MODELS["elementwise_chain"]
gemms = MODELS["gemms"]
pooling = MODELS["pooling"]
projected_residual = MODELS["projected_residual"]
scaled_convolution = MODELS["scaled_convolution"]
squeeze_excite = MODELS["squeeze_excite"]
