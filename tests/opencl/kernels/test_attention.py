"""Compare a transformer's block on the device with onnxruntime: thirds of one tensor, masks, and empty rows."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gputune.client.model.importer import read_model
from gputune.client.run.local_device import LocalDevice
from gputune.runtime.backends import Backend
from tests.client.models import build, integers, numbers, save

TOKENS, HEADS, WIDTH = 13, 3, 24

BLOCK = """
    n = LayerNormalization<axis=-1>(x, scale, shift) m = MatMul(n, w) i = Add(m, b) r = Reshape(i, split)
    t = Transpose<perm=[2,0,3,1,4]>(r) q = Gather<axis=0>(t, first) k = Gather<axis=0>(t, second)
    v = Gather<axis=0>(t, third) f = Mul(q, root) u = Transpose<perm=[0,1,3,2]>(k) s = MatMul(f, u)
    h = Where(mask, zero, never) d = Add(s, h) p = Softmax<axis=-1>(d) a = IsNaN(p) g = Where(a, zero, p)
    o = MatMul(g, v) e = Transpose<perm=[0,2,1,3]>(o) j = Reshape(e, joined) l = MatMul(j, c) y = Add(l, x)"""


@pytest.mark.night
def test_a_block_computes_what_onnxruntime_computes(backend: Backend, tmp_path: Path) -> None:
    weights: dict[str, Any] = {"w": (WIDTH, 3 * WIDTH), "b": (3 * WIDTH,), "c": (WIDTH, WIDTH), "scale": (WIDTH,)}
    weights |= {"shift": (WIDTH,), "split": integers(2, TOKENS, 3, HEADS, WIDTH // HEADS)}
    weights |= {"joined": integers(2, TOKENS, WIDTH), "root": numbers(0.35), "zero": numbers(0)}
    weights |= {"never": numbers(-np.inf), "first": np.int64(0), "second": np.int64(1), "third": np.int64(-1)}
    shape = f"float[2,{TOKENS},{WIDTH}]"
    model = build(f"({shape} x, bool[2,1,{TOKENS},{TOKENS}] mask) => ({shape} y)", BLOCK, weights, opset=17)
    generator = np.random.default_rng(4)
    mask = generator.random((2, 1, TOKENS, TOKENS)) < 0.7
    mask[1, 0, 5] = False
    inputs = {"x": generator.standard_normal((2, TOKENS, WIDTH)).astype(np.float32), "mask": mask}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, inputs)
    executor = LocalDevice(backend).load(read_model(save(model, tmp_path)))
    got = executor.run(inputs)["y"]
    assert np.isfinite(want).all()
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    # norm, thirds, mask, two products and a softmax, and what joins the heads
    assert len({launch.operation for launch in executor.graph.launches}) == 7
