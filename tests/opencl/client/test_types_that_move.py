"""Test that what moves, compares or selects elements is exact for whole numbers of a byte and for bfloat16."""

from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from gputune.core.dtypes import BFLOAT
from gputune.runtime.backends import Backend
from gputune.runtime.values import Array
from tests.client.models import build, integers
from tests.opencl.contexts import compiling, loaded, written

SHAPE = (2, 3, 4, 6)
NODES = {
    "larger": "Max(x, z)",
    "smaller": "Min(x, z)",
    "clipped": "Clip(x, low, high)",
    "pooled": "MaxPool<kernel_shape=[2,3], strides=[2,1], pads=[1,0,0,1]>(x)",
    "joined": "Concat<axis=1>(x, z)",
    "gathered": "Gather<axis=3>(x, indices)",
    "resized": 'Resize<mode="nearest", nearest_mode="floor">(x, none, scales)',
    "chosen": "Where(c, x, z)",
    "same": "Equal(x, z)",
    "turned": "Transpose<perm=[0,2,3,1]>(x)",
    "cut": "Slice(x, starts, ends)",
    "padded": "Pad(x, pads, low)",
    "most": "ReduceMax<keepdims=0>(x, axes)",
    "first": "ArgMax<axis=3>(x)",
    "scattered": "ScatterElements<axis=3>(x, places, updates)",
}
RECTIFIED = {"rectified": "Relu(x)"}
"""ONNX has no Relu of uint8."""
TYPES = {"same": "bool", "first": "int64"}
"""Of results that are not of the type of what they are computed from."""
RANKS = {"most": "a,b,c"}


@pytest.mark.parametrize("dtype", [pytest.param(one, marks=pytest.mark.night) for one in ("int8", "uint8")] + [BFLOAT])
def test_results_are_exact(backend: Backend, tmp_path: Path, dtype: str) -> None:
    nodes = NODES if dtype == "uint8" else NODES | RECTIFIED
    numbers = np.random.default_rng(2)
    constants: dict[str, Array] = {
        "low": np.array(2, dtype), "high": np.array(9, dtype), "none": np.zeros(0, np.float32),
        "indices": integers(4, 0, 4), "scales": np.array([1, 1, 2, 3], np.float32), "starts": integers(0, 1, 1, 2),
        "ends": integers(2, 3, 4, 5), "pads": integers(0, 1, 0, 2, 1, 0, 1, 0), "axes": integers(1),
        "places": np.array([[[[5], [0]]]]), "updates": np.array([[[[7], [3]]]], dtype),
    }  # fmt: skip
    outputs = ", ".join(f"{TYPES.get(name, dtype)}[{RANKS.get(name, 'a,b,c,d')}] {name}" for name in nodes)
    body = " ".join(f"{name} = {node}" for name, node in ({"c": "Greater(x, z)"} | nodes).items())
    shape = ",".join(map(str, SHAPE))
    model = build(f"({dtype}[{shape}] x, {dtype}[{shape}] z) => ({outputs})", body, constants, opset=18, ir_version=9)
    inputs = {name: (20 * numbers.random(SHAPE)).astype(dtype) for name in "xz"}
    inputs["z"][0] = inputs["x"][0]
    want = dict(zip(nodes, ReferenceEvaluator(model).run(None, inputs), strict=True))
    (path,) = written(tmp_path, {"m": model}, compiling(backend), backend, kinds=["packed"])
    with loaded(backend, path) as executor:
        got = executor.run(inputs)
    for name, right in want.items():
        assert got[name].dtype == right.dtype, name
        np.testing.assert_array_equal(got[name], right, name)
