"""Compare attention on the device with references, for each length, head and mask, and a transformer's block with
onnxruntime: thirds of one tensor, masks, and empty rows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gputune.client.model.importer import read_model
from gputune.client.run.local_device import LocalDevice
from gputune.kernels.ops.attention import FAMILY, AttentionProblem
from gputune.kernels.space import Configuration
from gputune.runtime.backends import Backend
from tests.client.models import build, integers, numbers, save
from tests.kernels.attention_problems import CAPPED, MASKED, SCALED, grouped, heads
from tests.kernels.problems import GPU
from tests.opencl.conftest import KernelBench

LENGTHS = {
    **{f"{length}": heads(2, length, length, 32, scores=SCALED) for length in (1, 17, 197)},
    "a step": heads(4, 1, 512, 64),
    "across": heads(2, 5, 130, 16, 80, CAPPED, ((0, 0, 0, 1),)),
    "head of 256": heads(1, 33, 48, 256),
    "head of 128": heads(1, 17, 40, 128, scores=MASKED, operand_steps=((0, 0, 40, 1),)),
    "grouped": grouped(2, 4, 19, 70, 32),
}
LONG = {"512": heads(1, 512, 512, 64), "2048": heads(1, 2048, 2048, 64)}

SHARED = replace(GPU, local_memory_bytes=16 << 10)
"""Half of the least that devices have: Mesa 22.3 counts local memory twice."""


def ways(bench: KernelBench, problem: AttentionProblem) -> Iterator[tuple[KernelBench, Configuration]]:
    """Yield the default and a small block of the device, and the same of a GPU, as GPUs get it."""
    own = FAMILY.default(problem, bench.limits)
    yield bench, own
    if "BLOCK" in own and not FAMILY.space(problem, bench.limits).violations(own | {"BLOCK": 32}):
        yield bench, own | {"BLOCK": 32}
    gpu = replace(bench, limits=replace(bench.limits, device_type="gpu", preferred_float_width=1))
    shared = FAMILY.default(problem, SHARED)
    yield gpu, shared
    least = shared | {"MR": 1, "NR": 1}
    if not FAMILY.space(problem, SHARED).violations(least):
        yield gpu, least


@pytest.mark.parametrize(
    "problem",
    [
        *(pytest.param(problem, id=name) for name, problem in LENGTHS.items()),
        *(pytest.param(problem, id=name, marks=pytest.mark.night) for name, problem in LONG.items()),
    ],
)
def test_attention_is_right_for_each_length(bench: KernelBench, problem: AttentionProblem) -> None:
    inputs = FAMILY.sample_inputs(problem, np.random.default_rng(2))
    for kind, one in ways(bench, problem):
        kind.compare(FAMILY, problem, [one], inputs)


@pytest.mark.parametrize("masked", [False, True])
def test_rows_of_nothing_are_what_a_softmax_makes_of_them(bench: KernelBench, masked: bool) -> None:
    """A row may begin with blocks of nothing, end with them, or have nothing else; what is not finite stays in its
    row."""
    problem = heads(1, 6, 100, 16, scores=MASKED, operand_steps=((0, 0, 100, 1),), masked=masked)
    inputs = FAMILY.sample_inputs(problem, np.random.default_rng(2))
    mask = np.zeros((6, 100), np.float32)
    mask[0, :90], mask[1, 3:], mask[2], mask[3, 50] = -np.inf, -np.inf, -np.inf, np.nan
    mask[4, :64], mask[5] = -3.4e38, -3.4e38
    inputs["operand0"] = mask.reshape(-1)
    want = FAMILY.reference(problem, inputs)
    assert (np.isnan(want).all(axis=-1).reshape(-1) == [False, False, not masked, not masked, False, False]).all()
    for kind, one in ways(bench, problem):
        got, wrong = kind.run(FAMILY, problem, one, inputs)
        assert not wrong
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(one))


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
