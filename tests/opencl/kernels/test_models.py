"""Compare models on the device with onnxruntime: a transformer's block, and maps that are joined and resized."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gputune.client.cli.main import main
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


@pytest.mark.usefixtures("_reached")
def test_a_model_of_them_agrees_with_onnxruntime(tmp_path: Path) -> None:
    """The whole way, with constants among what is joined and a result that is read twice."""
    body = """a = Conv<pads=[1,1,1,1]>(x, u)
              h = Conv<strides=[2,2], pads=[1,1,1,1]>(x, u)
              r = Resize(h, , s)
              q = Add(a, r)
              c = Concat<axis=1>(w, q, x, a, w)
              y = ConvTranspose<strides=[2,2], pads=[1,0,1,1]>(c, k)"""
    weights: dict[str, Any] = {
        "u": (5, 3, 3, 3),
        "w": (1, 2, 8, 6),
        "s": numbers(1, 1, 2, 2),
        "k": (17, 7, 3, 3),
    }
    path = save(build("(float[1,3,8,6] x) => (float[a,b,c,d] y)", body, weights), tmp_path)
    arguments = ["--model", str(path), "--binary_file", "small", "--output_dir", str(tmp_path), "--log_level", "warn"]
    arguments += ["--tuning_effort", "none"]
    with pytest.raises(SystemExit) as ended:
        main(["context-binary-generator", *arguments])
    assert ended.value.code == 0
    given = np.random.default_rng(3).standard_normal((1, 3, 8, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", given)
    program = (  # in a process of its own: this one may have another driver open
        "import sys, numpy, gputune.runtime; context = gputune.runtime.load(sys.argv[1] + '/small.bin')\n"
        "(y,) = context.run({'x': numpy.load(sys.argv[1] + '/x.npy')}).values(); numpy.save(sys.argv[1] + '/y.npy', y)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": given})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=0, atol=1e-5 * np.abs(want).max())
